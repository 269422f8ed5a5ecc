//! One GPU thread: registers, call frames, local memory, and what it waits for.

use crate::exec::local::Local;
use crate::program::ir::MemorySpace;
use gsan_core::ids::{AsyncId, SiteId, Thread};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It can go on.
    Ready,
    /// It waits at a collective operation for the lanes of a mask.
    Warp(u32),
    /// It waits at an aligned barrier for the other lanes of its warp, before it arrives.
    Aligned,
    /// It waits at a CTA barrier; one more than the highest number is the cluster's.
    Barrier(u32),
    /// It waits for the launch before its own.
    Grid,
    /// It is done.
    Exited,
}

/// Where a return goes, and what was the caller's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The instruction after the call.
    pub(super) pc: u32,
    /// The call's position in the program.
    pub(super) call: u32,
    pub(super) registers: usize,
    pub(super) local: usize,
}

/// One GPU thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadState {
    pub(super) id: Thread,
    pub(super) tid: [u32; 3],
    pub(super) pc: u32,
    pub(super) status: Status,
    /// The registers of all frames.
    pub(super) registers: Vec<u64>,
    /// Where the running frame's begin.
    pub(super) register_base: usize,
    /// The local memory of all frames.
    pub(super) local: Local,
    /// Where the running frame's begins.
    pub(super) local_base: usize,
    pub(super) frames: Vec<Frame>,
    /// The carry flag.
    pub(super) carry: bool,
    pub(super) copies: Copies,
    pub(super) spin: Spin,
    /// The phase of the cluster's barrier that it arrived in last, from 1.
    pub(super) cluster_phase: u64,
    /// How often it let others go first at `activemask`.
    pub(super) patience: u32,
}

/// Asynchronous copies of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    /// Not yet in a group.
    pub(super) open: Vec<AsyncId>,
    /// Groups, oldest first.
    pub(super) groups: VecDeque<Vec<AsyncId>>,
    /// Those it did wait for: an mbarrier it names afterwards tells others of these too.
    pub(super) done: Vec<AsyncId>,
}

impl Copies {
    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = AsyncId> {
        let groups = self.groups.iter().flatten();
        self.open.iter().chain(groups).chain(&self.done).copied()
    }
}

/// Whether the thread goes round a loop in which it only reads, and reads the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spin {
    /// The loop: the target of the last backward branch taken.
    head: u32,
    /// A digest of the reads (and writes that changed nothing) since it was taken.
    digest: u64,
    /// How many there were.
    reads: u32,
    /// The digest of the round before.
    previous: u64,
    /// Rounds in a row that were alike.
    alike: u32,
    /// Memory was changed in this round.
    changed: bool,
    /// The last address read, for the report.
    pub(super) address: u64,
    pub(super) polled: Polled,
    /// The thread's own state at the end of the last round that was alike, and the state of
    /// memory then.
    state: u64,
    generation: u64,
    /// Rounds in a row in which neither changed.
    fixed: u32,
}

/// What lies at an address that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Polled {
    /// Global memory, or the thread's own.
    #[default]
    Global,
    /// Shared memory.
    Shared,
    /// An mbarrier in shared memory.
    Mbarrier,
}

impl From<MemorySpace> for Polled {
    fn from(space: MemorySpace) -> Polled {
        match space {
            MemorySpace::Shared => Polled::Shared,
            _ => Polled::Global,
        }
    }
}

/// What a round of a loop was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Something happened.
    Progress,
    /// The same reads gave the same values.
    Alike,
}

/// Rounds without change after which a thread counts as stuck, as long as memory stays the same.
const FIXED_ROUNDS: u32 = 2;

impl Spin {
    /// The thread read `value`, or wrote it where it already was.
    #[inline]
    pub(super) fn read(&mut self, address: u64, value: u64, polled: Polled) {
        self.digest = (self.digest.rotate_left(5) ^ address ^ value.rotate_left(32))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.reads += 1;
        self.address = address;
        self.polled = polled;
    }

    /// The thread changed memory.
    #[inline]
    pub(super) fn change(&mut self) {
        self.changed = true;
    }

    /// The thread branched back to `target`.
    pub(super) fn back(&mut self, target: u32) -> Round {
        if self.reads == 0 {
            // A loop that only computes, perhaps inside the one that polls.
            return Round::Progress;
        }
        let alike = target == self.head && !self.changed && self.digest == self.previous;
        self.alike = if alike { self.alike + 1 } else { 0 };
        self.head = target;
        self.previous = self.digest;
        self.digest = 0;
        self.reads = 0;
        self.changed = false;
        if self.alike >= 2 {
            Round::Alike
        } else {
            self.fixed = 0;
            Round::Progress
        }
    }

    /// A round was alike; `state` digests the thread, `generation` counts changes of memory.
    /// Whether the thread is stuck from now on.
    pub(super) fn round(&mut self, state: u64, generation: u64) -> bool {
        if self.state == state && self.generation == generation {
            self.fixed += 1;
        } else {
            self.fixed = 0;
            self.state = state;
            self.generation = generation;
        }
        self.fixed == FIXED_ROUNDS
    }

    /// Whether the thread can only go on as before while memory is in state `generation`.
    pub(super) fn is_stuck(&self, generation: u64) -> bool {
        self.fixed >= FIXED_ROUNDS && self.generation == generation
    }

    /// Whether the last rounds were alike.
    pub(super) fn is_polling(&self) -> bool {
        self.alike > 0
    }
}

impl ThreadState {
    pub(super) fn new(id: Thread, tid: [u32; 3], pc: u32, registers: u32, local: u32) -> Self {
        ThreadState {
            id,
            tid,
            pc,
            status: Status::Ready,
            registers: vec![0; registers as usize],
            register_base: 0,
            local: Local::new(local as usize),
            local_base: 0,
            frames: Vec::new(),
            carry: false,
            copies: Copies::default(),
            spin: Spin::default(),
            cluster_phase: 0,
            patience: 0,
        }
    }

    /// The lane in the warp.
    pub(super) fn lane(&self) -> u32 {
        self.id.index % 32
    }

    /// A digest of what decides how the thread goes on, besides memory. Local memory is left out:
    /// writes to it count as reads of the same value in [`Spin`], and a loop that repeats them
    /// leaves it as it is.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = rustc_hash::FxHasher::default();
        self.registers.hash(&mut hasher);
        self.pc.hash(&mut hasher);
        self.carry.hash(&mut hasher);
        self.frames.len().hash(&mut hasher);
        hasher.finish()
    }
}

/// The site of the instruction a thread is at.
pub(super) fn site(pc: u32) -> SiteId {
    SiteId(pc + 1)
}
