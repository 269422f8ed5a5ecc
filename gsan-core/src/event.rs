//! What a detector is told, and the trait of everything that is told it.
//!
//! Events come in the order in which they took effect: one total order that an interpreter, a test
//! or an interleaving gives. A read returns what the newest write before it left, byte by byte.
//! GPU threads are named one by one; a detector whose unit is the CTA looks at
//! [`Thread::cta`] only.

use crate::ids::{AsyncId, Cta, CtaIndex, DeviceRank, LaunchId, SiteId, StreamId, Thread};
use crate::loss::Losses;
use crate::race::Race;
use crate::scope::{Order, Scope};

/// The memory an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Global memory: one address space for all devices.
    Global,
    /// The shared memory of one CTA; addresses are offsets from its start. Other CTAs of the
    /// cluster may reach it, so the owner is part of the space.
    Shared(Cta),
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// Where the bytes are.
    pub space: Space,
    /// The first byte.
    pub address: u64,
    /// How many bytes; at least 1.
    pub bytes: u32,
}

/// What an access does to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic that returns the old value and wrote (`atom`); a compare-and-swap that swapped.
    Rmw,
    /// A compare-and-swap that did not swap: it only read.
    FailedRmw,
    /// A reduction: an atomic that returns nothing (`red`) and so takes no part in acquire
    /// patterns.
    Red,
}

impl Action {
    /// Whether the access changes memory.
    pub const fn writes(self) -> bool {
        matches!(self, Action::Write | Action::Rmw | Action::Red)
    }

    /// Whether the access reads memory (an RMW reads first).
    pub const fn reads(self) -> bool {
        !matches!(self, Action::Write)
    }

    /// Whether the program sees a value of the read.
    pub const fn returns_value(self) -> bool {
        matches!(self, Action::Read | Action::Rmw | Action::FailedRmw)
    }
}

/// The path an access takes to memory (PTX ISA, "Proxies").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Proxy {
    /// Ordinary accesses.
    #[default]
    Generic,
    /// `cp.async.bulk`, `cp.reduce.async.bulk` and their tensor forms, `wgmma` operands.
    Async,
}

/// One access of one GPU thread. The elements of a vector access are accesses of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Who.
    pub thread: Thread,
    /// Which bytes.
    pub range: Range,
    /// Read, write or both.
    pub action: Action,
    /// Weak, or strong with an order.
    pub order: Order,
    /// The scope of a strong access; ignored for a weak one.
    pub scope: Scope,
    /// Where in the source.
    pub site: SiteId,
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its number, used by all events of its threads.
    pub id: LaunchId,
    /// The device it runs on.
    pub device: DeviceRank,
    /// The stream it was launched on.
    pub stream: StreamId,
    /// How many CTAs the grid has.
    pub ctas: u32,
    /// How many threads a CTA has.
    pub threads: u32,
    /// How many CTAs a cluster has; consecutive CTAs make a cluster. 1 without clusters.
    pub cluster: u32,
    /// Launched with the programmatic attribute: starts with its predecessor's own starting
    /// frontier and takes the predecessor's completion at [`Event::GridDependencyWait`].
    pub programmatic: bool,
}

/// An edge of the host program, between launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostEvent {
    /// `cuEventRecord`: remembers what the stream has been given so far under `event`.
    Record {
        /// The event's number.
        event: u32,
        /// The stream recorded on.
        stream: StreamId,
    },
    /// `cuStreamWaitEvent`: the stream's later launches start after the newest record.
    Wait {
        /// The event's number.
        event: u32,
        /// The waiting stream.
        stream: StreamId,
    },
    /// The host waited for the stream, or a query said that it is done.
    SyncStream(StreamId),
    /// The host waited for the event, or a query said that it is done.
    SyncEvent(u32),
    /// The host waited for the whole device.
    SyncDevice(DeviceRank),
}

/// Something that threads meet at: arrivals release into its running phase, completed waits
/// acquire a completed phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meeting {
    /// `bar`/`barrier` number `id` of a CTA.
    CtaBarrier {
        /// The CTA.
        cta: Cta,
        /// The barrier's number, 0 to 15.
        id: u32,
    },
    /// `bar.warp.sync` of one warp for the threads of `mask`.
    WarpBarrier {
        /// The CTA.
        cta: Cta,
        /// The warp within the CTA.
        warp: u32,
        /// The member lanes.
        mask: u32,
    },
    /// `barrier.cluster` of the cluster whose first CTA is `first`.
    ClusterBarrier {
        /// The launch.
        launch: LaunchId,
        /// The first CTA of the cluster.
        first: CtaIndex,
    },
    /// An mbarrier object in the shared memory of `owner` at byte `offset`.
    Mbarrier {
        /// The CTA whose shared memory holds the object.
        owner: Cta,
        /// The offset of the object.
        offset: u64,
    },
}

/// What a fence orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FenceKind {
    /// `fence.acq_rel` (also `membar` of old targets, at least).
    AcqRel,
    /// `fence.acquire`: acquire patterns only.
    Acquire,
    /// `fence.release`: release patterns only.
    Release,
    /// `fence.sc`.
    Sc,
    /// `fence.proxy.async`: orders the thread's generic and asynchronous accesses.
    ProxyAsync,
}

/// How a thread learns that an asynchronous copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Completion {
    /// `cp.async.wait_group`, `cp.async.bulk.wait_group`: reads and writes are done.
    Full,
    /// `cp.async.bulk.wait_group.read`: only the source has been read.
    ReadsOnly,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The host did something that orders launches.
    Host(HostEvent),
    /// The host launched a kernel. Its CTAs may start at once or much later.
    Launch(Launch),
    /// A CTA became resident.
    CtaStart {
        /// The CTA.
        cta: Cta,
        /// The multiprocessor it runs on.
        sm: u32,
    },
    /// All threads of a CTA returned.
    CtaExit(Cta),
    /// `griddepcontrol.wait` returned.
    GridDependencyWait(Thread),
    /// An access that took effect, atomics included.
    Access(Access),
    /// A strong access is about to be executed: what the compressed detector does before the
    /// instruction. Exact detectors ignore it. `Access.action` is what will be tried.
    AtomicBegin(Access),
    /// The strong access begun last by this thread was executed: what the compressed detector
    /// does after the instruction. Exact detectors ignore it. `Access.action` is what came of it.
    AtomicEnd(Access),
    /// A fence.
    Fence {
        /// Who.
        thread: Thread,
        /// What it orders.
        kind: FenceKind,
        /// How far it reaches.
        scope: Scope,
    },
    /// A thread arrived: what it did before is released into the running phase.
    Arrive {
        /// Who.
        thread: Thread,
        /// At what.
        at: Meeting,
        /// Whether the arrival releases (`.relaxed` arrivals do not).
        releases: bool,
    },
    /// The running phase is complete; the next one begins.
    PhaseComplete(Meeting),
    /// A thread's wait for the newest completed phase returned: it acquires all its arrivals.
    Leave {
        /// Who.
        thread: Thread,
        /// From what.
        at: Meeting,
        /// Whether the wait acquires (`.relaxed` waits do not).
        acquires: bool,
    },
    /// An mbarrier was initialised, again or for the first time.
    MeetingReset(Meeting),
    /// An asynchronous copy was issued. It reads and writes at any time from now until a wait
    /// that covers it.
    AsyncIssue {
        /// Who.
        thread: Thread,
        /// Which copy.
        id: AsyncId,
        /// What it reads, if anything that can race.
        reads: Vec<Range>,
        /// What it writes, if anything that can race.
        writes: Vec<Range>,
        /// `Generic` for `cp.async`, `Async` for the bulk forms.
        proxy: Proxy,
        /// Where in the source.
        site: SiteId,
    },
    /// The issuing thread waited until the copy was done.
    AsyncWait {
        /// Who.
        thread: Thread,
        /// Which copy.
        id: AsyncId,
        /// What is known to be done.
        completion: Completion,
    },
    /// The copy's completion arrives at an mbarrier (`cp.async.mbarrier.arrive`, or
    /// `complete_tx`): whoever acquires that phase knows the copy to be done.
    AsyncArrive {
        /// Which copy.
        id: AsyncId,
        /// The mbarrier.
        at: Meeting,
    },
    /// Bytes were freed, or handed out anew: what was known of them is forgotten.
    Forget(Range),
}

/// A detector that is told events.
pub trait Detector {
    /// Takes one event. An event that makes no sense (an unknown launch, a thread outside its
    /// CTA) is an error, and changes nothing.
    fn on(&mut self, event: &Event) -> Result<(), EventError>;

    /// Takes the races found since the last call, in the order in which they were found. The
    /// same race may come many times: [`Race::key`] tells duplicates.
    fn take_races(&mut self) -> Vec<Race>;

    /// What was lost of coverage so far.
    fn losses(&self) -> Losses;
}

/// An event that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The launch was never announced.
    #[error("launch {0} was never announced by a launch event")]
    UnknownLaunch(LaunchId),
    /// The launch number is taken.
    #[error("launch {0} was announced before; launch numbers are never reused")]
    LaunchAgain(LaunchId),
    /// The grid has no such CTA.
    #[error("CTA {index} is outside the grid of launch {launch}, which has {ctas} CTAs")]
    NoSuchCta {
        /// The launch.
        launch: LaunchId,
        /// The position asked for.
        index: CtaIndex,
        /// How many CTAs there are.
        ctas: u32,
    },
    /// The CTA has no such thread.
    #[error("thread {index} is outside its CTA, which has {threads} threads")]
    NoSuchThread {
        /// The position asked for.
        index: u32,
        /// How many threads a CTA has.
        threads: u32,
    },
    /// The CTA is not resident.
    #[error("CTA {} of launch {} is not resident", .0.index, .0.launch)]
    NotResident(Cta),
    /// The copy was never issued.
    #[error("asynchronous copy {0} was never issued")]
    UnknownCopy(AsyncId),
    /// The range is empty or wraps around the address space.
    #[error("a range of {bytes} bytes at {address:#x} is empty or wraps around")]
    BadRange {
        /// The first byte.
        address: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// Anything else the detector does not accept, said in words.
    #[error("{0}")]
    Unsupported(&'static str),
}
