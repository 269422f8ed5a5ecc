//! Every structure that device code or another process reads, defined once.
//!
//! The C header that device code includes is written from these definitions ([`header`]). All
//! structures are `repr(C)`, have no padding, and hold plain integers: whoever reads one that
//! others write does so word by word through the atomics facade.
//!
//! Where they lie:
//!
//! - The **state region** of a device, [`STATE_STRIDE`] bytes, mapped by every process that
//!   shares memory with the device: [`GlobalState`] at its start, then what that names by offsets
//!   from the start of the region. All that other devices read is in it.
//! - **Pinned host memory**: [`LaunchDescriptor`]s, the race ring ([`RaceRing`]), and copies of site
//!   tables ([`SiteMirror`]).
//! - **Shared memory of a CTA**: its [`ThreadState`].
//! - **Memory that the caller lends**: [`AtomicEvent`], [`ClusterScratch`], [`MbarrierTable`].
//!
//! Rules for a field: what one CTA reads at every access lies in one cache line (128 bytes) and
//! is copied to where the CTA has it at hand; a word that many write has a line of its own; what
//! is read by another device is an offset, never an address.

#[macro_use]
mod describe;
mod clock;
pub mod header;
mod launch;
mod lent;
mod race;
mod state;
mod step;

pub use clock::{Checkpoints, ClockHeader, ClockShape, Publication, RowHeader, Segment, entry};
pub use describe::{CType, Constant, Field, Structure};
pub use launch::{
    HistoryEntry, LaunchDescriptor, LaunchState, Overtaken, ThreadState, history, launch_flags,
    thread_flags,
};
pub use lent::{
    AtomicEvent, ClusterScratch, EventFields, Mbarrier, MbarrierTable, Meeting, event_codes,
    meeting_codes,
};
pub use race::{
    KernelName, RaceEntry, RaceRing, RaceSide, Site, SiteMirror, race_codes, site_codes,
};
pub use state::{
    Constants, CounterLine, GlobalState, Offsets, STATE_STRIDE, Shape, ShapeError, limits,
};
pub use step::{Step, step_codes};
