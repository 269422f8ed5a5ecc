//! Graphs by hand and by capture, and their replays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gsan_sync::{Error, Idle, LaunchInfo, NodeArguments, NodeId, Plan, StreamKey};
use gsan_vmm::backend::{Backend, FenceId, NodeKind};
use proptest::prelude::*;

use crate::capture::Capture;
use crate::gpu::Do::{Read, Wait, Write};
use crate::gpu::{Do, GPU, Gpu, key, queue, settings};

pub(crate) const INFO: LaunchInfo = LaunchInfo {
    kernel: 1,
    grid: [1, 1, 1],
    programmatic: false,
    opaque: false,
};

/// A graph whose kernels are known by their arguments.
pub(crate) struct Graph {
    pub(crate) plan: Arc<Plan>,
    pub(crate) kernels: Vec<NodeArguments>,
}

impl Graph {
    /// Replays it on a stream: its kernels do `what`, in the order of `order`.
    pub(crate) fn replay(
        &self,
        gpu: &Gpu,
        stream: StreamKey,
        what: &[&[Do]],
        order: &[usize],
    ) -> u32 {
        let mut replay = self.plan.begin_replay(stream).unwrap();
        let kernels: Vec<_> = order
            .iter()
            .map(|&at| {
                let NodeArguments { table, index } = self.kernels[at];
                gpu.kernel(GPU, (table, index), &[what[at]])
            })
            .collect();
        let graph = move || kernels.into_iter().for_each(|kernel| kernel());
        gpu.backend
            .enqueue(GPU, queue(stream.handle), graph)
            .unwrap();
        replay.finish(true).unwrap();
        replay.first_number()
    }
}

/// Two streams are captured: the second one waits for the first, and the first for the second, each
/// by an event that can be left out.
fn captured(gpu: &Gpu, fork: bool, join: bool) -> Graph {
    let capture = Capture::begin(gpu, 1);
    // The second stream takes part, and is joined, in any case.
    capture.edge(1, 2);
    let mut kernels = vec![capture.launch(1)];
    if fork {
        capture.edge(1, 2);
    }
    kernels.push(capture.launch(1));
    kernels.push(capture.launch(2));
    if join {
        capture.edge(2, 1);
    }
    kernels.push(capture.launch(1));
    capture.edge(2, 1);
    let plan = capture.end().unwrap();
    Graph { plan, kernels }
}

#[test]
fn a_capture_over_two_streams_is_clean_in_all_replays() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    let graph = captured(&gpu, true, true);
    let what: [&[Do]; 4] = [
        &[Write(0), Write(1)],
        &[Read(0), Write(2)],
        &[Read(1), Write(3)],
        &[Read(2), Read(3), Write(0), Write(1)],
    ];
    for round in 0..50 {
        let order = if round % 2 == 0 {
            [0, 1, 2, 3]
        } else {
            [0, 2, 1, 3]
        };
        gpu.launch(stream, &[Write(0), Write(2)]);
        graph.replay(&gpu, stream, &what, &order);
        gpu.launch(stream, &[Read(0), Read(3)]);
    }
    assert!(gpu.races().is_empty(), "{:?}", gpu.races());
    graph.plan.close().unwrap();
}

#[test]
fn a_captured_event_that_is_left_out_is_found() {
    for (fork, join) in [(false, true), (true, false)] {
        let gpu = Gpu::new();
        let stream = gpu.open(1);
        let graph = captured(&gpu, fork, join);
        let what: [&[Do]; 4] = [&[Write(0)], &[], &[Read(0), Write(1)], &[Read(1)]];
        graph.replay(&gpu, stream, &what, &[0, 1, 2, 3]);
        let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
        assert_eq!(granules, [u32::from(fork)]);
        // The stream goes on after all of the graph even so.
        gpu.launch(stream, &[Write(0), Write(1)]);
        assert_eq!(gpu.races().len(), 0);
    }
}

#[test]
fn branches_of_a_graph_are_not_ordered() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    let graph = captured(&gpu, true, true);
    let what: [&[Do]; 4] = [&[], &[Write(0)], &[Write(0)], &[]];
    let first = graph.replay(&gpu, stream, &what, &[0, 1, 2, 3]);
    let races: Vec<_> = gpu.races().into_iter().collect();
    assert_eq!(races.len(), 1);
    assert_eq!((races[0].earlier, races[0].later), (first + 1, first + 2));
    let record = gpu.ordering.launch_record(GPU, first + 2).unwrap();
    assert_eq!(record.unwrap().kernel, 1);
}

#[test]
fn a_replay_starts_after_its_stream_and_after_earlier_replays() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    let graph = captured(&gpu, true, true);
    gpu.launch(a, &[Write(0)]);
    gpu.launch(b, &[Write(1)]);
    graph.replay(&gpu, a, &[&[Read(0)], &[], &[Write(2)], &[]], &[0, 1, 2, 3]);
    assert!(gpu.races().is_empty());
    // On another stream: after the first replay, and so after what that one's stream had done.
    graph.replay(
        &gpu,
        b,
        &[&[Write(0), Write(1), Write(2)], &[], &[], &[Write(3)]],
        &[0, 1, 2, 3],
    );
    assert!(gpu.races().is_empty());
    gpu.launch(a, &[Read(3)]);
    assert_eq!(
        gpu.races().len(),
        1,
        "a does not wait for the second replay"
    );
}

#[test]
fn rows_that_others_name_do_not_grow_with_later_replays() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    let graph = captured(&gpu, true, true);
    graph.replay(&gpu, a, &[&[Write(0)], &[], &[], &[]], &[0, 1, 2, 3]);
    gpu.ordering.record_event(1, a).unwrap();
    graph.replay(&gpu, a, &[&[Write(1)], &[], &[], &[]], &[0, 1, 2, 3]);
    gpu.ordering.wait_event(b, 1).unwrap();
    gpu.launch(b, &[Read(0), Read(1)]);
    let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
    assert_eq!(granules, [1]);
}

#[test]
fn a_replay_that_failed_leaves_nothing_behind_in_its_stream() {
    let gpu = Gpu::new();
    let a = gpu.open(1);
    let graph = captured(&gpu, true, true);
    gpu.launch(a, &[Write(0)]);
    let mut failed = graph.plan.begin_replay(a).unwrap();
    let unfinished = |next| Error::ReplayUnfinished {
        shared: false,
        next,
    };
    let again = graph.plan.begin_replay(a).map(drop);
    assert_eq!(again, Err(unfinished("the next one")));
    assert_eq!(graph.plan.close(), Err(unfinished("closing the graph")));
    failed.finish(false).unwrap();
    gpu.backend.hold(true);
    graph.replay(&gpu, a, &[&[], &[], &[], &[]], &[0, 1, 2, 3]);
    assert_eq!(graph.plan.close(), Err(Error::GraphInFlight));
    gpu.backend.hold(false);
    assert_eq!(failed.finish(true), Err(Error::ReplayFinished));
    gpu.launch(a, &[Read(0)]);
    graph.plan.close().unwrap();
    assert_eq!(
        graph.plan.close().unwrap_err().to_string(),
        "the graph was closed and cannot be used any more"
    );
    assert!(graph.plan.begin_replay(a).is_err());
    assert!(gpu.races().is_empty());
}

#[test]
fn child_graphs_come_between_what_is_before_and_after_them() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    let mut child = gpu.ordering.begin_plan(GPU).unwrap();
    let (_, left) = child.kernel(&[], &[], &INFO).unwrap();
    let (_, right) = child.kernel(&[], &[], &INFO).unwrap();
    let mut parent = gpu.ordering.begin_plan(GPU).unwrap();
    let (first, before) = parent.kernel(&[], &[], &INFO).unwrap();
    let middle = parent.child(&[first], child).unwrap();
    let copy = parent.other(&[middle]).unwrap();
    let (_, after) = parent.kernel(&[copy], &[], &INFO).unwrap();
    let bad = parent.other(&[NodeId(77)]).unwrap_err();
    assert_eq!(
        bad.to_string(),
        "node 6 depends on node 77, which is not there yet: 6 nodes are"
    );
    let graph = Graph {
        plan: parent.finish().unwrap(),
        kernels: vec![before, left, right, after],
    };
    let what: [&[Do]; 4] = [
        &[Write(0), Write(1)],
        &[Read(0), Write(2), Write(4)],
        &[Read(1), Write(3), Write(4)],
        &[Read(2), Read(3)],
    ];
    graph.replay(&gpu, stream, &what, &[0, 1, 2, 3]);
    let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
    assert_eq!(granules, [4]);
}

#[test]
fn events_inside_a_graph_are_recorded_and_waited_for_at_each_replay() {
    for waits in [false, true] {
        let gpu = Gpu::new();
        let (a, b) = (gpu.open(1), gpu.open(2));
        let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
        let (first, one) = builder.kernel(&[], &[], &INFO).unwrap();
        let recorded = builder.record(&[first], 7).unwrap();
        let start = if waits {
            builder.wait(&[recorded], 8).unwrap()
        } else {
            recorded
        };
        let (_, two) = builder.kernel(&[start], &[], &INFO).unwrap();
        let graph = Graph {
            plan: builder.finish().unwrap(),
            kernels: vec![one, two],
        };
        gpu.launch(b, &[Write(0)]);
        gpu.ordering.record_event(8, b).unwrap();
        graph.replay(&gpu, a, &[&[Write(1)], &[Read(0), Write(2)]], &[0, 1]);
        assert_eq!(gpu.races().is_empty(), waits);
        gpu.ordering.wait_event(b, 7).unwrap();
        gpu.launch(b, &[Read(1), Read(2)]);
        let granules: Vec<_> = gpu.races().iter().map(|race| race.granule).collect();
        assert_eq!(granules, [2], "only what comes before the record is known");
        gpu.ordering.wait_stream(b, a).unwrap();
        gpu.launch(b, &[Write(2)]);
        assert!(gpu.races().is_empty(), "all of the replay is");
    }
}

#[test]
fn dependent_nodes_know_what_they_waited_for() {
    for waits in [false, true] {
        let gpu = Gpu::new();
        let stream = gpu.open(1);
        let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
        let mut before: Option<NodeId> = None;
        let mut kernels = Vec::new();
        for _ in 0..5 {
            let programmatic: Vec<_> = before.into_iter().collect();
            let (node, arguments) = builder.kernel(&[], &programmatic, &INFO).unwrap();
            kernels.push(arguments);
            before = Some(node);
        }
        let (_, last) = builder.kernel(&[before.unwrap()], &[], &INFO).unwrap();
        let plan = builder.finish().unwrap();
        for _ in 0..3 {
            let mut replay = plan.begin_replay(stream).unwrap();
            // All five are resident at once, as on a GPU.
            let running: Vec<_> = (0..4)
                .map(|at| {
                    let NodeArguments { table, index } = kernels[at];
                    gpu.resident((table, index), at as u32, 0)
                })
                .collect();
            running[0].does(Write(0));
            running[0].exit();
            if waits {
                running[1].does(Wait);
            }
            running[1].does(Read(0));
            running[1].exit();
            running[2].exit();
            running[3].exit();
            for arguments in [kernels[4], last] {
                let NodeArguments { table, index } = arguments;
                gpu.kernel(GPU, (table, index), &[&[Write(0)]])();
            }
            replay.finish(true).unwrap();
            assert_eq!(gpu.races().is_empty(), waits);
        }
    }
}

/// A random graph: for each node, whether it is a kernel, and which earlier nodes it depends on.
type Nodes = Vec<(bool, Vec<bool>)>;

#[derive(Clone, Debug)]
enum Step {
    Launch(u64),
    Replay {
        stream: u64,
        graph: usize,
        seed: u64,
    },
    Record {
        event: u64,
        stream: u64,
    },
    Wait {
        event: u64,
        stream: u64,
    },
    SyncStream(u64),
    Restart,
    /// Closes a graph and builds it anew.
    Rebuild(usize),
    Run {
        stream: u64,
    },
}

fn nodes() -> impl Strategy<Value = Nodes> {
    let node = (
        prop::bool::weighted(0.8),
        prop::collection::vec(prop::bool::weighted(0.4), 5),
    );
    prop::collection::vec(node, 1..6)
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 1u64..4;
    let event = 0u64..3;
    prop_oneof![
        4 => stream.clone().prop_map(Step::Launch),
        4 => (stream.clone(), 0usize..2, any::<u64>())
            .prop_map(|(stream, graph, seed)| Step::Replay { stream, graph, seed }),
        3 => (event.clone(), stream.clone()).prop_map(|(event, stream)| Step::Record { event, stream }),
        3 => (event, stream.clone()).prop_map(|(event, stream)| Step::Wait { event, stream }),
        1 => stream.clone().prop_map(Step::SyncStream),
        1 => Just(Step::Restart),
        2 => (0usize..2).prop_map(Step::Rebuild),
        3 => stream.prop_map(|stream| Step::Run { stream }),
    ]
}

/// Everything that is ordered before a point, as launches in the order of the program.
type Before = BTreeSet<usize>;

#[derive(Default)]
struct Model {
    streams: BTreeMap<u64, Before>,
    events: BTreeMap<u64, Before>,
    graphs: [Before; 2],
    host: Before,
    before: Vec<Before>,
}

impl Model {
    fn launch(&mut self, before: Before) -> usize {
        self.before.push(before);
        self.before.len() - 1
    }

    fn of(&self, stream: u64) -> Before {
        let known = self.streams.get(&stream).into_iter().flatten();
        known.chain(&self.host).copied().collect()
    }
}

fn granule(earlier: usize, later: usize) -> u32 {
    (later * (later - 1) / 2 + earlier) as u32
}

/// What launch `this` of `all` does: it shares a granule with each other one.
fn accesses(this: usize, all: usize) -> Vec<Do> {
    let reads = (0..this).map(|earlier| Read(granule(earlier, this)));
    let writes = (this + 1..all).map(|later| Write(granule(this, later)));
    reads.chain(writes).collect()
}

/// What comes before each kernel of a graph, by their places among the kernels.
fn closure(nodes: &Nodes) -> Vec<BTreeSet<usize>> {
    let mut before: Vec<BTreeSet<usize>> = Vec::new();
    let mut of_kernels = Vec::new();
    let mut number = Vec::new();
    for (at, (is_kernel, edges)) in nodes.iter().enumerate() {
        let dependencies: Vec<usize> = (0..at).filter(|&on| edges[on]).collect();
        let mut all = BTreeSet::new();
        for &on in &dependencies {
            all.extend(&before[on]);
            all.extend(number[on]);
        }
        if *is_kernel {
            number.push(Some(of_kernels.len()));
            of_kernels.push(all.clone());
        } else {
            number.push(None);
        }
        before.push(all);
    }
    of_kernels
}

/// Builds a graph by hand.
fn build(gpu: &Gpu, nodes: &Nodes) -> Graph {
    let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
    let mut kernels = Vec::new();
    for (at, (is_kernel, edges)) in nodes.iter().enumerate() {
        let ids: Vec<NodeId> = (0..at).filter(|&on| edges[on]).map(NodeId).collect();
        if *is_kernel {
            kernels.push(builder.kernel(&ids, &[], &INFO).unwrap().1);
        } else {
            builder.other(&ids).unwrap();
        }
    }
    let plan = builder.finish().unwrap();
    Graph { plan, kernels }
}

/// Captures a graph, with a stream for each node.
fn capture(gpu: &Gpu, nodes: &Nodes) -> Graph {
    const FIRST: u64 = 101;
    let capture = Capture::begin(gpu, 100);
    let mut kernels = Vec::new();
    for (at, (is_kernel, edges)) in nodes.iter().enumerate() {
        let stream = FIRST + at as u64;
        capture.edge(100, stream);
        (0..at)
            .filter(|&on| edges[on])
            .for_each(|on| capture.edge(FIRST + on as u64, stream));
        if *is_kernel {
            kernels.push(capture.launch(stream));
        } else {
            capture.other(stream, NodeKind::Kernel);
        }
    }
    for at in 0..nodes.len() as u64 {
        capture.edge(FIRST + at, 100);
    }
    let plan = capture.end().unwrap();
    Graph { plan, kernels }
}

/// An order of the kernels that their edges allow.
fn order(before: &[BTreeSet<usize>], mut seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < before.len() {
        let ready: Vec<usize> = (0..before.len())
            .filter(|at| !order.contains(at) && before[*at].iter().all(|b| order.contains(b)))
            .collect();
        order.push(ready[seed as usize % ready.len()]);
        seed /= 7;
    }
    order
}

fn cases() -> ProptestConfig {
    let long = std::env::var_os("GSAN_LONG").is_some();
    ProptestConfig::with_cases(if long { 10_000 } else { 200 })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn launches_and_replays_race_exactly_when_nothing_orders_them(
        graphs in [(nodes(), any::<bool>()), (nodes(), any::<bool>())],
        steps in prop::collection::vec(step(), 1..25),
    ) {
        let gpu = Gpu::with(gsan_sync::Settings { most_banks: 20, ..settings() });
        for stream in 1..4 {
            gpu.open(stream);
        }
        let make = |(nodes, captured): &(Nodes, bool)| {
            let kernel = |(is_kernel, _): &(bool, _)| *is_kernel;
            // Of a capture without kernels there is no plan.
            if *captured && nodes.iter().any(kernel) {
                capture(&gpu, nodes)
            } else {
                build(&gpu, nodes)
            }
        };
        let made_of = graphs;
        let mut graphs = [0, 1].map(|at: usize| (make(&made_of[at]), closure(&made_of[at].0)));
        let all: usize = steps
            .iter()
            .map(|step| match step {
                Step::Launch(_) => 1,
                Step::Replay { graph, .. } => graphs[*graph].1.len(),
                _ => 0,
            })
            .sum();
        gpu.backend.hold(true);
        let mut model = Model::default();
        let mut fences: BTreeMap<u64, FenceId> = BTreeMap::new();
        for step in &steps {
            match *step {
                Step::Launch(stream) => {
                    let before = model.of(stream);
                    let this = model.launch(before.clone());
                    gpu.launch(key(stream), &accesses(this, all));
                    model.streams.insert(stream, before);
                    model.streams.entry(stream).or_default().insert(this);
                }
                Step::Replay { stream, graph, seed } => {
                    let (of, before) = &graphs[graph];
                    let mut base = model.of(stream);
                    base.extend(&model.graphs[graph]);
                    let first = model.before.len();
                    for before in before {
                        let inner = before.iter().map(|at| at + first);
                        model.launch(base.iter().copied().chain(inner).collect());
                    }
                    base.extend(first..model.before.len());
                    let what: Vec<_> = (first..first + before.len())
                        .map(|this| accesses(this, all))
                        .collect();
                    let what: Vec<&[Do]> = what.iter().map(Vec::as_slice).collect();
                    of.replay(&gpu, key(stream), &what, &order(before, seed));
                    model.graphs[graph] = base.clone();
                    model.streams.insert(stream, base);
                }
                Step::Record { event, stream } => {
                    gpu.ordering.record_event(event, key(stream)).unwrap();
                    fences.insert(event, gpu.backend.fence(GPU, queue(stream)).unwrap());
                    let known = model.streams.get(&stream).cloned().unwrap_or_default();
                    model.events.insert(event, known);
                }
                Step::Wait { event, stream } => {
                    gpu.ordering.wait_event(key(stream), event).unwrap();
                    if let Some(&fence) = fences.get(&event) {
                        gpu.backend.wait_on(GPU, queue(stream), fence).unwrap();
                        let known = model.events[&event].clone();
                        model.streams.entry(stream).or_default().extend(known);
                    }
                }
                Step::SyncStream(stream) => {
                    gpu.ordering.synchronize_stream(key(stream)).unwrap();
                    gpu.backend.run_all();
                    let known = model.streams.get(&stream).cloned().unwrap_or_default();
                    model.host.extend(known);
                }
                Step::Restart => {
                    gpu.backend.run_all();
                    assert_eq!(gpu.ordering.restart(), Ok(Idle::Restarted));
                    model.host.extend(0..model.before.len());
                }
                Step::Rebuild(graph) => {
                    gpu.backend.run_all();
                    // After some of these a new graph would get a bank of a closed one whose launches it
                    // does not know.
                    gpu.ordering.synchronize_device(GPU).unwrap();
                    model.host.extend(0..model.before.len());
                    graphs[graph].0.plan.close().unwrap();
                    graphs[graph].0 = make(&made_of[graph]);
                    model.graphs[graph] = Before::new();
                }
                Step::Run { stream } => {
                    gpu.backend.step(GPU, queue(stream)).unwrap();
                }
            }
        }
        gpu.backend.hold(false);
        let mut unordered = BTreeSet::new();
        for (later, before) in model.before.iter().enumerate() {
            let others = (0..later).filter(|earlier| !before.contains(earlier));
            unordered.extend(others.map(|earlier| granule(earlier, later)));
        }
        let told: BTreeSet<u32> = gpu.races().iter().map(|race| race.granule).collect();
        prop_assert_eq!(told, unordered);
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
        let gpu = Gpu::new();
        let stream = gpu.open(200);
        let original = captured(&gpu, fork, join);
        let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
        builder.graph(&[], &original.plan).unwrap();
        let clone = Graph {
            plan: builder.finish().unwrap(),
            kernels: original.kernels.clone(),
        };
        let mut builder = gpu.ordering.begin_plan(GPU).unwrap();
        let (first, before) = builder.kernel(&[], &[], &INFO).unwrap();
        let copy = builder.graph(&[first], &original.plan).unwrap();
        let (_, after) = builder.kernel(&[copy], &[], &INFO).unwrap();
        let mut kernels = original.kernels.clone();
        kernels.extend([before, after]);
        let around = Graph {
            plan: builder.finish().unwrap(),
            kernels,
        };
        let what: [&[Do]; 6] = [
            &[Read(5), Write(0)],
            &[Write(2)],
            &[Read(0), Write(1)],
            &[Read(1), Read(2), Read(5), Write(6)],
            &[Write(5)],
            &[Read(6)],
        ];
        let alone: &[usize] = &[0, 1, 2, 3];
        let inside: &[usize] = &[4, 0, 1, 2, 3, 5];
        for (graph, order) in [
            (&clone, alone),
            (&around, inside),
            (&original, alone),
            (&clone, alone),
        ] {
            for _ in 0..5 {
                graph.replay(&gpu, stream, &what, order);
            }
            let told: BTreeSet<u32> = gpu.races().iter().map(|race| race.granule).collect();
            let told: Vec<u32> = told.into_iter().collect();
            assert_eq!(told, expected, "fork: {fork}, join: {join}");
        }
    }
}
