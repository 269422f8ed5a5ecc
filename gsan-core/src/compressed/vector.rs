//! A clock in memory: entries of a few banks, and what it knows besides.
//!
//! Private clocks and snapshots have the same form. A clock has room for a fixed number of
//! *segments*; each holds the entries of one bank, as far as they have been needed. The header
//! says which banks and how far, so that a merge touches nothing else.
//!
//! It lies in memory as [`layout::ClockHeader`] says.
//!
//! A clock has one writer at a time. Others may look entries up meanwhile.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::checkpoints::CheckpointRef;
use super::topology::Place;
use crate::atomics::{Atomic, Memory};
use crate::clock::ClockEntry;
use crate::layout;
pub use crate::layout::ClockShape as Shape;

const CHECKPOINT: usize = core::mem::offset_of!(layout::ClockHeader, checkpoint) / 4;

/// A clock has no segment left for another bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// One clock.
#[derive(Debug)]
pub struct Vector<'m, M: Memory> {
    words: &'m [M::U32],
    shape: Shape,
}

impl<M: Memory> Clone for Vector<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for Vector<'_, M> {}

/// One segment's header, as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The bank, counted over all devices.
    pub bank: u32,
    /// Entries of slots 0 up to it are held.
    pub length: u32,
    first: usize,
}

impl<'m, M: Memory> Vector<'m, M> {
    /// The clock in `words`.
    pub fn new(words: &'m [M::U32], shape: Shape) -> Self {
        debug_assert_eq!(words.len(), shape.words());
        Vector { words, shape }
    }

    /// Clock `index` of an array of clocks.
    pub(super) fn of(words: &'m [M::U32], index: usize, shape: Shape) -> Self {
        Vector::new(&words[index * shape.words()..][..shape.words()], shape)
    }

    /// Forgets everything.
    pub fn clear(self) {
        for word in &self.words[..self.shape.first_entry(0)] {
            word.store(0, Relaxed);
        }
    }

    /// The checkpoint whose epochs are part of the clock, if one is.
    pub fn checkpoint(self) -> Option<CheckpointRef> {
        CheckpointRef::from_bits(self.words[CHECKPOINT].load(Relaxed))
    }

    /// Makes `checkpoint` part of the clock, in place of the one before.
    pub fn set_checkpoint(self, checkpoint: CheckpointRef) {
        self.words[CHECKPOINT].store(checkpoint.bits(), Relaxed);
    }

    /// The segments in use.
    pub fn segments(self) -> impl Iterator<Item = Segment> + use<'m, M> {
        (0..self.shape.segments()).map_while(move |index| self.segment(index))
    }

    fn segment(self, index: u32) -> Option<Segment> {
        // Acquires the entries that the length promises.
        let header = self.words[self.shape.segment(index)].load(Acquire);
        (header != 0).then(|| {
            let header: layout::Segment = bytemuck::cast(header);
            Segment {
                bank: header.bank.into(),
                // A header that changes while it is read may promise more than there is room for.
                length: u32::from(header.length).min(self.shape.entries()),
                first: self.shape.first_entry(index),
            }
        })
    }

    /// Entry `slot` of `segment`; `slot` must be below its length.
    pub fn entry(self, segment: Segment, slot: u32) -> ClockEntry {
        ClockEntry::from_bits(self.words[segment.first + slot as usize].load(Relaxed))
    }

    /// What is known of `place`.
    #[inline]
    pub fn get(self, place: Place) -> ClockEntry {
        match self.segments().find(|s| s.bank == place.bank) {
            Some(segment) if place.slot < segment.length => self.entry(segment, place.slot),
            _ => ClockEntry::EMPTY,
        }
    }

    /// Every entry that is not empty.
    pub fn entries(self) -> impl Iterator<Item = (Place, ClockEntry)> + use<'m, M> {
        self.segments().flat_map(move |segment| {
            (0..segment.length).filter_map(move |slot| {
                let entry = self.entry(segment, slot);
                let place = Place {
                    bank: segment.bank,
                    slot,
                };
                (!entry.is_empty()).then_some((place, entry))
            })
        })
    }

    /// Whether nothing is known.
    pub fn is_empty(self) -> bool {
        self.checkpoint().is_none() && self.segments().next().is_none()
    }

    /// Adds `entry` to what is known of `place`. Returns whether that was anything new. By the
    /// clock's one writer.
    ///
    /// # Errors
    /// No segment is left for the bank.
    pub fn merge(self, place: Place, entry: ClockEntry) -> Result<bool, Full> {
        if entry.is_empty() {
            return Ok(false);
        }
        let mut index = 0;
        while let Some(segment) = self.segment(index) {
            if segment.bank == place.bank {
                return Ok(self.put(index, segment, place, entry));
            }
            index += 1;
            if index == self.shape.segments() {
                return Err(Full);
            }
        }
        let segment = Segment {
            bank: place.bank,
            length: 0,
            first: self.shape.first_entry(index),
        };
        Ok(self.put(index, segment, place, entry))
    }

    fn put(self, index: u32, segment: Segment, place: Place, entry: ClockEntry) -> bool {
        let words = &self.words[segment.first..][..self.shape.entries() as usize];
        let word = &words[place.slot as usize];
        if place.slot < segment.length {
            let found = ClockEntry::from_bits(word.load(Relaxed));
            let merged = found.hull(entry);
            if merged == found {
                return false;
            }
            word.store(merged.bits(), Relaxed);
            return true;
        }
        for unused in &words[segment.length as usize..place.slot as usize] {
            unused.store(0, Relaxed);
        }
        word.store(entry.bits(), Relaxed);
        let header = layout::Segment {
            length: (place.slot + 1) as u16,
            bank: place.bank as u16,
        };
        self.words[self.shape.segment(index)].store(bytemuck::cast(header), Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::atomics::{Native, words};
    use crate::clock::Epoch;

    const SHAPE: Shape = Shape::holding(3, 5);

    fn entry(epoch: u32) -> ClockEntry {
        let epoch = Epoch::new(epoch).unwrap();
        ClockEntry::closed(epoch, epoch)
    }

    fn at(bank: u32, slot: u32) -> Place {
        Place { bank, slot }
    }

    #[test]
    fn what_lay_in_the_memory_before_is_never_seen() {
        let memory = words(SHAPE.words(), u32::MAX);
        let vector = Vector::<Native>::new(&memory, SHAPE);
        vector.clear();
        assert!(vector.is_empty());
        assert_eq!(vector.merge(at(7, 3), entry(9)), Ok(true));
        let known: Vec<_> = vector.entries().collect();
        assert_eq!(known, [(at(7, 3), entry(9))]);
        assert_eq!(vector.get(at(7, 4)), ClockEntry::EMPTY);
        assert_eq!(vector.get(at(0, 3)), ClockEntry::EMPTY);
    }

    #[test]
    fn a_clock_in_memory_has_the_fields_of_the_structure() {
        let memory = words(SHAPE.words(), 0);
        let vector = Vector::<Native>::new(&memory, SHAPE);
        vector.merge(at(0x0102, 1), entry(9)).unwrap();
        vector.merge(at(7, 0), entry(5)).unwrap();
        vector.set_checkpoint(CheckpointRef::from_bits(0x3_0004).unwrap());
        let memory: Vec<u32> = memory.iter().map(|word| word.load(Relaxed)).collect();
        let header: layout::ClockHeader =
            bytemuck::pod_read_unaligned(bytemuck::cast_slice(&memory[..4]));
        let segment = |length, bank| layout::Segment { length, bank };
        assert_eq!(
            header,
            layout::ClockHeader {
                checkpoint: 0x3_0004,
                segments: [segment(2, 0x0102), segment(1, 7), segment(0, 0)],
            }
        );
        // Segments have room for 8 entries, the next multiple of 4.
        assert_eq!(memory.len(), 4 + 3 * 8);
        assert_eq!((memory[5], memory[12]), (entry(9).bits(), entry(5).bits()));
    }

    #[test]
    fn a_fourth_bank_finds_no_place() {
        let memory = words(SHAPE.words(), 0);
        let vector = Vector::<Native>::new(&memory, SHAPE);
        assert_eq!(vector.merge(at(0, 0), entry(1)), Ok(true));
        assert_eq!(vector.merge(at(9, 0), entry(1)), Ok(true));
        assert_eq!(vector.merge(at(8, 0), entry(1)), Ok(true));
        assert_eq!(vector.merge(at(4, 0), entry(1)), Err(Full));
        assert_eq!(vector.merge(at(4, 0), ClockEntry::EMPTY), Ok(false));
        assert_eq!(vector.merge(at(9, 4), entry(1)), Ok(true));
    }

    proptest! {
        #[test]
        fn a_clock_behaves_like_a_map_of_hulls(
            steps in prop::collection::vec((0u32..4, 0u32..5, 1u32..600), 0..40),
        ) {
            let memory = words(SHAPE.words(), 0xdead_beef);
            let vector = Vector::<Native>::new(&memory, SHAPE);
            vector.clear();
            let mut model: BTreeMap<(u32, u32), ClockEntry> = BTreeMap::new();
            for (bank, slot, epoch) in steps {
                let banks: std::collections::BTreeSet<u32> = model.keys().map(|k| k.0).collect();
                let fits = banks.contains(&bank) || banks.len() < 3;
                let found = model.get(&(bank, slot)).copied().unwrap_or_default();
                let merged = found.hull(entry(epoch));
                let expected = if fits { Ok(merged != found) } else { Err(Full) };
                prop_assert_eq!(vector.merge(at(bank, slot), entry(epoch)), expected);
                if fits {
                    model.insert((bank, slot), merged);
                }
            }
            let known: BTreeMap<_, _> =
                vector.entries().map(|(p, e)| ((p.bank, p.slot), e)).collect();
            prop_assert_eq!(known, model);
        }
    }
}
