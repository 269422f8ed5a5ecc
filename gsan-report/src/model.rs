//! A report as data: what is stored as JSON.
//!
//! The JSON Schema of [`Report`] is kept in the repository (`gsan-report/report.schema.json`).
//! Every change of these types changes the format: it takes a new [`VERSION`].

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of the stored format. Other versions are refused.
pub const VERSION: u32 = 2;

/// Everything one run found, or several runs together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The version of this format; see [`VERSION`].
    pub version: u32,
    /// The version of GSan that wrote the report.
    pub tool: String,
    /// The runs that these findings come from, each with a random identifier of its own: so a run
    /// is not merged twice.
    pub runs: BTreeSet<Uuid>,
    /// What was checked.
    pub summary: Summary,
    /// Inputs that could not be checked: nothing is known of their races.
    pub unchecked: Vec<Unchecked>,
    /// Races, each once.
    pub races: Vec<Race>,
    /// Races that may be none, because synchronisation that nobody reports lies between their sides.
    pub possible_races: Vec<PossibleRace>,
    /// Errors of the program other than races.
    pub faults: Vec<Fault>,
    /// Limits of the detector that were met: each may have hidden races.
    pub losses: Vec<LossCount>,
    /// The suppressions in force, with what each one hid.
    pub suppressions: Vec<Suppression>,
}

impl Default for Report {
    fn default() -> Self {
        Report {
            version: VERSION,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            runs: BTreeSet::new(),
            summary: Summary::default(),
            unchecked: Vec::new(),
            races: Vec::new(),
            possible_races: Vec::new(),
            faults: Vec::new(),
            losses: Vec::new(),
            suppressions: Vec::new(),
        }
    }
}

impl Report {
    /// Whether the exit code says that something was found. Possible races count when `strict`.
    pub fn has_findings(&self, strict: bool) -> bool {
        !self.races.is_empty()
            || !self.faults.is_empty()
            || (strict && !self.possible_races.is_empty())
    }

    /// Whether every input was checked.
    pub fn is_complete(&self) -> bool {
        self.unchecked.is_empty()
    }
}

/// What was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Processes that wrote a part of this report.
    pub processes: u64,
    /// Launches of checked kernels.
    pub launches: u64,
    /// Schedules that were executed (`gsan check`); 0 for runs on a GPU.
    pub schedules: u64,
    /// Accesses that were checked.
    pub accesses: u64,
    /// Bytes of memory that has a shadow.
    pub covered_bytes: u64,
    /// Bytes of memory that was handed out without shadow.
    pub uncovered_bytes: u64,
    /// Races, faults included, that were found after `report.limit` distinct ones and not kept.
    pub not_kept: u64,
    /// The seeds that sampling and schedules started from.
    pub seeds: BTreeSet<u64>,
}

/// An input that could not be checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unchecked {
    /// The file, as it was given.
    pub file: String,
    /// What is wrong with it, or with what it is launched with.
    pub reason: String,
    /// Where that is, if it is in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What would be right, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// Two accesses to the same bytes that nothing orders, at least one of which writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Race {
    /// What happened.
    pub kind: RaceKind,
    /// The bytes that both sides touched, from the first to the last.
    pub range: Range,
    /// The access that came first.
    pub earlier: Side,
    /// The access that met it.
    pub later: Side,
    /// How often this kind of race was seen between these two lines of these kernels.
    pub times: u64,
    /// How to see it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

/// A race that may be none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PossibleRace {
    /// Why it is not certain.
    pub reason: String,
    /// The race.
    pub race: Race,
}

/// What the later access did to what the earlier one did.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RaceKind {
    /// The later access reads what the earlier one wrote.
    ReadAfterWrite,
    /// The later access writes what the earlier one read.
    WriteAfterRead,
    /// Both write.
    WriteAfterWrite,
}

/// A range of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The memory that `address` counts in.
    pub space: Space,
    /// The first byte.
    pub address: Hex,
    /// How many bytes.
    pub bytes: u64,
    /// The allocation that holds the first byte, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
}

/// The memory that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Space {
    /// Global memory.
    Global,
    /// The shared memory of one CTA; addresses are offsets from its start.
    Shared {
        /// The CTA's position in its grid.
        cta: Position,
    },
}

/// An allocation, and where in it something lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Allocation {
    /// What the user calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// The distance of the first byte in question from its start.
    pub offset: u64,
}

/// One side of a race.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// Who made the access.
    pub who: Who,
    /// What the access did.
    pub action: Action,
    /// Weak, or atomic with an order.
    pub order: Order,
    /// The scope of an atomic access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// An asynchronous copy that was still running, as far as the two sides knew.
    pub asynchronous: bool,
    /// Where in the source, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// What an access does to its bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic that returns the old value.
    ReadModifyWrite,
    /// A compare-and-swap that did not swap: it only read.
    FailedCompareAndSwap,
    /// An atomic that returns nothing (`red`).
    Reduction,
}

/// The memory order of an access.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Not atomic.
    Weak,
    /// Atomic without ordering.
    Relaxed,
    /// Acquires.
    Acquire,
    /// Releases.
    Release,
    /// Acquires and releases.
    AcqRel,
}

/// How far an atomic access reaches.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The same CTA.
    Cta,
    /// The same cluster.
    Cluster,
    /// The same GPU.
    Gpu,
    /// Every GPU and the host.
    Sys,
}

/// Who did something, as far as it is known. Without `cta` the history was overwritten, and at
/// most the device is still known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// The thread's position in its CTA, where threads are told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Position>,
    /// The CTA's position in its grid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cta: Option<Position>,
    /// The kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The number of the launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<u64>,
    /// The device rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u16>,
    /// The stream, as the program knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Hex>,
}

/// `[x, y, z]`.
pub type Position = [u32; 3];

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The file, as the compiler named it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The column, counted from 1, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The instruction, when `file` is not the PTX file itself and the PTX file is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx: Option<PtxLine>,
}

/// A line of a PTX file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PtxLine {
    /// The PTX file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
}

/// How to see a finding again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The seed of the schedule.
    pub seed: u64,
    /// The command that executes exactly this schedule.
    pub command: String,
}

/// An error of the program other than a race.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// What happened, in words: "4-byte write past the end of a buffer".
    pub message: String,
    /// Who did it, if one thread did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// Where in the source, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The bytes it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// Who waits where, of a deadlock or a worn budget.
    pub waiting: Vec<Waiting>,
    /// What else helps to understand it.
    pub notes: Vec<String>,
    /// How often this kind of fault was seen on this line of this kernel.
    pub times: u64,
    /// How to see it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

impl Fault {
    /// A fault that was seen once, of which nothing else is known yet.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Fault {
        Fault {
            kind,
            message: message.into(),
            who: None,
            place: None,
            range: None,
            waiting: Vec::new(),
            notes: Vec::new(),
            times: 1,
            replay: None,
        }
    }
}

/// Threads that wait at the same place for the same thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// How many threads.
    pub threads: u64,
    /// One of them.
    pub who: Who,
    /// Where in the source, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What for: "barrier 0 (64 of 128 threads arrived)".
    pub what: String,
}

/// The kinds of faults.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Nobody can run.
    Deadlock,
    /// The instruction budget was used up.
    Budget,
    /// An access outside every allocation.
    OutOfBounds,
    /// An address that is not a multiple of the access's size.
    Misaligned,
    /// A read of memory that nobody wrote.
    Uninitialised,
    /// `trap`.
    Trap,
    /// A failed assertion of the kernel.
    Assertion,
    /// An integer division by zero.
    DivisionByZero,
    /// Threads of one warp or CTA at different barriers, or at a barrier that others left for good.
    BarrierDivergence,
    /// An operand that the instruction does not allow.
    InvalidOperand,
    /// A second write to a byte of write-once memory.
    WriteOnceWrittenTwice,
    /// A read of write-once memory before its first write.
    WriteOnceReadUnwritten,
    /// An atomic on write-once memory.
    WriteOnceAtomic,
}

impl FaultKind {
    /// What happened, as far as the kind says it.
    pub const fn sentence(self) -> &'static str {
        match self {
            FaultKind::Deadlock => "Threads wait for each other",
            FaultKind::Budget => "The instruction budget was used up",
            FaultKind::OutOfBounds => "An access outside every allocation",
            FaultKind::Misaligned => "An address that is no multiple of the access's size",
            FaultKind::Uninitialised => "A read of memory that nobody wrote",
            FaultKind::Trap => "The kernel executed a trap",
            FaultKind::Assertion => "An assertion of the kernel failed",
            FaultKind::DivisionByZero => "An integer division by zero",
            FaultKind::BarrierDivergence => "Threads met at different barriers",
            FaultKind::InvalidOperand => "An operand that the instruction does not allow",
            FaultKind::WriteOnceWrittenTwice => "Write-once memory written more than once",
            FaultKind::WriteOnceReadUnwritten => "Read of write-once memory before its first write",
            FaultKind::WriteOnceAtomic => {
                "Atomic operations on write-once memory are not supported"
            }
        }
    }
}

/// How often a limit of the detector was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossCount {
    /// Which limit.
    pub loss: crate::loss::LossName,
    /// How often.
    pub times: u64,
}

/// A suppression, and what it hid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Suppression {
    /// A pattern of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A pattern of the file of either side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A pattern of the kernel of either side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Why it is there.
    pub reason: String,
    /// How many races and faults it hid, duplicates included.
    pub times: u64,
}

/// A number that is stored and shown as hexadecimal text, so that no reader rounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex(pub u64);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Serialize for Hex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.strip_prefix("0x")
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Hex)
            .ok_or_else(|| {
                serde::de::Error::invalid_value(
                    serde::de::Unexpected::Str(&text),
                    &"a hexadecimal number of at most 64 bits, like \"0x1f\"",
                )
            })
    }
}

impl JsonSchema for Hex {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Hex".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^0x[0-9a-fA-F]{1,16}$" })
    }
}

macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal,)* }) => {
        impl $type {
            /// Every kind.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// The name used on the command line, in configuration and in stored reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }
    };
}

names!(RaceKind {
    ReadAfterWrite = "read-after-write",
    WriteAfterRead = "write-after-read",
    WriteAfterWrite = "write-after-write",
});

names!(FaultKind {
    Deadlock = "deadlock",
    Budget = "budget",
    OutOfBounds = "out-of-bounds",
    Misaligned = "misaligned",
    Uninitialised = "uninitialised",
    Trap = "trap",
    Assertion = "assertion",
    DivisionByZero = "division-by-zero",
    BarrierDivergence = "barrier-divergence",
    InvalidOperand = "invalid-operand",
    WriteOnceWrittenTwice = "write-once-written-twice",
    WriteOnceReadUnwritten = "write-once-read-unwritten",
    WriteOnceAtomic = "write-once-atomic",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_stored_format() {
        for &kind in RaceKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        for &kind in FaultKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn hexadecimal_numbers_are_text() {
        assert_eq!(
            serde_json::to_value(Hex(0x8200_0000_1000)).unwrap(),
            "0x820000001000"
        );
        for good in ["\"0x0\"", "\"0xffffffffffffffff\"", "\"0xAb\""] {
            assert!(serde_json::from_str::<Hex>(good).is_ok(), "{good}");
        }
        for bad in [
            "\"\"",
            "\"0x\"",
            "\"12\"",
            "\"0x+1\"",
            "\"0x10000000000000000\"",
            "12",
            "\"0xg\"",
        ] {
            assert!(serde_json::from_str::<Hex>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn possible_races_count_as_findings_only_when_strict() {
        let report = Report::default();
        assert!(!report.has_findings(true));
        let side = Side {
            who: Who::default(),
            action: Action::Write,
            order: Order::Weak,
            scope: None,
            asynchronous: false,
            place: None,
        };
        let race = Race {
            kind: RaceKind::WriteAfterWrite,
            range: Range {
                space: Space::Global,
                address: Hex(0),
                bytes: 1,
                allocation: None,
            },
            earlier: side.clone(),
            later: side,
            times: 1,
            replay: None,
        };
        let possible = Report {
            possible_races: vec![PossibleRace {
                reason: String::new(),
                race: race.clone(),
            }],
            ..Report::default()
        };
        assert!(!possible.has_findings(false));
        assert!(possible.has_findings(true));
        let certain = Report {
            races: vec![race],
            ..Report::default()
        };
        assert!(certain.has_findings(false));
    }
}
