//! How much memory the exact detector needs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use gsan_core::event::{Access, Action, Detector, Event, Launch, Meeting, Range, Space};
use gsan_core::exact::{Exact, Unit};
use gsan_core::ids::{Cta, CtaIndex, DeviceRank, LaunchId, SiteId, StreamId, Thread};
use gsan_core::scope::{Order, Scope};

/// The system's allocator, counting the bytes in use and the most there were.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are the ones `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `System` with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LAUNCH: LaunchId = LaunchId(0);
const CTAS: u32 = 128;
const THREADS: u32 = 128;
const MIB: usize = 1 << 20;

fn tell(detector: &mut Exact, event: &Event) {
    detector.on(event).expect("the events make sense");
}

fn cta(index: u32) -> Cta {
    Cta {
        launch: LAUNCH,
        index: CtaIndex(index),
    }
}

fn grid() -> Exact {
    let mut detector = Exact::new(Unit::Thread);
    let launch = Launch {
        id: LAUNCH,
        device: DeviceRank(0),
        stream: StreamId(0),
        ctas: CTAS,
        threads: THREADS,
        cluster: 1,
        programmatic: false,
    };
    tell(&mut detector, &Event::Launch(launch));
    for index in 0..CTAS {
        let cta = cta(index);
        tell(&mut detector, &Event::CtaStart { cta, sm: 0 });
    }
    detector
}

fn access(detector: &mut Exact, thread: Thread, element: u32, action: Action, order: Order) {
    let access = Access {
        thread,
        range: Range {
            space: Space::Global,
            address: 0x7000_0000_0000 + 4 * u64::from(element),
            bytes: 4,
        },
        action,
        order,
        scope: Scope::Gpu,
        site: SiteId(1),
    };
    tell(detector, &Event::Access(access));
}

fn barrier(detector: &mut Exact, index: u32) {
    let at = Meeting::CtaBarrier {
        cta: cta(index),
        id: 0,
    };
    for thread in (0..THREADS).map(|thread| Thread::new(LAUNCH, index, thread)) {
        let releases = true;
        tell(
            detector,
            &Event::Arrive {
                thread,
                at,
                releases,
            },
        );
    }
    tell(detector, &Event::PhaseComplete(at));
    for thread in (0..THREADS).map(|thread| Thread::new(LAUNCH, index, thread)) {
        let acquires = true;
        tell(
            detector,
            &Event::Leave {
                thread,
                at,
                acquires,
            },
        );
    }
}

/// One test, since the count is one for the whole process.
#[test]
fn memory_grows_with_the_threads_and_not_with_their_square() {
    let before = IN_USE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let mut detector = grid();
    let mut after_round = Vec::new();
    for _ in 0..8 {
        for index in 0..CTAS {
            for thread in 0..THREADS {
                let this = Thread::new(LAUNCH, index, thread);
                let element = index * THREADS + thread;
                access(&mut detector, this, element, Action::Write, Order::Weak);
            }
        }
        for index in 0..CTAS {
            barrier(&mut detector, index);
            for thread in 0..THREADS {
                let this = Thread::new(LAUNCH, index, thread);
                let neighbour = index * THREADS + (thread + 1) % THREADS;
                access(&mut detector, this, neighbour, Action::Read, Order::Weak);
            }
            barrier(&mut detector, index);
        }
        after_round.push(IN_USE.load(Ordering::Relaxed) - before);
    }
    assert_eq!(detector.take_races(), []);
    let touched = (4 * CTAS * THREADS) as usize;
    let most = MOST.load(Ordering::Relaxed) - before;
    println!("barriers only: {:.1} MiB at most", most as f64 / MIB as f64);
    assert!(most < 64 * MIB + touched, "{most} bytes");
    let (early, late) = (after_round[1], after_round[7]);
    assert!(late <= early + early / 10, "{early} bytes became {late}");

    // All threads read one table, then all take a number from one counter.
    for index in 0..CTAS {
        for thread in 0..THREADS {
            let this = Thread::new(LAUNCH, index, thread);
            for element in 0..16 {
                let element = (1 << 20) + element;
                access(&mut detector, this, element, Action::Read, Order::Weak);
            }
            access(&mut detector, this, 1 << 21, Action::Rmw, Order::AcqRel);
        }
    }
    assert_eq!(detector.take_races(), []);
    let most = MOST.load(Ordering::Relaxed) - before;
    println!("one counter: {:.1} MiB at most", most as f64 / MIB as f64);
    assert!(most < 256 * MIB, "{most} bytes");

    // One thread fills a large buffer and reads it back, element by element. Granules that were
    // treated alike share what is known of them, whatever came before.
    let swept = 4 * MIB;
    let sweep = IN_USE.load(Ordering::Relaxed);
    for element in 0..(swept / 4) as u32 {
        let element = (1 << 22) + element;
        let this = Thread::new(LAUNCH, 0, 0);
        access(&mut detector, this, element, Action::Write, Order::Weak);
        access(&mut detector, this, element, Action::Read, Order::Weak);
    }
    assert_eq!(detector.take_races(), []);
    let grown = IN_USE.load(Ordering::Relaxed) - sweep;
    println!("a sweep: {:.1} MiB", grown as f64 / MIB as f64);
    assert!(grown < swept, "{grown} bytes");
}
