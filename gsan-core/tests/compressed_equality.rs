//! Where the compressed detector loses nothing: the granules with a race are those that the exact
//! detector, at the unit of the CTA, finds.
//!
//! The two cannot agree race by race. A cell keeps one record of several that stand for each other,
//! and an exact history prunes by other rules. They agree on **whether a granule has a race**, if
//!
//! - no limit was met (no loss is counted), and the cell of the granule had an empty word beside
//!   word 0 before each access to it. Then nothing was evicted, and nothing gave way that was
//!   ordered before and covered but could still race (a weak write before an atomic one). Two
//!   readers always fit; so do more;
//! - accesses that synchronise keep their sequences apart as the detector does: one per granule, of
//!   one location; atomic writes to it are read-modify-writes, or all come from one CTA. (One sync
//!   record stands for all bytes of a granule, and a strong store joins the sequence it finds,
//!   where PTX begins a new one: more counts as ordered.) Weak loads stay away, and weak stores
//!   where the granule itself has a race: they end a sequence, and leave the sync record alone;
//! - atomics whose bytes overlap have the same bytes (PTX lets others race; two atomics never race
//!   for their sizes in a cell, which does not keep what an access spans);
//! - the scopes of what synchronises are alike, and wide enough for all devices (a joined record has the widest scope
//!   of its parts). A fence makes every relaxed atomic after it one that synchronises;
//! - a granule with weak accesses has no atomics but read-modify-writes; or it has weak writes,
//!   atomic stores of one CTA, and atomic loads of the others, of one scope. (Who observes an atomic
//!   write removes its record, and with it goes what that stood for: the loads before it, stores
//!   that the observer did not see, and the race with a weak read. A read-modify-write leaves a
//!   write of its own, and has seen those before it.)
//! - compare-and-swaps do not fail (one that does has released, and counts as a loss);
//! - a CTA slot is not used again within a launch, launches do not overtake each other, there are
//!   no asynchronous copies, and strong accesses take one step. (Intervals of epochs take strangers
//!   of the same slot in; what happened between begin and end is not told apart.)
//!
//! Inside that, everything is drawn at random: weak accesses of mixed sizes, relaxed atomics of
//! mixed scopes, orders, fences, barriers and mbarriers, several kernels, streams, devices, events and
//! waits of the host.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::collections::{BTreeMap, BTreeSet};

use gsan_core::address::granules;
use gsan_core::compressed::detector::CompressedDetector;
use gsan_core::compressed::system::Sizes;
use gsan_core::compressed::topology::Topology;
use gsan_core::event::{Detector, Event, FenceKind, HostEvent, Launch, Space};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{DeviceRank, LaunchId, SiteId, StreamId};
use gsan_core::loss::Loss;
use gsan_core::race::Race;
use gsan_core::scope::{Order, Scope};
use gsan_core::testing::execution::{Grain, execute};
use gsan_core::testing::program::{
    At, Code, HostOp, Kernel, Memory, Op, OpKind, Place, Program, Verb,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Enough of everything.
const ROOMY: Sizes = Sizes {
    publications: 256,
    snapshots: 128,
    checkpoints: 16,
    private_clocks: 16,
    segments: 8,
    history: 16,
    ..Sizes::DEFAULT
};

const BASE: u64 = 0x1000;
/// Only read-modify-writes write it.
const COUNTER: u64 = BASE;
/// Only the first CTA of the first kernel writes it.
const FLAG: u64 = BASE + 8;
/// Where CTAs synchronise.
const SYNCHRONISING: [u64; 2] = [COUNTER, FLAG];
/// Weak writes, atomic stores of the first CTA of the first kernel, atomic loads of the others.
const POLLED: [u64; 2] = [BASE + 16, BASE + 24];
/// Weak accesses, and read-modify-writes of any scope.
const COUNTED: [u64; 2] = [BASE + 32, BASE + 40];
/// Weak accesses.
const PLAIN: [u64; 3] = [BASE + 48, BASE + 56, BASE + 64];

/// What holds for all of a program.
#[derive(Clone, Copy, Debug)]
struct Setting {
    devices: u32,
    /// The scope of whatever synchronises.
    scope: Scope,
    /// Whether there are fences. Then all atomics synchronise.
    fences: bool,
    /// Whether weak stores go where others synchronise.
    resets: bool,
}

fn settings(resets: bool) -> impl Strategy<Value = Setting> {
    (1u32..3, any::<bool>(), any::<bool>()).prop_map(move |(devices, system, fences)| Setting {
        devices,
        scope: if system || devices > 1 {
            Scope::Sys
        } else {
            Scope::Gpu
        },
        fences,
        resets,
    })
}

fn access(verb: Verb, order: Order, scope: Scope, address: u64, bytes: u32) -> OpKind {
    OpKind::Access {
        verb,
        order,
        scope,
        place: Place {
            memory: Memory::Global,
            address,
            bytes,
        },
    }
}

const LOAD: Verb = Verb::Load { expect: None };
const ADD: Verb = Verb::Add {
    value: 1,
    expect: None,
};

/// Some bytes of one of the granules.
fn bytes(granules: &'static [u64]) -> impl Strategy<Value = (u64, u32)> {
    (select(granules), select(&[1u32, 2, 4, 4, 8][..]), 0u64..8).prop_map(
        |(granule, bytes, offset)| {
            (
                granule + offset / u64::from(bytes) * u64::from(bytes),
                bytes,
            )
        },
    )
}

fn weak(verbs: &'static [Verb], granules: &'static [u64]) -> BoxedStrategy<OpKind> {
    (select(verbs), bytes(granules))
        .prop_map(|(verb, (address, bytes))| access(verb, Order::Weak, Scope::Cta, address, bytes))
        .boxed()
}

fn relaxed(
    verbs: &'static [Verb],
    scopes: &'static [Scope],
    granules: &'static [u64],
    setting: Setting,
) -> BoxedStrategy<OpKind> {
    (select(verbs), select(scopes), select(granules), 0u64..8)
        .prop_map(move |(verb, scope, granule, offset)| {
            if setting.fences {
                // One location, one scope, no store that would begin another sequence.
                let verb = if matches!(verb, Verb::Store(_)) {
                    ADD
                } else {
                    verb
                };
                return access(verb, Order::Relaxed, setting.scope, granule, 4);
            }
            // Each granule has locations of one size, so that none overlaps another in part.
            let bytes = 1 << (granule / 8 % 4);
            let address = granule + offset / bytes * bytes;
            let scope = if setting.devices > 1 {
                Scope::Sys
            } else {
                scope
            };
            access(verb, Order::Relaxed, scope, address, bytes as u32)
        })
        .boxed()
}

/// An operation. `owner` says whether the CTA may write the flag.
fn operation(setting: Setting, owner: bool) -> BoxedStrategy<OpKind> {
    use Order::{AcqRel, Acquire, Relaxed, Release};
    let at = move |address| {
        move |(verb, order): (Verb, Order)| access(verb, order, setting.scope, address, 4)
    };
    let loads = (
        prop_oneof![3 => Just(None), 2 => (0u64..3).prop_map(Some)],
        select(&[Relaxed, Acquire, Acquire][..]),
    )
        .prop_map(|(expect, order)| (Verb::Load { expect }, order))
        .boxed();
    let adds = (
        prop_oneof![3 => Just(None), 1 => (0u64..3).prop_map(Some)],
        select(&[Relaxed, Acquire, Release, AcqRel][..]),
    )
        .prop_map(|(expect, order)| (Verb::Add { value: 1, expect }, order));
    let reductions = select(&[Relaxed, Release][..]).prop_map(|order| (Verb::Reduce(1), order));
    let writes = prop_oneof![2 => adds, 1 => reductions].boxed();
    let stores = (1u64..3, select(&[Relaxed, Release, Release][..]))
        .prop_map(|(value, order)| (Verb::Store(value), order));
    let own_flag = prop_oneof![2 => stores, 1 => writes.clone()];
    let flag = match owner {
        true => own_flag.boxed(),
        false => loads.clone(),
    };
    let polled: &[Scope] = match setting.scope {
        Scope::Sys => &[Scope::Sys],
        _ => &[Scope::Gpu],
    };
    let fence = select(
        &[
            FenceKind::AcqRel,
            FenceKind::Acquire,
            FenceKind::Release,
            FenceKind::Sc,
        ][..],
    )
    .prop_map(move |kind| OpKind::Fence {
        kind,
        scope: setting.scope,
    });
    prop_oneof![
        6 => weak(&[LOAD, Verb::Store(1)], &PLAIN),
        2 => weak(&[LOAD, Verb::Store(1)], &COUNTED),
        1 => weak(&[Verb::Store(1)], &POLLED),
        2 => relaxed(
            &[ADD, Verb::Reduce(1)],
            &[Scope::Cta, Scope::Gpu, Scope::Gpu, Scope::Sys],
            &COUNTED,
            setting,
        ),
        1 => relaxed(if owner { &[Verb::Store(1)] } else { &[LOAD] }, polled, &POLLED, setting),
        3 => flag.prop_map(at(FLAG)),
        3 => prop_oneof![loads, writes].prop_map(at(COUNTER)),
        if setting.fences { 3 } else { 0 } => fence,
        if setting.resets { 2 } else { 0 } => weak(&[Verb::Store(1)], &SYNCHRONISING),
    ]
    .boxed()
}

/// The code of a CTA's threads, with `rounds` barriers and as many phases of an mbarrier.
fn cta(setting: Setting, owner: bool, number: u32, threads: u32) -> BoxedStrategy<Vec<Code>> {
    let thread = prop::collection::vec(operation(setting, owner), 0..=6);
    let rounds = if threads > 1 { 0usize..3 } else { 0..1 };
    (prop::collection::vec(thread, threads as usize), rounds)
        .prop_map(move |(drafts, rounds)| {
            let code = |(index, mut kinds): (usize, Vec<OpKind>)| {
                for round in 0..rounds {
                    let at = if round % 2 == 0 {
                        At::CtaBarrier {
                            id: 0,
                            count: threads,
                        }
                    } else {
                        At::Mbarrier {
                            owner: number,
                            offset: 0x100,
                            count: threads,
                        }
                    };
                    let place = kinds.len() * (round + 1) / (rounds + 1);
                    kinds.insert(place, OpKind::Leave { at, acquires: true });
                    kinds.insert(place, OpKind::Arrive { at, releases: true });
                }
                let site = SiteId(1);
                Code {
                    cta: number,
                    index: index as u32,
                    ops: kinds.into_iter().map(|kind| Op { site, kind }).collect(),
                }
            };
            drafts.into_iter().enumerate().map(code).collect()
        })
        .boxed()
}

fn kernel(setting: Setting, number: u32) -> BoxedStrategy<Kernel> {
    (0u32..3, 1u32..4, 1u32..3)
        .prop_flat_map(move |(stream, ctas, threads)| {
            let code: Vec<_> = (0..ctas)
                .map(|index| cta(setting, (number, index) == (0, 0), index, threads))
                .collect();
            code.prop_map(move |code| Kernel {
                launch: Launch {
                    id: LaunchId(number),
                    device: DeviceRank((stream % setting.devices) as u16),
                    stream: StreamId(stream),
                    ctas,
                    threads,
                    cluster: 1,
                    programmatic: false,
                },
                threads: code.concat(),
            })
        })
        .boxed()
}

fn host(setting: Setting) -> impl Strategy<Value = Vec<HostEvent>> {
    let (event, stream) = (0u32..2, (0u32..3).prop_map(StreamId));
    let op = prop_oneof![
        3 => (event.clone(), stream.clone())
            .prop_map(|(event, stream)| HostEvent::Record { event, stream }),
        3 => (event.clone(), stream.clone())
            .prop_map(|(event, stream)| HostEvent::Wait { event, stream }),
        1 => stream.prop_map(HostEvent::SyncStream),
        1 => event.prop_map(HostEvent::SyncEvent),
        1 => (0..setting.devices).prop_map(|d| HostEvent::SyncDevice(DeviceRank(d as u16))),
    ];
    prop::collection::vec(op, 0..3)
}

fn programs(resets: bool) -> impl Strategy<Value = Program> {
    (settings(resets), 1u32..4).prop_flat_map(|(setting, kernels)| {
        let kernels: Vec<_> = (0..kernels)
            .map(|number| (host(setting), kernel(setting, number)))
            .collect();
        kernels.prop_map(|parts| {
            let mut program = Program::default();
            for (number, (before, kernel)) in parts.into_iter().enumerate() {
                program.host.extend(before.into_iter().map(HostOp::Host));
                program.host.push(HostOp::Launch(number));
                program.kernels.push(kernel);
            }
            program
        })
    })
}

/// The granules of global memory that an event accesses.
fn accessed(event: &Event) -> Vec<u64> {
    match event {
        Event::Access(access) | Event::AtomicBegin(access)
            if access.range.space == Space::Global =>
        {
            let parts = granules(access.range.address, access.range.bytes.into());
            parts.map(|part| part.granule).collect()
        }
        _ => Vec::new(),
    }
}

fn racing(races: &[Race]) -> BTreeSet<u64> {
    races.iter().map(|race| race.address / 8 * 8).collect()
}

/// What the compressed detector says: the granules with a race, and those whose cell had no room.
fn compressed(events: &[Event]) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let topology = Topology::new(2, 2, 16, 4).unwrap();
    let mut detector = CompressedDetector::<4>::new(topology, ROOMY, 1);
    let mut full = BTreeSet::new();
    for event in events {
        for granule in accessed(event) {
            // At the access itself, the announcement of a strong one is there already.
            let strong = matches!(event, Event::Access(access) if access.order.is_strong());
            let words = detector.words(granule).unwrap_or([0; 4]);
            if !strong && !words[1..].contains(&0) {
                full.insert(granule);
            }
        }
        detector.on(event).unwrap();
    }
    for (loss, _) in detector.losses().met() {
        assert!(
            matches!(loss, Loss::WriteEvicted | Loss::ReadNotSampled),
            "{loss:?} was met"
        );
    }
    (racing(&detector.take_races()), full)
}

fn exact(events: &[Event]) -> BTreeSet<u64> {
    let mut detector = Exact::new(Unit::Cta);
    for event in events {
        detector.on(event).unwrap();
    }
    let mut races = detector.take_races();
    races.retain(|race| race.space == Space::Global);
    racing(&races)
}

fn listed(events: &[Event]) -> String {
    events.iter().map(|event| format!("{event:?}\n")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        if std::env::var_os("GSAN_LONG").is_some() { 150_000 } else { 3000 }
    ))]

    #[test]
    fn the_granules_with_races_are_those_of_the_exact_detector(
        program in programs(false), schedule in prop::collection::vec(any::<u16>(), 0..160),
    ) {
        let events = execute(&program, Grain::Operation, &schedule);
        let (mut found, full) = compressed(&events);
        let mut truth = exact(&events);
        found.retain(|granule| !full.contains(granule));
        truth.retain(|granule| !full.contains(granule));
        prop_assert_eq!(&found, &truth, "\n{}", listed(&events));
    }

    #[test]
    fn a_weak_store_that_ends_a_sequence_hides_races_only_if_the_granule_has_one_itself(
        program in programs(true), schedule in prop::collection::vec(any::<u16>(), 0..160),
    ) {
        let events = execute(&program, Grain::Operation, &schedule);
        let (mut found, full) = compressed(&events);
        let mut truth = exact(&events);
        // Beside fences, relaxed accesses synchronise as well.
        let mut synchronising = SYNCHRONISING.iter().chain(&COUNTED).chain(&POLLED);
        let may_hide = synchronising.any(|granule| truth.contains(granule));
        found.retain(|granule| !full.contains(granule));
        truth.retain(|granule| !full.contains(granule));
        if may_hide {
            prop_assert!(found.is_subset(&truth), "\n{}", listed(&events));
        } else {
            prop_assert_eq!(&found, &truth, "\n{}", listed(&events));
        }
    }
}

/// The programs drawn are no empty talk: each kind of granule has races in some of them and none
/// in others, and most cells have room.
#[test]
fn the_programs_race_in_every_kind_of_granule() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut races, mut quiet) = (BTreeMap::new(), BTreeMap::new());
    let mut without_room = 0;
    for _ in 0..400 {
        let drawn = (programs(false), prop::collection::vec(any::<u16>(), 0..160));
        let (program, schedule) = drawn.new_tree(&mut runner).unwrap().current();
        let events = execute(&program, Grain::Operation, &schedule);
        let (found, full) = compressed(&events);
        let touched: BTreeSet<u64> = events.iter().flat_map(accessed).collect();
        without_room += full.len();
        for granule in touched.difference(&full) {
            let counts = if found.contains(granule) {
                &mut races
            } else {
                &mut quiet
            };
            *counts.entry(*granule).or_insert(0u32) += 1;
        }
    }
    for granule in POLLED.iter().chain(&COUNTED).chain(&PLAIN) {
        assert!(races[granule] > 10 && quiet[granule] > 10, "{granule:#x}");
    }
    let with_room: u32 = races.values().chain(quiet.values()).sum();
    assert!(
        without_room * 4 < with_room as usize,
        "{without_room} without room, {with_room} with"
    );
}
