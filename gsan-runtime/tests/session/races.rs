//! Planted races are found with both sides; programs without them are clean.

use std::sync::Arc;

use gsan_core::loss::Loss;
use gsan_core::scope::Order;
use gsan_report::model::{Action, LossCount, Race, RaceKind, Report, Side};
use gsan_runtime::Session;
use gsan_runtime::host::{AtomicOperation as Op, HostCta};
use gsan_runtime::session::KernelLaunch;
use gsan_sync::NodeId;
use gsan_vmm::backend::Device;

use crate::machine::{GPU, atomic, launch, read, session, session_with, write};

/// What is said of a side: kernel, line and CTA.
fn side(side: &Side) -> (Option<&str>, u32, Option<u32>) {
    let place = side.place.as_ref().unwrap();
    assert_eq!(place.file, "kernel.cu");
    (
        side.who.kernel.as_deref(),
        place.line,
        side.who.cta.map(|cta| cta[0]),
    )
}

/// Kind, kernels and lines of both sides.
fn told(race: &Race) -> (RaceKind, [(Option<&str>, u32); 2]) {
    let sides = [&race.earlier, &race.later].map(|s| {
        let (kernel, line, _) = side(s);
        (kernel, line)
    });
    (race.kind, sides)
}

fn clean(report: &Report) {
    assert_eq!(report.races, []);
    assert_eq!(report.possible_races, []);
    assert_eq!(report.faults, []);
}

fn fill(session: &Arc<Session>, stream: u64, memory: u64, name: &str, line: u32) {
    session
        .launch_on_host(GPU, stream, &launch(name, 4), move |cta, [x, ..]| {
            write(cta, memory + 4 * u64::from(x), x, line);
        })
        .unwrap();
}

fn sum(session: &Arc<Session>, stream: u64, memory: u64, name: &str, line: u32) {
    session
        .launch_on_host(GPU, stream, &launch(name, 4), move |cta, [x, ..]| {
            read(cta, memory + 4 * u64::from(x), line);
        })
        .unwrap();
}

#[test]
fn ctas_of_a_launch_race_on_a_word() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    session
        .launch_on_host(GPU, 0, &launch("count", 2), move |cta, _| {
            let old = read(cta, memory + 8, 10);
            write(cta, memory + 8, old + 1, 11);
        })
        .unwrap();
    let report = session.report().unwrap();
    assert!(!report.races.is_empty());
    for race in &report.races {
        let (_, sides) = told(race);
        assert!(sides.iter().all(|side| side.0 == Some("count")));
        assert!(sides.iter().any(|side| side.1 == 11));
        let ctas = [&race.earlier, &race.later].map(|s| side(s).2.unwrap());
        assert!(ctas == [0, 1] || ctas == [1, 0], "{ctas:?}");
        let allocation = race.range.allocation.as_ref().unwrap();
        assert_eq!(
            (race.range.bytes, allocation.offset, allocation.bytes),
            (4, 8, 4096)
        );
    }
    assert_eq!(report.summary.launches, 1);
    assert_eq!(report.summary.accesses, 4);
    assert_eq!(report.summary.covered_bytes, 4096);
    assert_eq!(report.summary.seeds, [7].into());
    assert_eq!(report.losses, []);
}

#[test]
fn neighbours_in_a_granule_do_not_race() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    session
        .launch_on_host(GPU, 0, &launch("bytes", 64), move |cta, [x, ..]| {
            cta.write(memory + u64::from(x), &[x as u8], c"kernel.cu", 1)
                .unwrap();
        })
        .unwrap();
    clean(&session.report().unwrap());
}

#[test]
fn a_flag_orders_ctas_only_if_it_releases_and_acquires() {
    for (release, acquire, races) in [
        (Order::Release, Order::Acquire, false),
        (Order::Relaxed, Order::Acquire, true),
        (Order::Release, Order::Relaxed, true),
    ] {
        let session = session();
        let memory = session.allocate(4096, GPU, 0).unwrap();
        session
            .launch_on_host(GPU, 0, &launch("pass", 2), move |cta, [x, ..]| {
                if x == 0 {
                    write(cta, memory, 1, 1);
                    atomic(cta, Op::Store, memory + 64, 1, release, 2);
                } else {
                    while atomic(cta, Op::Load, memory + 64, 0, acquire, 3) == 0 {}
                    read(cta, memory, 4);
                }
            })
            .unwrap();
        let report = session.report().unwrap();
        let found: Vec<_> = report.races.iter().map(told).collect();
        let pass = Some("pass");
        let expected = [(RaceKind::ReadAfterWrite, [(pass, 1), (pass, 4)])];
        assert_eq!(found, if races { &expected[..] } else { &[] });
    }
}

#[test]
fn an_atomic_and_an_ordinary_write_race() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    session
        .launch_on_host(GPU, 0, &launch("mixed", 2), move |cta, [x, ..]| {
            if x == 0 {
                atomic(cta, Op::Add, memory, 1, Order::Relaxed, 1);
            } else {
                write(cta, memory, 5, 2);
            }
        })
        .unwrap();
    let report = session.report().unwrap();
    assert_eq!(report.races.len(), 1);
    let sides = [&report.races[0].earlier, &report.races[0].later];
    assert!(sides.iter().any(|side| side.scope.is_some()));
    assert!(
        sides
            .iter()
            .any(|side| side.action == Action::Write && side.scope.is_none())
    );
}

/// What is told of a race: its kind, and kernel and line of each side.
type Told = (RaceKind, [(Option<String>, u32); 2]);

/// Two streams, and what is between a write on the first and a read on the second.
fn between(order: impl FnOnce(&Session, u64, u64)) -> Vec<Told> {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    let first = session.create_host_stream(GPU, false).unwrap();
    let second = session.create_host_stream(GPU, false).unwrap();
    fill(&session, first, memory, "fill", 1);
    order(&session, first, second);
    sum(&session, second, memory, "sum", 2);
    let report = session.report().unwrap();
    let races = report.races.iter().map(told);
    races
        .map(|(kind, sides)| {
            (
                kind,
                sides.map(|(kernel, line)| (kernel.map(str::to_owned), line)),
            )
        })
        .collect()
}

fn a_race() -> Vec<Told> {
    let sides = [("fill", 1), ("sum", 2)].map(|(kernel, line)| (Some(kernel.to_owned()), line));
    vec![(RaceKind::ReadAfterWrite, sides)]
}

#[test]
fn streams_are_ordered_by_what_the_program_says() {
    let event = |session: &Session, first: u64, second: u64| {
        let event = session.create_host_event().unwrap();
        session.event_recorded(event, GPU, first).unwrap();
        session.event_waited(event, GPU, second).unwrap();
        session.event_forgotten(event);
    };
    assert_eq!(between(event), []);
    let host_event = |session: &Session, first: u64, _: u64| {
        let event = session.create_host_event().unwrap();
        session.event_recorded(event, GPU, first).unwrap();
        session.event_synchronized(event).unwrap();
    };
    assert_eq!(between(host_event), []);
    let stream = |session: &Session, first: u64, second: u64| {
        session.stream_waited(GPU, second, first).unwrap();
    };
    assert_eq!(between(stream), []);
    let host = |session: &Session, first: u64, _: u64| {
        session.stream_synchronized(GPU, first).unwrap();
    };
    assert_eq!(between(host), []);
    let device = |session: &Session, _: u64, _: u64| {
        session.device_synchronized(GPU).unwrap();
    };
    assert_eq!(between(device), []);
}

/// The read is on a stream of its own and has to come second for its race to be a read after a write.
fn after_the_first(session: &Session, first: u64, _: u64) {
    let backend = session.allocator().backend();
    assert_ne!(first, 0);
    backend.synchronize(GPU).unwrap();
}

#[test]
fn streams_that_nothing_orders_race() {
    assert_eq!(between(after_the_first), a_race());
    let wrong_way = |session: &Session, first: u64, second: u64| {
        session.stream_waited(GPU, first, second).unwrap();
        after_the_first(session, first, second);
    };
    assert_eq!(between(wrong_way), a_race());
    let before_the_record = |session: &Session, first: u64, second: u64| {
        let event = session.create_host_event().unwrap();
        session.event_waited(event, GPU, second).unwrap();
        session.event_recorded(event, GPU, first).unwrap();
        after_the_first(session, first, second);
    };
    assert_eq!(between(before_the_record), a_race());
    // That the tool waits for devices is no order.
    let asked = |session: &Session, _: u64, _: u64| session.drain().unwrap();
    assert_eq!(between(asked), a_race());
}

#[test]
fn the_legacy_default_stream_orders_blocking_streams_only() {
    for (blocking, races) in [(true, 0), (false, 1)] {
        let session = session();
        let memory = session.allocate(4096, GPU, 0).unwrap();
        let stream = session.create_host_stream(GPU, blocking).unwrap();
        fill(&session, stream, memory, "fill", 1);
        if !blocking {
            after_the_first(&session, stream, 0);
        }
        sum(&session, 0, memory, "sum", 2);
        assert_eq!(session.report().unwrap().races.len(), races, "{blocking}");
    }
}

#[test]
fn memory_that_the_programs_allocator_hands_out_again_is_ordered() {
    for (noted, races) in [(true, 0), (false, 1)] {
        let session = session();
        let memory = session.allocate(4096, GPU, 0).unwrap();
        let [first, second] = [0, 1].map(|_| session.create_host_stream(GPU, false).unwrap());
        sum(&session, second, memory, "use", 1);
        if noted {
            session.memory_used(memory, 4096, GPU, second).unwrap();
        }
        session.memory_freed(memory).unwrap();
        after_the_first(&session, second, 0);
        session.memory_handed_out(memory, 4096, GPU, first).unwrap();
        fill(&session, first, memory, "fill", 2);
        assert_eq!(session.report().unwrap().races.len(), races, "{noted}");
    }
}

#[test]
fn memory_that_is_freed_and_allocated_again_starts_anew() {
    let session = session();
    let [first, second] = [0, 1].map(|_| session.create_host_stream(GPU, false).unwrap());
    let memory = session.allocate(2 << 20, GPU, first).unwrap();
    fill(&session, first, memory, "fill", 1);
    session.free(memory, 2 << 20, GPU, first).unwrap();
    after_the_first(&session, first, 0);
    session.allocator().flush();
    let again = session.allocate(2 << 20, GPU, second).unwrap();
    assert_eq!(again, memory);
    sum(&session, second, memory, "sum", 2);
    clean(&session.report().unwrap());
}

#[test]
fn graphs_are_ordered_by_their_edges() {
    for (ordered, races) in [(true, 0), (false, 1)] {
        let session = session();
        let memory = session.allocate(4096, GPU, 0).unwrap();
        let mut builder = session.begin_graph(GPU).unwrap();
        let (fill, fill_arguments) = builder.kernel(&[], &[], &launch("fill", 4)).unwrap();
        let before = if ordered { vec![fill] } else { Vec::new() };
        let added = builder.kernel(&before, &[], &launch("sum", 4)).unwrap();
        let (_, sum_arguments) = added;
        let graph = builder.finish().unwrap();
        assert_eq!(graph.kernels(), 2);
        let stream = session.create_host_stream(GPU, false).unwrap();
        for _ in 0..2 {
            let mut replay = graph.begin_replay(GPU, stream).unwrap();
            let fill = move |cta: &HostCta<'_>, [x, ..]: [u32; 3]| {
                write(cta, memory + 4 * u64::from(x), x, 1);
            };
            let sum = move |cta: &HostCta<'_>, [x, ..]: [u32; 3]| {
                read(cta, memory + 4 * u64::from(x), 2);
            };
            let (first, second) = (launch("fill", 4), launch("sum", 4));
            session
                .replay_on_host(GPU, stream, &first, fill_arguments, fill)
                .unwrap();
            session
                .replay_on_host(GPU, stream, &second, sum_arguments, sum)
                .unwrap();
            replay.finish(true).unwrap();
        }
        let report = session.report().unwrap();
        assert_eq!(report.races.len(), races, "ordered: {ordered}");
        for race in &report.races {
            let kernels = [("fill", 1), ("sum", 2)].map(|(kernel, line)| (Some(kernel), line));
            assert_eq!(told(race), (RaceKind::ReadAfterWrite, kernels));
        }
        session.stream_synchronized(GPU, stream).unwrap();
        graph.close().unwrap();
    }
}

#[test]
fn a_race_that_is_suppressed_is_counted() {
    let session = session_with("[[report.suppress]]\nkernel = \"cou*\"\nreason = \"known\"\n");
    let memory = session.allocate(4096, GPU, 0).unwrap();
    session
        .launch_on_host(GPU, 0, &launch("count", 2), move |cta, _| {
            write(cta, memory, 1, 11);
        })
        .unwrap();
    let report = session.report().unwrap();
    clean(&report);
    assert_eq!(report.suppressions[0].times, 1);
}

#[test]
fn races_of_an_opaque_kernel_are_possible_ones() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    let mut opaque = launch("asm", 2);
    opaque.opaque = true;
    session
        .launch_on_host(GPU, 0, &opaque, move |cta, _| write(cta, memory, 1, 11))
        .unwrap();
    let report = session.report().unwrap();
    assert_eq!(report.races, []);
    assert_eq!(report.possible_races.len(), 1);
    let losses = session.losses().unwrap();
    assert_eq!(losses.get(Loss::OpaqueLaunch), 1);
}

#[test]
fn races_with_an_opaque_kernel_of_a_graph_are_possible_ones() {
    for opaque in [true, false] {
        let session = session();
        let memory = session.allocate(4096, GPU, 0).unwrap();
        let mut builder = session.begin_graph(GPU).unwrap();
        let mut asm = launch("asm", 1);
        asm.opaque = opaque;
        let (_, arguments) = builder.kernel(&[], &[], &asm).unwrap();
        let graph = builder.finish().unwrap();
        let [one, other] = [(); 2].map(|()| session.create_host_stream(GPU, false).unwrap());
        let mut replay = graph.begin_replay(GPU, one).unwrap();
        let body = move |cta: &HostCta<'_>, _: [u32; 3]| write(cta, memory, 1, 11);
        session
            .replay_on_host(GPU, one, &asm, arguments, body)
            .unwrap();
        replay.finish(true).unwrap();
        // Two accesses at once may lose their race to each other.
        after_the_first(&session, one, other);
        session
            .launch_on_host(GPU, other, &launch("read", 1), move |cta, _| {
                read(cta, memory, 12);
            })
            .unwrap();
        let report = session.report().unwrap();
        let found = (report.races.len(), report.possible_races.len());
        assert_eq!(found, if opaque { (0, 1) } else { (1, 0) });
        if let [possible] = &report.possible_races[..] {
            assert!(possible.reason.contains("`asm`"), "{}", possible.reason);
        }
    }
}

#[test]
fn cells_of_two_records_find_races_too() {
    let session = session_with("[shadow]\nrecords = 2\n");
    let memory = session.allocate(4096, GPU, 0).unwrap();
    session
        .launch_on_host(GPU, 0, &launch("two", 2), move |cta, _| {
            write(cta, memory, 1, 11)
        })
        .unwrap();
    assert_eq!(session.report().unwrap().races.len(), 1);
}

#[test]
fn devices_race_on_memory_that_both_reach() {
    for (ordered, races) in [(true, 0), (false, 1)] {
        let session = session_with("[topology]\nnum_devices = 2\n");
        let memory = session.allocate(4096, GPU, 0).unwrap();
        fill(&session, 0, memory, "fill", 1);
        if ordered {
            session.device_synchronized(GPU).unwrap();
        } else {
            after_the_first(&session, 1, 0);
        }
        session
            .launch_on_host(Device(1), 0, &launch("peer", 4), move |cta, [x, ..]| {
                read(cta, memory + 4 * u64::from(x), 2);
            })
            .unwrap();
        let report = session.report().unwrap();
        assert_eq!(report.races.len(), races);
        for race in &report.races {
            assert_eq!(race.earlier.who.device, Some(0));
            assert_eq!(race.later.who.device, Some(1));
        }
    }
}

/// How the second kernel of two on a stream stands to the first.
fn dependent(programmatic: bool, waits: bool, in_a_graph: bool) -> Report {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    let stream = session.create_host_stream(GPU, false).unwrap();
    let fill = move |cta: &HostCta<'_>, [x, ..]: [u32; 3]| {
        write(cta, memory + 4 * u64::from(x), x, 1);
    };
    let sum = move |cta: &HostCta<'_>, [x, ..]: [u32; 3]| {
        if waits {
            cta.wait_for_dependency();
        }
        read(cta, memory + 4 * u64::from(x), 2);
    };
    let (first, second) = (launch("fill", 4), launch("sum", 4));
    if in_a_graph {
        let mut builder = session.begin_graph(GPU).unwrap();
        let (node, _) = builder.kernel(&[], &[], &first).unwrap();
        let (before, early): (&[_], &[_]) = match programmatic {
            true => (&[], &[node]),
            false => (&[node], &[]),
        };
        builder.kernel(before, early, &second).unwrap();
        let graph = builder.finish().unwrap();
        let mut replay = graph.begin_replay(GPU, stream).unwrap();
        replay.run_on_host(stream, NodeId(0), fill).unwrap();
        replay.run_on_host(stream, NodeId(1), sum).unwrap();
        replay.finish(true).unwrap();
    } else {
        let second = KernelLaunch {
            programmatic,
            ..second
        };
        session.launch_on_host(GPU, stream, &first, fill).unwrap();
        session.launch_on_host(GPU, stream, &second, sum).unwrap();
    }
    // A normal launch starts after both.
    let normal = move |cta: &HostCta<'_>, [x, ..]: [u32; 3]| {
        write(cta, memory + 4 * u64::from(x), x, 3);
    };
    session
        .launch_on_host(GPU, stream, &launch("after", 4), normal)
        .unwrap();
    session.report().unwrap()
}

#[test]
fn a_dependent_launch_knows_what_it_waited_for() {
    for in_a_graph in [false, true] {
        for (programmatic, waits) in [(false, false), (false, true), (true, true)] {
            clean(&dependent(programmatic, waits, in_a_graph));
        }
        let report = dependent(true, false, in_a_graph);
        let found: Vec<_> = report.races.iter().map(told).collect();
        let kernels = [(Some("fill"), 1), (Some("sum"), 2)];
        assert_eq!(found, [(RaceKind::ReadAfterWrite, kernels)], "{in_a_graph}");
    }
}

#[test]
fn a_dependent_launch_that_never_waits_is_told_so_once() {
    for waits in [true, false] {
        let report = dependent(true, waits, false);
        assert_eq!(never_waited(&report), u64::from(!waits));
    }
    // However often it is asked.
    let session = session();
    let stream = session.create_host_stream(GPU, false).unwrap();
    let second = KernelLaunch {
        programmatic: true,
        ..launch("second", 1)
    };
    for round in 1..=40 {
        let nothing = |_: &HostCta<'_>, _: [u32; 3]| {};
        session
            .launch_on_host(GPU, stream, &launch("first", 1), nothing)
            .unwrap();
        session
            .launch_on_host(GPU, stream, &second, nothing)
            .unwrap();
        for _ in 0..2 {
            assert_eq!(never_waited(&session.report().unwrap()), round);
        }
    }
}

fn never_waited(report: &Report) -> u64 {
    let named = |loss: &&LossCount| loss.loss.0 == Loss::NeverWaited;
    report
        .losses
        .iter()
        .find(named)
        .map_or(0, |loss| loss.times)
}
