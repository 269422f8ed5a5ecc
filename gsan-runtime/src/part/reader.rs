//! Reads parts, one's own and those of other processes, which may have died at any instruction.
//!
//! Those of others are read and never mapped: a file that somebody cuts off while it is read is then an error,
//! and not the end of the reader. Nothing in a part is believed before it was checked.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytemuck::{Pod, Zeroable};
use gsan_core::atomics::Native;
use gsan_core::ids::SiteId;
use gsan_core::launch_log::{LaunchLog, LaunchRecord};
use gsan_core::layout::{self, RaceEntry};
use gsan_core::loss::{Loss, Losses};
use gsan_core::race_ring::{RaceReader, RaceRing};
use gsan_core::site_mirror::{SiteMirror, SourceLine};

use super::format::{
    self, Allocation, DeviceSections, Found, Header, Kernel, Room, Section, Text, state,
};
use super::{Checked, Memory, start_time};

/// The most entries of a race ring that is read.
const MAX_RING: u64 = 1 << 20;
/// The most arguments of a command line that are shown, and their bytes.
const MAX_COMMAND: u64 = 1 << 16;
/// How many entries are read at once.
const CHUNK: u64 = 1 << 12;

/// A file that is no part, or a part that something has overwritten.
#[derive(Debug, thiserror::Error)]
pub enum Damaged {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// It is something else.
    #[error("it is no file of a process that GSan watched, or its start was overwritten")]
    NotAPart,
    /// Another version of GSan wrote it.
    #[error(
        "another version of GSan wrote it (format {}, layout {}; this one reads {} and {})",
        *found as u32, found >> 32, format::VERSION as u32, format::VERSION >> 32
    )]
    Version {
        /// Its version.
        found: u64,
    },
    /// What it says of itself cannot be.
    #[error("it was cut off or overwritten: {0}")]
    Contradiction(String),
}

/// Where a part is read.
#[derive(Debug)]
pub(super) enum Source {
    File(File),
    /// The process's own, which is mapped anyway.
    Own(Arc<Memory>),
}

impl Source {
    /// How many there are; 0 if it is no file.
    fn bytes(&self) -> io::Result<u64> {
        match self {
            Source::File(file) => {
                let metadata = file.metadata()?;
                Ok(if metadata.is_file() {
                    metadata.len()
                } else {
                    0
                })
            }
            Source::Own(memory) => Ok(size_of_val(memory.mapping.words()) as u64),
        }
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Source::File(file) => file.read_exact_at(bytes, offset),
            Source::Own(memory) => {
                let words = memory.mapping.words();
                let mut number = usize::try_from(offset / 8).unwrap_or(usize::MAX);
                let mut skipped = (offset % 8) as usize;
                let mut rest = bytes;
                while !rest.is_empty() {
                    let word = words.get(number).ok_or(io::ErrorKind::UnexpectedEof)?;
                    let word = word.load(Relaxed).to_ne_bytes();
                    let count = rest.len().min(8 - skipped);
                    let (target, behind) = rest.split_at_mut(count);
                    target.copy_from_slice(&word[skipped..][..count]);
                    (rest, number, skipped) = (behind, number + 1, 0);
                }
                Ok(())
            }
        }
    }
}

/// The part of a process, which may be running or gone.
#[derive(Debug)]
pub struct PartReader {
    source: Source,
    path: PathBuf,
    header: Header,
    /// Copies of the devices' mirrors, and whether they may be older than the part.
    sites: Vec<Option<(Vec<AtomicU64>, bool)>>,
    allocations: Option<Vec<Allocation>>,
}

impl PartReader {
    /// Opens the part in a file.
    ///
    /// # Errors
    /// When it is none.
    pub fn open(path: &Path) -> Result<PartReader, Damaged> {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
            .map_err(Damaged::Unreadable)?;
        PartReader::of(Source::File(file), path.to_path_buf())
    }

    pub(super) fn of(source: Source, path: PathBuf) -> Result<PartReader, Damaged> {
        let mut reader = PartReader {
            source,
            path,
            header: Zeroable::zeroed(),
            sites: (0..format::MAX_DEVICES).map(|_| None).collect(),
            allocations: None,
        };
        reader.refresh()?;
        Ok(reader)
    }

    /// Looks at the part anew.
    ///
    /// # Errors
    /// When it is none any more.
    pub fn refresh(&mut self) -> Result<(), Damaged> {
        let bytes = self.source.bytes().map_err(Damaged::Unreadable)?;
        if bytes < size_of::<Header>() as u64 {
            return Err(Damaged::NotAPart);
        }
        let header: Header = self.read(0)?;
        check(&header, bytes)?;
        self.header = header;
        for (_, stale) in self.sites.iter_mut().flatten() {
            *stale = true;
        }
        self.allocations = None;
        Ok(())
    }

    fn read<T: Pod>(&self, offset: u64) -> Result<T, Damaged> {
        let mut value = T::zeroed();
        self.source
            .read_exact_at(bytemuck::bytes_of_mut(&mut value), offset)
            .map_err(Damaged::Unreadable)?;
        Ok(value)
    }

    /// Entries of a section, from number `first`: as many as there are, at most `count`.
    fn table<T: Pod>(&self, section: Section, first: u64, count: u64) -> Result<Vec<T>, Damaged> {
        let count = count.min(section.count.saturating_sub(first)).min(CHUNK);
        let mut values = vec![T::zeroed(); count as usize];
        let offset = section.offset + first.min(section.count) * size_of::<T>() as u64;
        self.source
            .read_exact_at(bytemuck::cast_slice_mut(&mut values), offset)
            .map_err(Damaged::Unreadable)?;
        Ok(values)
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process.
    pub const fn pid(&self) -> u32 {
        self.header.pid as u32
    }

    /// What tells the process from all others: its number, and when it started.
    pub(crate) const fn process(&self) -> (u32, u64) {
        (self.pid(), self.header.start_time)
    }

    /// The command line of the process, as far as it was kept.
    pub fn command(&self) -> Vec<String> {
        let section = self.header.command;
        let mut bytes = vec![0; section.count.min(MAX_COMMAND) as usize];
        if self
            .source
            .read_exact_at(&mut bytes, section.offset)
            .is_err()
        {
            return Vec::new();
        }
        let text = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
        text.split(|&byte| byte == 0)
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect()
    }

    /// Whether the process has said that it told everything.
    pub const fn has_finished(&self) -> bool {
        self.header.state == state::FINISHED
    }

    /// Whether the process is there.
    pub fn is_running(&self) -> bool {
        start_time(self.pid()) == Some(self.header.start_time)
    }

    /// What the process has checked.
    pub fn checked(&self) -> Checked {
        let checked = &self.header.checked;
        let mut losses = Losses::default();
        for (loss, &times) in Loss::ALL.into_iter().zip(&checked.losses) {
            losses.add(loss, times);
        }
        // The device counts these, too, but its counts may have gone with it.
        let dropped = self.ring_head().map_or(0, |ring| ring.dropped);
        let told = losses.get(Loss::RaceRingFull);
        losses.add(Loss::RaceRingFull, dropped.saturating_sub(told));
        Checked {
            losses,
            launches: checked.launches,
            accesses: checked.accesses,
            covered_bytes: checked.covered_bytes,
            uncovered_bytes: checked.uncovered_bytes,
            seed: checked.seed,
        }
    }

    /// When it was made, and when the process said that it has finished, if it has: nanoseconds since
    /// 1970.
    pub(crate) fn lifetime(&self) -> (u64, Option<u64>) {
        let ended = self.has_finished().then_some(self.header.ended);
        (self.header.made, ended)
    }

    /// Races that found no room in the part.
    pub(crate) const fn overflow(&self) -> u64 {
        self.header.overflow
    }

    /// How many distinct races there are.
    pub(crate) fn found_count(&self) -> u64 {
        self.header.found_count.min(self.header.found.count)
    }

    /// The races from number `first`, at most so many as are read at once.
    pub(crate) fn found(&self, first: u64) -> Result<Vec<Found>, Damaged> {
        let there = self.found_count().saturating_sub(first);
        self.table(self.header.found, first, there)
    }

    /// The entry of the ring that was being counted: its stamp, its race, and how often that was seen
    /// before. `None` if its place was given back.
    pub(crate) fn being_counted(&self) -> Option<(u64, u64, u64)> {
        let [stamp, index, times] = self.header.journal;
        let ring = self.ring_head()?;
        (stamp > ring.tail && stamp <= ring.head).then_some((stamp, index, times))
    }

    /// How many entries of the race ring devices have taken.
    pub fn entries(&self) -> u64 {
        self.ring_head().map_or(0, |ring| ring.head)
    }

    fn ring_head(&self) -> Option<layout::RaceRing> {
        self.read(self.header.ring.offset).ok()
    }

    /// What is left in the ring of a process that is gone, and how many entries were never written.
    pub(crate) fn left_in_ring(&self) -> Result<(Vec<RaceEntry>, u64), Damaged> {
        let count = RaceRing::<Native>::words(self.header.ring.count);
        let mut bytes = vec![0; 8 * count as usize];
        self.source
            .read_exact_at(&mut bytes, self.header.ring.offset)
            .map_err(Damaged::Unreadable)?;
        let words: Vec<AtomicU64> = bytes
            .chunks_exact(8)
            .map(|word| AtomicU64::new(bytemuck::pod_read_unaligned(word)))
            .collect();
        let ring = RaceRing::<Native>::new(&words)
            .map_err(|error| Damaged::Contradiction(error.to_string()))?;
        let mut left = Vec::new();
        let drained = RaceReader::new(ring).finish(|entry| left.push(entry));
        Ok((left, drained.unwritten))
    }

    /// The text at a place, with what is no UTF-8 replaced; `None` if there is none.
    pub(crate) fn text(&self, text: Text) -> Option<String> {
        let bytes = text.bytes as usize;
        let end = u64::from(text.start) + u64::from(text.bytes);
        if bytes == 0 || bytes > Text::MAX_BYTES || end > self.header.texts.count {
            return None;
        }
        let mut buffer = vec![0; bytes];
        let offset = self.header.texts.offset + u64::from(text.start);
        self.source.read_exact_at(&mut buffer, offset).ok()?;
        (!buffer.contains(&0)).then(|| String::from_utf8_lossy(&buffer).into_owned())
    }

    fn devices(&self) -> &[DeviceSections] {
        &self.header.device[..self.header.devices as usize]
    }

    fn device(&self, rank: u8) -> Option<usize> {
        self.devices()
            .iter()
            .position(|device| device.rank == u64::from(rank))
    }

    /// Whether the device with this rank is one of the process.
    pub(crate) fn has_device(&self, rank: u8) -> bool {
        self.device(rank).is_some()
    }

    /// The kernel of this number.
    pub(crate) fn kernel(&self, number: u32) -> Option<Kernel> {
        let section = self.header.kernels;
        let entry = self.table(section, number.into(), 1).ok()?;
        entry.first().copied()
    }

    /// What is remembered of a launch of one of the process's devices.
    pub(crate) fn launch(&self, rank: u8, number: u32) -> Option<LaunchRecord> {
        let section = self.devices()[self.device(rank)?].launches;
        let capacity = usize::try_from(section.count).ok()?;
        let index = LaunchLog::<Native>::place(number, capacity)? as u64;
        let [words]: [[u64; 4]; 1] = self.table(section, index, 1).ok()?.try_into().ok()?;
        let words = words.map(AtomicU64::new);
        LaunchLog::<Native>::new(&words).find(number)
    }

    /// The line of source of a site of one of the process's devices.
    pub(crate) fn site(&mut self, rank: u8, site: SiteId) -> Option<SourceLine> {
        let device = self.device(rank)?;
        let find = |words: &[AtomicU64]| SiteMirror::<Native>::new(words).ok()?.get(site);
        let known = self.sites[device].as_ref();
        if let Some((words, stale)) = known {
            let found = find(words);
            if found.is_some() || !stale {
                return found;
            }
        }
        let section = self.header.device[device].sites;
        let mut bytes = vec![0; 8 * SiteMirror::<Native>::DEVICE_WORDS as usize];
        self.source.read_exact_at(&mut bytes, section.offset).ok()?;
        let words: Vec<AtomicU64> = bytes
            .chunks_exact(8)
            .map(|word| AtomicU64::new(bytemuck::pod_read_unaligned(word)))
            .collect();
        let found = find(&words);
        self.sites[device] = Some((words, false));
        found
    }

    /// The allocation that holds `address`, or the one that did: its start and size.
    pub(crate) fn allocation(&mut self, address: u64) -> Option<(u64, u64)> {
        if self.allocations.is_none() {
            let section = self.header.allocations;
            let count = self.header.allocation_count.min(section.count);
            let mut all: Vec<Allocation> = Vec::new();
            while (all.len() as u64) < count {
                let first = all.len() as u64;
                match self.table::<Allocation>(section, first, count - first) {
                    Ok(more) => all.extend(more),
                    Err(_) => break,
                }
            }
            self.allocations = Some(all);
        }
        let holds = |held: &&Allocation| {
            held.address != 0 && address.wrapping_sub(held.address) < held.bytes
        };
        let all = self.allocations.as_deref().unwrap_or_default();
        let found = all.iter().filter(holds).max_by_key(|held| held.live)?;
        Some((found.address, found.bytes))
    }
}

/// Checks all that the rest of the reader relies on.
fn check(header: &Header, file_bytes: u64) -> Result<(), Damaged> {
    if header.magic != format::MAGIC {
        return Err(Damaged::NotAPart);
    }
    if header.version != format::VERSION {
        return Err(Damaged::Version {
            found: header.version,
        });
    }
    let contradiction = |text: String| Err(Damaged::Contradiction(text));
    if header.devices > format::MAX_DEVICES as u64 {
        return contradiction(format!("it has {} devices", header.devices));
    }
    let capacity = header.ring.count;
    if !capacity.is_power_of_two() || capacity > MAX_RING {
        return contradiction(format!("its race ring has {capacity} entries"));
    }
    for (count, most, what) in [
        (header.found.count, Room::FULL.found, "races"),
        (
            header.allocations.count,
            Room::FULL.allocations,
            "allocations",
        ),
    ] {
        if count > most {
            return contradiction(format!("it has room for {count} {what}"));
        }
    }
    let ring_bytes = 8 * RaceRing::<Native>::words(capacity);
    let mut sections = vec![
        ("the command line", header.command, header.command.count),
        ("the texts", header.texts, header.texts.count),
        (
            "the kernels",
            header.kernels,
            bytes::<Kernel>(header.kernels),
        ),
        (
            "the allocations",
            header.allocations,
            bytes::<Allocation>(header.allocations),
        ),
        ("the races", header.found, bytes::<Found>(header.found)),
        ("the race ring", header.ring, ring_bytes),
    ];
    for device in header.device.iter().take(header.devices as usize) {
        let sites = 8 * SiteMirror::<Native>::DEVICE_WORDS;
        sections.push(("the sites", device.sites, sites));
        let launches = bytes::<[u64; 4]>(device.launches);
        sections.push(("the launches", device.launches, launches));
    }
    for (name, section, bytes) in sections {
        let end = section.offset.checked_add(bytes);
        if end.is_none_or(|end| end > file_bytes) {
            return contradiction(format!("{name} would lie behind its end"));
        }
    }
    Ok(())
}

const fn bytes<T>(section: Section) -> u64 {
    section.count.saturating_mul(size_of::<T>() as u64)
}
