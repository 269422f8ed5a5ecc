//! A machine without a GPU: the host backend, the device library built for the host, and kernels as
//! lists of accesses.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

use bytemuck::Zeroable;
use gsan_core::address::Records;
use gsan_core::atomics::Native;
use gsan_core::clock::ClockEntry;
use gsan_core::compressed::topology::Place;
use gsan_core::ids::DeviceRank;
use gsan_core::layout::{GlobalState, LaunchDescriptor, RaceEntry, RaceRing, RowHeader};
use gsan_core::race_ring::RaceReader;
use gsan_device::host::{Cta, Strong};
use gsan_sync::{Begun, Error, HostKernels, LaunchInfo, Ordering, Settings, StreamKey, StreamKind};
use gsan_vmm::backend::host::{HostBackend, HostOptions, View};
use gsan_vmm::backend::{Backend, Device, Stream};
use gsan_vmm::{Allocator, Options};

type Ring<'m> = gsan_core::race_ring::RaceRing<'m, Native>;

const RING_ENTRIES: u64 = 4096;

/// The file that accesses are in.
const FILE: &CStr = c"kernel.py";

/// What a CTA does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Do {
    /// Writes the granule of this number.
    Write(u32),
    /// Reads it.
    Read(u32),
    /// `griddepcontrol.wait`.
    Wait,
    /// An atomic add on the granule, acquire and release, at `gpu` scope.
    Add(u32),
    /// The same at `sys` scope.
    AddSystem(u32),
    /// An atomic add that releases only, at `gpu` scope.
    Release(u32),
    /// One that acquires only, at `gpu` scope.
    Acquire(u32),
}

/// Which earlier launch and which later one race on which granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Found {
    pub(crate) earlier: u32,
    pub(crate) later: u32,
    pub(crate) granule: u32,
}

/// SMs that nobody runs on.
struct Sms {
    free: Mutex<Vec<u32>>,
    freed: Condvar,
}

/// The machine.
pub(crate) struct Gpu {
    pub(crate) ordering: Ordering,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) backend: Arc<HostBackend>,
    memory: u64,
    ring: Vec<AtomicU64>,
    sms: Arc<Vec<Sms>>,
    views: BTreeMap<u16, View>,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Work that is still queued reads the memory.
        self.backend.hold(false);
        self.backend.run_all();
    }
}

/// A small device: 4 SMs with 2 slots each.
pub(crate) fn settings() -> Settings {
    Settings {
        sms: 4,
        slots_per_sm: 2,
        most_banks: 12,
        publications: 64,
        snapshot_bytes: 1 << 16,
        private_bytes: 1 << 16,
        row_bytes: 4 << 20,
        ..Settings::default()
    }
}

pub(crate) const GPU: Device = Device(0);

pub(crate) fn key(handle: u64) -> StreamKey {
    StreamKey {
        device: GPU,
        handle,
    }
}

/// The refusal of a call on a stream on which this thread has begun a launch.
pub(crate) fn unfinished(stream: StreamKey) -> Error {
    Error::LaunchUnfinished {
        stream,
        begun: Begun::Launch,
        on: stream,
    }
}

impl Gpu {
    pub(crate) fn new() -> Gpu {
        Gpu::with(settings())
    }

    pub(crate) fn with(mut settings: Settings) -> Gpu {
        let local = settings
            .local_devices
            .iter()
            .map(|device| device.0 + 1)
            .max();
        let devices = local.unwrap_or(settings.device_ranks.len() as u32);
        let backend = HostBackend::new(HostOptions {
            devices,
            memory: 1 << 40,
            granularity: 4096,
        });
        let backend = Arc::new(backend.unwrap());
        let options = Options {
            reserve: 1 << 30,
            ..Options::default()
        };
        let allocator = Allocator::new(Arc::clone(&backend) as Arc<dyn Backend>, options);
        let allocator = Arc::new(allocator.unwrap());
        let words = Ring::words(RING_ENTRIES) as usize;
        let ring: Vec<AtomicU64> = (0..words + 16).map(|_| AtomicU64::new(0)).collect();
        let head = RaceRing {
            capacity: RING_ENTRIES,
            ..Zeroable::zeroed()
        };
        let first = ring_start(&ring);
        for (at, &word) in bytemuck::cast_slice::<_, u64>(bytemuck::bytes_of(&head))
            .iter()
            .enumerate()
        {
            ring[first + at].store(word, Relaxed);
        }
        settings.race_ring = ring[first..].as_ptr().expose_provenance() as u64;
        let kernels = HostKernels::new(Arc::clone(&backend), Arc::clone(&allocator));
        let sms = (0..settings.devices)
            .map(|_| Sms {
                free: Mutex::new((0..settings.sms).rev().collect()),
                freed: Condvar::new(),
            })
            .collect();
        let ordering = Ordering::new(settings, &allocator, Arc::new(kernels)).unwrap();
        let memory = allocator.allocate(1 << 20, GPU).unwrap();
        let views = (0..32)
            .filter_map(|rank| {
                let (address, bytes) = allocator.state(DeviceRank(rank))?;
                Some((rank, backend.view(address, bytes).unwrap()))
            })
            .collect();
        Gpu {
            ordering,
            allocator,
            backend,
            memory,
            ring,
            sms: Arc::new(sms),
            views,
        }
    }

    /// From now on granules lie in other memory.
    pub(crate) fn use_memory(&mut self, address: u64) {
        self.memory = address;
    }

    /// Where granules lie.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Opens a non-blocking stream.
    pub(crate) fn open(&self, handle: u64) -> StreamKey {
        self.open_as(GPU, handle, StreamKind::NonBlocking)
    }

    pub(crate) fn open_as(&self, device: Device, handle: u64, kind: StreamKind) -> StreamKey {
        let key = StreamKey { device, handle };
        let queue = queue(handle);
        self.ordering.open_stream(key, queue, kind).unwrap();
        key
    }

    /// Launches one CTA that does `what`. Returns the launch's number.
    pub(crate) fn launch(&self, stream: StreamKey, what: &[Do]) -> u32 {
        self.launch_as(stream, false, &[what])
    }

    /// Launches a CTA for each list, one after the other on SM 0 upwards.
    pub(crate) fn launch_as(&self, stream: StreamKey, programmatic: bool, ctas: &[&[Do]]) -> u32 {
        let info = LaunchInfo {
            kernel: 1,
            grid: [ctas.len() as u32, 1, 1],
            programmatic,
            opaque: false,
        };
        let mut launch = self.ordering.begin_launch(stream, &info).unwrap();
        let number = launch.number();
        self.enqueue(stream, (launch.table(), launch.index()), ctas);
        launch.finish(true).unwrap();
        number
    }

    /// Gives a kernel to a stream.
    pub(crate) fn enqueue(&self, stream: StreamKey, launch: (u64, u64), ctas: &[&[Do]]) {
        let kernel = self.kernel(stream.device, launch, ctas);
        let queue = queue(stream.handle);
        self.backend.enqueue(stream.device, queue, kernel).unwrap();
    }

    /// A kernel as a function.
    pub(crate) fn kernel(
        &self,
        device: Device,
        (table, index): (u64, u64),
        ctas: &[&[Do]],
    ) -> impl FnOnce() + Send + use<> {
        let globals = self.ordering.state_region(device).unwrap();
        let rank = self.ordering.rank(device).unwrap();
        let (sms, memory) = (Arc::clone(&self.sms), self.memory);
        let ctas: Vec<Vec<Do>> = ctas.iter().map(|what| what.to_vec()).collect();
        move || {
            for (at, what) in ctas.iter().enumerate() {
                let sm = sms[usize::from(rank.0)].take();
                let cta = RunningCta::start(globals, sm, memory, (table, index), at as u64);
                what.iter().for_each(|&what| cta.does(what));
                cta.exit();
                sms[usize::from(rank.0)].give_back(sm);
            }
        }
    }

    /// A CTA that is started, to be driven by hand on SM `sm`.
    pub(crate) fn resident(&self, launch: (u64, u64), sm: u32, cta: u64) -> RunningCta {
        let globals = self.ordering.state_region(GPU).unwrap();
        RunningCta::start(globals, sm, self.memory, launch, cta)
    }

    /// The races that were told.
    pub(crate) fn races(&self) -> BTreeSet<Found> {
        let found = |race: RaceEntry| Found {
            earlier: race.earlier.launch,
            later: race.later.launch,
            granule: ((race.address - self.memory) / 8) as u32,
        };
        self.told().into_iter().map(found).collect()
    }

    /// The entries of the race ring.
    pub(crate) fn told(&self) -> Vec<RaceEntry> {
        let ring = Ring::new(&self.ring[ring_start(&self.ring)..]).unwrap();
        let mut reader = RaceReader::new(ring);
        let mut races = Vec::new();
        reader.drain(|race| races.push(race));
        assert_eq!(reader.ring().dropped(), 0);
        races
    }

    /// A descriptor, as a kernel finds it.
    pub(crate) fn descriptor(&self, (table, index): (u64, u64)) -> LaunchDescriptor {
        let address = table + (index & u64::from(u32::MAX)) * size_of::<LaunchDescriptor>() as u64;
        let pointer = std::ptr::with_exposed_provenance::<[u64; 16]>(address as usize);
        // SAFETY: the table is pinned memory of the ordering, which is not given back while it
        // lives, and the host alone writes it, on this thread.
        bytemuck::cast(unsafe { pointer.read_volatile() })
    }

    /// Wears the epochs of a device's thread ids.
    pub(crate) fn wear(&self, epoch: u32) {
        let base = self.ordering.state_region(GPU).unwrap();
        let view = &self.views[&0].words32();
        let offset = core::mem::offset_of!(GlobalState, offsets) as u64;
        let at = offset + core::mem::offset_of!(gsan_core::layout::Offsets, epochs) as u64;
        let first = self.word(base + at) as usize / 4;
        let devices = self.ordering.settings().devices;
        let ids = (self.ordering.topology().ids() / devices) as usize;
        for word in &view[first..first + ids] {
            word.fetch_max(epoch, Relaxed);
        }
    }

    fn word(&self, address: u64) -> u32 {
        let base = self.allocator.state_base();
        let (rank, offset) = ((address - base) >> 30, (address - base) % (1 << 30));
        self.views[&(rank as u16)].words32()[offset as usize / 4].load(Relaxed)
    }

    fn word64(&self, address: u64) -> u64 {
        u64::from(self.word(address)) | u64::from(self.word(address + 4)) << 32
    }

    /// The newest epoch of the first slot of `bank` that a launch starts after.
    pub(crate) fn knows(&self, launch: &LaunchDescriptor, bank: u32) -> u32 {
        let place = Place { bank, slot: 0 };
        let id = self.ordering.topology().id(place);
        let mut known = 0;
        let mut see = |word: u32| {
            known = known.max(ClockEntry::from_bits(word).epoch().get());
        };
        if bank == launch.bank {
            see(self.word(launch.own_row));
        }
        if self.word(launch.foreign_row) != 0 {
            let header = size_of::<RowHeader>() as u64;
            see(self.word(launch.foreign_row + header + 4 * u64::from(id.0)));
        }
        if launch.named_rows != 0 {
            let row = self.word64(launch.named_rows + 8 * u64::from(bank));
            if row != 0 {
                see(self.word(row));
            }
        }
        known
    }
}

fn ring_start(ring: &[AtomicU64]) -> usize {
    let address = ring.as_ptr().addr();
    (address.next_multiple_of(128) - address) / 8
}

pub(crate) fn queue(handle: u64) -> Stream {
    match handle {
        0 => Stream::DEFAULT,
        handle => Stream::host(handle),
    }
}

impl Sms {
    fn take(&self) -> u32 {
        let mut free = self.free.lock().unwrap();
        loop {
            if let Some(sm) = free.pop() {
                return sm;
            }
            free = self.freed.wait(free).unwrap();
        }
    }

    fn give_back(&self, sm: u32) {
        let mut free = self.free.lock().unwrap();
        free.push(sm);
        // The lowest first, so that streams use the same slots.
        free.sort_unstable_by(|a, b| b.cmp(a));
        drop(free);
        self.freed.notify_one();
    }
}

/// A resident CTA.
pub(crate) struct RunningCta {
    cta: RefCell<Option<Cta>>,
    memory: u64,
}

impl RunningCta {
    fn start(globals: u64, sm: u32, memory: u64, launch: (u64, u64), cta: u64) -> RunningCta {
        // SAFETY: the addresses are those of live memory of the machine, whose cells have four records;
        // tests run one CTA on an SM.
        let cta = unsafe { Cta::start(globals, Records::Four, sm, launch, cta) };
        RunningCta {
            cta: RefCell::new(Some(cta)),
            memory,
        }
    }

    pub(crate) fn exit(&self) {
        self.cta.take().unwrap().exit();
    }

    pub(crate) fn does(&self, what: Do) {
        let cta = self.cta.borrow();
        let cta = cta.as_ref().unwrap();
        let address = |granule: u32| self.memory + 8 * u64::from(granule);
        let line = |granule: u32, write: bool| 1 + 2 * (granule % 1000) + u32::from(write);
        let access = |at, writes| cta.access(writes, address(at), 8, FILE, line(at, writes));
        let add = |at, order, scope| {
            let begun = cta.begin(address(at), 4, true, Strong { order, scope });
            cta.end(&begun, true, true, FILE, line(at, true));
        };
        match what {
            Do::Write(at) => access(at, true),
            Do::Read(at) => access(at, false),
            Do::Wait => cta.wait(),
            Do::Add(at) => add(at, 4, 1),
            Do::Release(at) => add(at, 3, 1),
            Do::Acquire(at) => add(at, 2, 1),
            Do::AddSystem(at) => add(at, 4, 3),
        }
    }
}
