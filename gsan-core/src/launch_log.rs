//! The launch log: which launch had which number, for reports.
//!
//! Races name launches by number; kernel, stream and grid are known to the host that made them. It
//! writes them here, in memory that outlives the process, at the place of the number, modulo. So a
//! launch costs four stores, and the newest launches are known.
//!
//! An entry is four 64-bit words: the number plus 1 with the kernel above it, the stream, the grid in
//! two words with flags in what is left. The first word is cleared, the others are written, and it is
//! written last. Who reads looks at it before and after. Streams write different numbers at once, and
//! nobody writes one twice.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomics::{Atomic, Essential, Memory};

/// Flag of a launch: its kernel contains synchronisation that nobody reports.
const OPAQUE: u32 = 1;

/// What is remembered of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchRecord {
    /// Its number on its device.
    pub number: u32,
    /// The kernel's number in the table of names; 0: it has none.
    pub kernel: u32,
    /// The stream, as the program knows it.
    pub stream: u64,
    /// The grid, in CTAs.
    pub grid: [u32; 3],
    /// Its kernel contains synchronisation that nobody reports.
    pub opaque: bool,
}

/// The newest launches of one device.
#[derive(Debug)]
pub struct LaunchLog<'m, M: Memory> {
    words: &'m [M::U64],
}

impl<M: Memory> Clone for LaunchLog<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for LaunchLog<'_, M> {}

impl<'m, M: Memory> LaunchLog<'m, M> {
    /// 64-bit words of a launch.
    pub const ENTRY_WORDS: usize = 4;

    /// The log in `words`, which are zero at first. It remembers as many launches as they have room
    /// for, and none if there is no room.
    pub const fn new(words: &'m [M::U64]) -> Self {
        LaunchLog { words }
    }

    /// How many launches are remembered.
    pub const fn capacity(&self) -> usize {
        self.words.len() / Self::ENTRY_WORDS
    }

    /// Where a launch is remembered in a log with room for `capacity` of them; a power of two of them
    /// is used, since a division would be felt in a launch. Launches of graphs, whose numbers have the
    /// highest bit, are remembered from the other end: the first ones of both kinds do not meet.
    pub const fn place(number: u32, capacity: usize) -> Option<usize> {
        let Some(bits) = capacity.checked_ilog2() else {
            return None;
        };
        let last = (1 << bits) - 1;
        let place = number as usize & last;
        Some(if number >> 31 == 0 {
            place
        } else {
            last - place
        })
    }

    #[inline]
    fn entry(&self, number: u32) -> Option<&'m [M::U64]> {
        let place = Self::place(number, self.capacity())?;
        Some(&self.words[place * Self::ENTRY_WORDS..][..Self::ENTRY_WORDS])
    }

    /// Remembers a launch.
    #[inline]
    pub fn enter(&self, record: &LaunchRecord) {
        let Some(entry) = self.entry(record.number) else {
            return;
        };
        let [x, y, z] = record.grid;
        let flags = if record.opaque { OPAQUE } else { 0 };
        entry[0].store(0, Relaxed);
        M::fence(Release);
        entry[1].store(record.stream, Relaxed);
        entry[2].store(pack(x, y), Relaxed);
        entry[3].store(pack(z, flags), Relaxed);
        let order = M::order(Essential::EntryFilled, Release);
        entry[0].store(pack(record.number.wrapping_add(1), record.kernel), order);
    }

    /// The launch `number`, or `None` when it is forgotten.
    pub fn find(&self, number: u32) -> Option<LaunchRecord> {
        let entry = self.entry(number)?;
        let first = entry[0].load(Acquire);
        let [stream, second, third] = [1, 2, 3].map(|word| entry[word].load(Relaxed));
        M::essential_fence(Essential::EntryStillThere, Acquire);
        let [stamp, kernel] = unpack(first);
        let same = !M::keeps(Essential::EntryStillThere) || entry[0].load(Relaxed) == first;
        if first == 0 || stamp != number.wrapping_add(1) || !same {
            return None;
        }
        let ([x, y], [z, flags]) = (unpack(second), unpack(third));
        Some(LaunchRecord {
            number,
            kernel,
            stream,
            grid: [x, y, z],
            opaque: flags & OPAQUE != 0,
        })
    }
}

const fn pack(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn unpack(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;
    use crate::atomics::{Native, words};

    fn record(number: u32) -> LaunchRecord {
        LaunchRecord {
            number,
            kernel: 3,
            stream: 0x5555_0000_0000 | u64::from(number),
            grid: [number, 5, 6],
            opaque: number.is_multiple_of(2),
        }
    }

    #[test]
    fn the_newest_launches_are_found_by_number() {
        let memory: Vec<AtomicU64> = words(4 * 8, 0);
        let log = LaunchLog::<Native>::new(&memory);
        assert_eq!(log.capacity(), 8);
        assert_eq!(log.find(0), None);
        log.enter(&record(0));
        log.enter(&record(15));
        assert_eq!(log.find(0), Some(record(0)));
        assert_eq!(log.find(15), Some(record(15)));
        assert_eq!(log.find(7), None);
        log.enter(&record(8));
        assert_eq!(log.find(0), None);
    }

    #[test]
    fn the_first_launches_and_the_first_ones_of_graphs_are_both_kept() {
        let memory: Vec<AtomicU64> = words(4 * 8, 0);
        let log = LaunchLog::<Native>::new(&memory);
        let numbers = [0, 1, 2, 3, 1 << 31, (1 << 31) + 1, (1 << 31) + 2];
        numbers
            .iter()
            .for_each(|&number| log.enter(&record(number)));
        let kept = numbers.map(|number| log.find(number).is_some());
        assert_eq!(kept, [true; 7]);
    }

    #[test]
    fn a_power_of_two_of_the_room_is_used() {
        let place = LaunchLog::<Native>::place;
        assert_eq!(place(70_001, 1 << 16), Some(70_001 - (1 << 16)));
        assert_eq!(
            [place(7, 1), place(7, 7), place(5, 7)],
            [Some(0), Some(3), Some(1)]
        );
        assert_eq!(place(7, 0), None);
    }

    #[test]
    fn without_memory_nothing_is_remembered() {
        for words in [0, 3] {
            let memory: Vec<AtomicU64> = crate::atomics::words(words, 0);
            let log = LaunchLog::<Native>::new(&memory);
            log.enter(&record(1));
            assert_eq!(log.find(1), None);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::atomics::{Broken, Loom, words};

    const fn record(number: u32) -> LaunchRecord {
        LaunchRecord {
            number,
            kernel: 1,
            stream: number as u64,
            grid: [number, 1, 1],
            opaque: false,
        }
    }

    /// Launches overwrite each other while somebody looks for one.
    fn a_launch_is_found_whole_or_not_at_all<M: Memory>()
    where
        M::U64: Send + Sync,
    {
        loom::model(|| {
            let memory = Arc::new(words::<M::U64>(4, 0));
            let host = {
                let memory = memory.clone();
                thread::spawn(move || {
                    let log = LaunchLog::<M>::new(&memory);
                    log.enter(&record(1));
                    log.enter(&record(2));
                })
            };
            let found = LaunchLog::<M>::new(&memory).find(1);
            assert!(
                found.is_none_or(|found| found == record(1)),
                "a torn launch was found"
            );
            host.join().unwrap();
            assert_eq!(LaunchLog::<M>::new(&memory).find(2), Some(record(2)));
        });
    }

    #[test]
    fn launches_are_whole_while_they_are_written() {
        a_launch_is_found_whole_or_not_at_all::<Loom>();
    }

    #[test]
    #[should_panic(expected = "a torn launch was found")]
    fn a_launch_that_is_said_too_early_is_torn() {
        a_launch_is_found_whole_or_not_at_all::<Broken<{ Essential::EntryFilled as u8 }>>();
    }

    #[test]
    #[should_panic(expected = "a torn launch was found")]
    fn a_launch_that_is_not_looked_at_again_is_torn() {
        a_launch_is_found_whole_or_not_at_all::<Broken<{ Essential::EntryStillThere as u8 }>>();
    }
}
