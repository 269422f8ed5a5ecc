//! Reports of every shape.

use gsan_core::loss::Loss;
use gsan_report::loss::LossName;
use gsan_report::model::*;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

/// Text as strangers write it.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z][a-z0-9_./ -]{0,12}",
        1 => any::<String>(),
        1 => Just("\u{1b}[31mred\u{202e}\r\n\t\0".to_owned()),
        1 => Just("_ZN7cutlass6KernelINS_4gemm6kernelE".repeat(12)),
    ]
}

/// Names of files, `FILE` among them.
fn file() -> impl Strategy<Value = String> {
    prop_oneof![3 => Just(FILE.to_owned()), 1 => Just("/dev/zero".to_owned()), 1 => text()]
}

/// A file whose text the tests supply.
pub(crate) const FILE: &str = "kernels/k.py";

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_u64, any::<u64>(), Just(u64::MAX)]
}

fn line() -> impl Strategy<Value = u32> {
    prop_oneof![0..20_u32, any::<u32>()]
}

fn position() -> impl Strategy<Value = Position> {
    any::<Position>()
}

fn place() -> impl Strategy<Value = Place> {
    let ptx = (file(), line()).prop_map(|(file, line)| PtxLine { file, line });
    (file(), line(), option::of(line()), option::of(ptx)).prop_map(|(file, line, column, ptx)| {
        Place {
            file,
            line,
            column,
            ptx,
        }
    })
}

fn who() -> impl Strategy<Value = Who> {
    (
        option::of(position()),
        option::of(position()),
        option::of(text()),
        option::of(number()),
        option::of(any::<u16>()),
        option::of(number().prop_map(Hex)),
    )
        .prop_map(|(thread, cta, kernel, launch, device, stream)| Who {
            thread,
            cta,
            kernel,
            launch,
            device,
            stream,
        })
}

fn side() -> impl Strategy<Value = Side> {
    (
        who(),
        select(&[
            Action::Read,
            Action::Write,
            Action::ReadModifyWrite,
            Action::FailedCompareAndSwap,
            Action::Reduction,
        ]),
        select(&[
            Order::Weak,
            Order::Relaxed,
            Order::Acquire,
            Order::Release,
            Order::AcqRel,
        ]),
        option::of(select(&[
            Scope::Cta,
            Scope::Cluster,
            Scope::Gpu,
            Scope::Sys,
        ])),
        any::<bool>(),
        option::of(place()),
    )
        .prop_map(|(who, action, order, scope, asynchronous, place)| Side {
            who,
            action,
            order,
            scope,
            asynchronous,
            place,
        })
}

fn range() -> impl Strategy<Value = Range> {
    let space = prop_oneof![
        Just(Space::Global),
        position().prop_map(|cta| Space::Shared { cta })
    ];
    let allocation =
        (option::of(text()), number(), number()).prop_map(|(name, bytes, offset)| Allocation {
            name,
            bytes,
            offset,
        });
    (space, number(), number(), option::of(allocation)).prop_map(
        |(space, address, bytes, allocation)| Range {
            space,
            address: Hex(address),
            bytes,
            allocation,
        },
    )
}

fn replay() -> impl Strategy<Value = Replay> {
    (number(), text()).prop_map(|(seed, command)| Replay { seed, command })
}

fn race() -> impl Strategy<Value = Race> {
    (
        select(RaceKind::ALL),
        range(),
        side(),
        side(),
        number(),
        option::of(replay()),
    )
        .prop_map(|(kind, range, earlier, later, times, replay)| Race {
            kind,
            range,
            earlier,
            later,
            times,
            replay,
        })
}

fn fault() -> impl Strategy<Value = Fault> {
    let waiting =
        (number(), who(), option::of(place()), text()).prop_map(|(threads, who, place, what)| {
            Waiting {
                threads,
                who,
                place,
                what,
            }
        });
    (
        select(FaultKind::ALL),
        text(),
        option::of(who()),
        option::of(place()),
        option::of(range()),
        vec(waiting, 0..20),
        vec(text(), 0..2),
        number(),
        option::of(replay()),
    )
        .prop_map(
            |(kind, message, who, place, range, waiting, notes, times, replay)| Fault {
                kind,
                message,
                who,
                place,
                range,
                waiting,
                notes,
                times,
                replay,
            },
        )
}

fn suppression() -> impl Strategy<Value = Suppression> {
    (
        option::of(text()),
        option::of(text()),
        option::of(text()),
        text(),
        number(),
    )
        .prop_map(|(kind, file, kernel, reason, times)| Suppression {
            kind,
            file,
            kernel,
            reason,
            times,
        })
}

fn summary() -> impl Strategy<Value = Summary> {
    (
        number(),
        number(),
        number(),
        number(),
        number(),
        number(),
        number(),
        btree_set(number(), 0..10),
    )
        .prop_map(
            |(
                processes,
                launches,
                schedules,
                accesses,
                covered_bytes,
                uncovered_bytes,
                not_kept,
                seeds,
            )| {
                Summary {
                    processes,
                    launches,
                    schedules,
                    accesses,
                    covered_bytes,
                    uncovered_bytes,
                    not_kept,
                    seeds,
                }
            },
        )
}

fn unchecked() -> impl Strategy<Value = Unchecked> {
    (file(), text(), option::of(place()), option::of(text())).prop_map(
        |(file, reason, place, help)| Unchecked {
            file,
            reason,
            place,
            help,
        },
    )
}

/// Reports of every shape.
pub(crate) fn report() -> impl Strategy<Value = Report> {
    let possible = (text(), race()).prop_map(|(reason, race)| PossibleRace { reason, race });
    let loss = (select(&Loss::ALL[..]), number()).prop_map(|(loss, times)| LossCount {
        loss: LossName(loss),
        times,
    });
    (
        text(),
        btree_set(any::<u128>().prop_map(Uuid::from_u128), 0..3),
        summary(),
        vec(unchecked(), 0..3),
        vec(race(), 0..3),
        vec(possible, 0..2),
        vec(fault(), 0..2),
        vec(loss, 0..4),
        vec(suppression(), 0..3),
    )
        .prop_map(
            |(
                tool,
                runs,
                summary,
                unchecked,
                races,
                possible_races,
                faults,
                losses,
                suppressions,
            )| Report {
                version: VERSION,
                tool,
                runs,
                summary,
                unchecked,
                races,
                possible_races,
                faults,
                losses,
                suppressions,
            },
        )
}
