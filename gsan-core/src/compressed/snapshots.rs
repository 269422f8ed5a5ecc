//! Snapshots: published copies of clocks, in a ring.

use core::num::NonZeroU32;
use core::sync::atomic::Ordering::Relaxed;

use super::checkpoints::CheckpointRef;
use super::ring::EntryState;
use super::topology::Place;
use super::vector::{Shape, Vector};
use crate::atomics::{Atomic, Memory};
use crate::clock::ClockEntry;
use crate::layout::entry;

/// Names a snapshot of some device: the low 32 bits of its index.
///
/// That is enough, because a publication names a snapshot that is no older than half the ring,
/// and is itself overwritten long before 2^32 more snapshots are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotRef(NonZeroU32);

impl SnapshotRef {
    /// The word in memory, never 0.
    pub const fn bits(self) -> u32 {
        self.0.get()
    }

    /// What the word `bits` names; 0 is nothing.
    pub fn from_bits(bits: u32) -> Option<SnapshotRef> {
        NonZeroU32::new(bits).map(SnapshotRef)
    }
}

/// The snapshots of one device.
#[derive(Debug)]
pub struct Snapshots<'m, M: Memory> {
    states: &'m [M::U64],
    clocks: &'m [M::U32],
    head: &'m M::U64,
    shape: Shape,
}

/// A snapshot that is being made. Dropping it without [`Draft::publish`] leaves the ring entry
/// unusable until the next restart.
#[derive(Debug)]
#[must_use]
pub struct Draft<'m, M: Memory> {
    state: EntryState<'m, M>,
    index: u64,
    /// The clock to fill.
    pub clock: Vector<'m, M>,
}

impl<M: Memory> Draft<'_, M> {
    /// The clock is filled. Names it, or nothing if nothing is in it.
    pub fn publish(self) -> Option<SnapshotRef> {
        self.state.complete(self.index);
        if self.clock.is_empty() {
            return None;
        }
        SnapshotRef::from_bits(self.index as u32)
    }
}

/// The snapshot changed while it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwritten;

impl<'m, M: Memory> Snapshots<'m, M> {
    /// The ring of `states.len()` clocks, a power of two.
    pub fn new(states: &'m [M::U64], clocks: &'m [M::U32], head: &'m M::U64, shape: Shape) -> Self {
        debug_assert!(states.len().is_power_of_two());
        debug_assert_eq!(clocks.len(), states.len() * shape.words());
        Snapshots {
            states,
            clocks,
            head,
            shape,
        }
    }

    fn entry(&self, index: u64) -> (EntryState<'m, M>, Vector<'m, M>) {
        let at = index as usize % self.states.len();
        let clock = Vector::of(self.clocks, at, self.shape);
        (EntryState(&self.states[at]), clock)
    }

    /// Claims the next entry, or `None` if its former writer has not finished.
    pub fn draft(&self) -> Option<Draft<'m, M>> {
        let index = self.head.fetch_add(1, Relaxed);
        let (state, clock) = self.entry(index);
        // An index whose low bits are 0 could not be named.
        if index as u32 == 0 || !state.claim(index) {
            return None;
        }
        clock.clear();
        Some(Draft {
            state,
            index,
            clock,
        })
    }

    /// Whether fewer than half of the ring was claimed since `snapshot`.
    pub fn is_recent(&self, snapshot: SnapshotRef) -> bool {
        let age = (self.head.load(Relaxed) as u32).wrapping_sub(snapshot.bits());
        (age as usize) <= (self.states.len() / 2).max(1)
    }

    /// Calls `checkpoint` and `each` with everything that `snapshot` holds.
    ///
    /// # Errors
    /// The snapshot was overwritten, before or meanwhile. What the functions were called with
    /// belonged to it nevertheless.
    pub fn read(
        &self,
        snapshot: SnapshotRef,
        mut checkpoint: impl FnMut(CheckpointRef),
        mut each: impl FnMut(Place, ClockEntry),
    ) -> Result<(), Overwritten> {
        /// Entries that are read before the state is looked at again: what one step of a warp
        /// copies.
        const CHUNK: usize = entry::SNAPSHOT_CHUNK as usize;
        let (state, clock) = self.entry(u64::from(snapshot.bits()));
        let index = state.index().ok_or(Overwritten)?;
        if index as u32 != snapshot.bits() || !state.is_complete(index) {
            return Err(Overwritten);
        }
        let part = clock.checkpoint();
        let segments = clock.segments();
        if !state.is_still_complete(index) {
            return Err(Overwritten);
        }
        if let Some(part) = part {
            checkpoint(part);
        }
        for segment in segments {
            let mut slot = 0;
            while slot < segment.length {
                let count = CHUNK.min((segment.length - slot) as usize);
                let mut chunk = [ClockEntry::EMPTY; CHUNK];
                for (at, read) in chunk[..count].iter_mut().enumerate() {
                    *read = clock.entry(segment, slot + at as u32);
                }
                // The header of this segment was read after the first look, too.
                if !state.is_still_complete(index) {
                    return Err(Overwritten);
                }
                for (at, &read) in chunk[..count].iter().enumerate() {
                    if !read.is_empty() {
                        let place = Place {
                            bank: segment.bank,
                            slot: slot + at as u32,
                        };
                        each(place, read);
                    }
                }
                slot += count as u32;
            }
        }
        Ok(())
    }

    /// What `snapshot` says of `place`, or `None` if it was overwritten.
    pub fn get(&self, snapshot: SnapshotRef, place: Place) -> Option<ClockEntry> {
        let (state, clock) = self.entry(u64::from(snapshot.bits()));
        let index = state.index()?;
        if index as u32 != snapshot.bits() || !state.is_complete(index) {
            return None;
        }
        let entry = clock.get(place);
        state.is_still_complete(index).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;
    use crate::atomics::{Native, words};
    use crate::clock::Epoch;

    const SHAPE: Shape = Shape::holding(2, 40);

    fn all(epoch: u32) -> ClockEntry {
        ClockEntry::all(Epoch::new(epoch).unwrap())
    }

    #[test]
    fn a_snapshot_is_read_until_it_is_lapped() {
        let states = words(2, 0);
        let clocks = words(2 * SHAPE.words(), u32::MAX);
        // The index runs over 32 bits here: the one that cannot be named is skipped.
        let head = AtomicU64::new((1 << 32) - 1);
        let ring = Snapshots::<Native>::new(&states, &clocks, &head, SHAPE);
        let make = |epoch: u32| {
            let draft = ring.draft()?;
            for slot in [1, 39] {
                let place = Place { bank: 3, slot };
                draft.clock.merge(place, all(epoch)).unwrap();
            }
            draft.publish()
        };
        let read = |snapshot| {
            let mut known = Vec::new();
            let result = ring.read(
                snapshot,
                |_| panic!("no checkpoint"),
                |p, e| known.push((p.bank, p.slot, e)),
            );
            result.map(|()| known)
        };
        let first = make(7).unwrap();
        assert_eq!(read(first), Ok(vec![(3, 1, all(7)), (3, 39, all(7))]));
        assert!(ring.is_recent(first));
        assert_eq!(make(8), None, "index 2^32 cannot be named");
        let third = make(9).unwrap();
        assert!(!ring.is_recent(first));
        assert_eq!(read(first), Err(Overwritten));
        assert_eq!(ring.get(first, Place { bank: 3, slot: 1 }), None);
        assert_eq!(ring.get(third, Place { bank: 3, slot: 1 }), Some(all(9)));
        assert_eq!(
            ring.get(third, Place { bank: 3, slot: 2 }),
            Some(ClockEntry::EMPTY)
        );
    }

    #[test]
    fn a_draft_that_is_never_finished_costs_one_entry() {
        let (states, clocks) = (words(1, 0), words(SHAPE.words(), 0));
        let head = AtomicU64::new(1);
        let ring = Snapshots::<Native>::new(&states, &clocks, &head, SHAPE);
        let draft = ring.draft();
        assert!(draft.is_some());
        assert!(ring.draft().is_none());
        assert_eq!(draft.unwrap().publish(), None, "nothing is in it");
    }
}
