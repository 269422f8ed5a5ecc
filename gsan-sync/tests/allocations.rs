//! Launches on a single stream allocate nothing, and reach no memory of the device.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use gsan_sync::{
    HostKernels, Kernels, LaunchInfo, Ordering, Settings, Step, StreamKey, StreamKind,
};
use gsan_vmm::backend::host::{HostBackend, HostOptions};
use gsan_vmm::backend::{
    Backend, CaptureStatus, Captured, Device, DeviceInfo, FenceId, FreeMemory, HandleKind,
    MemoryId, Pinned, Result, SharedHandle, Stream,
};
use gsan_vmm::{Allocator, Options};

thread_local! {
    /// How often this thread has allocated.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all calls go to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
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

/// A backend that counts what it is asked.
struct Counted {
    backend: Arc<HostBackend>,
    /// Calls that read or write memory of a device, or have that done in a stream.
    memory: AtomicU64,
    /// All other calls, apart from the question whether a stream is captured.
    others: AtomicU64,
}

impl Counted {
    fn memory(&self) -> &HostBackend {
        self.memory.fetch_add(1, Relaxed);
        &self.backend
    }

    fn other(&self) -> &HostBackend {
        self.others.fetch_add(1, Relaxed);
        &self.backend
    }

    fn counts(&self) -> (u64, u64) {
        (self.memory.load(Relaxed), self.others.load(Relaxed))
    }
}

impl Backend for Counted {
    fn devices(&self) -> &[DeviceInfo] {
        self.backend.devices()
    }
    fn granularity(&self) -> u64 {
        self.backend.granularity()
    }
    fn reaches(&self, from: Device, owner: Device) -> bool {
        self.backend.reaches(from, owner)
    }
    fn free_memory(&self, device: Device) -> Result<FreeMemory> {
        self.other().free_memory(device)
    }
    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64> {
        self.other().reserve(bytes, alignment)
    }
    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.other().unreserve(address, bytes)
    }
    fn create(&self, device: Device, bytes: u64, kind: HandleKind) -> Result<MemoryId> {
        self.other().create(device, bytes, kind)
    }
    fn release(&self, memory: MemoryId) -> Result<()> {
        self.other().release(memory)
    }
    fn map(&self, address: u64, bytes: u64, memory: MemoryId) -> Result<()> {
        self.other().map(address, bytes, memory)
    }
    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.other().unmap(address, bytes)
    }
    fn allow(&self, address: u64, bytes: u64, devices: &[Device]) -> Result<()> {
        self.other().allow(address, bytes, devices)
    }
    fn export(&self, memory: MemoryId, kind: HandleKind) -> Result<SharedHandle> {
        self.other().export(memory, kind)
    }
    fn import(&self, device: Device, handle: SharedHandle, bytes: u64) -> Result<MemoryId> {
        self.other().import(device, handle, bytes)
    }
    fn fill(&self, device: Device, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.memory().fill(device, address, bytes, value)
    }
    fn read(&self, device: Device, address: u64, into: &mut [u8]) -> Result<()> {
        self.memory().read(device, address, into)
    }
    fn write(&self, device: Device, address: u64, from: &[u8]) -> Result<()> {
        self.memory().write(device, address, from)
    }
    fn fence(&self, device: Device, stream: Stream) -> Result<FenceId> {
        self.other().fence(device, stream)
    }
    fn passed(&self, fence: FenceId) -> Result<bool> {
        self.other().passed(fence)
    }
    fn forget(&self, fence: FenceId) {
        self.other().forget(fence);
    }
    fn synchronize(&self, device: Device) -> Result<()> {
        self.other().synchronize(device)
    }
    fn pin(&self, bytes: u64) -> Result<Pinned> {
        self.other().pin(bytes)
    }
    fn own_stream(&self, device: Device) -> Result<Stream> {
        self.other().own_stream(device)
    }
    fn fill_on(
        &self,
        device: Device,
        stream: Stream,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        self.memory().fill_on(device, stream, address, bytes, value)
    }
    fn wait_on(&self, device: Device, stream: Stream, fence: FenceId) -> Result<()> {
        self.other().wait_on(device, stream, fence)
    }
    fn capture_status(&self, device: Device, stream: Stream) -> Result<CaptureStatus> {
        self.backend.capture_status(device, stream)
    }
    fn captured(
        &self,
        device: Device,
        stream: Stream,
        is_known: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Captured> {
        self.other().captured(device, stream, is_known)
    }
}

/// Steps that are counted.
#[derive(Debug)]
struct CountedKernels {
    kernels: HostKernels,
    runs: Arc<AtomicU64>,
}

impl Kernels for CountedKernels {
    fn run(&self, device: Device, stream: Stream, steps: Vec<Step>) -> Result<()> {
        self.runs.fetch_add(1, Relaxed);
        self.kernels.run(device, stream, steps)
    }
}

/// An ordering with one non-blocking stream.
struct Machine {
    backend: Arc<Counted>,
    runs: Arc<AtomicU64>,
    ordering: Ordering,
    key: StreamKey,
}

impl Machine {
    fn new() -> Machine {
        let host = Arc::new(HostBackend::new(HostOptions::default()).unwrap());
        let backend = Arc::new(Counted {
            backend: Arc::clone(&host),
            memory: AtomicU64::new(0),
            others: AtomicU64::new(0),
        });
        let options = Options {
            reserve: 1 << 30,
            ..Options::default()
        };
        let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options).unwrap();
        let allocator = Arc::new(allocator);
        let runs = Arc::new(AtomicU64::new(0));
        let kernels = CountedKernels {
            kernels: HostKernels::new(host, Arc::clone(&allocator)),
            runs: Arc::clone(&runs),
        };
        let ordering = Ordering::new(Settings::default(), &allocator, Arc::new(kernels)).unwrap();
        let key = StreamKey {
            device: Device(0),
            handle: 1,
        };
        ordering
            .open_stream(key, Stream::host(1), StreamKind::NonBlocking)
            .unwrap();
        let machine = Machine {
            backend,
            runs,
            ordering,
            key,
        };
        // Until all launch states have been used once.
        (0..3 * 4096).for_each(|_| machine.launch());
        machine
    }

    fn launch(&self) {
        let info = LaunchInfo {
            grid: [1, 1, 1],
            ..LaunchInfo::default()
        };
        let mut launch = self.ordering.begin_launch(self.key, &info).unwrap();
        launch.finish(true).unwrap();
    }
}

#[test]
fn launches_on_a_single_stream_allocate_and_reach_device_memory_only_once_a_block() {
    let machine = Machine::new();
    let (backend, runs, ordering) = (&machine.backend, &machine.runs, &machine.ordering);
    // A block has 32 launches: what they had is zeroed together, by one call.
    const LAUNCHES: u64 = 3200;
    let blocks = LAUNCHES / 32;
    let mut most = 0;
    let mut plain = 0;
    let (memory, others) = backend.counts();
    for _ in 0..LAUNCHES {
        let before = (ALLOCATIONS.get(), backend.counts());
        machine.launch();
        let made = ALLOCATIONS.get() - before.0;
        most = made.max(most);
        plain += u64::from(made == 0 && backend.counts() == before.1);
    }
    assert!(
        plain >= LAUNCHES - blocks,
        "{plain} of {LAUNCHES} launches allocated nothing and asked the backend nothing"
    );
    assert!(most <= 4, "one allocated {most} times");
    let (memory, others) = (backend.counts().0 - memory, backend.counts().1 - others);
    assert!(memory <= blocks, "{memory} calls about device memory");
    assert!(others <= 10 * blocks, "{others} other calls");
    assert_eq!(runs.load(Relaxed), 0, "steps in the stream");
    assert_eq!(ordering.counts().joins, 0);
    // What the host waited for and records cost nothing of that either, with one stream in use.
    let (memory, _) = backend.counts();
    for event in 0..1000 {
        machine.launch();
        ordering.record_event(event % 10, machine.key).unwrap();
        ordering.synchronize_stream(machine.key).unwrap();
    }
    let memory = backend.counts().0 - memory;
    assert!(
        memory <= 1000 / 32 + 1,
        "{memory} calls about device memory"
    );
    assert_eq!(runs.load(Relaxed), 0, "steps in the stream");
}

/// What a call takes when nobody else uses the processor: the shortest of many tries.
fn shortest(mut call: impl FnMut(u64)) -> Duration {
    const CALLS: u32 = 320;
    let times = (0..100).map(|_| {
        let start = Instant::now();
        (0..CALLS).for_each(|at| call(at.into()));
        start.elapsed() / CALLS
    });
    times.min().unwrap()
}

#[test]
fn a_launch_takes_less_than_a_microsecond_and_a_record_less_than_five() {
    let machine = Machine::new();
    let launch = shortest(|_| machine.launch());
    assert!(launch < Duration::from_micros(1), "a launch: {launch:?}");
    let both = shortest(|at| {
        machine.launch();
        machine.ordering.record_event(at % 10, machine.key).unwrap();
    });
    assert!(
        both < Duration::from_micros(6),
        "a launch and a record: {both:?}"
    );
    eprintln!("a launch: {launch:?}, with a record: {both:?}");
}
