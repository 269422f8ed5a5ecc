//! Graphs that are captured: launches become nodes by themselves, whatever else the capture holds.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_core::layout::race_codes;
use gsan_sync::{CaptureId, Edge, Error, Idle, LaunchInfo, NodeArguments, Plan, Settings};
use gsan_sync::{StreamKey, StreamKind};
use gsan_vmm::backend::{Device, NodeKind};

use crate::gpu::Do::{Read, Wait, Write};
use crate::gpu::{Do, GPU, Gpu, key, queue, settings, unfinished};
use crate::graphs::{Graph, INFO};

/// A capture that goes on, of a program that tells of its launches, records and waits.
pub(crate) struct Capture<'g> {
    gpu: &'g Gpu,
    pub(crate) id: CaptureId,
    origin: u64,
    events: Cell<u64>,
}

impl Capture<'_> {
    pub(crate) fn begin(gpu: &Gpu, stream: u64) -> Capture<'_> {
        let id = gpu.backend.begin_capture(GPU, queue(stream)).unwrap();
        assert_eq!(
            gpu.ordering.capture_of(gpu.open(stream)).unwrap(),
            Some(CaptureId(id))
        );
        Capture {
            gpu,
            id: CaptureId(id),
            origin: stream,
            events: Cell::new(1000),
        }
    }

    /// `later` waits for what `earlier` was given so far.
    pub(crate) fn edge(&self, earlier: u64, later: u64) {
        let event = self.events.get();
        self.events.set(event + 1);
        let (ordering, backend) = (&self.gpu.ordering, &self.gpu.backend);
        self.gpu.open(later);
        backend.capture_record(GPU, queue(earlier), event).unwrap();
        ordering.record_event(event, key(earlier)).unwrap();
        backend.capture_wait(GPU, queue(later), event).unwrap();
        let edge = ordering.wait_event(key(later), event);
        assert_eq!(edge, Ok(Edge::Added));
    }

    pub(crate) fn launch(&self, stream: u64) -> NodeArguments {
        self.launch_as(stream, &INFO)
    }

    /// Launches a graph: a copy of it becomes part of the capture.
    pub(crate) fn replay(&self, stream: u64, graph: &Graph) -> Vec<NodeArguments> {
        let mut replay = graph.plan.begin_replay(key(stream)).unwrap();
        self.other(stream, NodeKind::Graph);
        replay.finish(true).unwrap();
        graph.kernels.clone()
    }

    fn launch_as(&self, stream: u64, info: &LaunchInfo) -> NodeArguments {
        let mut launch = self.gpu.ordering.begin_launch(key(stream), info).unwrap();
        let arguments = NodeArguments {
            table: launch.table(),
            index: launch.index(),
        };
        self.gpu
            .backend
            .capture_node(GPU, queue(stream), NodeKind::Kernel, info.programmatic)
            .unwrap();
        launch.finish(true).unwrap();
        arguments
    }

    /// Something that the ordering is not told of.
    pub(crate) fn other(&self, stream: u64, kind: NodeKind) {
        let backend = &self.gpu.backend;
        backend
            .capture_node(GPU, queue(stream), kind, false)
            .unwrap();
    }

    pub(crate) fn end(self) -> Option<Arc<Plan>> {
        let origin = queue(self.origin);
        self.gpu.backend.end_capture(GPU, origin).unwrap();
        self.gpu.ordering.capture_ended(self.id).unwrap()
    }
}

fn granules(gpu: &Gpu) -> Vec<u32> {
    gpu.races().iter().map(|race| race.granule).collect()
}

#[test]
fn order_leads_through_what_is_not_announced() {
    let kinds = [NodeKind::Other, NodeKind::Kernel, NodeKind::Graph];
    for kind in kinds {
        let gpu = Gpu::new();
        let capture = Capture::begin(&gpu, 1);
        capture.other(1, kind);
        let first = capture.launch(1);
        capture.edge(1, 2);
        capture.other(2, kind);
        capture.other(2, kind);
        capture.edge(2, 3);
        capture.other(3, kind);
        let beside = capture.launch(1);
        let second = capture.launch(3);
        capture.edge(3, 1);
        capture.other(1, kind);
        let third = capture.launch(1);
        let plan = capture.end().unwrap();
        assert_eq!(plan.kernels(), 4);
        let graph = Graph {
            plan,
            kernels: vec![first, beside, second, third],
        };
        let what: [&[Do]; 4] = [
            &[Write(0)],
            &[Write(1), Write(2)],
            &[Read(0), Read(1), Write(3)],
            &[Read(2), Read(3)],
        ];
        graph.replay(&gpu, key(1), &what, &[0, 1, 2, 3]);
        assert_eq!(granules(&gpu), [1]);
    }
}

#[test]
fn several_captures_at_once_are_graphs_of_their_own() {
    let gpu = Gpu::new();
    let one = Capture::begin(&gpu, 1);
    let two = Capture::begin(&gpu, 2);
    assert_ne!(one.id, two.id);
    let mut kernels = [Vec::new(), Vec::new()];
    for _ in 0..2 {
        kernels[0].push(one.launch(1));
        kernels[1].push(two.launch(2));
    }
    // A stream that is not captured goes on meanwhile.
    let free = gpu.open(3);
    gpu.launch(free, &[Write(9)]);
    gpu.launch(free, &[Read(9)]);
    let graphs: Vec<Graph> = [one, two]
        .into_iter()
        .zip(kernels)
        .map(|(capture, kernels)| Graph {
            plan: capture.end().unwrap(),
            kernels,
        })
        .collect();
    let what: [&[Do]; 2] = [&[Write(0)], &[Read(0)]];
    for (at, graph) in graphs.iter().enumerate() {
        assert_eq!(graph.plan.kernels(), 2);
        graph.replay(&gpu, key(1 + at as u64), &what, &[0, 1]);
        assert_eq!(granules(&gpu).is_empty(), at == 0, "nothing orders the two");
    }
    assert_eq!(gpu.ordering.counts().captured, 4);
}

#[test]
fn a_launch_that_fails_is_no_node() {
    let gpu = Gpu::new();
    let capture = Capture::begin(&gpu, 1);
    let first = capture.launch(1);
    for _ in 0..3 {
        let mut failed = gpu.ordering.begin_launch(key(1), &INFO).unwrap();
        assert_eq!(
            gpu.ordering.begin_launch(key(1), &INFO).err(),
            Some(unfinished(key(1)))
        );
        failed.finish(false).unwrap();
    }
    drop(gpu.ordering.begin_launch(key(1), &INFO).unwrap());
    let second = capture.launch(1);
    // What failed left its descriptor to the next one.
    assert_eq!(first.table, second.table);
    assert_eq!(second.index, first.index + 1);
    let plan = capture.end().unwrap();
    assert_eq!(plan.kernels(), 2);
    assert_eq!(gpu.ordering.counts().taken_back, 4);
    let graph = Graph {
        plan,
        kernels: vec![first, second],
    };
    graph.replay(&gpu, key(1), &[&[Write(0)], &[Write(0)]], &[0, 1]);
    assert!(granules(&gpu).is_empty());
}

#[test]
fn launches_whose_ends_come_in_another_order_keep_their_edges() {
    let gpu = Gpu::new();
    let capture = Capture::begin(&gpu, 1);
    capture.edge(1, 2);
    let info = INFO;
    let mut first = gpu.ordering.begin_launch(key(1), &info).unwrap();
    let mut failed = gpu.ordering.begin_launch(key(2), &info).unwrap();
    let node = |stream| {
        let kind = NodeKind::Kernel;
        gpu.backend
            .capture_node(GPU, queue(stream), kind, false)
            .unwrap();
    };
    node(1);
    failed.finish(false).unwrap();
    // The driver knows the first launch's node; the ordering is told of it later.
    gpu.backend.capture_record(GPU, queue(1), 5).unwrap();
    gpu.backend.capture_wait(GPU, queue(2), 5).unwrap();
    gpu.ordering.wait_event(key(2), 5).unwrap();
    let mut second = gpu.ordering.begin_launch(key(2), &info).unwrap();
    let arguments = |launch: &gsan_sync::Launch| NodeArguments {
        table: launch.table(),
        index: launch.index(),
    };
    let kernels = vec![arguments(&first), arguments(&second)];
    node(2);
    second.finish(true).unwrap();
    first.finish(true).unwrap();
    capture.edge(2, 1);
    let plan = capture.end().unwrap();
    assert_eq!(plan.kernels(), 2);
    let graph = Graph { plan, kernels };
    graph.replay(&gpu, key(1), &[&[Write(0)], &[Read(0)]], &[0, 1]);
    assert!(granules(&gpu).is_empty());
}

#[test]
fn a_capture_without_anything_to_follow_has_no_plan() {
    let gpu = Gpu::new();
    let capture = Capture::begin(&gpu, 1);
    assert!(capture.end().is_none());
    let capture = Capture::begin(&gpu, 1);
    capture.edge(1, 2);
    capture.other(2, NodeKind::Kernel);
    capture.edge(2, 1);
    let id = capture.id;
    assert!(capture.end().is_none());
    assert!(gpu.ordering.capture_ended(id).unwrap().is_none());
    assert!(gpu.ordering.capture_ended(CaptureId(77)).unwrap().is_none());
    assert_eq!(gpu.ordering.capture_of(key(1)), Ok(None));
}

#[test]
fn a_capture_that_was_given_up_leaves_nothing() {
    let gpu = Gpu::new();
    let capture = Capture::begin(&gpu, 1);
    capture.launch(1);
    let unfinished = gpu.ordering.begin_launch(key(1), &INFO).unwrap();
    gpu.backend.break_capture(GPU, queue(1)).unwrap();
    drop(unfinished);
    assert_eq!(gpu.ordering.capture_of(key(1)), Ok(None));
    // The driver will refuse it: there is nothing to be checked.
    let launch = gpu.ordering.begin_launch(key(1), &INFO).unwrap();
    assert_eq!((launch.table(), launch.index()), (0, 0));
    drop(launch);
    gpu.backend.end_capture(GPU, queue(1)).unwrap_err();
    gpu.ordering.capture_abandoned(capture.id);
    assert!(gpu.ordering.capture_ended(capture.id).unwrap().is_none());
    gpu.launch(key(1), &[Write(0)]);
    gpu.launch(key(1), &[Read(0)]);
    assert!(granules(&gpu).is_empty());
}

#[test]
fn external_events_are_recorded_and_waited_for_at_each_replay() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    let capture = Capture::begin(&gpu, 1);
    let first = capture.launch(1);
    capture.other(1, NodeKind::RecordEvent(7));
    // Told after the driver's call, as every record and wait is.
    gpu.ordering.record_event(7, a).unwrap();
    capture.other(1, NodeKind::WaitEvent(8));
    gpu.ordering.wait_event(a, 8).unwrap();
    let second = capture.launch(1);
    // Nothing comes after this one.
    capture.other(1, NodeKind::RecordEvent(9));
    gpu.ordering.record_event(9, a).unwrap();
    let graph = Graph {
        plan: capture.end().unwrap(),
        kernels: vec![first, second],
    };
    for _ in 0..3 {
        gpu.launch(b, &[Write(0)]);
        gpu.ordering.record_event(8, b).unwrap();
        graph.replay(&gpu, a, &[&[Write(1)], &[Read(0), Write(2)]], &[0, 1]);
        gpu.ordering.wait_event(b, 7).unwrap();
        gpu.launch(b, &[Read(1)]);
        assert!(granules(&gpu).is_empty());
        gpu.launch(b, &[Read(2)]);
        assert_eq!(granules(&gpu), [2], "only what comes before the record");
        gpu.ordering.wait_event(b, 9).unwrap();
        gpu.launch(b, &[Write(2)]);
        assert!(granules(&gpu).is_empty());
    }
}

/// Two kernels, one after the other.
fn pair(gpu: &Gpu) -> Graph {
    let capture = Capture::begin(gpu, 1);
    let kernels = vec![capture.launch(1), capture.launch(1)];
    let plan = capture.end().unwrap();
    Graph { plan, kernels }
}

/// A kernel, a kernel beside all that follows, a graph, and a kernel after the graph.
fn around(gpu: &Gpu, inner: &Graph) -> Graph {
    let capture = Capture::begin(gpu, 1);
    let mut kernels = vec![capture.launch(1)];
    capture.edge(1, 2);
    kernels.push(capture.launch(2));
    kernels.extend(capture.replay(1, inner));
    kernels.push(capture.launch(1));
    capture.edge(2, 1);
    let plan = capture.end().unwrap();
    Graph { plan, kernels }
}

#[test]
fn graphs_that_are_launched_during_a_capture_become_part_of_it() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(3));
    let inner = pair(&gpu);
    let outer = around(&gpu, &inner);
    assert_eq!((inner.plan.kernels(), outer.plan.kernels()), (2, 5));
    let clean: [&[Do]; 5] = [
        &[Write(0), Read(9)],
        &[Read(0)],
        &[Read(0), Write(1)],
        &[Read(1), Write(2)],
        &[Read(2), Write(0), Write(9)],
    ];
    let beside: [&[Do]; 5] = [&[], &[Write(3), Write(4)], &[Read(3)], &[], &[Read(4)]];
    for _ in 0..3 {
        gpu.launch(a, &[Write(0)]);
        outer.replay(&gpu, a, &clean, &[0, 1, 2, 3, 4]);
        let races = granules(&gpu);
        assert_eq!(
            races,
            [0],
            "nothing orders the second kernel and the last one"
        );
        outer.replay(&gpu, a, &beside, &[0, 1, 2, 3, 4]);
        assert_eq!(granules(&gpu), [3, 4]);
        // By itself it starts after its own replays and its stream.
        inner.replay(&gpu, a, &[&[Read(9)], &[]], &[0, 1]);
        gpu.launch(a, &[Write(9)]);
        assert!(granules(&gpu).is_empty());
        inner.replay(&gpu, b, &[&[Write(20)], &[Read(20), Read(9)]], &[0, 1]);
        assert_eq!(granules(&gpu), [9]);
        gpu.ordering.synchronize_device(GPU).unwrap();
    }
    inner.plan.close().unwrap();
    drop(inner);
    gpu.launch(a, &[Write(0)]);
    outer.replay(&gpu, a, &clean, &[0, 1, 2, 3, 4]);
    assert_eq!(granules(&gpu), [0], "a copy outlives its graph");
}

#[test]
fn a_replay_that_failed_leaves_the_descriptors_of_copies_right() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    let inner = pair(&gpu);
    let outer = around(&gpu, &inner);
    let mut begun = outer.plan.begin_replay(a).unwrap();
    let b = gpu.open(3);
    assert_eq!(
        inner
            .plan
            .begin_replay(b)
            .map(drop)
            .unwrap_err()
            .to_string(),
        "a replay of the graph, or of one that has kernels in common with it, is in flight: it was begun and \
         not finished. Finish it before the next one"
    );
    begun.finish(false).unwrap();
    let what: [&[Do]; 2] = [&[Write(0)], &[Read(0)]];
    inner.replay(&gpu, b, &what, &[0, 1]);
    assert!(granules(&gpu).is_empty());
    let mut begun = inner.plan.begin_replay(b).unwrap();
    let shared = Error::ReplayUnfinished {
        shared: true,
        next: "the next one",
    };
    assert_eq!(outer.plan.begin_replay(a).err(), Some(shared));
    begun.finish(false).unwrap();
    let all: [&[Do]; 5] = [&[], &[], &[Write(1)], &[Read(1), Read(0)], &[Read(1)]];
    outer.replay(&gpu, a, &all, &[0, 1, 2, 3, 4]);
    assert_eq!(granules(&gpu), [0]);
}

#[test]
fn graphs_are_parts_of_parts() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    let inner = pair(&gpu);
    let middle = around(&gpu, &inner);
    let capture = Capture::begin(&gpu, 1);
    let mut kernels = vec![capture.launch(1)];
    kernels.extend(capture.replay(1, &middle));
    kernels.push(capture.launch(1));
    let plan = capture.end().unwrap();
    let outer = Graph { plan, kernels };
    assert_eq!(outer.plan.kernels(), 7);
    let what: [&[Do]; 7] = [
        &[Write(0)],
        &[Read(0), Write(1)],
        &[Write(5)],
        &[Read(1), Write(2)],
        &[Read(2), Write(3)],
        &[Read(3), Write(4), Read(5)],
        &[Read(4), Write(0), Write(5)],
    ];
    for _ in 0..2 {
        outer.replay(&gpu, a, &what, &[0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(granules(&gpu), [5]);
        let part: [&[Do]; 5] = [&[Write(1)], &[], &[Read(1)], &[Write(2)], &[Read(2)]];
        middle.replay(&gpu, a, &part, &[0, 1, 2, 3, 4]);
        inner.replay(&gpu, a, &[&[Write(2)], &[Read(2)]], &[0, 1]);
        assert!(granules(&gpu).is_empty());
    }
}

#[test]
fn kernels_of_which_there_are_two_copies_are_unchecked_and_keep_the_order() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    let inner = pair(&gpu);
    let capture = Capture::begin(&gpu, 1);
    let mut kernels = vec![capture.launch(1)];
    kernels.extend(capture.replay(1, &inner));
    capture.replay(1, &inner);
    kernels.push(capture.launch(1));
    let outer = Graph {
        plan: capture.end().unwrap(),
        kernels,
    };
    assert_eq!(outer.plan.kernels(), 2);
    assert_eq!(gpu.ordering.counts().unchecked, 4);
    let what: [&[Do]; 4] = [&[Write(0)], &[Write(7)], &[Write(7)], &[Read(0)]];
    outer.replay(&gpu, a, &what, &[0, 1, 2, 3]);
    assert!(granules(&gpu).is_empty());
    // By itself it is checked as before.
    let b = gpu.open(3);
    inner.replay(&gpu, b, &[&[Write(1)], &[Read(1), Read(0)]], &[0, 1]);
    assert_eq!(granules(&gpu), [0]);
}

#[test]
fn a_graph_by_hand_contains_copies_of_captured_ones() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    let inner = pair(&gpu);
    let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
    let (first, before) = builder.kernel(&[], &[], &INFO).unwrap();
    let copy = builder.graph(&[first], &inner.plan).unwrap();
    let (_, after) = builder.kernel(&[copy], &[], &INFO).unwrap();
    let outer = Graph {
        plan: builder.finish().unwrap(),
        kernels: vec![before, inner.kernels[0], inner.kernels[1], after],
    };
    let what: [&[Do]; 4] = [
        &[Write(0)],
        &[Read(0), Write(1)],
        &[Read(1), Write(2)],
        &[Read(2)],
    ];
    for _ in 0..2 {
        outer.replay(&gpu, a, &what, &[0, 1, 2, 3]);
        inner.replay(&gpu, a, &[&[Write(1)], &[Read(1)]], &[0, 1]);
        assert!(granules(&gpu).is_empty());
    }
    inner.plan.close().unwrap();
    let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
    let closed = builder.graph(&[], &inner.plan).unwrap_err();
    assert_eq!(closed, Error::GraphGone("was closed"));
}

#[test]
fn dependent_launches_that_are_captured_know_what_they_waited_for() {
    for waits in [false, true] {
        let gpu = Gpu::new();
        let stream = gpu.open(1);
        let capture = Capture::begin(&gpu, 1);
        let dependent = LaunchInfo {
            programmatic: true,
            ..INFO
        };
        let mut kernels = vec![capture.launch(1)];
        kernels.extend((0..4).map(|_| capture.launch_as(1, &dependent)));
        kernels.push(capture.launch(1));
        let plan = capture.end().unwrap();
        for _ in 0..3 {
            let mut replay = plan.begin_replay(stream).unwrap();
            let start = |at: usize| {
                let NodeArguments { table, index } = kernels[at];
                gpu.resident((table, index), at as u32 % 4, 0)
            };
            let running: Vec<_> = (0..4).map(start).collect();
            running[0].does(Write(0));
            running[0].exit();
            if waits {
                running[1].does(Wait);
            }
            running[1].does(Read(0));
            (1..4).for_each(|at| running[at].exit());
            for at in [4, 5] {
                let last = start(at);
                last.does(Write(0));
                last.exit();
            }
            replay.finish(true).unwrap();
            assert_eq!(gpu.races().is_empty(), waits);
        }
    }
}

#[test]
fn launches_on_a_second_device_are_unchecked_and_keep_the_order() {
    let gpu = Gpu::with(Settings {
        device_ranks: vec![DeviceRank(0), DeviceRank(1)],
        devices: 2,
        ..settings()
    });
    let other = gpu.open_as(Device(1), 5, StreamKind::NonBlocking);
    let capture = Capture::begin(&gpu, 1);
    let first = capture.launch(1);
    let backend = &gpu.backend;
    backend.capture_record(GPU, queue(1), 1).unwrap();
    backend.capture_wait(other.device, queue(5), 1).unwrap();
    let mut launch = gpu.ordering.begin_launch(other, &INFO).unwrap();
    assert_eq!(launch.table(), 0);
    backend
        .capture_node(other.device, queue(5), NodeKind::Kernel, false)
        .unwrap();
    launch.finish(true).unwrap();
    backend.capture_record(other.device, queue(5), 2).unwrap();
    capture.edge(1, 2);
    backend.capture_wait(GPU, queue(2), 2).unwrap();
    let last = capture.launch(2);
    capture.edge(2, 1);
    let graph = Graph {
        plan: capture.end().unwrap(),
        kernels: vec![first, last],
    };
    assert_eq!(gpu.ordering.counts().unchecked, 1);
    graph.replay(&gpu, key(1), &[&[Write(0)], &[Read(0)]], &[0, 1]);
    assert!(granules(&gpu).is_empty());
}

#[test]
fn what_cannot_become_part_of_a_graph_is_refused() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    let before = Capture::begin(&gpu, 1);
    before.launch(1);
    let plan = before.end().unwrap();
    let group = gpu.ordering.group(GPU, &[DeviceRank(0)]).unwrap();
    let capture = Capture::begin(&gpu, 1);
    let refused = |what| Error::Captured { key: stream, what };
    let barrier = group.barrier(stream, Duration::from_secs(1)).err();
    assert_eq!(barrier.as_ref(), Some(&refused("a barrier")));
    assert_eq!(
        barrier.unwrap().to_string(),
        "stream 0x1 of device 0 is being captured, and a barrier cannot become part of a graph"
    );
    drop(group);
    plan.close().unwrap();
    let closed = plan.begin_replay(stream).err();
    assert_eq!(closed, Some(Error::GraphGone("was closed")));
    assert_eq!(gpu.ordering.restart(), Ok(Idle::NotYet));
    capture.end();
    assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
}

#[test]
fn races_of_a_graph_with_a_collective_are_possible_ones() {
    for meets in [true, false] {
        let gpu = Gpu::new();
        let (a, b) = (gpu.open(1), gpu.open(2));
        let group = gpu.ordering.group(GPU, &[DeviceRank(0)]).unwrap();
        let capture = Capture::begin(&gpu, 1);
        let mut kernels = vec![capture.launch(1)];
        if meets {
            group.before_collective(a).unwrap();
            capture.other(1, NodeKind::Kernel);
            group.after_collective(a).unwrap();
        }
        kernels.push(capture.launch(1));
        let plan = capture.end().unwrap();
        let graph = Graph { plan, kernels };
        gpu.launch(b, &[Write(0)]);
        graph.replay(&gpu, a, &[&[Write(1)], &[Read(1), Read(0)]], &[0, 1]);
        gpu.launch(b, &[Read(1)]);
        let told = gpu.told();
        let earlier = gpu.ordering.launch_record(GPU, told[1].earlier.launch);
        assert_eq!(earlier.unwrap().unwrap().opaque, meets);
        let possible = told
            .iter()
            .map(|race| u32::from(race.flags) & race_codes::POSSIBLE != 0);
        // Who reports them looks at both launches.
        assert_eq!(possible.collect::<Vec<_>>(), [meets, false]);
        // Around a replay the group is told as around a collective.
        group.before_collective(a).unwrap();
        graph.replay(&gpu, a, &[&[], &[]], &[0, 1]);
        group.after_collective(a).unwrap();
        gpu.launch(a, &[Write(1)]);
    }
}

#[test]
fn a_launch_that_the_capture_does_not_hold_is_told() {
    let gpu = Gpu::new();
    let stream: StreamKey = gpu.open(1);
    let capture = Capture::begin(&gpu, 1);
    let mut launch = gpu.ordering.begin_launch(stream, &INFO).unwrap();
    assert_eq!(launch.finish(true), Err(Error::NotCaptured(stream)));
    capture.other(1, NodeKind::Other);
    let mut late = gpu.ordering.begin_launch(stream, &INFO).unwrap();
    assert!(capture.end().is_none());
    let error = late.finish(true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the capture of stream 0x1 of device 0 holds no new kernel after a launch: it was given to \
         another stream, or the capture was ended before the launch was finished"
    );
    assert_eq!(gpu.ordering.counts().unchecked, 2);
    gpu.launch(stream, &[Write(0)]);
}

#[test]
fn a_graph_that_runs_before_its_plan_is_made_is_unchecked() {
    let gpu = Gpu::new();
    let capture = Capture::begin(&gpu, 1);
    let NodeArguments { table, index } = capture.launch(1);
    gpu.launch(gpu.open(2), &[Write(0)]);
    gpu.kernel(GPU, (table, index), &[&[Write(0)]])();
    assert!(granules(&gpu).is_empty());
    capture.end();
}
