//! The ordering of one process: its devices, streams and events.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use gsan_core::compressed::topology::Topology;
use gsan_core::ids::DeviceRank;
use gsan_vmm::Allocator;
use gsan_vmm::backend::{Backend, Device, Stream as Queue};
use rustc_hash::FxHashMap;

use crate::banks::Banks;
use crate::blocks::{Blocks, MOST_NUMBERS};
use crate::capture::Captures;
use crate::devices::{self, Devices};
use crate::dormant::Dormant;
use crate::error::Error;
use crate::event::Events;
use crate::graph::Plan;
use crate::host::HostKnowledge;
use crate::kernels::Kernels;
use crate::launch_log::DeviceLog;
use crate::names::Names;
use crate::restart::Marks;
use crate::reuse::Memory;
use crate::rows::{Knowledge, RowMemory};
use crate::settings::Settings;
use crate::state::{self, Region};
use crate::stream::{Stream, StreamKey, StreamKind, StreamState};
use crate::together::Together;

/// The ordering between the kernels of one process.
///
/// Any thread may call at any time. Calls about one stream wait for each other; a launch keeps its
/// stream from its begin to its end.
#[derive(Clone)]
pub struct Ordering {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) kernels: Arc<dyn Kernels>,
    pub(crate) settings: Settings,
    pub(crate) topology: Topology,
    pub(crate) devices: Devices,
    streams: RwLock<FxHashMap<StreamKey, Arc<Stream>>>,
    next_stream: AtomicU32,
    next_lineage: AtomicU32,
    pub(crate) events: Events,
    pub(crate) host: HostKnowledge,
    pub(crate) memory: Memory,
    pub(crate) names: Names,
    pub(crate) plans: Mutex<Vec<Weak<Plan>>>,
    /// Graphs that are being built.
    pub(crate) builders: AtomicUsize,
    pub(crate) captures: Captures,
    pub(crate) marks: Marks,
    pub(crate) together: Arc<Together>,
    pub(crate) next_graph_number: AtomicU32,
    pub(crate) counts: AtomicCounts,
}

/// What is kept for each device.
pub(crate) struct DeviceState {
    pub(crate) region: Region,
    pub(crate) rows: Arc<RowMemory>,
    pub(crate) blocks: Blocks,
    banks: Mutex<Banks>,
    pub(crate) legacy: OnceLock<Arc<Stream>>,
    /// Streams that the legacy default stream waits for, in the order of their numbers.
    pub(crate) blocking: RwLock<Vec<Arc<Stream>>>,
    pub(crate) dormant: Dormant,
    pub(crate) log: DeviceLog,
    /// It is in a group.
    pub(crate) grouped: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct AtomicCounts {
    pub(crate) launches: AtomicU64,
    pub(crate) captured: AtomicU64,
    pub(crate) taken_back: AtomicU64,
    pub(crate) joins: AtomicU64,
    pub(crate) unchecked: AtomicU64,
    pub(crate) opaque: AtomicU64,
    pub(crate) shared_banks: AtomicU64,
    pub(crate) restarts: AtomicU64,
}

/// Counts since the ordering was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Launches that were given to their streams.
    pub launches: u64,
    /// Launches that became nodes of a capture.
    pub captured: u64,
    /// Launches that were begun and not given to their streams.
    pub taken_back: u64,
    /// How often rows had to be joined before a launch.
    pub joins: u64,
    /// Launches that were not checked: memory for clock rows was short, or a capture holds launches of
    /// a second device.
    pub unchecked: u64,
    /// Launches of kernels that contain synchronisation that nobody reports, those of graphs at each
    /// replay.
    pub opaque: u64,
    /// Streams that share a bank of thread ids with others.
    pub shared_banks: u64,
    /// How often everything was forgotten because epochs, tokens or numbers were worn.
    pub restarts: u64,
    /// Dependent launches that never waited for their predecessor, as far as that was noticed: when their
    /// numbers are given out again, or when somebody [looks](Ordering::look_for_never_waited).
    pub never_waited: u64,
}

impl Ordering {
    /// Sets up the state of every device that `settings` give a rank. The backend of `allocator` is
    /// the one that `kernels` run on.
    ///
    /// # Errors
    /// When ranks contradict each other, the thread ids or the state regions do not suffice, or
    /// there is no memory.
    pub fn new(
        settings: Settings,
        allocator: &Arc<Allocator>,
        kernels: Arc<dyn Kernels>,
    ) -> Result<Ordering, Error> {
        devices::check(&settings)?;
        let topology = state::topology(&settings)?;
        let backend = Arc::clone(allocator.backend());
        // What cannot be laid out is told now.
        if !settings.device_ranks.is_empty() {
            Region::lay_out(allocator, &settings, 0)?;
        }
        let when_used = settings.when_used;
        let ordering = Ordering {
            inner: Arc::new(Inner {
                allocator: Arc::clone(allocator),
                marks: Marks::new(&settings),
                together: Arc::default(),
                devices: Devices::new(&settings),
                plans: Mutex::default(),
                builders: AtomicUsize::new(0),
                captures: Captures::default(),
                backend,
                kernels,
                settings,
                topology,
                streams: RwLock::default(),
                next_stream: AtomicU32::new(0),
                next_lineage: AtomicU32::new(0),
                events: Events::default(),
                host: HostKnowledge::default(),
                memory: Memory::default(),
                names: Names::default(),
                next_graph_number: AtomicU32::new(MOST_NUMBERS),
                counts: AtomicCounts::default(),
            }),
        };
        if !when_used {
            ordering.set_up_all().inspect_err(|_| {
                for device in ordering.inner.devices.iter() {
                    let _ = allocator.release_state(device.region.rank);
                }
            })?;
        }
        Ok(ordering)
    }

    /// How it was set up.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// How thread ids are divided.
    pub fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    /// The state region of a device, which kernels are given.
    ///
    /// # Errors
    /// When the device has no rank.
    pub fn state_region(&self, device: Device) -> Result<u64, Error> {
        Ok(self.inner.device(device)?.region.base)
    }

    /// Makes a stream known. `queue` is what the backend calls it. Opening a stream again does
    /// nothing; if its handle is one that the program uses again, say so before with
    /// [`Ordering::forget_stream`], or the new stream continues the old one.
    ///
    /// # Errors
    /// When the device has no rank, or the stream is open as another kind.
    pub fn open_stream(&self, key: StreamKey, queue: Queue, kind: StreamKind) -> Result<(), Error> {
        let inner = &*self.inner;
        let at = inner.place(key.device)?;
        let mut streams = inner
            .streams
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = streams.get(&key) {
            let same = known.kind == kind;
            return same.then_some(()).ok_or(Error::StreamDiffers(key));
        }
        let device = &inner.devices[at];
        if kind == StreamKind::Legacy && device.legacy.get().is_some() {
            return Err(Error::StreamDiffers(key));
        }
        let mut state = match inner.take_over(device)? {
            Some(state) => state,
            None => inner.new_stream_state(device)?,
        };
        if kind == StreamKind::Legacy {
            // It waits for blocking streams that are gone, too.
            let (gone, fences) = device.dormant.unawaited_of_blocking();
            for fence in fences.iter().filter(|_| inner.settings.acts) {
                if !inner.backend.passed(fence.id)? {
                    inner.backend.wait_on(key.device, queue, fence.id)?;
                }
            }
            state.start_after(Arc::new(gone));
        }
        let number = inner.next_stream.fetch_add(1, Relaxed);
        let patience = inner.settings.patience;
        let stream = Stream::new(key, queue, kind, (number, at), state, patience);
        let stream = Arc::new(stream);
        match kind {
            StreamKind::Legacy => {
                let _ = device.legacy.set(Arc::clone(&stream));
            }
            StreamKind::Blocking => {
                let mut blocking = device
                    .blocking
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                blocking.push(Arc::clone(&stream));
            }
            StreamKind::NonBlocking => {}
        }
        streams.insert(key, stream);
        Ok(())
    }

    /// Whether a stream is open.
    pub fn knows_stream(&self, key: StreamKey) -> bool {
        self.inner.stream(key).is_ok()
    }

    /// Notes which dependent launches have ended by now and never waited for their predecessor. It reads memory
    /// of the devices.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn look_for_never_waited(&self) -> Result<(), Error> {
        self.inner.look_for_never_waited()
    }

    /// Counts since the ordering was made.
    pub fn counts(&self) -> Counts {
        let counts = &self.inner.counts;
        Counts {
            launches: counts.launches.load(Relaxed),
            captured: counts.captured.load(Relaxed),
            taken_back: counts.taken_back.load(Relaxed),
            joins: counts.joins.load(Relaxed),
            unchecked: counts.unchecked.load(Relaxed),
            opaque: counts.opaque.load(Relaxed),
            shared_banks: counts.shared_banks.load(Relaxed),
            restarts: counts.restarts.load(Relaxed),
            never_waited: self.inner.names.count_never_waited(),
        }
    }
}

impl Inner {
    pub(crate) fn stream(&self, key: StreamKey) -> Result<Arc<Stream>, Error> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let found = streams.get(&key).cloned();
        found.ok_or(Error::UnknownStream(key))
    }

    /// The streams of one device, or of all.
    pub(crate) fn streams(&self, device: Option<Device>) -> Vec<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = |s: &&Arc<Stream>| device.is_none_or(|device| s.key.device == device);
        streams.values().filter(wanted).cloned().collect()
    }

    /// All streams, in the order in which one may get hold of several.
    pub(crate) fn streams_in_order(&self) -> Vec<Arc<Stream>> {
        let mut streams = self.streams(None);
        let legacy = |stream: &Stream| stream.kind != StreamKind::Legacy;
        streams.sort_by_key(|stream| (stream.device, legacy(stream), stream.number));
        streams
    }

    /// Does something if `held` are all streams, before another one is opened. Says whether it did.
    pub(crate) fn if_all(&self, held: &[Arc<Stream>], then: impl FnOnce()) -> bool {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let all = streams.len() == held.len();
        if all {
            then();
        }
        all
    }

    /// Forgets which stream has a handle, if it is this one.
    pub(crate) fn forget_handle(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        if streams
            .get(&stream.key)
            .is_some_and(|known| Arc::ptr_eq(known, stream))
        {
            streams.remove(&stream.key);
        }
    }

    /// Forgets all streams: whoever names one is told that it is not known.
    pub(crate) fn close(&self) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *streams);
        drop(streams);
        let backend = &*self.backend;
        for stream in all.into_values() {
            drop(stream.reenter().behind.take_all(backend));
        }
        for device in self.devices.iter() {
            for mut state in device.dormant.clear() {
                drop(state.behind.take_all(backend));
            }
            device.blocks.close(backend);
        }
    }

    pub(crate) fn new_lineage(&self) -> u32 {
        self.next_lineage.fetch_add(1, Relaxed)
    }

    fn new_stream_state(&self, device: &DeviceState) -> Result<StreamState, Error> {
        let bank = device.banks().take(|left| self.host.knows(left));
        if bank.1 {
            self.counts.shared_banks.fetch_add(1, Relaxed);
        }
        let made = StreamState::new(self.new_lineage(), bank, &device.rows);
        made.ok_or_else(|| {
            device.banks().give_back(bank.0, &Knowledge::default());
            Error::NoRoomForRows {
                device: device.region.device,
                room: 0,
                least: device.region.own_bytes() + device.region.foreign_bytes(),
            }
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl DeviceState {
    pub(crate) fn new(
        settings: &Settings,
        topology: &Topology,
        place: usize,
        region: Region,
        backend: &Arc<dyn Backend>,
    ) -> DeviceState {
        DeviceState {
            rows: Arc::new(RowMemory::new(&region, Arc::clone(backend))),
            blocks: Blocks::new(),
            banks: Mutex::new(Banks::new(topology, region.rank)),
            legacy: OnceLock::new(),
            blocking: RwLock::default(),
            dormant: Dormant::default(),
            log: DeviceLog::new(settings.launch_logs.get(place)),
            grouped: AtomicBool::new(false),
            region,
        }
    }

    pub(crate) fn banks(&self) -> MutexGuard<'_, Banks> {
        self.banks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The legacy default stream, and how far it has come.
    pub(crate) fn legacy(&self) -> Option<(&Arc<Stream>, u64)> {
        let legacy = self.legacy.get()?;
        Some((legacy, legacy.version()))
    }
}

impl AtomicCounts {
    pub(crate) fn add(count: &AtomicU64) {
        // Counts order nothing.
        count.fetch_add(1, Relaxed);
    }
}

/// Loads a version that says whether something has to be looked at.
pub(crate) fn version(word: &AtomicU64) -> u64 {
    word.load(Acquire)
}

/// The rank of a device, if it has one.
impl Ordering {
    /// The rank of a device, which need not have been used yet.
    ///
    /// # Errors
    /// When it has none.
    pub fn rank(&self, device: Device) -> Result<DeviceRank, Error> {
        let settings = &self.inner.settings;
        let known = settings.device_ranks.len();
        let place = settings.place(device);
        let place = place.ok_or(Error::UnknownDevice { device, known })?;
        Ok(settings.device_ranks[place])
    }
}
