//! Checkpoints: copies of all mirrored epochs, "everything up to a moment".
//!
//! A checkpoint's *position* is the head of its device's publications when it began to copy. It
//! covers whatever a publication before that position can know, so it may stand for one that was
//! overwritten.
//!
//! Epochs only grow, and so do the entries of a checkpoint that is overwritten by a newer one. A
//! clock may therefore name a checkpoint for as long as it likes, and entries are looked up
//! without any check: they cover at least what they did when the checkpoint was named.

use core::mem::offset_of;
use core::num::NonZeroU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::slots::HighWater;
use super::topology::Topology;
use crate::atomics::{Atomic, Essential, Memory};
use crate::clock::Epoch;
use crate::ids::{DeviceRank, ThreadId};
use crate::layout;
use crate::layout::entry::CHECKPOINT_DEVICE_SHIFT;
use crate::record::Token;

/// Names a checkpoint of some device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointRef(NonZeroU32);

impl CheckpointRef {
    fn new(device: DeviceRank, index: usize) -> CheckpointRef {
        let bits = u32::from(device.0) << CHECKPOINT_DEVICE_SHIFT | (index as u32 + 1);
        CheckpointRef(NonZeroU32::new(bits).expect("the low half is not 0"))
    }

    /// The device whose checkpoint it is.
    pub fn device(self) -> DeviceRank {
        DeviceRank((self.0.get() >> CHECKPOINT_DEVICE_SHIFT) as u16)
    }

    fn index(self) -> usize {
        (self.0.get() & ((1 << CHECKPOINT_DEVICE_SHIFT) - 1)) as usize - 1
    }

    /// The word in memory, never 0.
    pub const fn bits(self) -> u32 {
        self.0.get()
    }

    /// What the word `bits` names; 0 is nothing.
    pub fn from_bits(bits: u32) -> Option<CheckpointRef> {
        NonZeroU32::new(bits).map(CheckpointRef)
    }
}

/// The checkpoints of one device.
#[derive(Debug)]
pub struct Checkpoints<'m, M: Memory> {
    device: DeviceRank,
    /// One word for each that is kept: its position plus 1, 0 before it was first taken.
    positions: &'m [M::U64],
    /// Rows over all ids, one for each that is kept.
    epochs: &'m [M::U32],
    /// The words before the positions in [`layout::Checkpoints`].
    control: &'m [M::U32],
}

impl<'m, M: Memory> Checkpoints<'m, M> {
    /// How many words `control` has.
    pub const CONTROL_WORDS: usize = offset_of!(layout::Checkpoints, positions) / 4;

    /// The checkpoints in this memory.
    pub fn new(
        device: DeviceRank,
        positions: &'m [M::U64],
        epochs: &'m [M::U32],
        control: &'m [M::U32],
    ) -> Self {
        debug_assert!(positions.len() < 1 << CHECKPOINT_DEVICE_SHIFT);
        Checkpoints {
            device,
            positions,
            epochs,
            control,
        }
    }

    fn row(&self, index: usize) -> &'m [M::U32] {
        let ids = self.epochs.len() / self.positions.len();
        &self.epochs[index * ids..][..ids]
    }

    /// Copies `mirror`, as far as slots were used, unless somebody else is copying. Never waits.
    pub fn take(
        &self,
        topology: &Topology,
        high_water: &HighWater<'_, M>,
        mirror: &[M::U32],
        head: &M::U64,
    ) -> Option<CheckpointRef> {
        let busy = &self.control[offset_of!(layout::Checkpoints, busy) / 4];
        if busy.swap(1, Acquire) == 1 {
            return None;
        }
        // Acquires what every publication below the head knew when it was claimed.
        let order = M::order(Essential::HeadBeforeCheckpoint, Acquire);
        let position = head.load(order);
        let taken = &self.control[offset_of!(layout::Checkpoints, taken) / 4];
        let index = taken.load(Relaxed) as usize % self.positions.len();
        let row = self.row(index);
        for place in high_water.places() {
            let id = topology.id(place).0 as usize;
            row[id].store(mirror[id].load(Relaxed), Relaxed);
        }
        self.positions[index].store(position + 1, Release);
        taken.store(taken.load(Relaxed).wrapping_add(1), Relaxed);
        busy.store(0, Release);
        Some(CheckpointRef::new(self.device, index))
    }

    /// The oldest checkpoint kept that covers what publication `token` knew.
    pub fn covering(&self, token: Token) -> Option<CheckpointRef> {
        self.positions
            .iter()
            .enumerate()
            .map(|(index, position)| (position.load(Acquire), index))
            .filter(|&(position, _)| position > token.get() + 1)
            .min()
            .map(|(_, index)| CheckpointRef::new(self.device, index))
    }

    /// The position of the newest checkpoint plus 1, or 0 when none was taken.
    pub fn newest(&self) -> u64 {
        self.positions
            .iter()
            .map(|position| position.load(Relaxed))
            .max()
            .unwrap_or(0)
    }

    /// The position of checkpoint `which` of this device.
    pub fn position(&self, which: CheckpointRef) -> u64 {
        self.positions[which.index()].load(Acquire)
    }

    /// The newest epoch of `id` that checkpoint `which` of this device covers.
    pub fn epoch(&self, which: CheckpointRef, id: ThreadId) -> Epoch {
        let bits = self.row(which.index())[id.0 as usize].load(Relaxed);
        Epoch::new(bits).unwrap_or(Epoch::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomics::{Native, words};
    use core::sync::atomic::{AtomicU32, AtomicU64};

    #[test]
    fn the_oldest_one_that_is_not_older_stands_for_a_token() {
        let topology = Topology::new(1, 2, 1, 1).unwrap();
        let marks: Vec<AtomicU32> = words(1, 2);
        let high_water = HighWater::<Native>::new(&marks);
        let mirror: Vec<AtomicU32> = words(topology.ids() as usize, 0);
        let head = AtomicU64::new(0);
        let (positions, epochs, control) = (
            words(2, 0),
            words(2 * topology.ids() as usize, 0),
            words(2, 0),
        );
        let rank = DeviceRank(0);
        let kept = Checkpoints::<Native>::new(rank, &positions, &epochs, &control);
        let token = |index| Token::new(index).unwrap();
        assert_eq!(kept.newest(), 0);
        assert_eq!(kept.covering(token(0)), None);
        let take = |at: u64, epoch: u32| {
            head.store(at, Relaxed);
            mirror[1].store(epoch, Relaxed);
            kept.take(&topology, &high_water, &mirror, &head).unwrap()
        };
        let early = take(3, 10);
        assert_eq!(kept.covering(token(2)), Some(early));
        assert_eq!(kept.covering(token(3)), None, "3 was published after it");
        let late = take(5, 20);
        assert_eq!(kept.covering(token(2)), Some(early));
        assert_eq!(kept.covering(token(4)), Some(late));
        assert_eq!(kept.epoch(early, ThreadId(1)).get(), 10);
        let third = take(9, 30);
        assert_eq!(third, early, "two are kept");
        assert_eq!(kept.covering(token(2)), Some(late));
        assert_eq!(kept.epoch(early, ThreadId(1)).get(), 30);
        control[0].store(1, Relaxed);
        assert_eq!(kept.take(&topology, &high_water, &mirror, &head), None);
    }
}

#[cfg(all(test, loom))]
mod models {
    use core::sync::atomic::Ordering::AcqRel;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::atomics::{Broken, Loom, words};

    /// A publisher that raised its epoch and claimed a token, against a checkpoint: one that
    /// stands for the token covers the epoch.
    fn a_checkpoint_covers_what_it_stands_for<M: Memory<U32: 'static, U64: 'static>>() {
        loom::model(|| {
            let topology = Topology::new(1, 1, 1, 1).unwrap();
            struct Shared<M: Memory> {
                marks: Vec<M::U32>,
                mirror: Vec<M::U32>,
                head: M::U64,
                positions: Vec<M::U64>,
                epochs: Vec<M::U32>,
                control: Vec<M::U32>,
            }
            let shared = Arc::new(Shared::<M> {
                marks: words(1, 1),
                mirror: words(2, 0),
                head: M::U64::new(0),
                positions: words(1, 0),
                epochs: words(2, 0),
                control: words(2, 0),
            });
            let publisher = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.mirror[0].store(5, Relaxed);
                    let order = M::order(Essential::HeadBeforeCheckpoint, AcqRel);
                    shared.head.fetch_add(1, order)
                })
            };
            let kept = Checkpoints::<M>::new(
                DeviceRank(0),
                &shared.positions,
                &shared.epochs,
                &shared.control,
            );
            let high_water = HighWater::<M>::new(&shared.marks);
            kept.take(&topology, &high_water, &shared.mirror, &shared.head);
            let token = Token::new(publisher.join().unwrap()).unwrap();
            if let Some(found) = kept.covering(token) {
                let epoch = kept.epoch(found, ThreadId(0)).get();
                assert_eq!(epoch, 5, "the checkpoint does not cover the publication");
            }
        });
    }

    #[test]
    fn a_checkpoint_stands_for_what_was_published_before_it() {
        a_checkpoint_covers_what_it_stands_for::<Loom>();
    }

    #[test]
    #[should_panic(expected = "does not cover the publication")]
    fn a_checkpoint_taken_without_acquiring_the_head_stands_for_too_much() {
        a_checkpoint_covers_what_it_stands_for::<Broken<{ Essential::HeadBeforeCheckpoint as u8 }>>(
        );
    }
}
