//! Graphs that are made, replayed and closed, again and again: nothing of them stays, and no edge is lost.

use gsan_sync::{NodeId, Settings, StreamKey};

use crate::gpu::Do::{Read, Write};
use crate::gpu::{Do, GPU, Gpu, settings};
use crate::graphs::{Graph, INFO};
use crate::long::resident;

/// What comes after a replay on the stream it was given to, beside another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The host waits for the stream.
    HostWait,
    /// The other stream waits for it.
    Stream,
    /// The other stream waits for an event, of which there are several.
    Event,
    /// The other stream waits for an event that the graph itself records.
    OwnEvent,
    /// The host waits for such an event.
    HostWaitsForOwnEvent,
    /// The replays go to each of the streams in turn, and the host learns of them only now and then.
    InTurn,
}

const ALL: [After; 6] = [
    After::HostWait,
    After::Stream,
    After::Event,
    After::OwnEvent,
    After::HostWaitsForOwnEvent,
    After::InTurn,
];

/// Memory for a few hundred rows.
fn little_memory() -> Gpu {
    Gpu::with(Settings {
        row_bytes: 1 << 19,
        ..settings()
    })
}

/// Two branches and `more` kernels before them; an event is recorded after one branch.
fn fork(gpu: &Gpu, more: usize, event: Option<u64>) -> Graph {
    let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
    let mut kernels = Vec::new();
    let mut before: Vec<NodeId> = Vec::new();
    for _ in 0..more {
        let (node, arguments) = builder.kernel(&before, &[], &INFO).unwrap();
        kernels.push(arguments);
        before = vec![node];
    }
    for branch in 0..2 {
        let (node, arguments) = builder.kernel(&before, &[], &INFO).unwrap();
        kernels.push(arguments);
        if let Some(event) = event.filter(|_| branch == 0) {
            builder.record(&[node], event).unwrap();
        }
    }
    let plan = builder.finish().unwrap();
    Graph { plan, kernels }
}

/// One graph from its begin to its end: the other stream goes on after it, and it after that.
fn cycle(gpu: &Gpu, round: u64, streams: [StreamKey; 2], after: After) {
    let more = (round % 7) as usize;
    let own = matches!(after, After::OwnEvent | After::HostWaitsForOwnEvent);
    let graph = fork(gpu, more, own.then_some(99));
    let turn = usize::from(after == After::InTurn && round % 2 == 1);
    let (this, other) = (streams[turn], streams[1 - turn]);
    let mut what: Vec<&[Do]> = vec![&[Read(0), Write(1)]; more];
    what.extend::<[&[Do]; 2]>([&[Write(2), Read(4)], &[Write(3), Read(4)]]);
    let order: Vec<usize> = (0..more + 2).collect();
    graph.replay(gpu, this, &what, &order);
    match after {
        After::HostWait => gpu.ordering.synchronize_stream(this).unwrap(),
        After::Stream | After::InTurn => gpu.ordering.wait_stream(other, this).unwrap(),
        After::Event => {
            gpu.ordering.record_event(round % 5, this).unwrap();
            gpu.ordering.wait_event(other, round % 5).unwrap();
        }
        After::OwnEvent => {
            gpu.ordering.wait_event(other, 99).unwrap();
        }
        After::HostWaitsForOwnEvent => {
            gpu.ordering.synchronize_event(99);
        }
    }
    graph.plan.close().unwrap();
    drop(graph);
    if after == After::InTurn && round.is_multiple_of(100) {
        gpu.ordering.synchronize_device(GPU).unwrap();
    }
    // What comes before the event is known, the other branch is not.
    let known: &[Do] = if own {
        &[Read(2), Write(0)]
    } else {
        &[Read(2), Read(3), Write(0), Write(4)]
    };
    gpu.launch(other, known);
    gpu.ordering.wait_stream(this, other).unwrap();
}

#[test]
fn rows_and_memory_stay_flat_and_no_edge_is_lost() {
    let long = std::env::var_os("GSAN_LONG").is_some();
    let rounds: u64 = if long { 100_000 } else { 3_000 };
    for after in ALL {
        let gpu = little_memory();
        let streams = [gpu.open(1), gpu.open(2)];
        let mut early = 0;
        for round in 0..rounds {
            cycle(&gpu, round, streams, after);
            if round == rounds / 5 {
                early = resident();
            }
        }
        assert!(gpu.races().is_empty(), "{after:?}");
        assert_eq!(gpu.ordering.counts().unchecked, 0, "{after:?}");
        let late = resident();
        assert!(
            late < early + 2048,
            "{after:?}: {early} KiB after a fifth, {late} KiB at the end"
        );
        // It still tells what is not ordered.
        let graph = fork(&gpu, 0, None);
        let what: [&[Do]; 2] = [&[Write(5)], &[Write(6)]];
        graph.replay(&gpu, streams[0], &what, &[0, 1]);
        graph.plan.close().unwrap();
        gpu.launch(streams[1], &[Read(5), Read(6)]);
        assert_eq!(gpu.races().len(), 2, "{after:?}");
    }
}

#[test]
fn a_new_graph_on_another_stream_is_not_ordered_after_a_closed_one() {
    for waits in [false, true] {
        let gpu = little_memory();
        let (a, b) = (gpu.open(1), gpu.open(2));
        for _ in 0..20 {
            let graph = fork(&gpu, 0, None);
            graph.replay(&gpu, a, &[&[], &[]], &[0, 1]);
            graph.plan.close().unwrap();
        }
        let first = fork(&gpu, 0, None);
        first.replay(&gpu, a, &[&[Write(0)], &[Write(1)]], &[0, 1]);
        first.plan.close().unwrap();
        drop(first);
        if waits {
            gpu.ordering.wait_stream(b, a).unwrap();
        }
        let second = fork(&gpu, 0, None);
        second.replay(&gpu, b, &[&[Read(0)], &[Read(1)]], &[0, 1]);
        assert_eq!(gpu.races().len(), if waits { 0 } else { 2 });
    }
}

#[test]
fn what_an_event_of_a_closed_graph_remembers_stays() {
    let gpu = little_memory();
    let (a, b) = (gpu.open(1), gpu.open(2));
    let graph = fork(&gpu, 3, Some(7));
    let what: [&[Do]; 5] = [&[Write(0)], &[], &[], &[Write(1)], &[Write(2)]];
    graph.replay(&gpu, a, &what, &[0, 1, 2, 3, 4]);
    graph.plan.close().unwrap();
    drop(graph);
    // Others may get what it had.
    let more: Vec<Graph> = (0..8).map(|more| fork(&gpu, more, None)).collect();
    gpu.ordering.wait_event(b, 7).unwrap();
    gpu.launch(b, &[Read(0), Read(1), Read(2)]);
    let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
    assert_eq!(granules, [2], "only what comes before the record is known");
    drop(more);
}

#[test]
fn a_graph_is_refused_before_its_replay_and_not_after_it_when_rows_are_short() {
    let gpu = Gpu::with(Settings {
        row_bytes: 1 << 17,
        ..settings()
    });
    let (a, b) = (gpu.open(1), gpu.open(2));
    // Each event keeps a row that a graph completed into.
    let mut replayed = 0;
    for event in 0..2_000 {
        let graph = fork(&gpu, 0, None);
        graph.replay(&gpu, a, &[&[Write(0)], &[Write(1)]], &[0, 1]);
        gpu.ordering.record_event(event, a).unwrap();
        graph.plan.close().unwrap();
        replayed += 1;
        gpu.launch(a, &[Write(0), Write(1)]);
    }
    assert_eq!(replayed, 2_000);
    // An edge is there though its row was taken back.
    gpu.ordering.wait_event(b, 1_999).unwrap();
    gpu.launch(b, &[Read(0), Read(1)]);
    let told = gpu.races();
    assert!(told.len() <= 2, "{told:?}");
    gpu.ordering.wait_stream(b, a).unwrap();
    gpu.launch(b, &[Read(0), Read(1)]);
    assert!(gpu.races().is_empty());
}

#[test]
fn a_new_graph_vouches_for_nothing_that_a_closed_one_did() {
    for host_waits in [false, true] {
        let gpu = little_memory();
        let (a, b) = (gpu.open(1), gpu.open(2));
        let closed = fork(&gpu, 0, None);
        closed.replay(&gpu, a, &[&[Write(0)], &[Write(1)]], &[0, 1]);
        closed.plan.close().unwrap();
        drop(closed);
        if host_waits {
            gpu.ordering.synchronize_stream(a).unwrap();
        }
        // Its kernels run in the same slots.
        let graph = fork(&gpu, 0, None);
        graph.replay(&gpu, b, &[&[], &[]], &[0, 1]);
        gpu.launch(b, &[Read(0), Read(1)]);
        assert_eq!(gpu.races().len(), if host_waits { 0 } else { 2 });
    }
}

#[test]
fn streams_and_graphs_that_come_and_go_leave_rows_for_others() {
    let gpu = Gpu::with(Settings {
        row_bytes: 5 << 16,
        ..settings()
    });
    let main = gpu.open(1);
    for round in 0..2_000u64 {
        // The host never waits: nothing is known to be done.
        let streams: Vec<_> = (2..6).map(|handle| gpu.open(handle)).collect();
        for (at, &stream) in streams.iter().enumerate() {
            gpu.ordering.wait_stream(stream, main).unwrap();
            let graphs: Vec<_> = (0..3).map(|_| fork(&gpu, 0, None)).collect();
            for graph in &graphs {
                let written = Write(at as u32);
                graph.replay(&gpu, stream, &[&[written], &[Read(9)]], &[0, 1]);
            }
            for graph in graphs {
                graph.plan.close().unwrap();
            }
        }
        for (at, &stream) in streams.iter().enumerate() {
            gpu.ordering.wait_stream(main, stream).unwrap();
            if (round + at as u64).is_multiple_of(3) {
                gpu.ordering.forget_stream(stream).unwrap();
            }
        }
        gpu.launch(main, &[Write(0), Write(1), Write(2), Write(3), Write(9)]);
    }
    assert!(gpu.races().is_empty());
    assert_eq!(gpu.ordering.counts().unchecked, 0);
}

#[test]
fn rows_that_nobody_needs_any_more_are_for_others() {
    let gpu = Gpu::with(Settings {
        row_bytes: 5 << 15,
        ..settings()
    });
    let one = gpu.open(1);
    // Each event keeps a row that a graph completed into, until memory is short.
    for event in 0..300 {
        let graph = fork(&gpu, 0, None);
        graph.replay(&gpu, one, &[&[], &[]], &[0, 1]);
        gpu.ordering.record_event(event, one).unwrap();
        graph.plan.close().unwrap();
    }
    for event in 0..300 {
        gpu.ordering.forget_event(event);
    }
    for handle in 2..12 {
        let other = gpu.open(handle);
        gpu.ordering.wait_stream(other, one).unwrap();
        for _ in 0..6 {
            let graph = fork(&gpu, 0, None);
            let what: [&[Do]; 2] = [&[Write(0)], &[Write(1)]];
            graph.replay(&gpu, other, &what, &[0, 1]);
            graph.plan.close().unwrap();
            gpu.launch(other, &[Write(0), Write(1)]);
        }
        gpu.ordering.wait_stream(one, other).unwrap();
        gpu.launch(one, &[Write(0), Write(1)]);
    }
    assert!(gpu.races().is_empty());
    assert_eq!(gpu.ordering.counts().unchecked, 0);
}
