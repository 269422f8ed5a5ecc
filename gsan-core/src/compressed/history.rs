//! History: which CTA had which thread id when, so that a race names its earlier side.

use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomics::{Atomic, Memory};
use crate::clock::Epoch;
use crate::ids::{LaunchId, ThreadId};
use crate::layout::{self, history};

const START: usize = offset_of!(layout::HistoryEntry, start) / 8;
const COORDINATES: usize = offset_of!(layout::HistoryEntry, coordinates) / 8;

/// One CTA that had a thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastCta {
    /// Its first epoch.
    pub start: Epoch,
    /// Its launch, on the device of the id.
    pub launch: LaunchId,
    /// Its position in the grid, in whatever form the one who starts CTAs gives it; the low 40
    /// bits are kept.
    pub coordinates: u64,
}

/// The last few CTAs of every thread id: a ring per id, written by the holder of the slot.
#[derive(Debug)]
pub struct History<'m, M: Memory> {
    /// How many CTAs started on each id.
    starts: &'m [M::U32],
    /// [`layout::HistoryEntry`].
    entries: &'m [M::U64],
}

impl<'m, M: Memory> History<'m, M> {
    /// 64-bit words of an entry.
    pub const ENTRY_WORDS: usize = size_of::<layout::HistoryEntry>() / 8;

    /// The history in this memory; every id has the same number of entries.
    pub const fn new(starts: &'m [M::U32], entries: &'m [M::U64]) -> Self {
        History { starts, entries }
    }

    fn ring(&self, id: ThreadId) -> &'m [M::U64] {
        let words = self.entries.len() / self.starts.len();
        &self.entries[id.0 as usize * words..][..words]
    }

    /// Remembers that `cta` starts on `id`. By the holder of the slot.
    pub fn start(&self, id: ThreadId, cta: PastCta) {
        let starts = &self.starts[id.0 as usize];
        let ring = self.ring(id);
        let count = ring.len() / Self::ENTRY_WORDS;
        if count == 0 {
            return;
        }
        let number = starts.load(Relaxed);
        let at = number as usize % count * Self::ENTRY_WORDS;
        let tag = u64::from(cta.start.get()) << history::START_SHIFT;
        let coordinates = cta.coordinates & history::COORDINATES_MASK;
        ring[at + START].store(
            tag | u64::from(cta.launch.0) << history::LAUNCH_SHIFT,
            Relaxed,
        );
        ring[at + COORDINATES].store(tag | coordinates, Relaxed);
        starts.store(number.wrapping_add(1), Relaxed);
        // Who finds a record of this CTA finds it here.
        M::fence(Release);
    }

    /// The CTA that had `id` at `epoch`, or `None` if it is forgotten.
    pub fn find(&self, id: ThreadId, epoch: Epoch) -> Option<PastCta> {
        M::fence(Acquire);
        self.ring(id)
            .chunks_exact(Self::ENTRY_WORDS)
            .filter_map(|entry| {
                let word = entry[START].load(Relaxed);
                let coordinates = entry[COORDINATES].load(Relaxed);
                let start = word >> history::START_SHIFT;
                // Nothing, or words of two starts.
                if start == 0 || start != coordinates >> history::START_SHIFT {
                    return None;
                }
                Some(PastCta {
                    start: Epoch::from_bits(start),
                    launch: LaunchId((word >> history::LAUNCH_SHIFT) as u32),
                    coordinates: coordinates & history::COORDINATES_MASK,
                })
            })
            .filter(|cta| cta.start <= epoch)
            .max_by_key(|cta| cta.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomics::{Native, words};

    #[test]
    fn the_newest_cta_that_started_by_then_is_meant() {
        let (starts, entries) = (words(2, 0), words(2 * 2 * 2, 0));
        let history = History::<Native>::new(&starts, &entries);
        let cta = |start: u32| PastCta {
            start: Epoch::new(start).unwrap(),
            launch: LaunchId(u32::MAX - start),
            coordinates: u64::from(start) << 32,
        };
        let at = |epoch: u32| history.find(ThreadId(1), Epoch::new(epoch).unwrap());
        history.start(ThreadId(1), cta(2));
        history.start(ThreadId(1), cta(5));
        assert_eq!(at(1), None);
        assert_eq!(at(4), Some(cta(2)));
        assert_eq!(at(9), Some(cta(5)));
        history.start(ThreadId(1), cta(10));
        assert_eq!(at(4), None, "overwritten");
        assert_eq!(at(9), Some(cta(5)));
        assert_eq!(history.find(ThreadId(0), Epoch::MAX), None);
    }
}
