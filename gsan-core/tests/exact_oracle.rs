//! The exact detector against a model that cannot be wrong for being clever: all events of an
//! execution as nodes of a graph, the edges of the memory model between them, and reachability.

use std::collections::{BTreeMap, BTreeSet};

use gsan_core::event::{
    Access, Action, Completion, Detector, Event, FenceKind, HostEvent, Meeting, Proxy, Range,
};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{AsyncId, Cta, DeviceRank, LaunchId, SiteId, StreamId, Thread};
use gsan_core::race::{RaceKind, Who};
use gsan_core::scope::{Order, Scope};
use gsan_core::testing::execution::{Grain, execute};
use gsan_core::testing::random::{Case, Shape, cases};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// What a node does that matters to the model.
#[derive(Clone, Debug)]
enum Deed {
    /// Nothing but being ordered.
    Point,
    Memory {
        who: Thread,
        range: Range,
        action: Action,
        order: Order,
        scope: Scope,
        site: SiteId,
        copy: Option<(AsyncId, Proxy)>,
    },
    Fence {
        who: Thread,
        kind: FenceKind,
        scope: Scope,
    },
    /// A kernel boundary.
    Boundary,
}

/// The graph of one execution.
#[derive(Default)]
struct Graph {
    unit: Option<Unit>,
    deeds: Vec<Deed>,
    /// The event each node belongs to.
    events: Vec<usize>,
    before: Vec<BTreeSet<usize>>,
    devices: BTreeMap<LaunchId, DeviceRank>,
    clusters: BTreeMap<LaunchId, u32>,
    /// The last node of each thread in program order.
    last: BTreeMap<Thread, usize>,
    /// What follows the reads and the writes of a copy.
    copies: BTreeMap<AsyncId, [usize; 2]>,
    /// Where what a copy does is done. There is no edge to it: the completion of a copy says
    /// nothing about what came before the copy.
    done: BTreeMap<usize, usize>,
}

/// What the host and the launches are ordered by.
#[derive(Default)]
struct Host {
    host: usize,
    tails: BTreeMap<StreamId, BTreeSet<usize>>,
    waited: BTreeMap<StreamId, BTreeSet<usize>>,
    records: BTreeMap<u32, BTreeSet<usize>>,
    last: BTreeMap<StreamId, LaunchId>,
    /// Start, end, predecessor, and how many CTAs have not exited.
    launches: BTreeMap<LaunchId, Launched>,
}

struct Launched {
    device: DeviceRank,
    stream: StreamId,
    start: usize,
    end: usize,
    overtaken: Vec<LaunchId>,
    waits_for: Option<LaunchId>,
    running: u32,
}

impl Graph {
    fn node(&mut self, event: usize, deed: Deed) -> usize {
        self.deeds.push(deed);
        self.events.push(event);
        self.before.push(BTreeSet::new());
        self.deeds.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.before[to].insert(from);
    }

    /// Threads of a CTA are one if the unit is the CTA.
    fn name(&self, thread: Thread) -> Thread {
        match self.unit {
            Some(Unit::Cta) => Thread { index: 0, ..thread },
            _ => thread,
        }
    }

    /// The next node of a thread in program order.
    fn next(&mut self, event: usize, thread: Thread, deed: Deed) -> usize {
        let thread = self.name(thread);
        let node = self.node(event, deed);
        if let Some(last) = self.last.insert(thread, node) {
            self.edge(last, node);
        }
        node
    }

    fn reaches(&self) -> Vec<BTreeSet<usize>> {
        // Edges may lead to nodes with smaller numbers, so go round until nothing changes.
        let mut reached = self.before.clone();
        loop {
            let mut grew = false;
            for node in 0..reached.len() {
                let mut all = reached[node].clone();
                for &before in &reached[node] {
                    all.extend(&reached[before]);
                }
                grew |= all.len() > reached[node].len();
                reached[node] = all;
            }
            if !grew {
                return reached;
            }
        }
    }

    fn includes(&self, scope: Scope, of: Thread, other: Thread) -> bool {
        let cluster = |t: Thread| {
            let size = self.clusters[&t.cta.launch];
            (t.cta.launch, t.cta.index.0 / size)
        };
        match scope {
            Scope::Cta => of.cta == other.cta,
            Scope::Cluster => cluster(of) == cluster(other),
            Scope::Gpu => self.devices[&of.cta.launch] == self.devices[&other.cta.launch],
            Scope::Sys => true,
        }
    }

    /// "Morally strong", for two strong accesses or fences.
    fn morally_strong(&self, a: usize, b: usize) -> bool {
        let strong = |node: usize| match self.deeds[node] {
            Deed::Memory {
                who,
                scope,
                order,
                range,
                ..
            } if order.is_strong() => Some((who, scope, Some(range))),
            Deed::Fence { who, scope, .. } => Some((who, scope, None)),
            _ => None,
        };
        let (Some(a), Some(b)) = (strong(a), strong(b)) else {
            return false;
        };
        let overlap = match (a.2, b.2) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        overlap && self.includes(a.1, a.0, b.0) && self.includes(b.1, b.0, a.0)
    }

    /// For each strong read, the writes that precede it in observation order.
    fn observations(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut newest: BTreeMap<_, usize> = BTreeMap::new();
        let mut observed: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (node, deed) in self.deeds.iter().enumerate() {
            let Deed::Memory { range, action, .. } = deed else {
                continue;
            };
            let bytes = range.address..range.address + u64::from(range.bytes);
            if action.reads() {
                let writers: BTreeSet<_> = bytes
                    .clone()
                    .map(|byte| newest.get(&(range.space, byte)).copied())
                    .collect();
                if let [Some(write)] = writers.into_iter().collect::<Vec<_>>()[..]
                    && self.morally_strong(write, node)
                {
                    let mut writes = BTreeSet::from([write]);
                    writes.extend(observed.get(&write).into_iter().flatten());
                    observed.insert(node, writes);
                }
            }
            if action.writes() {
                for byte in bytes {
                    newest.insert((range.space, byte), node);
                }
            }
        }
        observed
    }

    /// The synchronisation of release and acquire patterns, and of `fence.sc`.
    fn synchronise(&mut self, observed: &BTreeMap<usize, BTreeSet<usize>>) {
        let nodes = 0..self.deeds.len();
        let mut edges = Vec::new();
        for x in nodes.clone() {
            for y in x + 1..nodes.end {
                let is_sc = |node: usize| {
                    matches!(
                        self.deeds[node],
                        Deed::Fence {
                            kind: FenceKind::Sc,
                            ..
                        }
                    )
                };
                let sc = is_sc(x) && is_sc(y) && self.morally_strong(x, y);
                if sc || self.patterns_meet(x, y, observed) {
                    edges.push((x, y));
                }
            }
        }
        for (x, y) in edges {
            self.edge(x, y);
        }
    }

    /// Whether `x` begins a release pattern one of whose writes precedes, in observation order, a
    /// read of an acquire pattern that `y` ends.
    fn patterns_meet(
        &self,
        x: usize,
        y: usize,
        observed: &BTreeMap<usize, BTreeSet<usize>>,
    ) -> bool {
        self.morally_strong(x, y)
            && observed.iter().any(|(&read, writes)| {
                self.ends_acquire(read, y) && writes.iter().any(|&w| self.begins_release(x, w))
            })
    }

    fn thread(&self, node: usize) -> Option<Thread> {
        match self.deeds[node] {
            Deed::Memory { who, .. } | Deed::Fence { who, .. } => Some(self.name(who)),
            _ => None,
        }
    }

    fn begins_release(&self, x: usize, write: usize) -> bool {
        if x > write || self.thread(x) != self.thread(write) {
            return false;
        }
        match (&self.deeds[x], &self.deeds[write]) {
            (
                Deed::Fence {
                    kind: FenceKind::AcqRel | FenceKind::Release | FenceKind::Sc,
                    ..
                },
                Deed::Memory { .. },
            ) => true,
            (
                Deed::Memory {
                    order,
                    action,
                    range,
                    ..
                },
                Deed::Memory { range: at, .. },
            ) => order.releases() && action.writes() && range == at,
            _ => false,
        }
    }

    fn ends_acquire(&self, read: usize, y: usize) -> bool {
        if y < read || self.thread(read) != self.thread(y) {
            return false;
        }
        let returns = |node: usize| matches!(&self.deeds[node], Deed::Memory { action, .. } if action.returns_value());
        match (&self.deeds[read], &self.deeds[y]) {
            (
                Deed::Memory { .. },
                Deed::Fence {
                    kind: FenceKind::AcqRel | FenceKind::Acquire | FenceKind::Sc,
                    ..
                },
            ) => returns(read),
            (Deed::Memory { range: at, .. }, Deed::Memory { order, range, .. }) => {
                returns(read) && returns(y) && order.acquires() && range == at
            }
            _ => false,
        }
    }
}

/// Builds the graph of an execution, as far as single events say it.
fn graph(unit: Unit, events: &[Event]) -> Graph {
    let mut graph = Graph {
        unit: Some(unit),
        ..Graph::default()
    };
    let mut host = Host {
        host: graph.node(0, Deed::Point),
        ..Host::default()
    };
    let mut starts: BTreeMap<Cta, usize> = BTreeMap::new();
    // What arrived in the running phase, and in the completed one.
    let mut phases: BTreeMap<Meeting, [Vec<usize>; 2]> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Host(event) => host_event(&mut graph, &mut host, at, *event),
            Event::Launch(launch) => {
                graph.devices.insert(launch.id, launch.device);
                graph.clusters.insert(launch.id, launch.cluster);
                let start = graph.node(at, Deed::Boundary);
                let end = graph.node(at, Deed::Boundary);
                graph.edge(start, end);
                graph.edge(host.host, start);
                let previous = host.last.insert(launch.stream, launch.id);
                let previous = previous.filter(|_| launch.programmatic);
                let tail = host.tails.entry(launch.stream).or_default();
                let waited = host.waited.remove(&launch.stream).unwrap_or_default();
                let mut overtaken = Vec::new();
                match previous {
                    Some(previous) => {
                        graph.edge(host.launches[&previous].start, start);
                        for node in waited {
                            graph.edge(node, start);
                        }
                        let same = host.launches.iter().filter(|l| l.1.stream == launch.stream);
                        overtaken.extend(same.map(|(&id, _)| id));
                    }
                    None => {
                        for node in std::mem::take(tail) {
                            graph.edge(node, start);
                        }
                    }
                }
                tail.insert(end);
                host.launches.insert(
                    launch.id,
                    Launched {
                        device: launch.device,
                        stream: launch.stream,
                        start,
                        end,
                        overtaken,
                        waits_for: previous,
                        running: launch.ctas,
                    },
                );
            }
            Event::CtaStart { cta, .. } => {
                let node = graph.node(at, Deed::Point);
                let launch = &host.launches[&cta.launch];
                graph.edge(launch.start, node);
                graph.edge(node, launch.end);
                for overtaken in &launch.overtaken {
                    let overtaken = &host.launches[overtaken];
                    if overtaken.running == 0 {
                        graph.edge(overtaken.end, node);
                    }
                }
                starts.insert(*cta, node);
            }
            Event::CtaExit(cta) => {
                host.launches
                    .entry(cta.launch)
                    .and_modify(|l| l.running -= 1);
            }
            Event::Access(access) => {
                let thread = access.thread;
                begin(&mut graph, &starts, thread);
                let Access {
                    range,
                    action,
                    order,
                    scope,
                    site,
                    ..
                } = *access;
                let deed = Deed::Memory {
                    who: thread,
                    range,
                    action,
                    order,
                    scope,
                    site,
                    copy: None,
                };
                let node = graph.next(at, thread, deed);
                graph.edge(node, host.launches[&thread.cta.launch].end);
            }
            Event::Fence {
                thread,
                kind,
                scope,
            } => {
                begin(&mut graph, &starts, *thread);
                let deed = Deed::Fence {
                    who: *thread,
                    kind: *kind,
                    scope: *scope,
                };
                graph.next(at, *thread, deed);
            }
            Event::Arrive {
                thread, at: place, ..
            } => {
                begin(&mut graph, &starts, *thread);
                let node = graph.next(at, *thread, Deed::Point);
                phases.entry(*place).or_default()[0].push(node);
            }
            Event::PhaseComplete(place) => {
                let phase = phases.entry(*place).or_default();
                phase[1] = std::mem::take(&mut phase[0]);
            }
            Event::Leave {
                thread, at: place, ..
            } => {
                begin(&mut graph, &starts, *thread);
                let node = graph.next(at, *thread, Deed::Point);
                for arrival in phases[place][1].clone() {
                    graph.edge(arrival, node);
                }
            }
            Event::AsyncIssue {
                thread,
                id,
                reads,
                writes,
                proxy,
                site,
            } => {
                begin(&mut graph, &starts, *thread);
                let issue = graph.next(at, *thread, Deed::Point);
                let part = |range: Range, action| Deed::Memory {
                    who: *thread,
                    range,
                    action,
                    order: Order::Weak,
                    scope: Scope::Cta,
                    site: *site,
                    copy: Some((*id, *proxy)),
                };
                let end = host.launches[&thread.cta.launch].end;
                let done = [(reads[0], Action::Read), (writes[0], Action::Write)].map(
                    |(range, action)| {
                        let copy = graph.node(at, part(range, action));
                        graph.edge(issue, copy);
                        let done = graph.node(at, Deed::Point);
                        graph.edge(done, end);
                        graph.done.insert(copy, done);
                        done
                    },
                );
                graph.copies.insert(*id, done);
            }
            Event::AsyncWait {
                thread,
                id,
                completion,
            } => {
                let node = graph.next(at, *thread, Deed::Point);
                let [read, write] = graph.copies[id];
                graph.edge(read, node);
                if *completion == Completion::Full {
                    graph.edge(write, node);
                }
            }
            Event::AsyncArrive { id, at: place } => {
                let [read, write] = graph.copies[id];
                phases.entry(*place).or_default()[0].extend([read, write]);
            }
            Event::GridDependencyWait(thread) => {
                begin(&mut graph, &starts, *thread);
                let node = graph.next(at, *thread, Deed::Point);
                if let Some(before) = host.launches[&thread.cta.launch].waits_for {
                    graph.edge(host.launches[&before].end, node);
                }
            }
            Event::AtomicBegin(_) | Event::AtomicEnd(_) => {}
            Event::MeetingReset(_) | Event::Forget(_) => unreachable!("executions have none"),
        }
    }
    // The end of a launch comes after all that its threads did.
    for (thread, last) in graph.last.clone() {
        let end = host.launches[&thread.cta.launch].end;
        graph.edge(last, end);
    }
    graph
}

/// A thread's first node comes after the start of its CTA.
fn begin(graph: &mut Graph, starts: &BTreeMap<Cta, usize>, thread: Thread) {
    let thread = graph.name(thread);
    graph.last.entry(thread).or_insert(starts[&thread.cta]);
}

fn host_event(graph: &mut Graph, host: &mut Host, at: usize, event: HostEvent) {
    let mut known = BTreeSet::new();
    match event {
        HostEvent::Record { event, stream } => {
            let tail = host.tails.get(&stream).cloned().unwrap_or_default();
            host.records.insert(event, tail);
            return;
        }
        HostEvent::Wait { event, stream } => {
            let recorded = host.records.get(&event).cloned().unwrap_or_default();
            host.tails.entry(stream).or_default().extend(&recorded);
            host.waited.entry(stream).or_default().extend(recorded);
            return;
        }
        HostEvent::SyncStream(stream) => {
            known.extend(host.tails.get(&stream).into_iter().flatten())
        }
        HostEvent::SyncEvent(event) => known.extend(host.records.get(&event).into_iter().flatten()),
        HostEvent::SyncDevice(device) => {
            let launches = host.launches.values().filter(|l| l.device == device);
            known.extend(launches.map(|l| &l.end));
            // What the streams of the device waited for is done too.
            let streams: BTreeSet<_> = host
                .launches
                .values()
                .filter(|l| l.device == device)
                .map(|l| l.stream)
                .collect();
            for stream in streams {
                known.extend(host.tails.get(&stream).into_iter().flatten());
            }
        }
    }
    let node = graph.node(at, Deed::Point);
    graph.edge(host.host, node);
    for before in known {
        graph.edge(before, node);
    }
    host.host = node;
}

/// A race between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    /// The later event.
    event: usize,
    kind: RaceKind,
    earlier: (Thread, SiteId, Action),
    later: (Thread, SiteId, Action),
    bytes: BTreeSet<u64>,
    /// The bytes on which a report may name somebody else, or be missing, because a later access
    /// speaks for the earlier side.
    spoken_for: BTreeSet<u64>,
}

/// All races of an execution.
fn oracle(unit: Unit, events: &[Event]) -> Vec<Pair> {
    let mut graph = graph(unit, events);
    let observed = graph.observations();
    graph.synchronise(&observed);
    let before = graph.reaches();
    let fences: Vec<usize> = (0..graph.deeds.len())
        .filter(|&node| {
            matches!(
                graph.deeds[node],
                Deed::Boundary
                    | Deed::Fence {
                        kind: FenceKind::ProxyAsync,
                        ..
                    }
            )
        })
        .collect();
    // Proxy-preserved base causality order.
    let preserved = |x: usize, y: usize| {
        let (
            Deed::Memory {
                who: a,
                action,
                copy: from,
                ..
            },
            Deed::Memory {
                who: b, copy: to, ..
            },
        ) = (&graph.deeds[x], &graph.deeds[y])
        else {
            return false;
        };
        let cross = matches!(to, Some((_, Proxy::Async)))
            && !matches!(from, Some((_, Proxy::Async)))
            && action.writes();
        if unit == Unit::Cta && a.cta == b.cta {
            return true;
        }
        let x = graph.done.get(&x).copied().unwrap_or(x);
        before[y].contains(&x)
            && (!cross
                || fences
                    .iter()
                    .any(|&f| before[f].contains(&x) && before[y].contains(&f)))
    };
    let causal = |x: usize, y: usize| {
        preserved(x, y)
            || observed
                .iter()
                .any(|(&z, writes)| z < y && writes.contains(&x) && preserved(z, y))
    };
    // A copy speaks for what it overwrote, and for the reads of copies before it, to those who are
    // ordered after it.
    let copied_over = |x: usize, y: usize, byte: u64| {
        let of_copy = |node: usize| match &graph.deeds[node] {
            Deed::Memory {
                range,
                action,
                copy: Some(_),
                ..
            } => Some((
                range.address..range.address + u64::from(range.bytes),
                *action,
            )),
            _ => None,
        };
        let is_copy_read = matches!(of_copy(x), Some((_, Action::Read)));
        (x + 1..y).any(|newer| {
            of_copy(newer).is_some_and(|(range, action)| {
                range.contains(&byte)
                    && (action == Action::Write || is_copy_read)
                    && causal(x, newer)
                    && causal(newer, y)
            })
        })
    };
    // Of alike strong writes of one unit the newest speaks for all.
    let spoken_for =
        |x: usize, y: usize| {
            let Deed::Memory {
                who,
                range,
                action,
                order,
                scope,
                site,
                ..
            } = &graph.deeds[x]
            else {
                return false;
            };
            order.is_strong() && action.writes() && (x + 1..y).any(|newer| {
                matches!(
                    &graph.deeds[newer],
                    Deed::Memory { who: w, range: r, action: a, order: o, scope: c, site: s, .. }
                        if graph.name(*w) == graph.name(*who)
                            && (r, a, o, c, s) == (range, action, order, scope, site)
                ) && causal(newer, y)
            })
        };
    let mut pairs = Vec::new();
    for y in 0..graph.deeds.len() {
        for x in 0..y {
            let (
                Deed::Memory {
                    who: a,
                    range: r,
                    action: p,
                    site: s,
                    copy: c,
                    ..
                },
                Deed::Memory {
                    who: b,
                    range: q,
                    action: l,
                    site: t,
                    copy: d,
                    ..
                },
            ) = (&graph.deeds[x], &graph.deeds[y])
            else {
                continue;
            };
            let bytes: BTreeSet<u64> = (r.address.max(q.address)
                ..(r.address + u64::from(r.bytes)).min(q.address + u64::from(q.bytes)))
                .collect();
            let Some(kind) = RaceKind::of(*p, *l) else {
                continue;
            };
            let same_copy = c.is_some() && c.map(|c| c.0) == d.map(|d| d.0);
            if r.space != q.space || bytes.is_empty() || same_copy {
                continue;
            }
            if causal(x, y) || graph.morally_strong(x, y) {
                continue;
            }
            let of_newer = spoken_for(x, y);
            let spoken_for = bytes.iter().copied();
            let spoken_for = spoken_for.filter(|&byte| of_newer || copied_over(x, y, byte));
            let spoken_for = spoken_for.collect();
            pairs.push(Pair {
                event: graph.events[y],
                kind,
                earlier: (*a, *s, *p),
                later: (*b, *t, *l),
                bytes,
                spoken_for,
            });
        }
    }
    pairs
}

/// The races that the exact detector reports.
fn exact(unit: Unit, events: &[Event]) -> Vec<Pair> {
    let mut detector = Exact::new(unit);
    let mut pairs = Vec::new();
    let thread = |who| match who {
        Who::Thread(thread) => thread,
        Who::Cta(Cta { launch, index }) => Thread::new(launch, index.0, 0),
        Who::Forgotten(_) => unreachable!("the exact detector forgets nobody"),
    };
    for (at, event) in events.iter().enumerate() {
        detector.on(event).expect("executions make sense");
        for race in detector.take_races() {
            pairs.push(Pair {
                event: at,
                kind: race.kind,
                earlier: (
                    thread(race.earlier.who),
                    race.earlier.site,
                    race.earlier.action,
                ),
                later: (thread(race.later.who), race.later.site, race.later.action),
                bytes: (race.address..race.address + u64::from(race.bytes)).collect(),
                spoken_for: BTreeSet::new(),
            });
        }
    }
    pairs
}

fn lines(events: &[Event]) -> String {
    let lines = events.iter().enumerate();
    lines
        .map(|(at, event)| format!("{at}: {event:?}\n"))
        .collect()
}

/// Every report is a race of the model, and each access that races according to the model is
/// reported, for each byte on which it does.
fn agree(unit: Unit, case: &Case) -> Result<(), TestCaseError> {
    let events = execute(&case.program, Grain::Part, &case.schedule);
    let model = oracle(unit, &events);
    let found = exact(unit, &events);
    let named = |thread: Thread| match unit {
        Unit::Thread => thread,
        Unit::Cta => Thread { index: 0, ..thread },
    };
    for pair in &found {
        for byte in [pair.bytes.first(), pair.bytes.last()]
            .into_iter()
            .flatten()
        {
            prop_assert!(
                model.iter().any(|m| {
                    (m.event, m.kind) == (pair.event, pair.kind)
                        && (named(m.earlier.0), m.earlier.1, m.earlier.2) == pair.earlier
                        && (named(m.later.0), m.later.1, m.later.2) == pair.later
                        && m.bytes.contains(byte)
                }),
                "invented {pair:?} in\n{}",
                lines(&events)
            );
        }
    }
    for pair in &model {
        for byte in pair.bytes.difference(&pair.spoken_for) {
            prop_assert!(
                found
                    .iter()
                    .any(|f| f.event == pair.event && f.bytes.contains(byte)),
                "missed {pair:?} at {byte:#x} in\n{}",
                lines(&events)
            );
        }
    }
    Ok(())
}

/// The same cases every time, and as many different ones as there is time for when asked.
fn config() -> ProptestConfig {
    let long = std::env::var_os("GSAN_LONG").is_some();
    ProptestConfig {
        cases: if long { 50_000 } else { 1_000 },
        rng_seed: if long {
            RngSeed::Random
        } else {
            RngSeed::Fixed(2)
        },
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_exact_detector_agrees_with_the_graph(case in cases(Shape::ALL)) {
        agree(Unit::Thread, &case)?;
    }

    #[test]
    fn the_exact_detector_agrees_with_the_graph_in_one_kernel(case in cases(Shape::ONE_KERNEL)) {
        agree(Unit::Thread, &case)?;
    }

    #[test]
    fn the_exact_detector_agrees_with_the_graph_at_cta_unit(case in cases(Shape {
        copies: false,
        ..Shape::ALL
    })) {
        agree(Unit::Cta, &case)?;
    }
}
