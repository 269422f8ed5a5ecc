//! What a process writes into its part: texts, kernels, allocations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use bytemuck::Pod;
use rustc_hash::FxHashMap;

use super::format::{Allocation, Kernel, Section, Text, word};
use super::{Part, write_bytes};

/// How many bytes of a table get memory at once.
const CHUNK: u64 = 256 << 10;

/// What is known of the part's tables without reading them.
#[derive(Debug, Default)]
pub(super) struct Tables {
    texts: FxHashMap<Box<str>, Text>,
    text_head: u64,
    kernels: FxHashMap<u32, Kernel>,
    /// Places of live allocations, by address.
    live: BTreeMap<u64, Place>,
    /// Places of allocations that were freed, the oldest first.
    freed: VecDeque<u64>,
    places: u64,
    text_memory: Grown,
    kernel_memory: Grown,
    allocation_memory: Grown,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    bytes: u64,
    index: u64,
}

/// How far a section has memory.
#[derive(Debug, Default)]
pub(super) struct Grown {
    bytes: u64,
    refused: bool,
}

impl Grown {
    /// Sees to it that the first `bytes` of a section have memory.
    pub(super) fn reach(&mut self, part: &Part, section: Section, bytes: u64) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        if self.refused {
            return false;
        }
        let more = (bytes - self.bytes).next_multiple_of(CHUNK);
        self.refused = !part.ensure(section.offset + self.bytes, more);
        if !self.refused {
            self.bytes += more;
        }
        !self.refused
    }
}

impl Tables {
    /// A text, which is written once. Nothing if there is no room.
    pub(super) fn text(&mut self, part: &Part, text: &str) -> Text {
        let text = &text[..text.floor_char_boundary(Text::MAX_BYTES)];
        if let Some(&known) = self.texts.get(text) {
            return known;
        }
        let section = part.header.texts;
        let end = self.text_head + text.len() as u64;
        if text.is_empty() || end > section.count || !self.text_memory.reach(part, section, end) {
            return Text::default();
        }
        let words = &part.section_words(section)[(self.text_head / 8) as usize..];
        write_bytes(words, text.as_bytes());
        let written = Text {
            start: self.text_head as u32,
            bytes: text.len() as u32,
        };
        self.text_head = end.next_multiple_of(8);
        self.texts.insert(text.into(), written);
        written
    }

    pub(super) fn name_kernel(
        &mut self,
        part: &Part,
        number: u32,
        name: &str,
        opaque: Option<&str>,
    ) {
        let kernel = Kernel {
            name: self.text(part, name),
            opaque: opaque.map_or(Text::default(), |why| self.text(part, why)),
            reserved: [0; 2],
        };
        if self.kernels.insert(number, kernel) == Some(kernel) {
            return;
        }
        let section = part.header.kernels;
        let end = (u64::from(number) + 1) * size_of::<Kernel>() as u64;
        if u64::from(number) < section.count && self.kernel_memory.reach(part, section, end) {
            write(part, section, number.into(), &kernel);
        }
    }

    /// The kernel of this number.
    pub(super) fn kernel(&self, number: u32) -> Option<Kernel> {
        self.kernels.get(&number).copied()
    }

    pub(super) fn allocated(&mut self, part: &Part, address: u64, bytes: u64) {
        if address == 0 || bytes == 0 {
            return;
        }
        let section = part.header.allocations;
        let index = match self.live.get(&address).map(|known| known.index) {
            Some(known) => known,
            None if self.places < section.count && self.grow(part) => {
                self.places += 1;
                let count = part.word(word!(allocation_count));
                count.store(self.places, Release);
                self.places - 1
            }
            None => match self.freed.pop_front() {
                Some(index) => index,
                None => return,
            },
        };
        let entry = Allocation {
            address,
            bytes,
            live: 1,
            reserved: 0,
        };
        write(part, section, index, &entry);
        self.live.insert(address, Place { bytes, index });
    }

    /// More places are used before old ones are used again, so that freed memory stays known; but
    /// not so many that it costs much.
    fn grow(&mut self, part: &Part) -> bool {
        const KEPT: usize = 4096;
        if self.freed.len() >= KEPT {
            return false;
        }
        let end = (self.places + 1) * size_of::<Allocation>() as u64;
        self.allocation_memory
            .reach(part, part.header.allocations, end)
    }

    pub(super) fn freed(&mut self, part: &Part, address: u64) {
        let Some(place) = self.live.remove(&address) else {
            return;
        };
        let words = part.section_words(part.header.allocations);
        let at = place.index as usize * size_of::<Allocation>() / 8;
        let live = std::mem::offset_of!(Allocation, live) / 8;
        words[at + live].store(0, Release);
        self.freed.push_back(place.index);
    }

    /// The live allocation that holds `address`: its start and size.
    pub(super) fn allocation(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, place) = self.live.range(..=address).next_back()?;
        (address - start < place.bytes).then_some((start, place.bytes))
    }
}

/// Writes an entry of a table; its first word last, and not before the others are there.
pub(super) fn write<T: Pod>(part: &Part, section: Section, index: u64, entry: &T) {
    let words = part.section_words(section);
    let size = size_of::<T>() / 8;
    let target = &words[index as usize * size..][..size];
    store(target, bytemuck::cast_slice(std::slice::from_ref(entry)));
}

fn store(target: &[AtomicU64], values: &[u64]) {
    target[0].store(0, Release);
    std::sync::atomic::fence(Release);
    for (word, &value) in target.iter().zip(values).skip(1) {
        word.store(value, Relaxed);
    }
    target[0].store(values[0], Release);
}
