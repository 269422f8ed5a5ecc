//! The numbers that name things: sites, launches, devices, CTAs and GPU threads.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A source location (file, line), numbered in a table; 0 is unknown.
    ///
    /// The compressed detector keeps 12 bits of it, so numbers above 4,095 become 0 there.
    SiteId(u32)
}
number! {
    /// The number of a launch, unique within one detector and never reused.
    LaunchId(u32)
}
number! {
    /// The logical number of a GPU in the topology, over all processes.
    DeviceRank(u16)
}
number! {
    /// The number a CTA has while resident: the first id of its bank plus its slot.
    ThreadId(u16)
}
number! {
    /// A stream of one program; streams of different devices have different numbers.
    StreamId(u32)
}
number! {
    /// The position of a CTA in its grid: `x + y * grid.x + z * grid.x * grid.y`.
    CtaIndex(u32)
}
number! {
    /// One asynchronous copy, unique within one detector.
    AsyncId(u64)
}

impl SiteId {
    /// A site nobody named.
    pub const UNKNOWN: SiteId = SiteId(0);
}

/// One CTA of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cta {
    /// The launch it belongs to.
    pub launch: LaunchId,
    /// Its position in the grid.
    pub index: CtaIndex,
}

/// One GPU thread of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    /// The CTA it belongs to.
    pub cta: Cta,
    /// Its position in the CTA: `x + y * block.x + z * block.x * block.y`; 32 consecutive
    /// positions make a warp.
    pub index: u32,
}

impl Thread {
    /// The thread at position `index` of CTA `cta` of `launch`.
    pub const fn new(launch: LaunchId, cta: u32, index: u32) -> Self {
        Thread {
            cta: Cta {
                launch,
                index: CtaIndex(cta),
            },
            index,
        }
    }

    /// The warp within the CTA.
    pub const fn warp(self) -> u32 {
        self.index / 32
    }
}
