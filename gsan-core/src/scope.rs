//! Scopes and memory orders of the PTX memory consistency model (PTX ISA, "Scope" and
//! "Operation types").

/// How far a strong operation or a fence reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Threads of the same CTA.
    Cta,
    /// Threads of the same cluster.
    Cluster,
    /// Threads of the same device.
    Gpu,
    /// All threads of the program, on every device and the host.
    Sys,
}

/// The memory order of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// An ordinary access: it may not be concurrent with a conflicting one.
    Weak,
    /// A strong access without ordering; volatile accesses are relaxed at [`Scope::Sys`].
    Relaxed,
    /// A strong read that acquires.
    Acquire,
    /// A strong write that releases.
    Release,
    /// A read-modify-write that acquires and releases.
    AcqRel,
}

impl Order {
    /// Whether the access is strong, that is, may race with strong accesses of adequate scope.
    pub const fn is_strong(self) -> bool {
        !matches!(self, Order::Weak)
    }

    /// Whether the read side acquires.
    pub const fn acquires(self) -> bool {
        matches!(self, Order::Acquire | Order::AcqRel)
    }

    /// Whether the write side releases.
    pub const fn releases(self) -> bool {
        matches!(self, Order::Release | Order::AcqRel)
    }
}
