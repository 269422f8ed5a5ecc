//! Executing a program: any thread that can go on may take the next step; every read returns what
//! the newest write left.

use std::collections::{BTreeMap, BTreeSet};

use super::program::{At, HostOp, Kernel, Memory, Op, OpKind, Place, Program, Verb};
use crate::event::{Access, Action, Event, HostEvent, Meeting, Range, Space};
use crate::host_order::{HostOrder, Start};
use crate::ids::{AsyncId, Cta, CtaIndex, StreamId, Thread};

/// How much one step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// A whole operation. The host and the starts of CTAs go ahead of everything else.
    Operation,
    /// The parts of an operation that other threads can come between: the begin, the access and
    /// the end of a strong access; also each host operation and each start of a CTA.
    Part,
}

/// Who can take the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Host,
    Start { kernel: usize, cta: u32 },
    Thread(usize),
}

#[derive(Clone, Debug)]
struct Running {
    kernel: usize,
    code: usize,
    thread: Thread,
    next: usize,
    /// What remains of the present operation.
    parts: Vec<Event>,
    done: bool,
    /// How many phases of each meeting the thread left.
    left: BTreeMap<Meeting, u32>,
}

#[derive(Clone, Debug)]
struct Launched {
    start: Start,
    started: BTreeSet<u32>,
    exited: BTreeSet<u32>,
    announced: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    running: u32,
    completed: u32,
}

/// A program under execution.
#[derive(Clone, Debug)]
pub struct Execution<'p> {
    program: &'p Program,
    grain: Grain,
    host_next: usize,
    order: HostOrder,
    launched: Vec<Launched>,
    /// The launches given to each stream so far.
    streams: BTreeMap<StreamId, Vec<usize>>,
    recorded: BTreeMap<u32, Vec<usize>>,
    threads: Vec<Running>,
    memory: BTreeMap<(Space, u64), u8>,
    meetings: BTreeMap<Meeting, Arrivals>,
    events: Vec<Event>,
}

impl<'p> Execution<'p> {
    /// Nothing has happened yet.
    pub fn new(program: &'p Program, grain: Grain) -> Self {
        let threads = program.kernels.iter().enumerate().flat_map(|(kernel, k)| {
            k.threads.iter().enumerate().map(move |(code, c)| Running {
                kernel,
                code,
                thread: Thread::new(k.launch.id, c.cta, c.index),
                next: 0,
                parts: Vec::new(),
                done: false,
                left: BTreeMap::new(),
            })
        });
        let launched = Launched {
            start: Start::default(),
            started: BTreeSet::new(),
            exited: BTreeSet::new(),
            announced: false,
        };
        let mut execution = Execution {
            program,
            grain,
            host_next: 0,
            order: HostOrder::new(),
            launched: vec![launched; program.kernels.len()],
            streams: BTreeMap::new(),
            recorded: BTreeMap::new(),
            threads: threads.collect(),
            memory: BTreeMap::new(),
            meetings: BTreeMap::new(),
            events: Vec::new(),
        };
        execution.go_ahead();
        execution
    }

    /// How many steps could be taken next: 0 when all is done, or nobody can go on.
    pub fn choices(&self) -> usize {
        self.steps().len()
    }

    /// Takes the step at `choice`, counted around.
    pub fn step(&mut self, choice: usize) {
        let steps = self.steps();
        if let Some(&step) = steps.get(choice % steps.len().max(1)) {
            self.take(step);
            self.go_ahead();
        }
    }

    /// The events so far.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Whether every thread that was launched has returned, and the host is through.
    pub fn is_finished(&self) -> bool {
        self.host_next == self.program.host.len()
            && self
                .threads
                .iter()
                .all(|t| t.done || !self.launched[t.kernel].announced)
    }

    fn kernel(&self, number: usize) -> &'p Kernel {
        &self.program.kernels[number]
    }

    fn is_complete(&self, kernel: usize) -> bool {
        self.launched[kernel].exited.len() == self.kernel(kernel).launch.ctas as usize
    }

    /// At the grain of operations, does what nobody needs to wait for.
    fn go_ahead(&mut self) {
        while self.grain == Grain::Operation {
            let ahead = self
                .steps()
                .into_iter()
                .find(|step| !matches!(step, Step::Thread(_)));
            match ahead {
                Some(step) => self.take(step),
                None => break,
            }
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.host_can_go_on() {
            steps.push(Step::Host);
        }
        for (kernel, launched) in self.launched.iter().enumerate() {
            if launched.announced && self.may_start(kernel) {
                let waiting = (0..self.kernel(kernel).launch.ctas)
                    .filter(|cta| !launched.started.contains(cta));
                steps.extend(waiting.map(|cta| Step::Start { kernel, cta }));
            }
        }
        for (number, thread) in self.threads.iter().enumerate() {
            if !thread.done
                && self.launched[thread.kernel]
                    .started
                    .contains(&thread.thread.cta.index.0)
                && self.can_go_on(thread)
            {
                steps.push(Step::Thread(number));
            }
        }
        steps
    }

    fn host_can_go_on(&self) -> bool {
        let done = |launches: Option<&Vec<usize>>| {
            launches
                .into_iter()
                .flatten()
                .all(|&kernel| self.is_complete(kernel))
        };
        match self.program.host.get(self.host_next) {
            None => false,
            Some(HostOp::Host(HostEvent::SyncStream(stream))) => done(self.streams.get(stream)),
            Some(HostOp::Host(HostEvent::SyncEvent(event))) => done(self.recorded.get(event)),
            Some(HostOp::Host(HostEvent::SyncDevice(device))) => {
                self.launched.iter().enumerate().all(|(kernel, launched)| {
                    !launched.announced
                        || self.kernel(kernel).launch.device != *device
                        || self.is_complete(kernel)
                })
            }
            Some(_) => true,
        }
    }

    fn number(&self, launch: crate::ids::LaunchId) -> Option<usize> {
        self.program
            .kernels
            .iter()
            .position(|k| k.launch.id == launch)
    }

    fn may_start(&self, kernel: usize) -> bool {
        let start = &self.launched[kernel].start;
        let after = start.after.iter().filter_map(|&l| self.number(l));
        let waits_for = start.waits_for.and_then(|l| self.number(l));
        after.into_iter().all(|before| self.is_complete(before))
            && waits_for.is_none_or(|before| {
                let ctas = self.kernel(before).launch.ctas as usize;
                self.launched[before].started.len() == ctas
            })
    }

    fn op(&self, thread: &Running) -> Option<Op> {
        let code = &self.kernel(thread.kernel).threads[thread.code];
        code.ops.get(thread.next).copied()
    }

    fn can_go_on(&self, thread: &Running) -> bool {
        if !thread.parts.is_empty() {
            return true;
        }
        match self.op(thread).map(|op| op.kind) {
            Some(OpKind::Leave { at, .. }) => {
                let at = self.meeting(thread, at);
                let left = thread.left.get(&at).copied().unwrap_or(0);
                self.meetings.get(&at).is_some_and(|m| m.completed > left)
            }
            Some(OpKind::GridDependencyWait) => {
                let before = self.launched[thread.kernel].start.waits_for;
                let before = before.and_then(|launch| self.number(launch));
                before.is_none_or(|before| self.is_complete(before))
            }
            _ => true,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Host => self.host_step(),
            Step::Start { kernel, cta } => self.start(kernel, cta),
            Step::Thread(number) => self.thread_step(number),
        }
    }

    fn host_step(&mut self) {
        let op = self.program.host[self.host_next];
        self.host_next += 1;
        match op {
            HostOp::Launch(kernel) => {
                let launch = &self.kernel(kernel).launch;
                self.launched[kernel].start = self.order.launch(launch);
                self.launched[kernel].announced = true;
                self.streams.entry(launch.stream).or_default().push(kernel);
                self.events.push(Event::Launch(launch.clone()));
            }
            HostOp::Host(event) => {
                if let HostEvent::Record { event, stream } = event {
                    let launches = self.streams.get(&stream).cloned().unwrap_or_default();
                    self.recorded.insert(event, launches);
                }
                self.order.host(event);
                self.events.push(Event::Host(event));
            }
        }
    }

    fn start(&mut self, kernel: usize, cta: u32) {
        const MULTIPROCESSORS: u32 = 2;
        self.launched[kernel].started.insert(cta);
        self.events.push(Event::CtaStart {
            cta: self.cta(kernel, cta),
            sm: cta % MULTIPROCESSORS,
        });
        for number in 0..self.threads.len() {
            let thread = &self.threads[number];
            if thread.kernel == kernel && thread.thread.cta.index.0 == cta {
                self.threads[number].done = self.op(&self.threads[number]).is_none();
            }
        }
        self.exit_if_done(kernel, cta);
    }

    fn cta(&self, kernel: usize, cta: u32) -> Cta {
        Cta {
            launch: self.kernel(kernel).launch.id,
            index: CtaIndex(cta),
        }
    }

    fn exit_if_done(&mut self, kernel: usize, cta: u32) {
        let unfinished = self
            .threads
            .iter()
            .any(|t| t.kernel == kernel && t.thread.cta.index.0 == cta && !t.done);
        if !unfinished {
            self.launched[kernel].exited.insert(cta);
            self.events.push(Event::CtaExit(self.cta(kernel, cta)));
        }
    }

    fn thread_step(&mut self, number: usize) {
        if self.threads[number].parts.is_empty() {
            self.begin(number);
        } else {
            let event = self.threads[number].parts.remove(0);
            match event {
                Event::Access(tried) => self.access(number, tried),
                event => self.events.push(event),
            }
        }
        while self.grain == Grain::Operation && !self.threads[number].parts.is_empty() {
            self.thread_step(number);
        }
        let thread = &self.threads[number];
        if thread.parts.is_empty() && !thread.done && self.op(thread).is_none() {
            let (kernel, cta) = (thread.kernel, thread.thread.cta.index.0);
            self.threads[number].done = true;
            self.exit_if_done(kernel, cta);
        }
    }

    /// Begins the next operation of a thread.
    fn begin(&mut self, number: usize) {
        let running = &self.threads[number];
        let thread = running.thread;
        let Some(op) = self.op(running) else { return };
        match op.kind {
            OpKind::Access {
                verb,
                order,
                scope,
                place,
            } => {
                let access = Access {
                    thread,
                    range: self.range(running, place),
                    action: match verb {
                        Verb::Load { .. } => Action::Read,
                        Verb::Store(_) => Action::Write,
                        Verb::Add { .. } | Verb::Swap { .. } => Action::Rmw,
                        Verb::Reduce(_) => Action::Red,
                    },
                    order,
                    scope,
                    site: op.site,
                };
                if order.is_strong() {
                    self.events.push(Event::AtomicBegin(access));
                    self.threads[number].parts = vec![Event::Access(access)];
                } else {
                    self.access(number, access);
                }
                return;
            }
            OpKind::Fence { kind, scope } => self.events.push(Event::Fence {
                thread,
                kind,
                scope,
            }),
            OpKind::Arrive { at, releases } => {
                let meeting = self.meeting(running, at);
                self.events.push(Event::Arrive {
                    thread,
                    at: meeting,
                    releases,
                });
                self.arrived(meeting, at.count());
            }
            OpKind::Leave { at, acquires } => {
                let at = self.meeting(running, at);
                self.events.push(Event::Leave {
                    thread,
                    at,
                    acquires,
                });
                *self.threads[number].left.entry(at).or_default() += 1;
            }
            OpKind::Issue {
                copy,
                to,
                from,
                proxy,
            } => {
                let event = Event::AsyncIssue {
                    thread,
                    id: async_id(number, copy),
                    reads: vec![self.range(running, from)],
                    writes: vec![self.range(running, to)],
                    proxy,
                    site: op.site,
                };
                self.events.push(event);
            }
            OpKind::Wait { copy, completion } => self.events.push(Event::AsyncWait {
                thread,
                id: async_id(number, copy),
                completion,
            }),
            OpKind::Complete { copy, at } => {
                let meeting = self.meeting(running, at);
                self.events.push(Event::AsyncArrive {
                    id: async_id(number, copy),
                    at: meeting,
                });
                self.arrived(meeting, at.count());
            }
            OpKind::GridDependencyWait => self.events.push(Event::GridDependencyWait(thread)),
        }
        self.threads[number].next += 1;
    }

    fn arrived(&mut self, meeting: Meeting, count: u32) {
        let arrivals = self.meetings.entry(meeting).or_default();
        arrivals.running += 1;
        if arrivals.running >= count {
            arrivals.running = 0;
            arrivals.completed += 1;
            self.events.push(Event::PhaseComplete(meeting));
        }
    }

    /// Executes the access of the present operation, which ends with it or, if it is strong, with
    /// the event after it.
    fn access(&mut self, number: usize, tried: Access) {
        let Some(Op {
            kind: OpKind::Access { verb, .. },
            ..
        }) = self.op(&self.threads[number])
        else {
            return;
        };
        let range = tried.range;
        let old = self.load(range);
        let (new, goes_on) = match verb {
            Verb::Load { expect } => (None, expect.is_none_or(|value| value == old)),
            Verb::Store(value) | Verb::Reduce(value) => (Some(value), true),
            Verb::Add { value, expect } => (
                Some(old.wrapping_add(value)),
                expect.is_none_or(|value| value == old),
            ),
            Verb::Swap {
                compare,
                value,
                must_swap,
            } => {
                let swaps = old == compare;
                (swaps.then_some(value), swaps || !must_swap)
            }
        };
        let new = new.map(|value| match verb {
            Verb::Reduce(_) => old.wrapping_add(value),
            _ => value,
        });
        if let Some(value) = new {
            self.store(range, value);
        }
        let action = match tried.action {
            Action::Rmw if new.is_none() => Action::FailedRmw,
            action => action,
        };
        let access = Access { action, ..tried };
        self.events.push(Event::Access(access));
        let code = &self.kernel(self.threads[number].kernel).threads;
        let thread = &mut self.threads[number];
        thread.next = if goes_on {
            thread.next + 1
        } else {
            code[thread.code].ops.len()
        };
        if access.order.is_strong() {
            thread.parts.push(Event::AtomicEnd(access));
        }
    }

    fn load(&self, range: Range) -> u64 {
        let bytes = (0..u64::from(range.bytes.min(8))).rev();
        bytes.fold(0, |value, byte| {
            let at = (range.space, range.address + byte);
            value << 8 | u64::from(self.memory.get(&at).copied().unwrap_or(0))
        })
    }

    fn store(&mut self, range: Range, value: u64) {
        let bytes = value.to_le_bytes();
        for (byte, value) in (0..u64::from(range.bytes)).zip(bytes) {
            self.memory
                .insert((range.space, range.address + byte), value);
        }
    }

    fn range(&self, running: &Running, place: Place) -> Range {
        Range {
            space: match place.memory {
                Memory::Global => Space::Global,
                Memory::OwnShared => Space::Shared(running.thread.cta),
                Memory::SharedOf(cta) => Space::Shared(self.cta(running.kernel, cta)),
            },
            address: place.address,
            bytes: place.bytes,
        }
    }

    fn meeting(&self, running: &Running, at: At) -> Meeting {
        let cta = running.thread.cta;
        match at {
            At::CtaBarrier { id, .. } => Meeting::CtaBarrier { cta, id },
            At::WarpBarrier { mask } => Meeting::WarpBarrier {
                cta,
                warp: running.thread.warp(),
                mask,
            },
            At::ClusterBarrier { .. } => {
                let cluster = self.kernel(running.kernel).launch.cluster;
                Meeting::ClusterBarrier {
                    launch: cta.launch,
                    first: CtaIndex(cta.index.0 - cta.index.0 % cluster),
                }
            }
            At::Mbarrier { owner, offset, .. } => Meeting::Mbarrier {
                owner: self.cta(running.kernel, owner),
                offset,
            },
        }
    }
}

fn async_id(thread: usize, copy: u32) -> AsyncId {
    AsyncId((thread as u64) << 32 | u64::from(copy))
}

/// Executes the program to its end, or until nobody can go on, always taking the step that
/// `schedule` says next (0 when it has run out).
pub fn execute(program: &Program, grain: Grain, schedule: &[u16]) -> Vec<Event> {
    let mut execution = Execution::new(program, grain);
    let mut schedule = schedule.iter().map(|&choice| usize::from(choice));
    while execution.choices() > 0 {
        execution.step(schedule.next().unwrap_or(0));
    }
    execution.events
}

/// Calls `visit` with the finished execution of every interleaving, and says how many there were.
///
/// # Panics
/// If there are more than `limit`.
pub fn interleavings(
    program: &Program,
    grain: Grain,
    limit: usize,
    visit: &mut dyn FnMut(&Execution<'_>),
) -> usize {
    let mut count = 0;
    let mut pending = vec![Execution::new(program, grain)];
    while let Some(execution) = pending.pop() {
        let choices = execution.choices();
        if choices == 0 {
            count += 1;
            assert!(count <= limit, "more than {limit} interleavings");
            visit(&execution);
            continue;
        }
        for choice in (1..choices).rev() {
            let mut other = execution.clone();
            other.step(choice);
            pending.push(other);
        }
        let mut first = execution;
        first.step(0);
        pending.push(first);
    }
    count
}
