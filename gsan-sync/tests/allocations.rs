//! Launches on a single stream allocate nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsan_sync::{HostKernels, LaunchInfo, Ordering, Settings, StreamKey, StreamKind};
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{Backend, Device, Stream};
use gsan_vmm::{Allocator, Options};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: all calls go to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn launches_on_a_single_stream_allocate_only_once_a_block() {
    let backend = Arc::new(HostBackend::new(HostOptions::default()).unwrap());
    let options = Options {
        reserve: 1 << 30,
        ..Options::default()
    };
    let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options).unwrap();
    let allocator = Arc::new(allocator);
    let kernels = HostKernels::new(backend, Arc::clone(&allocator));
    let ordering = Ordering::new(Settings::default(), &allocator, Arc::new(kernels)).unwrap();
    let key = StreamKey {
        device: Device(0),
        handle: 1,
    };
    ordering
        .open_stream(key, Stream::host(1), StreamKind::NonBlocking)
        .unwrap();
    let info = LaunchInfo {
        grid: [1, 1, 1],
        ..LaunchInfo::default()
    };
    let launch = || {
        let mut launch = ordering.begin_launch(key, &info).unwrap();
        launch.finish(true).unwrap();
    };
    // Until all launch states have been used once.
    (0..3 * 4096).for_each(|_| launch());
    // A block has 32 launches.
    let mut most = 0;
    let mut with_any = 0;
    for _ in 0..3200 {
        let before = ALLOCATIONS.load(Relaxed);
        launch();
        let made = ALLOCATIONS.load(Relaxed) - before;
        most = made.max(most);
        with_any += u64::from(made > 0);
    }
    assert!(with_any <= 100, "{with_any} of 3200 launches allocated");
    assert!(most <= 4, "one allocated {most} times");
    assert_eq!(ordering.counts().joins, 0);
}
