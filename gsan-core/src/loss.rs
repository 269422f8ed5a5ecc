//! Losses of coverage: each limit of the detector that was met, counted.

/// A limit that was met. Meeting one loses reports; it never invents one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Loss {
    /// A CTA found no free slot and ran unchecked.
    NoSlot = 0,
    /// Streams share a bank of thread ids.
    SharedBank = 1,
    /// The pool of private clocks was empty: a CTA counted everything as ordered.
    PrivatePoolEmpty = 2,
    /// A merge found no place in the target clock.
    OutsideClock = 3,
    /// A publication was overwritten before somebody acquired it.
    PublicationOverrun = 4,
    /// A snapshot was overwritten before somebody acquired it.
    SnapshotOverrun = 5,
    /// A release published "everything up to now".
    TopRelease = 6,
    /// A thread used up its epochs; it counts as ordered until the next restart.
    WornEpoch = 7,
    /// Tokens are used up; releases publish nothing until the next restart.
    WornToken = 8,
    /// The site table is full: new source locations are unknown.
    SiteTableFull = 9,
    /// The CTA of an earlier side was overwritten in the history.
    HistoryOverwritten = 10,
    /// The race ring was full: races were dropped.
    RaceRingFull = 11,
    /// A read was not kept because its cell was full.
    ReadNotSampled = 12,
    /// A write evicted another record because its cell was full.
    WriteEvicted = 13,
    /// A compare-and-swap with release did not swap: more was released than happened.
    FailedRelease = 14,
    /// Memory was handed out without shadow.
    Unmanaged = 15,
    /// What the device library does not follow was called: a fence by hand, or an atomic of another
    /// form than it knows.
    NotInstrumented = 16,
    /// A mirrored barrier count disagreed with the hardware's.
    BarrierMismatch = 17,
    /// A dependent launch never waited for its predecessor.
    NeverWaited = 18,
    /// A launch's kernel contains synchronisation nobody reports.
    OpaqueLaunch = 19,
    /// An atomic was made on memory without shadow.
    UnmanagedAtomic = 20,
    /// A launch ran unchecked.
    UncheckedLaunch = 21,
}

impl Loss {
    /// How many kinds there are.
    pub const COUNT: usize = 22;

    /// Every kind, in the order of their numbers.
    pub const ALL: [Loss; Loss::COUNT] = [
        Loss::NoSlot,
        Loss::SharedBank,
        Loss::PrivatePoolEmpty,
        Loss::OutsideClock,
        Loss::PublicationOverrun,
        Loss::SnapshotOverrun,
        Loss::TopRelease,
        Loss::WornEpoch,
        Loss::WornToken,
        Loss::SiteTableFull,
        Loss::HistoryOverwritten,
        Loss::RaceRingFull,
        Loss::ReadNotSampled,
        Loss::WriteEvicted,
        Loss::FailedRelease,
        Loss::Unmanaged,
        Loss::NotInstrumented,
        Loss::BarrierMismatch,
        Loss::NeverWaited,
        Loss::OpaqueLaunch,
        Loss::UnmanagedAtomic,
        Loss::UncheckedLaunch,
    ];

    /// The name used in stored reports.
    pub const fn name(self) -> &'static str {
        match self {
            Loss::NoSlot => "no-slot",
            Loss::SharedBank => "shared-bank",
            Loss::PrivatePoolEmpty => "private-pool-empty",
            Loss::OutsideClock => "outside-clock",
            Loss::PublicationOverrun => "publication-overrun",
            Loss::SnapshotOverrun => "snapshot-overrun",
            Loss::TopRelease => "top-release",
            Loss::WornEpoch => "worn-epoch",
            Loss::WornToken => "worn-token",
            Loss::SiteTableFull => "site-table-full",
            Loss::HistoryOverwritten => "history-overwritten",
            Loss::RaceRingFull => "race-ring-full",
            Loss::ReadNotSampled => "read-not-sampled",
            Loss::WriteEvicted => "write-evicted",
            Loss::FailedRelease => "failed-release",
            Loss::Unmanaged => "unmanaged",
            Loss::NotInstrumented => "not-instrumented",
            Loss::BarrierMismatch => "barrier-mismatch",
            Loss::NeverWaited => "never-waited",
            Loss::OpaqueLaunch => "opaque-launch",
            Loss::UnmanagedAtomic => "unmanaged-atomic",
            Loss::UncheckedLaunch => "unchecked-launch",
        }
    }
}

/// How often each limit was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses([u64; Loss::COUNT]);

impl Losses {
    /// How often `loss` was met.
    pub const fn get(&self, loss: Loss) -> u64 {
        self.0[loss as usize]
    }

    /// Counts `loss` `times` more.
    pub fn add(&mut self, loss: Loss, times: u64) {
        let count = &mut self.0[loss as usize];
        *count = count.saturating_add(times);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Losses) {
        for loss in Loss::ALL {
            self.add(loss, other.get(loss));
        }
    }

    /// The limits that were met, with their counts.
    pub fn met(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        Loss::ALL
            .into_iter()
            .map(|loss| (loss, self.get(loss)))
            .filter(|&(_, count)| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_the_order_of_the_numbers() {
        for (number, loss) in Loss::ALL.into_iter().enumerate() {
            assert_eq!(loss as usize, number);
        }
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<_> = Loss::ALL.iter().map(|l| l.name()).collect();
        assert_eq!(names.len(), Loss::COUNT);
    }
}
