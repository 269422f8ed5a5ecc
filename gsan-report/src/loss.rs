//! Losses of coverage: their names in stored reports, what each one means, and its cure.

use std::borrow::Cow;

use gsan_core::loss::Loss;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A limit of the detector, stored by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LossName(pub Loss);

impl LossName {
    /// What happened, as a sentence about `times` events, without a full stop.
    pub fn meaning(self, times: u64) -> String {
        let what = |one: &str, many: &str| {
            if times == 1 {
                format!("1 {one}")
            } else {
                format!("{times} {many}")
            }
        };
        match self.0 {
            Loss::NoSlot => what(
                "CTA found no free slot and ran unchecked",
                "CTAs found no free slot and ran unchecked",
            ),
            Loss::SharedBank => what(
                "stream shares its thread ids with another: races between the two may be missed",
                "streams share their thread ids with others: races between them may be missed",
            ),
            Loss::PrivatePoolEmpty => what(
                "CTA got no private clock and counted everything as ordered from then on",
                "CTAs got no private clock and counted everything as ordered from then on",
            ),
            Loss::OutsideClock => what(
                "acquire did not fit into the clock of its CTA, which then counted more as ordered",
                "acquires did not fit into the clocks of their CTAs, which then counted more as \
                 ordered",
            ),
            Loss::PublicationOverrun => what(
                "released clock was overwritten before it was acquired",
                "released clocks were overwritten before they were acquired",
            ),
            Loss::SnapshotOverrun => what(
                "copy of a clock was overwritten before it was acquired",
                "copies of clocks were overwritten before they were acquired",
            ),
            Loss::TopRelease => what(
                "release published everything up to its moment instead of what its CTA knew",
                "releases published everything up to their moment instead of what their CTAs knew",
            ),
            Loss::WornEpoch => what(
                "start or release of a CTA found the epochs of its slot used up; from then on it \
                 counted as ordered",
                "starts or releases of CTAs found the epochs of their slots used up; from then on \
                 they counted as ordered",
            ),
            Loss::WornToken => what(
                "release could not be published because the tokens are used up",
                "releases could not be published because the tokens are used up",
            ),
            Loss::SiteTableFull => what(
                "source location found no place in the site table and is unknown in reports",
                "source locations found no place in the site table and are unknown in reports",
            ),
            Loss::HistoryOverwritten => what(
                "race lacks the CTA of its earlier side: the history was overwritten",
                "races lack the CTA of their earlier side: the history was overwritten",
            ),
            Loss::RaceRingFull => what(
                "race was dropped because the race ring was full",
                "races were dropped because the race ring was full",
            ),
            Loss::ReadNotSampled => what(
                "read was not remembered because its shadow cell was full",
                "reads were not remembered because their shadow cells were full",
            ),
            Loss::WriteEvicted => what(
                "access was forgotten early because its shadow cell was full",
                "accesses were forgotten early because their shadow cells were full",
            ),
            Loss::FailedRelease => what(
                "compare-and-swap with release failed and yet counted as a release",
                "compare-and-swaps with release failed and yet counted as releases",
            ),
            Loss::Unmanaged => what(
                "allocation was handed out without shadow and is not checked",
                "allocations were handed out without shadow and are not checked",
            ),
            Loss::NotInstrumented => what(
                "fence or atomic is not followed; what came before it counted as ordered",
                "fences or atomics are not followed; what came before them counted as ordered",
            ),
            Loss::BarrierMismatch => what(
                "barrier count disagreed with the hardware's and the barrier was taken as complete",
                "barrier counts disagreed with the hardware's and the barriers were taken as \
                 complete",
            ),
            Loss::NeverWaited => what(
                "dependent launch never waited for its predecessor and is not ordered after it",
                "dependent launches never waited for their predecessors and are not ordered after \
                 them",
            ),
            Loss::OpaqueLaunch => what(
                "launch contains synchronisation that nobody reports: its races are only possible",
                "launches contain synchronisation that nobody reports: their races are only \
                 possible",
            ),
            Loss::UnmanagedAtomic => what(
                "atomic was made on memory without shadow; after an acquire there its CTA counted \
                 everything as ordered",
                "atomics were made on memory without shadow; after an acquire there their CTAs \
                 counted everything as ordered",
            ),
            Loss::UncheckedLaunch => what("launch ran unchecked", "launches ran unchecked"),
        }
    }

    /// Whether it happens in programs that do nothing unusual, and no setting that is not the default avoids
    /// it: it is told as a note.
    pub const fn is_usual(self) -> bool {
        matches!(
            self.0,
            Loss::ReadNotSampled | Loss::WriteEvicted | Loss::FailedRelease | Loss::BarrierMismatch
        )
    }

    /// What to change so that it does not happen again.
    pub const fn cure(self) -> &'static str {
        match self.0 {
            Loss::NoSlot => {
                "raise `launch.slots_per_sm` (at most 32), or lower `topology.num_devices` to the \
                 devices in use"
            }
            Loss::SharedBank => "lower `launch.slots_per_sm`, or use fewer streams",
            Loss::PrivatePoolEmpty => "raise `clock.private_memory`",
            Loss::OutsideClock => {
                "let kernels acquire from fewer streams: a clock has room for 3 streams, the own one \
                 included, and for at least 7 with 3 devices or more"
            }
            Loss::PublicationOverrun => {
                "raise `clock.publications`, unless `top-release` was met as often: then see there"
            }
            Loss::SnapshotOverrun => "raise `clock.snapshot_memory`",
            Loss::TopRelease => {
                "let fewer CTAs release into one flag or counter at the same moment; if `no-slot` or \
                 `private-pool-empty` was met, see there"
            }
            Loss::WornEpoch | Loss::WornToken => {
                "synchronise the device from time to time: the detector restarts its counters when \
                 it knows that everything has finished"
            }
            Loss::SiteTableFull => {
                "check fewer kernels in one run: 4,095 source lines can be told apart"
            }
            Loss::HistoryOverwritten => {
                "run less between the two sides, for example with fewer launches in flight"
            }
            Loss::RaceRingFull => {
                "repair the races reported so far, or stop at the first with `report.on_race = \
                 \"halt\"`"
            }
            Loss::ReadNotSampled => {
                "races with them may be missed; run again with another `sampling.seed` to keep other reads"
            }
            Loss::WriteEvicted => {
                "nothing to change unless `shadow.records` is 2; what came before the newest accesses to 8 bytes \
                 may race unseen"
            }
            Loss::FailedRelease => {
                "nothing to change; races hidden by it show when the compare-and-swap succeeds"
            }
            Loss::Unmanaged => {
                "free device memory, or halve the shadow with `shadow.records = 2`; raise \
                 `shadow.reserve` if address space ran out"
            }
            Loss::NotInstrumented => {
                "use atomics of 4 or 8 bytes that acquire and release, instead of fences"
            }
            Loss::BarrierMismatch => {
                "none is needed unless a race is missed: arrivals that the compiler does not report \
                 cause it"
            }
            Loss::NeverWaited => {
                "call `griddepcontrol.wait` in the kernel, or launch it without the programmatic \
                 attribute"
            }
            Loss::OpaqueLaunch => {
                "use the language's atomics instead of inline assembly; `report.strict = true` makes \
                 possible races count"
            }
            Loss::UnmanagedAtomic => {
                "allocate flags and counters where GSan manages memory: inside `gsan.enable()`, or with \
                 `gsanMalloc`"
            }
            Loss::UncheckedLaunch => {
                "free device memory; capture the launches of each device in a graph of its own"
            }
        }
    }
}

impl Serialize for LossName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for LossName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <Cow<'de, str>>::deserialize(deserializer)?;
        Loss::ALL
            .into_iter()
            .find(|loss| loss.name() == name)
            .map(LossName)
            .ok_or_else(|| serde::de::Error::unknown_variant(&name, &NAMES))
    }
}

const NAMES: [&str; Loss::COUNT] = {
    let mut names = [""; Loss::COUNT];
    let mut index = 0;
    while index < Loss::COUNT {
        names[index] = Loss::ALL[index].name();
        index += 1;
    }
    names
};

impl JsonSchema for LossName {
    fn schema_name() -> Cow<'static, str> {
        "LossName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": NAMES })
    }
}
