//! The memory of all devices, and views of it.

use core::sync::atomic::Ordering::Relaxed;

use super::checkpoints::{CheckpointRef, Checkpoints};
use super::history::History;
use super::pool::Pool;
use super::publications::{PUBLICATION_WORDS, Publications};
use super::slots::{HighWater, Slots};
use super::snapshots::Snapshots;
use super::topology::Topology;
use super::vector::Shape;
use crate::atomics::{Atomic, Memory, words};
use crate::clock::Epoch;
use crate::ids::{DeviceRank, ThreadId};
use crate::layout::entry;
use crate::loss::{Loss, Losses};
use crate::record::Token;

/// The epoch of an asynchronous copy that is still running: no clock covers it.
pub const RUNNING: Epoch = match Epoch::new(Epoch::MAX.get() - 1) {
    Some(epoch) => epoch,
    None => unreachable!(),
};

/// The first epoch a CTA can have. Epoch 1 is left out so that the epochs of one CTA are told from
/// "all up to": an interval that reaches down to 1 means all.
pub const FIRST_EPOCH: u32 = 2;

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Publications kept per device.
    pub publications: usize,
    /// Snapshots kept per device; a power of two.
    pub snapshots: usize,
    /// Checkpoints kept per device.
    pub checkpoints: usize,
    /// Private clocks per device.
    pub private_clocks: usize,
    /// Banks that a clock can hold entries of, rounded up to 3, 7, 11, …
    pub segments: u32,
    /// CTAs remembered per thread id.
    pub history: usize,
    /// The last epoch handed out, below [`RUNNING`].
    pub last_epoch: Epoch,
    /// How many tokens are handed out, at most [`Token::MAX`].
    pub tokens: u64,
}

impl Sizes {
    /// What a device gets by default.
    pub const DEFAULT: Sizes = Sizes {
        publications: 1 << 16,
        snapshots: 1 << 12,
        checkpoints: entry::CHECKPOINTS as usize,
        private_clocks: 4096,
        segments: 3,
        history: 8,
        last_epoch: match Epoch::new(RUNNING.get() - 1) {
            Some(epoch) => epoch,
            None => unreachable!(),
        },
        tokens: Token::MAX.get(),
    };
}

/// The memory of one device.
#[derive(Debug)]
struct DeviceMemory<M: Memory> {
    publications: Vec<M::U64>,
    publication_head: M::U64,
    snapshot_states: Vec<M::U64>,
    snapshot_clocks: Vec<M::U32>,
    snapshot_head: M::U64,
    checkpoint_positions: Vec<M::U64>,
    checkpoint_epochs: Vec<M::U32>,
    checkpoint_control: Vec<M::U32>,
    pool_taken: Vec<M::U32>,
    pool_clocks: Vec<M::U32>,
    losses: Vec<M::U64>,
}

/// The memory of all devices, zero when made.
#[derive(Debug)]
pub struct System<M: Memory> {
    topology: Topology,
    sizes: Sizes,
    /// The mirrored epoch of every id.
    epochs: Vec<M::U32>,
    masks: Vec<M::U32>,
    high_water: Vec<M::U32>,
    starts: Vec<M::U32>,
    history: Vec<M::U64>,
    /// The sync word of all sequentially consistent fences.
    sequential: M::U64,
    devices: Vec<DeviceMemory<M>>,
}

impl<M: Memory> System<M> {
    /// Memory for `topology`.
    pub fn new(topology: Topology, sizes: Sizes) -> Self {
        let shape = Shape::holding(sizes.segments, topology.slots());
        let ids = topology.ids() as usize;
        let device = || DeviceMemory {
            publications: words(sizes.publications * PUBLICATION_WORDS, 0),
            publication_head: M::U64::new(0),
            snapshot_states: words(sizes.snapshots, 0),
            snapshot_clocks: words(sizes.snapshots * shape.words(), 0),
            // Index 0 could not be named.
            snapshot_head: M::U64::new(1),
            checkpoint_positions: words(sizes.checkpoints, 0),
            checkpoint_epochs: words(sizes.checkpoints * ids, 0),
            checkpoint_control: words(Checkpoints::<M>::CONTROL_WORDS, 0),
            pool_taken: words(Pool::<M>::mask_words(sizes.private_clocks), 0),
            pool_clocks: words(sizes.private_clocks * shape.words(), 0),
            losses: words(Loss::COUNT, 0),
        };
        System {
            topology,
            sizes,
            epochs: words(ids, 0),
            masks: words((topology.banks() * topology.sms()) as usize, 0),
            high_water: words(topology.banks() as usize, 0),
            starts: words(ids, 0),
            history: words(ids * sizes.history * History::<M>::ENTRY_WORDS, 0),
            sequential: M::U64::new(0),
            devices: (0..topology.devices()).map(|_| device()).collect(),
        }
    }

    /// Zeroes everything: nothing is known any more. Nothing may run meanwhile. Losses stay.
    pub fn restart(&self) {
        fn zero<A: Atomic>(words: &[A], zero: A::Value) {
            words.iter().for_each(|word| word.store(zero, Relaxed));
        }
        for words in [&self.epochs, &self.masks, &self.high_water, &self.starts] {
            zero(words, 0);
        }
        zero(&self.history, 0);
        self.sequential.store(0, Relaxed);
        for device in &self.devices {
            zero(&device.publications, 0);
            zero(&device.snapshot_states, 0);
            zero(&device.checkpoint_positions, 0);
            zero(&device.checkpoint_epochs, 0);
            zero(&device.checkpoint_control, 0);
            zero(&device.pool_taken, 0);
            device.publication_head.store(0, Relaxed);
            device.snapshot_head.store(1, Relaxed);
        }
    }

    /// Whether half of the epochs of some id or half of the tokens of some device are used up.
    pub fn is_half_worn(&self) -> bool {
        let half = self.sizes.last_epoch.get() / 2;
        self.epochs.iter().any(|epoch| epoch.load(Relaxed) > half)
            || self
                .devices
                .iter()
                .any(|d| d.publication_head.load(Relaxed) > self.sizes.tokens / 2)
    }

    /// How ids are divided.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// How large everything is.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The mirrored epoch of `id`.
    #[inline]
    pub fn epoch(&self, id: ThreadId) -> &M::U32 {
        &self.epochs[id.0 as usize]
    }

    /// How many slots of each bank were used.
    pub fn high_water(&self) -> HighWater<'_, M> {
        HighWater::new(&self.high_water)
    }

    /// The slots of `bank`.
    pub fn slots(&self, bank: u32) -> Slots<'_, M> {
        Slots::new(&self.topology, bank, &self.masks, &self.high_water)
    }

    /// Which CTAs had which ids.
    pub fn history(&self) -> History<'_, M> {
        History::new(&self.starts, &self.history)
    }

    /// The sync word of all sequentially consistent fences.
    pub(super) const fn sequential(&self) -> &M::U64 {
        &self.sequential
    }

    fn shape(&self) -> Shape {
        Shape::holding(self.sizes.segments, self.topology.slots())
    }

    fn device(&self, device: DeviceRank) -> &DeviceMemory<M> {
        &self.devices[device.0 as usize]
    }

    /// The publications of `device`.
    pub fn publications(&self, device: DeviceRank) -> Publications<'_, M> {
        let memory = self.device(device);
        Publications::new(
            &memory.publications,
            &memory.publication_head,
            self.sizes.tokens,
        )
    }

    /// The snapshots of `device`.
    pub fn snapshots(&self, device: DeviceRank) -> Snapshots<'_, M> {
        let memory = self.device(device);
        Snapshots::new(
            &memory.snapshot_states,
            &memory.snapshot_clocks,
            &memory.snapshot_head,
            self.shape(),
        )
    }

    /// The checkpoints of `device`.
    pub fn checkpoints(&self, device: DeviceRank) -> Checkpoints<'_, M> {
        let memory = self.device(device);
        Checkpoints::new(
            device,
            &memory.checkpoint_positions,
            &memory.checkpoint_epochs,
            &memory.checkpoint_control,
        )
    }

    /// Takes a checkpoint on `device`, unless somebody is just doing so.
    pub fn take_checkpoint(&self, device: DeviceRank) -> Option<CheckpointRef> {
        let head = &self.device(device).publication_head;
        let high_water = self.high_water();
        self.checkpoints(device)
            .take(&self.topology, &high_water, &self.epochs, head)
    }

    /// The epoch of `id` that `checkpoint` covers.
    #[inline]
    pub fn checkpoint_epoch(&self, checkpoint: CheckpointRef, id: ThreadId) -> Epoch {
        self.checkpoints(checkpoint.device()).epoch(checkpoint, id)
    }

    /// The private clocks of `device`.
    pub fn pool(&self, device: DeviceRank) -> Pool<'_, M> {
        let memory = self.device(device);
        Pool::new(&memory.pool_taken, &memory.pool_clocks, self.shape())
    }

    /// Counts a limit that was met on `device`.
    pub fn count(&self, device: DeviceRank, loss: Loss) {
        self.device(device).losses[loss as usize].fetch_add(1, Relaxed);
    }

    /// What was lost so far, on all devices.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        for device in &self.devices {
            for loss in Loss::ALL {
                losses.add(loss, device.losses[loss as usize].load(Relaxed));
            }
        }
        losses
    }
}
