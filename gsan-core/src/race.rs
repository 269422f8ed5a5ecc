//! Races as data.

use crate::event::{Action, Space};
use crate::ids::{Cta, DeviceRank, LaunchId, SiteId, Thread};
use crate::scope::{Order, Scope};

/// What the later access did to what the earlier one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RaceKind {
    /// The later access reads what the earlier one wrote.
    ReadAfterWrite,
    /// The later access writes what the earlier one read.
    WriteAfterRead,
    /// Both write.
    WriteAfterWrite,
}

impl RaceKind {
    /// The kind of a race between `earlier` and `later`, or `None` when neither writes. An RMW
    /// reads first: against an earlier write it is read-after-write.
    pub const fn of(earlier: Action, later: Action) -> Option<RaceKind> {
        match (earlier.writes(), later.reads(), later.writes()) {
            (true, true, _) => Some(RaceKind::ReadAfterWrite),
            (true, false, _) => Some(RaceKind::WriteAfterWrite),
            (false, _, true) => Some(RaceKind::WriteAfterRead),
            (false, _, false) => None,
        }
    }

    /// The name used on the command line, in configuration and in stored reports.
    pub const fn name(self) -> &'static str {
        match self {
            RaceKind::ReadAfterWrite => "read-after-write",
            RaceKind::WriteAfterRead => "write-after-read",
            RaceKind::WriteAfterWrite => "write-after-write",
        }
    }
}

/// Who made an access, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A GPU thread (detectors whose unit is the thread).
    Thread(Thread),
    /// A CTA (detectors whose unit is the CTA).
    Cta(Cta),
    /// A CTA whose launch is no longer known: the history was overwritten. The device still is.
    Forgotten(DeviceRank),
}

impl Who {
    /// The launch, if it is known.
    pub const fn launch(self) -> Option<LaunchId> {
        match self {
            Who::Thread(thread) => Some(thread.cta.launch),
            Who::Cta(cta) => Some(cta.launch),
            Who::Forgotten(_) => None,
        }
    }
}

/// One side of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    /// Who.
    pub who: Who,
    /// Read, write or both.
    pub action: Action,
    /// Weak, or strong with an order. Detectors that do not keep the order of an earlier
    /// strong access say [`Order::Relaxed`].
    pub order: Order,
    /// The scope of a strong access; `None` for a weak one.
    pub scope: Option<Scope>,
    /// An asynchronous copy that was still running, as far as this pair knew.
    pub asynchronous: bool,
    /// Where in the source.
    pub site: SiteId,
}

/// Two accesses to the same bytes that nothing orders, at least one of which writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Race {
    /// What happened.
    pub kind: RaceKind,
    /// Global memory, or whose shared memory.
    pub space: Space,
    /// The first byte both sides touched.
    pub address: u64,
    /// How many bytes both sides touched, from the first to the last.
    pub bytes: u32,
    /// The access that came first in this execution.
    pub earlier: Side,
    /// The access that met it.
    pub later: Side,
}

/// What makes two races one in a report: kind, memory space, both sites.
///
/// Kernels are part of the key too, but launches and names are known to the session only; it
/// adds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RaceKey {
    /// What happened.
    pub kind: RaceKind,
    /// In shared memory.
    pub shared: bool,
    /// The earlier side.
    pub earlier: SiteId,
    /// The later side.
    pub later: SiteId,
}

impl Race {
    /// The key under which duplicates are counted.
    pub const fn key(&self) -> RaceKey {
        RaceKey {
            kind: self.kind,
            shared: matches!(self.space, Space::Shared(_)),
            earlier: self.earlier.site,
            later: self.later.site,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rmw_reads_first() {
        use Action::*;
        assert_eq!(RaceKind::of(Write, Rmw), Some(RaceKind::ReadAfterWrite));
        assert_eq!(RaceKind::of(Read, Rmw), Some(RaceKind::WriteAfterRead));
        assert_eq!(RaceKind::of(Rmw, Write), Some(RaceKind::WriteAfterWrite));
        assert_eq!(RaceKind::of(Rmw, Read), Some(RaceKind::ReadAfterWrite));
        assert_eq!(
            RaceKind::of(FailedRmw, Write),
            Some(RaceKind::WriteAfterRead)
        );
        assert_eq!(RaceKind::of(Read, FailedRmw), None);
    }
}
