//! Faults of a run in words of a report.

use gsan_core::event::Space;
use gsan_core::race::Who;
use gsan_report::model::{self, FaultKind, Replay};

use super::Error;
use super::prepare::Prepared;
use crate::exec::fault::{self, Finding, MbarrierMisuse, Wait, Waiting};
use crate::program::ir::MemorySpace;

/// Why a run ended early, as a fault of a report.
pub(super) fn fault(
    finding: Finding,
    prepared: &Prepared,
    replay: &Replay,
) -> Result<model::Fault, Error> {
    let empty = |kind, message: String| model::Fault {
        kind,
        message,
        who: None,
        place: None,
        range: None,
        waiting: Vec::new(),
        notes: Vec::new(),
        times: 1,
        replay: Some(replay.clone()),
    };
    Ok(match finding {
        Finding::Fault(fault) => model::Fault {
            who: Some(prepared.names.who(Who::Thread(fault.thread))),
            place: prepared.names.place(fault.site).cloned(),
            range: range(&fault, prepared),
            notes: beyond(&fault.kind, prepared).into_iter().collect(),
            ..empty(kind(&fault.kind), fault.kind.to_string())
        },
        Finding::Deadlock(threads) => model::Fault {
            waiting: waiting(&threads, prepared),
            ..empty(
                FaultKind::Deadlock,
                "deadlock: no thread can make progress".to_owned(),
            )
        },
        Finding::Budget(threads) => model::Fault {
            waiting: waiting(&threads, prepared),
            notes: vec!["raise it with --budget if the kernel needs more".to_owned()],
            ..empty(
                FaultKind::Budget,
                "the instruction budget was used up".to_owned(),
            )
        },
        Finding::Detector(error) => return Err(Error::Internal(error)),
    })
}

fn kind(kind: &fault::FaultKind) -> FaultKind {
    use fault::FaultKind as Found;
    match kind {
        Found::OutOfBounds { .. } | Found::ReadOnly { .. } | Found::StackOverflow(_) => {
            FaultKind::OutOfBounds
        }
        Found::Misaligned { .. } => FaultKind::Misaligned,
        Found::UninitialisedShared { .. }
        | Found::Mbarrier {
            misuse: MbarrierMisuse::Missing,
            ..
        } => FaultKind::Uninitialised,
        Found::DivisionByZero => FaultKind::DivisionByZero,
        Found::Trap | Found::Breakpoint => FaultKind::Trap,
        Found::Assert { .. } => FaultKind::Assertion,
        Found::BarrierDivergence { .. } => FaultKind::BarrierDivergence,
        Found::BadBarrier(_)
        | Found::BarrierThreads { .. }
        | Found::NotAMember { .. }
        | Found::BranchIndex { .. }
        | Found::BadCallee(_)
        | Found::CopySize { .. }
        | Found::Mbarrier { .. }
        | Found::MbarrierSpace { .. }
        | Found::Format(_) => FaultKind::InvalidOperand,
    }
}

/// Which allocation an access out of bounds lies behind, and how far.
fn beyond(kind: &fault::FaultKind, prepared: &Prepared) -> Option<String> {
    let fault::FaultKind::OutOfBounds {
        space: MemorySpace::Generic | MemorySpace::Global,
        address,
        nearest: Some((start, bytes)),
        ..
    } = *kind
    else {
        return None;
    };
    let name = prepared.names.allocation(start)?.name?;
    Some(match address.checked_sub(start + bytes) {
        None => format!("it reaches beyond the end of `{name}`"),
        Some(0) => format!("it begins at the end of `{name}`"),
        Some(1) => format!("it begins 1 byte beyond the end of `{name}`"),
        Some(distance) => format!("it begins {distance} bytes beyond the end of `{name}`"),
    })
}

/// The bytes that a fault is about, where they are in memory that reports know.
fn range(fault: &fault::Fault, prepared: &Prepared) -> Option<model::Range> {
    use fault::FaultKind::{Mbarrier, Misaligned, OutOfBounds, ReadOnly, UninitialisedShared};
    let shared = Space::Shared(fault.thread.cta);
    let space = |space| match space {
        MemorySpace::Generic | MemorySpace::Global => Some(Space::Global),
        MemorySpace::Shared => Some(shared),
        _ => None,
    };
    let (space, address, bytes) = match fault.kind {
        OutOfBounds {
            space: of,
            address,
            bytes,
            ..
        } => (space(of)?, address, bytes),
        Misaligned {
            space: of,
            address,
            alignment,
            ..
        } => (space(of)?, address, alignment),
        ReadOnly { address, bytes } => (Space::Global, address, bytes),
        UninitialisedShared { offset, bytes } => (shared, offset, bytes),
        Mbarrier { offset, .. } => (shared, offset, 8),
        _ => return None,
    };
    Some(prepared.names.range(space, address, bytes.into()))
}

/// Threads that wait at one place for one thing are one entry, in the order of the first of each.
fn waiting(threads: &[Waiting], prepared: &Prepared) -> Vec<model::Waiting> {
    let mut groups: Vec<model::Waiting> = Vec::new();
    for thread in threads {
        let what = what(thread.wait, prepared);
        let place = prepared.names.place(thread.site);
        let group = groups
            .iter_mut()
            .find(|group| group.what == what && group.place.as_ref() == place);
        match group {
            Some(group) => group.threads += 1,
            None => groups.push(model::Waiting {
                threads: 1,
                who: prepared.names.who(Who::Thread(thread.thread)),
                place: place.cloned(),
                what,
            }),
        }
    }
    groups
}

fn what(wait: Wait, prepared: &Prepared) -> String {
    match wait {
        Wait::Barrier {
            id,
            arrived,
            needed,
        } => format!("barrier {id} ({arrived} of {needed} threads arrived)"),
        Wait::Warp { mask, missing } => {
            format!("lanes {missing:#010x} of a warp operation for lanes {mask:#010x}")
        }
        Wait::Cluster { arrived, needed } => {
            format!("the barrier of its cluster ({arrived} of {needed} threads arrived)")
        }
        Wait::Mbarrier {
            offset,
            phase,
            pending,
            expected,
            transactions,
        } => {
            let arrived = expected.saturating_sub(pending);
            let transactions = match transactions {
                0 => String::new(),
                1 => ", 1 transaction pending".to_owned(),
                more => format!(", {more} transactions pending"),
            };
            format!(
                "phase {phase} of the mbarrier at {offset:#x} in shared memory \
                 ({arrived} of {expected} arrivals{transactions})"
            )
        }
        Wait::GridDependency => "the launch before its own".to_owned(),
        Wait::Polling {
            address,
            shared: true,
        } => format!("a change of shared memory at {address:#x}"),
        Wait::Polling { address, .. } => match prepared.names.allocation(address) {
            Some(model::Allocation {
                name: Some(name),
                offset,
                ..
            }) => format!("a change of byte {offset} of `{name}`"),
            _ => format!("a change of global memory at {address:#x}"),
        },
        Wait::Running => "a turn to go on".to_owned(),
    }
}
