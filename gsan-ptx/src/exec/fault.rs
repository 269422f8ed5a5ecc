//! Why a run ended before its launches did.

use crate::program::ir::MemorySpace;
use gsan_core::event::EventError;
use gsan_core::ids::{SiteId, Thread};

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A thread did something it may not.
    Fault(Fault),
    /// No thread can make progress, ever.
    Deadlock(Vec<Waiting>),
    /// The instruction budget ran out; who was doing what then.
    Budget(Vec<Waiting>),
    /// The detector refused an event: a defect of this program, not of the kernel.
    Detector(EventError),
}

/// An error of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Who.
    pub thread: Thread,
    /// Where.
    pub site: SiteId,
    /// What.
    pub kind: FaultKind,
}

/// What a thread did that it may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// An access outside every allocation of its space.
    #[error("{} of {bytes} bytes at {address:#x} in {} memory is out of bounds{}", verb(*.write), space_name(*.space), near(*.nearest))]
    OutOfBounds {
        /// The space; `Generic` when the address belongs to none.
        space: MemorySpace,
        /// The first byte.
        address: u64,
        /// How many bytes.
        bytes: u32,
        /// A write or an atomic.
        write: bool,
        /// The allocation (first byte, bytes) it lies closest behind or in, if any.
        nearest: Option<(u64, u64)>,
    },
    /// The address is not a multiple of what the access needs.
    #[error("{} at {address:#x} in {} memory is not aligned to {alignment} bytes", verb(*.write), space_name(*.space))]
    Misaligned {
        /// The space.
        space: MemorySpace,
        /// The first byte.
        address: u64,
        /// What it should be a multiple of.
        alignment: u32,
        /// A write or an atomic.
        write: bool,
    },
    /// A write to constants or parameters.
    #[error("write of {bytes} bytes at {address:#x} to read-only memory")]
    ReadOnly {
        /// The first byte.
        address: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// A read of shared memory that nobody wrote.
    #[error("read of {bytes} bytes of shared memory at offset {offset:#x} that nobody wrote")]
    UninitialisedShared {
        /// The offset in the CTA's shared memory.
        offset: u64,
        /// How many bytes are read.
        bytes: u32,
    },
    /// An integer division by zero, whose result is undefined.
    #[error("integer division by zero")]
    DivisionByZero,
    /// `trap`
    #[error("trap")]
    Trap,
    /// `brkpt`
    #[error("breakpoint")]
    Breakpoint,
    /// `__assertfail`
    #[error("assertion `{message}` failed in {function} at {file}:{line}")]
    Assert {
        /// The condition.
        message: String,
        /// The source file.
        file: String,
        /// The line in it.
        line: u32,
        /// The function.
        function: String,
    },
    /// An aligned barrier that the lanes of one warp did not execute together.
    #[error(
        "the lanes of a warp wait at barrier {id} in different places; an aligned barrier needs all of them at one"
    )]
    BarrierDivergence {
        /// The barrier.
        id: u32,
    },
    /// A barrier number above 15.
    #[error("barrier {0} does not exist; a CTA has barriers 0 to 15")]
    BadBarrier(u64),
    /// A thread count that cannot be.
    #[error("barrier {id} for {threads} threads; {why}")]
    BarrierThreads {
        /// The barrier.
        id: u32,
        /// The count.
        threads: u64,
        /// What it should be.
        why: &'static str,
    },
    /// A lane executes a warp operation for lanes it does not belong to.
    #[error("lane {lane} is not in the member mask {mask:#010x}")]
    NotAMember {
        /// The lane.
        lane: u32,
        /// The mask.
        mask: u32,
    },
    /// `brx.idx` beyond its table.
    #[error("branch index {index} is beyond its table of {len}")]
    BranchIndex {
        /// The index.
        index: u64,
        /// The length of the table.
        len: usize,
    },
    /// An indirect call of something that is no function of the prototype.
    #[error("call of {0:#x}, which is none of the functions it may be")]
    BadCallee(u64),
    /// Call frames need more memory than a thread has.
    #[error("call frames need more than the {0} bytes a thread has")]
    StackOverflow(u32),
    /// `cp.async` with more source bytes than it copies.
    #[error("asynchronous copy reads {source_bytes} bytes but writes {bytes}")]
    CopySize {
        /// Bytes to read.
        source_bytes: u64,
        /// Bytes written.
        bytes: u32,
    },
    /// An mbarrier object used as it may not be.
    #[error("mbarrier at {offset:#x} in shared memory: {misuse}")]
    Mbarrier {
        /// The offset of the object in the CTA's shared memory.
        offset: u64,
        /// What is wrong.
        misuse: MbarrierMisuse,
    },
    /// An mbarrier operation outside shared memory.
    #[error("an mbarrier lies in shared memory, but {address:#x} is an address of {} memory", space_name(*.space))]
    MbarrierSpace {
        /// The space the address is in.
        space: MemorySpace,
        /// The address in it.
        address: u64,
    },
    /// A string in memory that never ends, or a format that is malformed.
    #[error("printf format {0}")]
    Format(&'static str),
}

/// How an mbarrier object was used as it may not be (PTX ISA, "mbarrier").
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MbarrierMisuse {
    /// There is none.
    #[error("there is none: no `mbarrier.init` came before, or `mbarrier.inval` did")]
    Missing,
    /// `mbarrier.init` of an object that is in use.
    #[error("`mbarrier.init` without `mbarrier.inval` of the one that is there")]
    InitialisedAgain,
    /// Another instruction writes to the object.
    #[error("a write that is no mbarrier operation; `mbarrier.inval` it first")]
    Overwritten,
    /// A count of arrivals that cannot be.
    #[error("a count of {0} arrivals; it must be 1 to 1048575")]
    Count(u64),
    /// More arrivals than the running phase still waits for.
    #[error("an arrival that counts for {count} at a phase that waits for {pending} more")]
    TooManyArrivals {
        /// The arrivals.
        count: u64,
        /// What the phase still waits for.
        pending: u32,
    },
    /// `.noComplete` completes the phase.
    #[error("an arrival with `.noComplete` completes the phase")]
    Completes,
    /// More transactions than an object can count.
    #[error("{0} pending transactions; there can be at most 1048575")]
    Transactions(i64),
    /// A parity that is none.
    #[error("a wait for parity {0}; a parity is 0 or 1")]
    Parity(u64),
    /// A state of another object.
    #[error("a wait with the state of an arrival at another mbarrier")]
    ForeignState,
    /// A state of an earlier phase than the last one that completed.
    #[error(
        "a wait with a state that is too old; it must come from the running phase or the one before"
    )]
    OldState,
}

/// What a thread was doing when the run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Who.
    pub thread: Thread,
    /// Where: the instruction it waits at or would execute next.
    pub site: SiteId,
    /// For what.
    pub wait: Wait,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A CTA barrier.
    Barrier {
        /// Its number.
        id: u32,
        /// How many threads have arrived.
        arrived: u32,
        /// How many it needs.
        needed: u32,
    },
    /// The barrier of the cluster.
    Cluster {
        /// How many threads have arrived.
        arrived: u32,
        /// How many it needs.
        needed: u32,
    },
    /// A warp operation.
    Warp {
        /// The lanes it is for.
        mask: u32,
        /// Those of them that are not there (they may wait elsewhere).
        missing: u32,
    },
    /// The launch before its own (`griddepcontrol.wait`).
    GridDependency,
    /// An mbarrier, in a loop that keeps testing it.
    Mbarrier {
        /// Its offset in shared memory.
        offset: u64,
        /// The phase that does not complete; the first is 0.
        phase: u64,
        /// Arrivals that it still waits for.
        pending: u32,
        /// Arrivals that it needs.
        expected: u32,
        /// Transactions that it waits for.
        transactions: i32,
    },
    /// A loop that keeps reading the same values.
    Polling {
        /// The address it read last, and its space.
        address: u64,
        /// Shared rather than global memory.
        shared: bool,
    },
    /// Nothing: it could go on (out of budget only).
    Running,
}

fn verb(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

/// The name of a space as reports say it.
pub(crate) fn space_name(space: MemorySpace) -> &'static str {
    match space {
        MemorySpace::Generic => "generic",
        MemorySpace::Global => "global",
        MemorySpace::Shared => "shared",
        MemorySpace::Local => "local",
        MemorySpace::Const => "constant",
        MemorySpace::Param => "parameter",
    }
}

fn near(nearest: Option<(u64, u64)>) -> String {
    nearest.map_or_else(String::new, |(start, bytes)| {
        format!("; the allocation before it is {bytes} bytes at {start:#x}")
    })
}
