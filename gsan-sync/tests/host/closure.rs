//! Random programs against the transitive closure of `gsan_core::host_order`: every pair of launches
//! shares a granule, and races exactly when neither is ordered before the other.

use std::collections::{BTreeMap, BTreeSet};

use gsan_core::event::{HostEvent, Launch};
use gsan_core::host_order::HostOrder;
use gsan_core::ids::{DeviceRank, LaunchId, StreamId};
use gsan_sync::{Idle, LaunchInfo, Settings, StreamKind};
use gsan_vmm::backend::host::Stepped;
use gsan_vmm::backend::{Backend, FenceId};
use proptest::prelude::*;

use crate::gpu::Do::{Read, Write};
use crate::gpu::{GPU, Gpu, key, queue, settings};

#[derive(Clone, Debug)]
enum Step {
    Launch {
        stream: u64,
        programmatic: bool,
    },
    Fail {
        stream: u64,
        programmatic: bool,
    },
    Record {
        event: u64,
        stream: u64,
    },
    Wait {
        event: u64,
        stream: u64,
    },
    WaitStream {
        waiting: u64,
        awaited: u64,
    },
    SyncStream(u64),
    SyncEvent(u64),
    SyncDevice,
    /// Everything is waited for, and then forgotten.
    Restart,
    /// Runs some of the work that waits: the stream, and how many pieces.
    Run {
        stream: u64,
        pieces: u8,
    },
}

fn step(programmatic: bool) -> impl Strategy<Value = Step> {
    let stream = 1u64..5;
    let event = 0u64..4;
    let dependent = if programmatic {
        any::<bool>().boxed()
    } else {
        Just(false).boxed()
    };
    prop_oneof![
        8 => (stream.clone(), dependent.clone())
            .prop_map(|(stream, programmatic)| Step::Launch { stream, programmatic }),
        1 => (stream.clone(), dependent)
            .prop_map(|(stream, programmatic)| Step::Fail { stream, programmatic }),
        3 => (event.clone(), stream.clone()).prop_map(|(event, stream)| Step::Record { event, stream }),
        4 => (event.clone(), stream.clone()).prop_map(|(event, stream)| Step::Wait { event, stream }),
        1 => (stream.clone(), stream.clone())
            .prop_map(|(waiting, awaited)| Step::WaitStream { waiting, awaited }),
        1 => stream.clone().prop_map(Step::SyncStream),
        1 => event.prop_map(Step::SyncEvent),
        1 => Just(Step::SyncDevice),
        1 => Just(Step::Restart),
        4 => (stream, 1u8..4).prop_map(|(stream, pieces)| Step::Run { stream, pieces }),
    ]
}

/// The granule that two launches share.
fn granule(earlier: usize, later: usize) -> u32 {
    (later * (later - 1) / 2 + earlier) as u32
}

/// The closure of what launches start after.
#[derive(Default)]
struct Closure {
    order: HostOrder,
    before: Vec<BTreeSet<usize>>,
}

impl Closure {
    /// Launches run one after the other on a stream, so what one may overtake has always exited.
    fn launch(&mut self, stream: u64, programmatic: bool) {
        let start = self.order.launch(&Launch {
            id: LaunchId(self.before.len() as u32),
            device: DeviceRank(0),
            stream: StreamId(stream as u32),
            ctas: 1,
            threads: 1,
            cluster: 1,
            programmatic,
        });
        let direct = start.after.iter().chain(&start.overtaken);
        let mut before = BTreeSet::new();
        for launch in direct {
            let launch = launch.0 as usize;
            before.insert(launch);
            before.extend(&self.before[launch]);
        }
        self.before.push(before);
    }

    fn edge(&mut self, from: u64, to: u64) {
        let event = 1000;
        let (from, to) = (StreamId(from as u32), StreamId(to as u32));
        self.order.host(HostEvent::Record {
            event,
            stream: from,
        });
        self.order.host(HostEvent::Wait { event, stream: to });
    }
}

struct Program {
    gpu: Gpu,
    closure: Closure,
    launches: usize,
    kinds: BTreeMap<u64, StreamKind>,
    /// The fence behind the newest record of an event.
    fences: BTreeMap<u64, FenceId>,
    hold: bool,
}

impl Program {
    /// Streams that are held wait for fences as they do for events on a GPU; otherwise all work runs
    /// in the order of the program.
    fn new(settings: Settings, launches: usize, kinds: &[StreamKind], hold: bool) -> Program {
        let gpu = Gpu::with(settings);
        let kinds: BTreeMap<u64, StreamKind> = (1..).zip(kinds.iter().copied()).collect();
        for (&handle, &kind) in &kinds {
            gpu.open_as(GPU, handle, kind);
        }
        gpu.backend.hold(hold);
        Program {
            gpu,
            closure: Closure::default(),
            launches,
            kinds,
            fences: BTreeMap::new(),
            hold,
        }
    }

    /// The edges that CUDA adds before a call on `stream`.
    fn implicit(&mut self, stream: u64) {
        let of = |kind| {
            let streams = self.kinds.iter().filter(move |(_, k)| **k == kind);
            streams.map(|(&stream, _)| stream).collect::<Vec<_>>()
        };
        let others = match self.kinds[&stream] {
            StreamKind::Legacy => of(StreamKind::Blocking),
            StreamKind::Blocking => of(StreamKind::Legacy),
            StreamKind::NonBlocking => Vec::new(),
        };
        for other in others {
            self.closure.edge(other, stream);
        }
    }

    fn take(&mut self, step: &Step) {
        let ordering = self.gpu.ordering.clone();
        match *step {
            Step::Launch {
                stream,
                programmatic,
            } => {
                self.implicit(stream);
                self.closure.launch(stream, programmatic);
                let this = self.closure.before.len() - 1;
                let reads = (0..this).map(|earlier| Read(granule(earlier, this)));
                let writes = (this + 1..self.launches).map(|later| Write(granule(this, later)));
                let all: Vec<_> = reads.chain(writes).collect();
                self.gpu.launch_as(key(stream), programmatic, &[&all]);
            }
            Step::Fail {
                stream,
                programmatic,
            } => {
                let info = LaunchInfo {
                    grid: [1, 1, 1],
                    programmatic,
                    ..LaunchInfo::default()
                };
                drop(ordering.begin_launch(key(stream), &info).unwrap());
            }
            Step::Record { event, stream } => {
                self.implicit(stream);
                self.closure.order.host(HostEvent::Record {
                    event: event as u32,
                    stream: StreamId(stream as u32),
                });
                ordering.record_event(event, key(stream)).unwrap();
                let fence = self.gpu.backend.fence(GPU, queue(stream)).unwrap();
                self.fences.insert(event, fence);
            }
            Step::Wait { event, stream } => {
                if self.fences.contains_key(&event) {
                    self.implicit(stream);
                }
                self.closure.order.host(HostEvent::Wait {
                    event: event as u32,
                    stream: StreamId(stream as u32),
                });
                ordering.wait_event(key(stream), event).unwrap();
                if let Some(&fence) = self.fences.get(&event) {
                    self.gpu.backend.wait_on(GPU, queue(stream), fence).unwrap();
                }
            }
            Step::WaitStream { waiting, awaited } => {
                self.implicit(awaited);
                self.implicit(waiting);
                self.closure.edge(awaited, waiting);
                ordering.wait_stream(key(waiting), key(awaited)).unwrap();
                let fence = self.gpu.backend.fence(GPU, queue(awaited)).unwrap();
                self.gpu
                    .backend
                    .wait_on(GPU, queue(waiting), fence)
                    .unwrap();
            }
            Step::SyncStream(stream) => {
                self.implicit(stream);
                let id = StreamId(stream as u32);
                self.closure.order.host(HostEvent::SyncStream(id));
                ordering.synchronize_stream(key(stream)).unwrap();
                let fence = self.gpu.backend.fence(GPU, queue(stream)).unwrap();
                self.run_until(fence);
            }
            Step::SyncEvent(event) => {
                self.closure.order.host(HostEvent::SyncEvent(event as u32));
                ordering.synchronize_event(event);
                if let Some(&fence) = self.fences.get(&event) {
                    self.run_until(fence);
                }
            }
            Step::SyncDevice => {
                let device = DeviceRank(0);
                self.closure.order.host(HostEvent::SyncDevice(device));
                ordering.synchronize_device(GPU).unwrap();
                self.gpu.backend.run_all();
            }
            Step::Restart => {
                self.gpu.backend.run_all();
                self.closure
                    .order
                    .host(HostEvent::SyncDevice(DeviceRank(0)));
                ordering.synchronize_device(GPU).unwrap();
                assert_eq!(ordering.restart(), Ok(Idle::Restarted));
            }
            Step::Run { stream, pieces } => {
                for _ in 0..pieces {
                    self.gpu.backend.step(GPU, queue(stream)).unwrap();
                }
            }
        }
    }

    /// Runs no more than needs be: the stream with the highest number that can go on.
    fn run_until(&self, fence: FenceId) {
        while self.hold && !self.gpu.backend.passed(fence).unwrap() {
            let mut streams = self.kinds.keys().rev();
            let ran = streams
                .any(|&stream| self.gpu.backend.step(GPU, queue(stream)).unwrap() == Stepped::Ran);
            assert!(ran, "streams wait for each other");
        }
    }

    /// The pairs that are not ordered, and those that were told to race.
    fn verdicts(&self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        self.gpu.backend.hold(false);
        let mut unordered = BTreeSet::new();
        for (later, before) in self.closure.before.iter().enumerate() {
            let others = (0..later).filter(|earlier| !before.contains(earlier));
            unordered.extend(others.map(|earlier| granule(earlier, later)));
        }
        let told = self.gpu.races().iter().map(|race| race.granule).collect();
        (unordered, told)
    }
}

fn launches(steps: &[Step]) -> usize {
    let launches = steps.iter().filter(|s| matches!(s, Step::Launch { .. }));
    launches.count()
}

fn cases(few: u32) -> ProptestConfig {
    let long = std::env::var_os("GSAN_LONG").is_some();
    ProptestConfig::with_cases(if long { 50 * few } else { few })
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn launches_race_exactly_when_the_closure_does_not_order_them(
        steps in prop::collection::vec(step(true), 1..60),
    ) {
        let kinds = [StreamKind::NonBlocking; 4];
        let mut program = Program::new(settings(), launches(&steps), &kinds, true);
        for step in &steps {
            program.take(step);
        }
        let (unordered, told) = program.verdicts();
        prop_assert_eq!(told, unordered);
    }

    #[test]
    fn implicit_edges_of_the_legacy_default_stream_are_those_of_cuda(
        steps in prop::collection::vec(step(false), 1..60),
    ) {
        let kinds = [
            StreamKind::Legacy,
            StreamKind::Blocking,
            StreamKind::Blocking,
            StreamKind::NonBlocking,
        ];
        let mut program = Program::new(settings(), launches(&steps), &kinds, false);
        for step in &steps {
            program.take(step);
        }
        let (unordered, told) = program.verdicts();
        prop_assert_eq!(told, unordered);
    }

    #[test]
    fn streams_that_share_banks_are_never_accused_wrongly(
        steps in prop::collection::vec(step(true), 1..60),
    ) {
        let kinds = [StreamKind::NonBlocking; 4];
        let shared = Settings { most_banks: 2, ..settings() };
        let mut program = Program::new(shared, launches(&steps), &kinds, true);
        for step in &steps {
            program.take(step);
        }
        let (unordered, told) = program.verdicts();
        prop_assert!(told.is_subset(&unordered), "{told:?} of {unordered:?}");
    }

    #[test]
    fn with_hardly_any_rows_nobody_is_accused_wrongly(
        steps in prop::collection::vec(step(true), 1..60),
    ) {
        let kinds = [StreamKind::NonBlocking; 4];
        let few = Settings { row_bytes: 12_288, ..settings() };
        let mut program = Program::new(few, launches(&steps), &kinds, true);
        for step in &steps {
            program.take(step);
        }
        let (unordered, told) = program.verdicts();
        prop_assert!(told.is_subset(&unordered), "{told:?} of {unordered:?}");
    }
}
