//! How many accesses the exact detector checks a second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gsan_core::event::{Access, Action, Detector, Event, Launch, Meeting, Range, Space};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{Cta, CtaIndex, DeviceRank, LaunchId, SiteId, StreamId, Thread};
use gsan_core::scope::{Order, Scope};

const LAUNCH: LaunchId = LaunchId(0);
const BASE: u64 = 0x7000_0000_0000;
const ACCESSES: u64 = 1 << 18;

fn tell(detector: &mut Exact, event: &Event) {
    detector.on(event).expect("the events make sense");
}

fn resident(ctas: u32, threads: u32) -> Exact {
    let mut detector = Exact::new(Unit::Thread);
    let launch = Launch {
        id: LAUNCH,
        device: DeviceRank(0),
        stream: StreamId(0),
        ctas,
        threads,
        cluster: 1,
        programmatic: false,
    };
    tell(&mut detector, &Event::Launch(launch));
    for index in 0..ctas {
        let cta = cta(index);
        tell(&mut detector, &Event::CtaStart { cta, sm: 0 });
    }
    detector
}

fn cta(index: u32) -> Cta {
    Cta {
        launch: LAUNCH,
        index: CtaIndex(index),
    }
}

fn access(detector: &mut Exact, thread: Thread, address: u64, bytes: u32, action: Action) {
    let access = Access {
        thread,
        range: Range {
            space: Space::Global,
            address,
            bytes,
        },
        action,
        order: Order::Weak,
        scope: Scope::Cta,
        site: SiteId(1 + action as u32),
    };
    tell(detector, &Event::Access(access));
}

fn barrier(detector: &mut Exact, index: u32, threads: u32) {
    let at = Meeting::CtaBarrier {
        cta: cta(index),
        id: 0,
    };
    for thread in 0..threads {
        let arrive = Event::Arrive {
            thread: Thread::new(LAUNCH, index, thread),
            at,
            releases: true,
        };
        tell(detector, &arrive);
    }
    tell(detector, &Event::PhaseComplete(at));
    for thread in 0..threads {
        let leave = Event::Leave {
            thread: Thread::new(LAUNCH, index, thread),
            at,
            acquires: true,
        };
        tell(detector, &leave);
    }
}

/// One thread writes a buffer from its beginning to its end, and reads it back.
fn one_thread(bytes: u32) {
    let mut detector = resident(1, 1);
    let thread = Thread::new(LAUNCH, 0, 0);
    for action in [Action::Write, Action::Read] {
        for index in 0..ACCESSES {
            let address = BASE + index * u64::from(bytes);
            access(&mut detector, thread, address, bytes, action);
        }
    }
    assert!(detector.take_races().is_empty());
}

/// A grid whose threads write neighbouring elements, meet at a barrier, and read what their
/// neighbour wrote.
fn grid(bytes: u32) {
    const CTAS: u32 = 32;
    const THREADS: u32 = 128;
    let mut detector = resident(CTAS, THREADS);
    let rounds = ACCESSES / u64::from(CTAS * THREADS);
    for index in 0..CTAS {
        for (shift, action) in [(0, Action::Write), (1, Action::Read)] {
            for round in 0..rounds {
                for thread in 0..THREADS {
                    let first = (round * u64::from(CTAS) + u64::from(index)) * u64::from(THREADS);
                    let element = first + u64::from((thread + shift) % THREADS);
                    let address = BASE + element * u64::from(bytes);
                    let thread = Thread::new(LAUNCH, index, thread);
                    access(&mut detector, thread, address, bytes, action);
                }
            }
            barrier(&mut detector, index, THREADS);
        }
    }
    assert!(detector.take_races().is_empty());
}

fn sweeps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("exact");
    group.throughput(Throughput::Elements(2 * ACCESSES));
    group.sample_size(10);
    for bytes in [4, 16] {
        group.bench_function(format!("one thread, {bytes} bytes"), |b| {
            b.iter(|| one_thread(bytes));
        });
        group.bench_function(format!("a grid, {bytes} bytes"), |b| b.iter(|| grid(bytes)));
    }
    group.finish();
}

criterion_group!(benches, sweeps);
criterion_main!(benches);
