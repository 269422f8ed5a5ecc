//! What a test program is: kernels, the host's launches and waits, and each thread's operations.

use crate::event::{Completion, FenceKind, HostEvent, Launch, Proxy};
use crate::ids::SiteId;
use crate::scope::{Order, Scope};

/// A whole program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// What the host does, in order.
    pub host: Vec<HostOp>,
    /// The kernels, in the order of their launches.
    pub kernels: Vec<Kernel>,
}

/// One step of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// Launches the kernel at this position of [`Program::kernels`], which is launched once.
    Launch(usize),
    /// Anything else.
    Host(HostEvent),
}

/// One launch and the code of its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The launch. Threads without code return at once.
    pub launch: Launch,
    /// The threads that do something.
    pub threads: Vec<Code>,
}

/// The code of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The CTA within the grid.
    pub cta: u32,
    /// The thread within the CTA.
    pub index: u32,
    /// What it does, in order.
    pub ops: Vec<Op>,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Where in the source.
    pub site: SiteId,
    /// What it is.
    pub kind: OpKind,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Accesses memory.
    Access {
        /// Load, store or atomic.
        verb: Verb,
        /// Weak, or strong with an order.
        order: Order,
        /// The scope of a strong access.
        scope: Scope,
        /// The bytes.
        place: Place,
    },
    /// A fence.
    Fence {
        /// What it orders.
        kind: FenceKind,
        /// How far it reaches.
        scope: Scope,
    },
    /// Arrives at a meeting.
    Arrive {
        /// Where.
        at: At,
        /// Whether it releases.
        releases: bool,
    },
    /// Waits for the phase after the last one this thread waited for.
    Leave {
        /// Where.
        at: At,
        /// Whether it acquires.
        acquires: bool,
    },
    /// Issues an asynchronous copy.
    Issue {
        /// The thread's number for it.
        copy: u32,
        /// What it writes.
        to: Place,
        /// What it reads.
        from: Place,
        /// `cp.async` or a bulk form.
        proxy: Proxy,
    },
    /// Waits for a copy that the thread issued.
    Wait {
        /// The thread's number for it.
        copy: u32,
        /// What is known to be done.
        completion: Completion,
    },
    /// A copy that the thread issued is done and arrives at an mbarrier.
    Complete {
        /// The thread's number for it.
        copy: u32,
        /// The mbarrier.
        at: At,
    },
    /// `griddepcontrol.wait`.
    GridDependencyWait,
}

/// Load, store or atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A load. With `expect`, the thread returns at once when it loads anything else.
    Load {
        /// The value that lets the thread go on.
        expect: Option<u64>,
    },
    /// A store.
    Store(u64),
    /// `atom.add`. With `expect`, the thread goes on only if this was the old value.
    Add {
        /// The summand.
        value: u64,
        /// The old value that lets the thread go on.
        expect: Option<u64>,
    },
    /// `red.add`.
    Reduce(u64),
    /// `atom.cas`. With `must_swap`, the thread goes on only if it swapped.
    Swap {
        /// Compared with the old value.
        compare: u64,
        /// Stored if they are equal.
        value: u64,
        /// Whether the thread returns at once otherwise.
        must_swap: bool,
    },
}

/// A range of bytes, seen from a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Global memory, or the shared memory of a CTA of the thread's launch.
    pub memory: Memory,
    /// The address in it.
    pub address: u64,
    /// How many bytes; at most 8 where the value matters.
    pub bytes: u32,
}

/// A memory, seen from a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Global memory.
    Global,
    /// The shared memory of the thread's CTA.
    OwnShared,
    /// The shared memory of another CTA of the launch.
    SharedOf(u32),
}

/// A meeting, seen from a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A barrier of the thread's CTA.
    CtaBarrier {
        /// Its number.
        id: u32,
        /// How many arrivals complete a phase.
        count: u32,
    },
    /// `bar.warp.sync` of the thread's warp.
    WarpBarrier {
        /// The member lanes.
        mask: u32,
    },
    /// `barrier.cluster` of the thread's cluster.
    ClusterBarrier {
        /// How many arrivals complete a phase.
        count: u32,
    },
    /// An mbarrier in the shared memory of a CTA.
    Mbarrier {
        /// The CTA within the grid.
        owner: u32,
        /// The offset of the object.
        offset: u64,
        /// How many arrivals complete a phase.
        count: u32,
    },
}

impl At {
    pub(super) fn count(self) -> u32 {
        match self {
            At::WarpBarrier { mask } => mask.count_ones(),
            At::CtaBarrier { count, .. }
            | At::ClusterBarrier { count }
            | At::Mbarrier { count, .. } => count,
        }
    }
}
