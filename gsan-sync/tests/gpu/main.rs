//! The ordering on GPUs: through the driver, with a kernel that makes the accesses it is told. Without a
//! driver each test says so and passes.
//!
//! Where a race is to be found, nothing tells the ordering that one kernel ran after the other, though
//! it did: the tests wait for the GPU in between.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod machine;
mod processes;
mod steps;

use std::time::Duration;

use gsan_sync::{Edge, Idle, StreamKey, StreamKind};

use machine::Do::{Await, DependencyWait, LaunchDependents, Read, Signal, Write};
use machine::{Do, Gpu, Graph, line, on_gpu};

const FREE: StreamKind = StreamKind::NonBlocking;

#[test]
fn launches_on_one_stream_are_ordered_and_on_two_are_not() {
    on_gpu(|gpu| {
        let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
        for _ in 0..100 {
            gpu.enqueue(a, false, &[Write(0), Read(1), Write(2)]);
            gpu.enqueue(a, false, &[Read(0), Write(1), Read(2)]);
        }
        assert!(gpu.races().is_empty());
        let first = gpu.launch(a, &[Write(0)]);
        let second = gpu.launch(b, &[Read(0)]);
        let races = gpu.races();
        assert_eq!(races.len(), 1);
        let (earlier, later) = (&races[0].earlier, &races[0].later);
        assert_eq!((earlier.launch, later.launch), (first, second));
        let rank = gpu.ordering.rank(gpu.device).unwrap();
        let lines = [earlier.site, later.site].map(|site| gpu.line_of(rank, site));
        assert_eq!(lines, [line("write"), line("read")]);
        for launch in [first, second] {
            let record = gpu.ordering.launch_record(gpu.device, launch).unwrap();
            assert_eq!(record.unwrap().kernel, 1);
        }
    });
}

#[test]
fn a_race_after_a_thousand_launches_on_both_streams_is_found() {
    on_gpu(|gpu| {
        let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
        for _ in 0..1000 {
            gpu.enqueue(a, false, &[Write(0)]);
            gpu.enqueue(b, false, &[Write(1)]);
        }
        assert!(gpu.races().is_empty());
        gpu.launch(b, &[Read(0)]);
        assert_eq!(gpu.granules(), [0]);
    });
}

#[test]
fn joins_and_barriers_wait_for_no_kernel_that_runs() {
    on_gpu(|gpu| {
        let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
        let rank = gpu.ordering.rank(gpu.device).unwrap();
        let group = gpu.ordering.group(gpu.device, &[rank]).unwrap();
        // This kernel is told to end after all that follows.
        gpu.enqueue(a, false, &[Await(1)]);
        for at in 0..20 {
            gpu.enqueue(b, false, &[Write(at)]);
            gpu.edge(b, a);
            // A join that stands behind the kernel.
            gpu.enqueue(a, false, &[Read(at)]);
            let arrival = group.barrier(b, Duration::from_secs(60)).unwrap();
            arrival.wait().unwrap();
        }
        gpu.signal(1);
        // Fails if the kernel gave up waiting.
        assert!(gpu.races().is_empty());
    });
}

#[test]
fn the_default_stream_orders_blocking_streams_and_no_others() {
    for kind in [StreamKind::Blocking, StreamKind::NonBlocking] {
        on_gpu(|gpu| {
            let (default, a, b) = (gpu.default_stream(), gpu.stream(kind), gpu.stream(kind));
            gpu.launch(a, &[Write(0)]);
            gpu.launch(default, &[Read(0), Write(1)]);
            gpu.launch(b, &[Read(0), Read(1)]);
            let expected: &[u32] = match kind {
                StreamKind::Blocking => &[],
                _ => &[0, 1],
            };
            assert_eq!(gpu.granules(), expected, "{kind:?}");
        });
    }
}

#[test]
fn an_event_orders_what_was_recorded_and_nothing_later() {
    on_gpu(|gpu| {
        let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
        let event = gpu.event();
        gpu.launch(a, &[Write(0)]);
        gpu.record(event, a);
        gpu.launch(a, &[Write(1)]);
        gpu.wait(b, event);
        gpu.launch(b, &[Read(0), Read(1)]);
        assert_eq!(gpu.granules(), [1]);
        gpu.ordering.wait_stream(b, a).unwrap();
        gpu.launch(b, &[Read(0), Read(1)]);
        assert!(gpu.races().is_empty());
    });
}

#[test]
fn what_the_host_has_waited_for_is_known_to_all() {
    on_gpu(|gpu| {
        let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
        let event = gpu.event();
        let ordering = &gpu.ordering;
        let waits: [&dyn Fn(); 5] = [
            &|| {},
            &|| ordering.synchronize_stream(a).unwrap(),
            &|| ordering.synchronize_device(gpu.device).unwrap(),
            &|| assert_eq!(ordering.event_is_done(event), Edge::Added),
            &|| ordering.stream_is_done(a).unwrap(),
        ];
        for (at, wait) in (0..).zip(waits) {
            gpu.launch(a, &[Write(at)]);
            gpu.record(event, a);
            gpu.settle();
            wait();
            gpu.launch(b, &[Read(at)]);
            assert_eq!(gpu.granules().is_empty(), at > 0, "{at}");
        }
    });
}

#[test]
fn memory_that_another_stream_used_is_handed_out_after_its_work() {
    for noted in [true, false] {
        on_gpu(|gpu| {
            let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
            let memory = gpu.memory();
            if noted {
                gpu.ordering.memory_used(memory, 64, a).unwrap();
            }
            gpu.launch(a, &[Write(0)]);
            gpu.ordering.memory_freed(memory).unwrap();
            gpu.ordering.memory_handed_out(memory, 64, Some(b)).unwrap();
            gpu.launch(b, &[Write(0)]);
            assert_eq!(gpu.granules().is_empty(), noted);
        });
    }
}

#[test]
fn edges_of_streams_that_are_destroyed_stay() {
    on_gpu(|gpu| {
        let b = gpu.stream(FREE);
        let event = gpu.event();
        for round in 0..20 {
            let a = gpu.stream(FREE);
            gpu.launch(a, &[Write(round)]);
            gpu.record(event, a);
            gpu.launch(a, &[Write(100 + round)]);
            gpu.destroy(a);
            gpu.wait(b, event);
            gpu.launch(b, &[Read(round), Read(100 + round)]);
            assert_eq!(gpu.granules(), [100 + round]);
            gpu.ordering.synchronize_device(gpu.device).unwrap();
        }
        assert_eq!(gpu.ordering.counts().shared_banks, 0);
    });
}

#[test]
fn dependent_launches_in_a_chain_of_five() {
    on_gpu(|gpu| {
        let a = gpu.stream(FREE);
        let all: Vec<Do> = (0..5).map(Read).collect();
        for _ in 0..10 {
            for at in 0..5 {
                let mut what = vec![LaunchDependents];
                if at > 0 {
                    what.push(DependencyWait);
                    what.extend((0..at).map(Read));
                }
                what.push(Write(at));
                gpu.enqueue(a, at > 0, &what);
            }
            // A normal launch starts after all of them.
            gpu.enqueue(a, false, &all);
            assert!(gpu.races().is_empty());
        }
        assert_eq!(gpu.ordering.counts().never_waited, 0);
    });
}

#[test]
fn a_dependent_launch_that_does_not_wait_is_found() {
    on_gpu(|gpu| {
        let a = gpu.stream(FREE);
        // Both are resident: the second one has started before the first one writes.
        gpu.enqueue(a, false, &[LaunchDependents, Await(1), Write(0), Signal(2)]);
        gpu.enqueue(a, true, &[Signal(1), Await(2), Read(0)]);
        assert_eq!(gpu.granules(), [0]);
        gpu.launch(a, &[Write(0)]);
        assert!(gpu.races().is_empty());
    });
}

/// Two streams are captured, with what is not checked in between; one of the edges can be left out.
fn capture(gpu: &Gpu, fork: bool, join: bool, what: [&[Do]; 4]) -> Graph {
    let origin = begin_capture(gpu, fork, join, what);
    gpu.end_capture(origin)
}

/// The same without the end. Returns the stream that the capture began on.
fn begin_capture(gpu: &Gpu, fork: bool, join: bool, what: [&[Do]; 4]) -> StreamKey {
    let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
    gpu.begin_capture(a);
    // The second stream takes part, and is joined, in any case.
    gpu.edge(a, b);
    gpu.memset(a);
    gpu.enqueue(a, false, what[0]);
    if fork {
        gpu.edge(a, b);
        gpu.memset(b);
    }
    gpu.enqueue(a, false, what[1]);
    gpu.enqueue(b, false, what[2]);
    if join {
        gpu.edge(b, a);
    }
    gpu.enqueue(a, false, what[3]);
    gpu.edge(b, a);
    a
}

#[test]
fn a_capture_over_two_streams_is_clean_in_fifty_replays() {
    on_gpu(|gpu| {
        let what: [&[Do]; 4] = [
            &[Write(0), Write(1)],
            &[Read(0), Write(2)],
            &[Read(1), Write(3)],
            &[Read(2), Read(3), Write(0), Write(1)],
        ];
        let graph = capture(gpu, true, true, what);
        assert_eq!(graph.plan.kernels(), 4);
        let stream = gpu.stream(FREE);
        for _ in 0..50 {
            gpu.enqueue(stream, false, &[Write(0), Write(2)]);
            gpu.replay(&graph, stream);
            gpu.enqueue(stream, false, &[Read(0), Read(3)]);
        }
        assert!(gpu.races().is_empty());
        let counts = gpu.ordering.counts();
        assert_eq!((counts.captured, counts.unchecked), (4, 0));
        graph.plan.close().unwrap();
    });
}

#[test]
fn a_captured_event_that_is_left_out_is_found() {
    for (fork, join) in [(false, true), (true, false)] {
        on_gpu(|gpu| {
            let what: [&[Do]; 4] = [&[Write(0)], &[], &[Read(0), Write(1)], &[Read(1)]];
            let graph = capture(gpu, fork, join, what);
            let stream = gpu.stream(FREE);
            for _ in 0..10 {
                gpu.replay(&graph, stream);
            }
            assert_eq!(gpu.granules(), [u32::from(fork)]);
            // The stream goes on after all of the graph even so.
            gpu.launch(stream, &[Write(0), Write(1)]);
            assert!(gpu.races().is_empty());
        });
    }
}

#[test]
fn dependent_launches_are_captured() {
    on_gpu(|gpu| {
        let (a, stream) = (gpu.stream(FREE), gpu.stream(FREE));
        gpu.begin_capture(a);
        gpu.enqueue(a, false, &[LaunchDependents, Write(0)]);
        gpu.enqueue(a, true, &[DependencyWait, Read(0), Write(1)]);
        gpu.enqueue(a, false, &[Write(0), Read(1)]);
        let graph = gpu.end_capture(a);
        for _ in 0..20 {
            gpu.replay(&graph, stream);
        }
        assert!(gpu.races().is_empty());
        gpu.begin_capture(a);
        gpu.enqueue(a, false, &[LaunchDependents, Await(1), Write(2), Signal(2)]);
        gpu.enqueue(a, true, &[Signal(1), Await(2), Read(2)]);
        let graph = gpu.end_capture(a);
        gpu.replay(&graph, stream);
        assert_eq!(gpu.granules(), [2]);
    });
}

#[test]
fn an_event_that_a_replay_records_orders_what_comes_before_it() {
    on_gpu(|gpu| {
        let (a, b, stream) = (gpu.stream(FREE), gpu.stream(FREE), gpu.stream(FREE));
        let event = gpu.event();
        gpu.begin_capture(a);
        gpu.enqueue(a, false, &[Write(0)]);
        gpu.record_external(event, a);
        gpu.enqueue(a, false, &[Write(1)]);
        let graph = gpu.end_capture(a);
        gpu.replay(&graph, stream);
        gpu.settle();
        gpu.wait(b, event);
        gpu.launch(b, &[Read(0)]);
        assert!(gpu.races().is_empty());
        gpu.launch(b, &[Read(1)]);
        assert_eq!(gpu.granules(), [1]);
    });
}

#[test]
fn a_graph_by_hand_has_the_edges_it_was_given() {
    for ordered in [true, false] {
        on_gpu(|gpu| {
            let stream = gpu.stream(FREE);
            let graph = gpu.graph_by_hand(ordered, [&[Write(0)], &[Read(0)]]);
            for _ in 0..10 {
                gpu.replay(&graph, stream);
            }
            assert_eq!(gpu.granules().is_empty(), ordered);
        });
    }
}

/// What the kernels of a captured graph do: each edge orders a granule of its own. Two accesses at the same
/// moment may lose their race to each other: in the first replay they come one after the other, edge or not,
/// and what comes from outside is also read at the end.
const FORK_AND_JOIN: [&[Do]; 4] = [
    &[Read(5), Write(0), Signal(1)],
    &[Write(2)],
    &[Await(1), Read(0), Write(1), Signal(2)],
    &[Await(2), Read(1), Read(2), Read(5), Write(6)],
];

#[test]
fn a_copy_of_a_graph_is_ordered_inside_and_between_what_is_around_it() {
    for ordered in [true, false] {
        on_gpu(|gpu| {
            let origin = begin_capture(gpu, true, true, FORK_AND_JOIN);
            let captured = gpu.end_capture_and_keep(origin);
            let around = gpu.graph_around(&captured, ordered, [&[Write(5)], &[Read(6)]]);
            assert_eq!(around.plan.kernels(), 6);
            let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
            for _ in 0..20 {
                gpu.replay(&around, a);
                // The kernels of both have the same arguments.
                gpu.edge(a, b);
                gpu.replay(&captured.0, b);
                gpu.edge(b, a);
                gpu.enqueue(
                    a,
                    false,
                    &[Write(5), Write(0), Write(1), Write(2), Write(6)],
                );
            }
            let expected: &[u32] = if ordered { &[] } else { &[5, 6] };
            assert_eq!(gpu.granules(), expected, "ordered: {ordered}");
        });
    }
}

#[test]
fn an_edge_that_a_graph_lacks_is_missing_in_its_copies_and_no_other() {
    for (fork, join) in [(true, true), (false, true), (true, false)] {
        let expected: &[u32] = match (fork, join) {
            (false, _) => &[0],
            (_, false) => &[1],
            _ => &[],
        };
        on_gpu(|gpu| {
            let origin = begin_capture(gpu, fork, join, FORK_AND_JOIN);
            let captured = gpu.end_capture_and_keep(origin);
            let clone = gpu.clone_of(&captured);
            let around = gpu.graph_around(&captured, true, [&[Write(5)], &[Read(6)]]);
            let stream = gpu.stream(FREE);
            for graph in [&clone, &around, &captured.0, &clone] {
                gpu.settle();
                gpu.forget_signals();
                for _ in 0..5 {
                    gpu.replay(graph, stream);
                }
                assert_eq!(gpu.granules(), expected, "fork: {fork}, join: {join}");
            }
            for graph in [&clone, &around, &captured.0] {
                graph.plan.close().unwrap();
            }
        });
    }
}

#[test]
fn nothing_stays_of_graphs_that_are_closed() {
    on_gpu(|gpu| {
        let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
        for round in 0..300 {
            let graph = gpu.graph_by_hand(true, [&[Write(0), Read(1)], &[Read(0), Write(1)]]);
            gpu.replay(&graph, a);
            if round % 2 == 0 {
                gpu.edge(a, b);
            } else {
                gpu.settle();
                gpu.ordering.synchronize_stream(a).unwrap();
            }
            gpu.enqueue(b, false, &[Read(0), Read(1)]);
            gpu.edge(b, a);
            gpu.settle();
            graph.plan.close().unwrap();
        }
        assert!(gpu.races().is_empty());
        assert_eq!(gpu.ordering.counts().unchecked, 0);
    });
}

#[test]
fn a_restart_forgets_everything_and_goes_on() {
    on_gpu(|gpu| {
        let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
        for _ in 0..3 {
            for _ in 0..40 {
                gpu.enqueue(a, false, &[Write(0)]);
            }
            gpu.settle();
            assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
            gpu.launch(b, &[Write(0)]);
            assert!(gpu.races().is_empty());
            gpu.launch(a, &[Read(0)]);
            assert_eq!(gpu.granules(), [0]);
            assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
        }
    });
}

#[test]
fn kernels_that_were_not_waited_for_are_found_while_streams_overlap() {
    on_gpu(|gpu| {
        let (a, b) = (gpu.stream(FREE), gpu.stream(FREE));
        gpu.enqueue(a, false, &[Write(0), Signal(1), Await(2)]);
        gpu.enqueue(b, false, &[Await(1), Read(0), Signal(2)]);
        assert_eq!(gpu.granules(), [0]);
        gpu.forget_signals();
        gpu.edge(b, a);
        gpu.enqueue(a, false, &[Write(0)]);
        assert!(gpu.races().is_empty());
    });
}
