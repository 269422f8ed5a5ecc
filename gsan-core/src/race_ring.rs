//! The race ring: how devices tell the host of races, and which races they tell.
//!
//! The ring lies in memory of the host that devices can reach ([`layout::RaceRing`], its entries
//! behind it). Writers take an index by compare-and-swap, fill the entry at `index % capacity`, and
//! write its stamp, `index + 1`, last. The one reader takes entries in the order of their indices,
//! up to the first that is not there yet, and gives each place back once it has read it. So no
//! entry is overwritten before it was read; a race that finds the ring full is dropped and counted.
//!
//! Before that comes the [`RaceFilter`] of the device. Races of one kind between the same two
//! sites, found by the same launch, are told at their first, second, fourth, eighth … occurrence,
//! each time with how many were passed over since ([`RaceEntry::repeats`]). A place of the filter
//! that two such kinds share goes to the newer one, which may then tell a race again.
//!
//! Device code has the writers' side of both (`gsan/races.cuh`), bit by bit the same.

use core::mem::size_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomics::{Atomic, Essential, Memory};
use crate::layout::{self, RaceEntry};
use crate::record::bits::SITE_BITS;
use crate::reservoir::mix;

const WORD: usize = size_of::<u64>();
const HEAD: usize = core::mem::offset_of!(layout::RaceRing, head) / WORD;
const DROPPED: usize = core::mem::offset_of!(layout::RaceRing, dropped) / WORD;
const CAPACITY: usize = core::mem::offset_of!(layout::RaceRing, capacity) / WORD;
const TAIL: usize = core::mem::offset_of!(layout::RaceRing, tail) / WORD;
const HEADER_WORDS: usize = size_of::<layout::RaceRing>() / WORD;
const ENTRY_WORDS: usize = size_of::<RaceEntry>() / WORD;
const _: () = assert!(core::mem::offset_of!(RaceEntry, stamp) == 0);

/// Memory that is no race ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaceRingError {
    /// The number of entries is not a power of two.
    #[error("a race ring of {0} entries: the number must be a power of two, at least 1")]
    Capacity(u64),
    /// There is less memory than the ring takes.
    #[error("a race ring of {capacity} entries takes {needed} words of 64 bits, not {words}")]
    TooSmall {
        /// How many entries it is to have.
        capacity: u64,
        /// How many 64-bit words there are.
        words: usize,
        /// How many it takes.
        needed: u64,
    },
    /// The counts of written and read entries do not belong together.
    #[error(
        "a race ring of {capacity} entries of which {tail} were read and {head} written: \
         the memory is not a race ring, or was overwritten"
    )]
    Counts {
        /// How many entries it has.
        capacity: u64,
        /// How many were taken by writers.
        head: u64,
        /// How many were read.
        tail: u64,
    },
}

/// The race ring as writers see it.
#[derive(Debug)]
pub struct RaceRing<'m, M: Memory> {
    header: &'m [M::U64],
    entries: &'m [M::U64],
}

impl<M: Memory> Clone for RaceRing<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for RaceRing<'_, M> {}

impl<'m, M: Memory> RaceRing<'m, M> {
    /// How many 64-bit words a ring of `capacity` entries takes.
    pub const fn words(capacity: u64) -> u64 {
        (HEADER_WORDS as u64).saturating_add(capacity.saturating_mul(ENTRY_WORDS as u64))
    }

    /// Makes an empty ring of `capacity` entries in `words`. Nobody else may use them yet.
    ///
    /// # Errors
    /// The capacity is not a power of two, or there are too few words.
    pub fn format(words: &'m [M::U64], capacity: u64) -> Result<Self, RaceRingError> {
        let ring = Self::split(words, capacity)?;
        for word in ring.header.iter().chain(ring.entries) {
            word.store(0, Relaxed);
        }
        ring.header[CAPACITY].store(capacity, Release);
        Ok(ring)
    }

    /// The ring that was made in `words`.
    ///
    /// # Errors
    /// There is no ring.
    pub fn new(words: &'m [M::U64]) -> Result<Self, RaceRingError> {
        let capacity = words.get(CAPACITY).map_or(0, |word| word.load(Acquire));
        let ring = Self::split(words, capacity)?;
        // In this order: both grow.
        let tail = ring.header[TAIL].load(Acquire);
        let head = ring.header[HEAD].load(Acquire);
        if head < tail {
            return Err(RaceRingError::Counts {
                capacity,
                head,
                tail,
            });
        }
        Ok(ring)
    }

    /// The ring of `capacity` entries in `words`, whatever they hold.
    fn split(words: &'m [M::U64], capacity: u64) -> Result<Self, RaceRingError> {
        if !capacity.is_power_of_two() {
            return Err(RaceRingError::Capacity(capacity));
        }
        let needed = Self::words(capacity);
        usize::try_from(needed)
            .ok()
            .and_then(|needed| words.get(..needed))
            .map(|words| words.split_at(HEADER_WORDS))
            .map(|(header, entries)| RaceRing { header, entries })
            .ok_or(RaceRingError::TooSmall {
                capacity,
                words: words.len(),
                needed,
            })
    }

    /// How many entries there are.
    pub const fn capacity(&self) -> u64 {
        (self.entries.len() / ENTRY_WORDS) as u64
    }

    /// How many entries found the ring full.
    pub fn dropped(&self) -> u64 {
        self.header[DROPPED].load(Relaxed)
    }

    fn place(&self, index: u64) -> &'m [M::U64] {
        let at = (index & (self.capacity() - 1)) as usize;
        &self.entries[at * ENTRY_WORDS..][..ENTRY_WORDS]
    }

    /// Takes an index, unless the ring is full.
    fn claim(&self) -> Option<u64> {
        let word = &self.header[HEAD];
        let mut head = word.load(Acquire);
        loop {
            if head.wrapping_sub(self.header[TAIL].load(Acquire)) >= self.capacity() {
                return None;
            }
            if !M::keeps(Essential::PlaceClaimed) {
                word.store(head + 1, Relaxed);
                return Some(head);
            }
            match word.compare_exchange(head, head + 1, Relaxed, Acquire) {
                Ok(_) => return Some(head),
                Err(other) => head = other,
            }
        }
    }

    /// Tells the host of a race; the stamp of `entry` does not matter. Returns whether there was
    /// room; if not, it is counted in [`Self::dropped`].
    pub fn append(&self, entry: &RaceEntry) -> bool {
        let Some(index) = self.claim() else {
            self.header[DROPPED].fetch_add(1, Relaxed);
            return false;
        };
        let fields: [u64; ENTRY_WORDS] = bytemuck::cast(*entry);
        let place = self.place(index);
        for (word, field) in place.iter().zip(fields).skip(1) {
            word.store(field, Relaxed);
        }
        let order = M::order(Essential::EntryFilled, Release);
        place[0].store(index + 1, order);
        true
    }
}

/// What a reader took out of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// How many entries.
    pub entries: u64,
    /// How many races they stand for: themselves, and those of their kind that were passed over.
    pub races: u64,
    /// Entries that somebody took and never filled, because the device stopped in between.
    pub unwritten: u64,
}

/// The race ring as its one reader sees it.
#[derive(Debug)]
pub struct RaceReader<'m, M: Memory> {
    ring: RaceRing<'m, M>,
}

impl<'m, M: Memory> RaceReader<'m, M> {
    /// The reader of `ring`; it goes on where the one before it ended. At a time there may be one.
    pub const fn new(ring: RaceRing<'m, M>) -> Self {
        RaceReader { ring }
    }

    /// The ring.
    pub const fn ring(&self) -> RaceRing<'m, M> {
        self.ring
    }

    /// Takes the entries that are there, in the order in which their places were taken, up to the
    /// first that is still being written.
    pub fn drain(&mut self, told: impl FnMut(RaceEntry)) -> Drained {
        self.take(told, false)
    }

    /// Takes all that is left when no writer runs any more. An entry that is not there will never
    /// come, and is counted.
    pub fn finish(&mut self, told: impl FnMut(RaceEntry)) -> Drained {
        self.take(told, true)
    }

    fn take(&mut self, mut told: impl FnMut(RaceEntry), all: bool) -> Drained {
        let [head, tail] = [HEAD, TAIL].map(|index| &self.ring.header[index]);
        let mut drained = Drained::default();
        let mut index = tail.load(Relaxed);
        let end = head.load(Acquire);
        // Writers never get further ahead; a count that was overwritten must not make us read on.
        let end = end.min(index.saturating_add(self.ring.capacity()));
        while index < end {
            let place = self.ring.place(index);
            let is_there = place[0].load(Acquire) == index + 1;
            if !is_there && !all {
                break;
            }
            if !M::keeps(Essential::EntryTaken) {
                tail.store(index + 1, Release);
            }
            if is_there {
                let fields: [u64; ENTRY_WORDS] =
                    core::array::from_fn(|word| place[word].load(Relaxed));
                let entry: RaceEntry = bytemuck::cast(fields);
                drained.entries += 1;
                drained.races += 1 + u64::from(entry.repeats);
                told(entry);
            } else {
                drained.unwritten += 1;
            }
            index += 1;
            // Whoever finds the place free overwrites it after it was read.
            tail.store(index, Release);
        }
        drained
    }
}

/// Which races a device tells: a table with a place for each kind of race, found by its tag.
#[derive(Debug)]
pub struct RaceFilter<'m, M: Memory> {
    /// `tag << 32 | times`, 0 when free.
    places: &'m [M::U64],
}

/// Races that are told together: of one kind, between the same two sites, found by one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RaceTag(u32);

impl RaceTag {
    /// The tag of races like `entry`.
    pub const fn of(entry: &RaceEntry) -> RaceTag {
        let sites = (entry.earlier.site as u32) << SITE_BITS | entry.later.site as u32;
        let kind = (entry.kind as u32) << (2 * SITE_BITS);
        RaceTag(mix(mix(sites ^ kind) ^ entry.later.launch))
    }
}

/// Where counting ends; as many threads as a device has may still add one each beyond.
const MOST_COUNTED: u32 = 1 << 31;

/// How often a kind tries to take a place for which others contend.
const ATTEMPTS: u32 = 64;

impl<'m, M: Memory> RaceFilter<'m, M> {
    /// The filter in `places`, a power of two of them.
    pub fn new(places: &'m [M::U64]) -> Self {
        debug_assert!(places.len().is_power_of_two());
        RaceFilter { places }
    }

    fn place(&self, tag: RaceTag) -> &'m M::U64 {
        &self.places[tag.0 as usize & (self.places.len() - 1)]
    }

    /// A race was found. Returns how many like it were passed over since one was told, if this
    /// one is to be told.
    ///
    /// A kind that has the place is counted by an addition, which never has to be tried again: a loop
    /// of compare-and-swap takes a device minutes when all its threads find the same race. An addition
    /// that comes after another kind took the place makes that kind's count one too high. A kind that
    /// does not get the place in 64 attempts is not told this time; others were meanwhile.
    pub fn pass(&self, tag: RaceTag) -> Option<u32> {
        let place = self.place(tag);
        let mut found = place.load(Relaxed);
        for _ in 0..ATTEMPTS {
            let seen = times(found, tag);
            if seen > MOST_COUNTED {
                return None;
            }
            if seen > 0 {
                let before = place.fetch_add(1, Relaxed);
                match times(before, tag) {
                    0 => found = before.wrapping_add(1),
                    seen => return told(seen.wrapping_add(1)),
                }
                continue;
            }
            let new = u64::from(tag.0) << 32 | 1;
            let changed = if M::keeps(Essential::PlaceClaimed) {
                place.compare_exchange(found, new, Relaxed, Relaxed)
            } else {
                place.store(new, Relaxed);
                Ok(found)
            };
            match changed {
                Ok(_) => return told(1),
                Err(other) => found = other,
            }
        }
        None
    }

    /// How many races like `tag` were passed over since one was told, as far as is known: a newer
    /// kind may have taken the place. What is missing from [`Drained::races`] at the end.
    pub fn untold(&self, tag: RaceTag) -> u32 {
        let times = times(self.place(tag).load(Relaxed), tag);
        match times.checked_ilog2() {
            Some(power) => times - (1 << power),
            None => 0,
        }
    }
}

/// How many races like the `times`th were passed over since one was told, if that one is to be told.
const fn told(times: u32) -> Option<u32> {
    if times.is_power_of_two() {
        Some((times / 2).saturating_sub(1))
    } else {
        None
    }
}

/// How often races like `tag` were counted in a place that holds `word`.
const fn times(word: u64, tag: RaceTag) -> u32 {
    if (word >> 32) as u32 == tag.0 {
        word as u32
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use bytemuck::Zeroable;
    use proptest::prelude::*;

    use super::*;
    use crate::atomics::{Native, words};
    use crate::layout::{RaceSide, race_codes};

    fn memory(capacity: u64) -> Vec<AtomicU64> {
        words(RaceRing::<Native>::words(capacity) as usize, u64::MAX)
    }

    fn entry(number: u64) -> RaceEntry {
        RaceEntry {
            address: number,
            ..Zeroable::zeroed()
        }
    }

    fn addresses(drain: impl FnOnce(&mut dyn FnMut(RaceEntry)) -> Drained) -> (Vec<u64>, Drained) {
        let mut told = Vec::new();
        let drained = drain(&mut |entry| told.push(entry.address));
        (told, drained)
    }

    fn side(seed: u32) -> RaceSide {
        RaceSide {
            launch: seed,
            cta: seed + 1,
            epoch: seed + 2,
            thread: 3,
            site: 4,
            device: 5,
            action: race_codes::WRITE as u8,
            scope: 2,
            flags: race_codes::FORGOTTEN as u8,
        }
    }

    #[test]
    fn an_entry_arrives_as_it_was_written() {
        let memory = memory(2);
        let ring = RaceRing::<Native>::format(&memory, 2).unwrap();
        let written = RaceEntry {
            stamp: 99,
            address: 0x7f00_1234_5678,
            mask: 0xf0,
            kind: race_codes::WRITE_AFTER_WRITE as u8,
            flags: race_codes::POSSIBLE as u16,
            repeats: 6,
            earlier: side(10),
            later: side(20),
        };
        assert!(ring.append(&written));
        let mut told = Vec::new();
        let drained = RaceReader::new(ring).drain(|entry| told.push(entry));
        assert_eq!(
            told,
            [RaceEntry {
                stamp: 1,
                ..written
            }]
        );
        let expected = Drained {
            entries: 1,
            races: 7,
            unwritten: 0,
        };
        assert_eq!(drained, expected);
    }

    #[test]
    fn memory_that_is_no_ring_is_refused() {
        let memory = memory(4);
        let ring = |words, capacity| RaceRing::<Native>::format(words, capacity).map(|_| ());
        for capacity in [0, 3] {
            assert_eq!(
                ring(&memory, capacity),
                Err(RaceRingError::Capacity(capacity))
            );
        }
        let too_small = |capacity| RaceRingError::TooSmall {
            capacity,
            words: memory.len(),
            needed: RaceRing::<Native>::words(capacity),
        };
        assert_eq!(ring(&memory, 8), Err(too_small(8)));
        assert_eq!(ring(&memory, 1 << 63), Err(too_small(1 << 63)));
        assert_eq!(
            RaceRing::<Native>::new(&memory).map(|_| ()),
            Err(RaceRingError::Capacity(u64::MAX))
        );
        assert_eq!(
            RaceRing::<Native>::new(&[]).map(|_| ()),
            Err(RaceRingError::Capacity(0))
        );
        ring(&memory, 4).unwrap();
        assert_eq!(RaceRing::<Native>::new(&memory).unwrap().capacity(), 4);
        memory[TAIL].store(1, Relaxed);
        let error = RaceRing::<Native>::new(&memory).map(|_| ()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a race ring of 4 entries of which 1 were read and 0 written: the memory is not a \
             race ring, or was overwritten"
        );
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let memory = memory(4);
        let ring = RaceRing::<Native>::format(&memory, 4).unwrap();
        let kept: Vec<bool> = (0..6).map(|number| ring.append(&entry(number))).collect();
        assert_eq!(kept, [true, true, true, true, false, false]);
        assert_eq!(ring.dropped(), 2);
        let mut reader = RaceReader::new(ring);
        assert_eq!(addresses(|told| reader.drain(told)).0, [0, 1, 2, 3]);
        assert!(ring.append(&entry(6)));
        // Another reader of the same memory goes on where the last one ended.
        let mut reader = RaceReader::new(RaceRing::<Native>::new(&memory).unwrap());
        assert_eq!(addresses(|told| reader.drain(told)).0, [6]);
        assert_eq!(addresses(|told| reader.drain(told)).0, []);
        assert_eq!(reader.ring().dropped(), 2);
    }

    #[test]
    fn an_entry_that_is_being_written_is_waited_for_until_nobody_writes_any_more() {
        let memory = memory(4);
        let ring = RaceRing::<Native>::format(&memory, 4).unwrap();
        let mut reader = RaceReader::new(ring);
        ring.append(&entry(0));
        assert_eq!(ring.claim(), Some(1));
        ring.append(&entry(2));
        assert_eq!(addresses(|told| reader.drain(told)).0, [0]);
        assert_eq!(addresses(|told| reader.drain(told)).0, []);
        let (told, drained) = addresses(|told| reader.finish(told));
        assert_eq!((told, drained.unwritten), (vec![2], 1));
        assert!((3..7).all(|number| ring.append(&entry(number))));
        assert_eq!(addresses(|told| reader.drain(told)).0, [3, 4, 5, 6]);
    }

    #[test]
    fn races_of_a_kind_are_told_at_powers_of_two() {
        let places: Vec<AtomicU64> = words(4, 0);
        let filter = RaceFilter::<Native>::new(&places);
        let tag = RaceTag(5);
        let told: Vec<(u32, u32)> = (1..=9)
            .filter_map(|time| Some((time, filter.pass(tag)?)))
            .collect();
        // The third; the fifth to the seventh.
        assert_eq!(told, [(1, 0), (2, 0), (4, 1), (8, 3)]);
        assert_eq!(filter.untold(tag), 1);
        // 9 shares its place and takes it.
        assert_eq!(filter.pass(RaceTag(9)), Some(0));
        assert_eq!((filter.untold(tag), filter.untold(RaceTag(9))), (0, 0));
        assert_eq!(filter.pass(tag), Some(0));
    }

    #[test]
    fn a_kind_found_more_often_than_can_be_counted_is_told_no_more() {
        let places: Vec<AtomicU64> = words(1, 0);
        let filter = RaceFilter::<Native>::new(&places);
        let tag = RaceTag(5);
        places[0].store(5 << 32 | u64::from(u32::MAX), Relaxed);
        assert_eq!(filter.pass(tag), None);
        assert_eq!(filter.untold(tag), (1 << 31) - 1);
    }

    #[test]
    fn kinds_sites_and_launches_have_tags_of_their_own() {
        let base = RaceEntry {
            earlier: side(1),
            later: side(2),
            ..Zeroable::zeroed()
        };
        let mut others = [base; 5];
        others[1].kind = 1;
        others[2].earlier.site = 5;
        others[3].later.site = 5;
        others[4].later.launch = 9;
        let tags: std::collections::BTreeSet<u32> =
            others.iter().map(|entry| RaceTag::of(entry).0).collect();
        assert_eq!(tags.len(), others.len());
        // Who it was does not matter.
        let mut same = base;
        same.earlier.launch = 77;
        same.later.cta = 77;
        assert_eq!(RaceTag::of(&same), RaceTag::of(&base));
    }

    proptest! {
        #[test]
        fn told_and_untold_races_add_up(
            found in prop::collection::vec(0u16..5, 0..200), drain_after in 1usize..9,
        ) {
            let (memory, places) = (memory(8), words(64, 0));
            let ring = RaceRing::<Native>::format(&memory, 8).unwrap();
            let filter = RaceFilter::<Native>::new(&places);
            let mut reader = RaceReader::new(ring);
            let mut races = 0;
            let of_site = |site| {
                let mut entry = entry(0);
                entry.later.site = site;
                entry
            };
            for (number, &site) in found.iter().enumerate() {
                let entry = of_site(site);
                if let Some(repeats) = filter.pass(RaceTag::of(&entry)) {
                    let fits = ring.append(&RaceEntry { repeats, ..entry });
                    prop_assert!(fits, "it is drained often enough");
                }
                if number % drain_after == 0 {
                    races += reader.drain(|_| {}).races;
                }
            }
            races += reader.finish(|_| {}).races;
            let untold = (0..5).map(|site| filter.untold(RaceTag::of(&of_site(site))));
            races += untold.map(u64::from).sum::<u64>();
            prop_assert_eq!(races, found.len() as u64);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use bytemuck::Zeroable;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::atomics::{Broken, Loom, words};

    /// Runs `model` in every interleaving with few preemptions.
    fn explore(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 100_000;
        builder.check(model);
    }

    fn entry(number: u64) -> RaceEntry {
        let mut entry: RaceEntry = Zeroable::zeroed();
        (entry.address, entry.later.launch) = (number, number as u32);
        entry
    }

    /// Two writers tell of three races through a ring of `capacity` entries while it is read:
    /// each race arrives whole, or is counted as dropped.
    fn every_race_arrives_or_is_counted<M: Memory>(capacity: u64)
    where
        M::U64: Send + Sync,
    {
        explore(move || {
            let memory = words::<M::U64>(RaceRing::<M>::words(capacity) as usize, 0);
            RaceRing::<M>::format(&memory, capacity).unwrap();
            let memory = Arc::new(memory);
            let writers = [&[1, 2][..], &[3]].map(|numbers| {
                let memory = memory.clone();
                thread::spawn(move || {
                    let ring = RaceRing::<M>::new(&memory).unwrap();
                    let kept = |&&number: &&u64| ring.append(&entry(number));
                    numbers.iter().filter(kept).count() as u64
                })
            });
            let ring = RaceRing::<M>::new(&memory).unwrap();
            let mut reader = RaceReader::new(ring);
            let mut told = Vec::new();
            let mut tell = |found: RaceEntry| {
                let whole = entry(found.address);
                assert!(
                    (found.address, found.later.launch) == (whole.address, whole.later.launch)
                        && found.address != 0,
                    "a torn race was told"
                );
                told.push(found.address);
            };
            reader.drain(&mut tell);
            let kept: u64 = writers.into_iter().map(|w| w.join().unwrap()).sum();
            let last = reader.finish(&mut tell);
            assert_eq!(last.unwritten, 0, "a race was lost");
            told.sort_unstable();
            told.dedup();
            assert_eq!(told.len() as u64, kept, "a race was lost");
            assert_eq!(kept + ring.dropped(), 3, "a race was lost");
        });
    }

    #[test]
    fn races_arrive_whole_while_the_ring_is_read() {
        every_race_arrives_or_is_counted::<Loom>(4);
    }

    #[test]
    fn races_that_find_the_ring_full_are_counted_and_overwrite_nothing() {
        every_race_arrives_or_is_counted::<Loom>(1);
    }

    #[test]
    #[should_panic(expected = "a race was lost")]
    fn an_index_taken_without_comparison_is_taken_twice() {
        every_race_arrives_or_is_counted::<Broken<{ Essential::PlaceClaimed as u8 }>>(4);
    }

    #[test]
    #[should_panic(expected = "a torn race was told")]
    fn an_entry_stamped_too_early_is_torn() {
        every_race_arrives_or_is_counted::<Broken<{ Essential::EntryFilled as u8 }>>(4);
    }

    #[test]
    #[should_panic(expected = "a torn race was told")]
    fn a_place_given_back_before_it_was_read_is_torn() {
        every_race_arrives_or_is_counted::<Broken<{ Essential::EntryTaken as u8 }>>(1);
    }

    /// Two CTAs find the same race: the filter counts both.
    fn the_filter_counts_every_race<M: Memory>()
    where
        M::U64: Send + Sync,
    {
        explore(|| {
            let places = Arc::new(words::<M::U64>(1, 0));
            let tag = RaceTag::of(&entry(1));
            let pass = move |places: &[M::U64]| {
                let passed = RaceFilter::<M>::new(places).pass(tag);
                passed.map_or(0, |repeats| 1 + repeats)
            };
            let other = places.clone();
            let finder = thread::spawn(move || pass(&other) + pass(&other));
            let told = pass(&places) + finder.join().unwrap();
            let untold = RaceFilter::<M>::new(&places).untold(tag);
            // The first and the second are told, the third is not yet.
            assert_eq!((told, untold), (2, 1), "a race was not counted");
        });
    }

    #[test]
    fn races_found_at_once_are_all_counted() {
        the_filter_counts_every_race::<Loom>();
    }

    #[test]
    #[should_panic(expected = "a race was not counted")]
    fn a_count_that_is_just_stored_loses_a_race() {
        the_filter_counts_every_race::<Broken<{ Essential::PlaceClaimed as u8 }>>();
    }
}
