//! A GPU with the ordering, and kernels that do what they are told. All raw calls of these tests are here.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use cudarc::driver::{CudaContext, result, sys};
use gsan_core::atomics::Native;
use gsan_core::ids::DeviceRank;
use gsan_core::layout::{GlobalState, RaceEntry, Site};
use gsan_core::race_ring::{RaceReader, RaceRing};
use gsan_sync::{CudaKernels, LaunchInfo, NodeId, Ordering, Plan, PlanBuilder, Settings};
use gsan_sync::{StreamKey, StreamKind};
use gsan_vmm::backend::cuda::CudaBackend;
use gsan_vmm::backend::{Backend, Device, Pinned, Stream};
use gsan_vmm::{Allocator, Options};

const RING_ENTRIES: u64 = 4096;

/// Bytes of the memory that granules lie in.
pub(crate) const MEMORY: u64 = 2 << 20;

/// Words for what kernels do.
const OPERATIONS: usize = 1 << 17;

/// What a kernel does. Numbers in `kernels/ordering.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Do {
    /// Writes the granule of this number.
    Write(u32),
    /// Reads it.
    Read(u32),
    /// `griddepcontrol.wait`.
    DependencyWait,
    /// `griddepcontrol.launch_dependents`.
    LaunchDependents,
    /// An atomic add on the granule that releases, at a scope.
    Release(u32, Scope),
    /// One that orders nothing, at `sys` scope.
    Relaxed(u32),
    /// Loads the granule with acquire, at a scope, until it is not 0.
    Acquire(u32, Scope),
    /// The same without acquire, at `sys` scope.
    Look(u32),
    /// Order in time that the checks know nothing of.
    Signal(u32),
    Await(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Gpu = 1,
    System = 2,
}

impl Do {
    fn words(self) -> [u64; 2] {
        let (kind, at, order, scope) = match self {
            Do::Write(at) => (0, at, 0, 0),
            Do::Read(at) => (1, at, 0, 0),
            Do::DependencyWait => (2, 0, 0, 0),
            Do::LaunchDependents => (3, 0, 0, 0),
            Do::Release(at, scope) => (4, at, 2, scope as u32),
            Do::Relaxed(at) => (4, at, 0, 2),
            Do::Acquire(at, scope) => (5, at, 1, scope as u32),
            Do::Look(at) => (5, at, 0, 2),
            Do::Signal(at) => (6, at, 0, 0),
            Do::Await(at) => (7, at, 0, 0),
        };
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [pair(kind, at), pair(order, scope)]
    }
}

/// The word of `hidden` in which a kernel says that it gave up.
const GAVE_UP: usize = 63;

pub(crate) struct Gpu {
    pub(crate) ordering: Ordering,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) backend: Arc<CudaBackend>,
    pub(crate) device: Device,
    context: Arc<CudaContext>,
    module: sys::CUmodule,
    function: sys::CUfunction,
    memory: u64,
    ring: Pinned,
    operations: Pinned,
    used: Cell<usize>,
    hidden: Pinned,
    /// Memory that is not checked.
    scratch: sys::CUdeviceptr,
    streams: RefCell<Vec<sys::CUstream>>,
    events: RefCell<Vec<sys::CUevent>>,
}

/// Runs `test` with at least `devices` GPUs, or says why it does not. After `limit` the process is
/// ended: a GPU that does not answer must not hang those who wait for the result.
pub(crate) fn on_gpus(devices: usize, limit: Duration, test: impl FnOnce(&Arc<CudaBackend>)) {
    let backend = match CudaBackend::new() {
        Ok(backend) => Arc::new(backend),
        Err(error) => return println!("skipped: {error}"),
    };
    let found = backend.devices().len();
    if found < devices {
        return println!("skipped: {devices} GPUs are needed, there is {found}");
    }
    if let Err(error) = ptx() {
        return println!("skipped: {error}");
    }
    let (done, watch) = channel::<()>();
    std::thread::spawn(move || {
        if watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the test has run for {} s: ending it", limit.as_secs());
            std::process::abort();
        }
    });
    test(&backend);
    drop(done);
}

/// The same with one GPU and the ordering on it.
pub(crate) fn on_gpu(test: impl FnOnce(&Gpu)) {
    on_gpus(1, Duration::from_secs(120), |backend| {
        test(&Gpu::new(backend, Device(0), Settings::default()));
    });
}

/// The kernels as PTX: from the folder `kernels` beside this program, where `cargo xtask test-gpu` puts
/// it, else compiled. `Err` says why there is none.
fn ptx() -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = program.parent().unwrap_or(Path::new("."));
    if let Ok(text) = std::fs::read_to_string(beside.join("kernels/ordering-gsan-shared-4.ptx")) {
        return Ok(text);
    }
    let output = Command::new("clang-19")
        .args(["@gsan-sync/tests/gpu/kernels/flags", "-DGSAN_RECORDS=4"])
        .args(["gsan-sync/tests/gpu/kernels/ordering.cu", "-o", "-"])
        .current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .map_err(|error| format!("clang-19 does not start: {error}"))?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

/// The line of the kernels that ends with `@mark`.
pub(crate) fn line(mark: &str) -> u32 {
    let lines = (1..).zip(include_str!("kernels/ordering.cu").lines());
    let mark = format!("// @{mark}");
    let mut marked = lines.filter(|(_, line)| line.ends_with(&mark));
    let (line, _) = marked.next().unwrap();
    assert_eq!(marked.next(), None);
    line
}

/// Fails with the driver's answer.
fn check(code: sys::CUresult) {
    assert_eq!(code, sys::cudaError_enum::CUDA_SUCCESS);
}

/// The words of pinned memory.
fn words(pinned: &Pinned) -> &[AtomicU64] {
    let first = ptr::from_ref(pinned.word(0)).addr();
    // SAFETY: pinned memory is one block of words, exposed when it was made, which lives as long as
    // it is borrowed; all access it by atomics.
    unsafe {
        let first = ptr::with_exposed_provenance::<AtomicU64>(first);
        std::slice::from_raw_parts(first, pinned.bytes() as usize / 8)
    }
}

impl Gpu {
    /// The ordering, set up as `settings` say apart from what the GPU says itself.
    pub(crate) fn new(backend: &Arc<CudaBackend>, device: Device, settings: Settings) -> Gpu {
        let context = CudaContext::new(device.0 as usize).unwrap();
        let driver = Arc::<CudaBackend>::clone(backend);
        let allocator = Arc::new(Allocator::new(driver, Options::default()).unwrap());
        let ring_bytes = 8 * RaceRing::<Native>::words(RING_ENTRIES);
        let ring = backend.pin(ring_bytes).unwrap();
        RaceRing::<Native>::format(&words(&ring)[..ring_bytes as usize / 8], RING_ENTRIES).unwrap();
        let count = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let settings = Settings {
            sms: context.attribute(count).unwrap() as u32,
            slots_per_sm: 32,
            race_ring: ring.address(),
            ..settings
        };
        let kernels = Arc::new(CudaKernels::new(Arc::clone(backend)));
        let ordering = Ordering::new(settings, &allocator, kernels).unwrap();
        let memory = allocator.allocate(MEMORY, device).unwrap();
        let text = CString::new(ptx().unwrap()).unwrap();
        // SAFETY: the text ends with a NUL and is PTX; the context is current.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }.unwrap();
        let name = CString::new("perform").unwrap();
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(module, name) }.unwrap();
        Gpu {
            ordering,
            allocator,
            device,
            context,
            module,
            function,
            memory,
            ring,
            operations: backend.pin(8 * OPERATIONS as u64).unwrap(),
            used: Cell::new(0),
            hidden: backend.pin(256).unwrap(),
            scratch: {
                let mut address = 0;
                // SAFETY: the pointer is valid; a context is current.
                check(unsafe { sys::cuMemAlloc_v2(&raw mut address, 64) });
                address
            },
            streams: RefCell::default(),
            events: RefCell::default(),
            backend: Arc::clone(backend),
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

    /// The ordering's name for a stream of the driver.
    fn key(&self, stream: sys::CUstream) -> StreamKey {
        StreamKey {
            device: self.device,
            handle: stream.expose_provenance() as u64,
        }
    }

    fn raw(key: StreamKey) -> sys::CUstream {
        ptr::with_exposed_provenance_mut(key.handle as usize)
    }

    /// A new stream.
    pub(crate) fn stream(&self, kind: StreamKind) -> StreamKey {
        let flags = match kind {
            StreamKind::NonBlocking => sys::CUstream_flags::CU_STREAM_NON_BLOCKING,
            _ => sys::CUstream_flags::CU_STREAM_DEFAULT,
        };
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is valid; a context is current.
        check(unsafe { sys::cuStreamCreate(&raw mut stream, flags as u32) });
        self.streams.borrow_mut().push(stream);
        let key = self.key(stream);
        // SAFETY: the stream lives until it is forgotten, or the ordering is gone.
        let queue = unsafe { Stream::cuda(key.handle) };
        self.ordering.open_stream(key, queue, kind).unwrap();
        key
    }

    /// The legacy default stream.
    pub(crate) fn default_stream(&self) -> StreamKey {
        let key = self.key(ptr::null_mut());
        let opened = self
            .ordering
            .open_stream(key, Stream::DEFAULT, StreamKind::Legacy);
        opened.unwrap();
        key
    }

    /// Destroys a stream.
    pub(crate) fn destroy(&self, key: StreamKey) {
        self.ordering.forget_stream(key).unwrap();
        let raw = Self::raw(key);
        self.streams.borrow_mut().retain(|&stream| stream != raw);
        // SAFETY: it is one of the driver's, and not used any more.
        check(unsafe { sys::cuStreamDestroy_v2(raw) });
    }

    /// Waits for everything, without telling the ordering.
    pub(crate) fn settle(&self) {
        self.context.synchronize().unwrap();
        let word = self.hidden.word(GAVE_UP / 2).load(Relaxed) >> 32;
        assert_eq!(word, 0, "a kernel gave up waiting");
    }

    /// The host signals what kernels and streams wait for.
    pub(crate) fn signal(&self, at: u32) {
        let (word, shift) = (at as usize / 2, 32 * (at % 2));
        self.hidden.word(word).fetch_or(1 << shift, Relaxed);
    }

    /// A stream goes no further before the signal, however long that takes.
    pub(crate) fn stop(&self, stream: StreamKey, at: u32) {
        let word = self.hidden.address() + 4 * u64::from(at);
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the stream is the driver's, and the word outlives its work.
        check(unsafe { sys::cuStreamWaitValue32_v2(Self::raw(stream), word, 1, flags) });
    }

    /// What kernels signalled is forgotten.
    pub(crate) fn forget_signals(&self) {
        (0..GAVE_UP / 2).for_each(|word| self.hidden.word(word).store(0, Relaxed));
    }

    /// Launches a kernel and waits for it, without telling the ordering. Returns the launch's number.
    pub(crate) fn launch(&self, stream: StreamKey, what: &[Do]) -> u32 {
        let number = self.enqueue(stream, false, what);
        self.settle();
        number
    }

    /// Gives a kernel to a stream.
    pub(crate) fn enqueue(&self, stream: StreamKey, programmatic: bool, what: &[Do]) -> u32 {
        let info = LaunchInfo {
            kernel: 1,
            grid: [1, 1, 1],
            programmatic,
            opaque: false,
        };
        let mut launch = self.ordering.begin_launch(stream, &info).unwrap();
        let number = launch.number();
        let mut arguments = self.arguments((launch.table(), launch.index()), what);
        let mut pointers = pointers(&mut arguments);
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: i32::from(programmatic),
            },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: Self::raw(stream),
            attrs: &raw mut attribute,
            numAttrs: 1,
        };
        // SAFETY: the arguments are those of the kernel; what they point to outlives it.
        check(unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                self.function,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        });
        launch.finish(true).unwrap();
        number
    }

    /// What the kernel is given.
    fn arguments(&self, (table, index): (u64, u64), what: &[Do]) -> [u64; 7] {
        let first = self.used.get();
        self.used.set(first + 2 * what.len());
        assert!(self.used.get() <= OPERATIONS, "more than there is room for");
        for (at, word) in what.iter().flat_map(|what| what.words()).enumerate() {
            self.operations.word(first + at).store(word, Relaxed);
        }
        [
            self.operations.address() + 8 * first as u64,
            what.len() as u64,
            self.memory,
            self.hidden.address(),
            self.ordering.state_region(self.device).unwrap(),
            table,
            index,
        ]
    }

    /// A new event.
    pub(crate) fn event(&self) -> u64 {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is valid; a context is current.
        check(unsafe { sys::cuEventCreate(&raw mut event, flags) });
        self.events.borrow_mut().push(event);
        event.expose_provenance() as u64
    }

    pub(crate) fn record(&self, event: u64, stream: StreamKey) {
        // SAFETY: both are the driver's.
        check(unsafe { sys::cuEventRecord(raw_event(event), Self::raw(stream)) });
        self.ordering.record_event(event, stream).unwrap();
    }

    /// Records it whenever the graph runs that is being captured.
    pub(crate) fn record_external(&self, event: u64, stream: StreamKey) {
        let flags = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both are the driver's.
        check(unsafe { sys::cuEventRecordWithFlags(raw_event(event), Self::raw(stream), flags) });
        self.ordering.record_event(event, stream).unwrap();
    }

    pub(crate) fn wait(&self, stream: StreamKey, event: u64) {
        // SAFETY: both are the driver's.
        check(unsafe { sys::cuStreamWaitEvent(Self::raw(stream), raw_event(event), 0) });
        self.ordering.wait_event(stream, event).unwrap();
    }

    /// `later` waits for what `earlier` was given so far.
    pub(crate) fn edge(&self, earlier: StreamKey, later: StreamKey) {
        let event = self.event();
        self.record(event, earlier);
        self.wait(later, event);
    }

    /// Puts something that is no kernel into a stream.
    pub(crate) fn memset(&self, stream: StreamKey) {
        // SAFETY: the memory is there and outlives the stream's work.
        check(unsafe { sys::cuMemsetD32Async(self.scratch, 0, 1, Self::raw(stream)) });
    }

    pub(crate) fn begin_capture(&self, stream: StreamKey) {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream is the driver's.
        check(unsafe { sys::cuStreamBeginCapture_v2(Self::raw(stream), mode) });
    }

    /// Ends a capture; the driver's graph is gone before the ordering is told.
    pub(crate) fn end_capture(&self, stream: StreamKey) -> Graph {
        let id = self.ordering.capture_of(stream).unwrap().unwrap();
        let executable = self.end_capture_of_driver(stream).instantiate();
        let plan = self.ordering.capture_ended(id).unwrap().unwrap();
        Graph { plan, executable }
    }

    /// Ends a capture and keeps the driver's graph.
    pub(crate) fn end_capture_and_keep(&self, stream: StreamKey) -> (Graph, Template) {
        let id = self.ordering.capture_of(stream).unwrap().unwrap();
        let template = self.end_capture_of_driver(stream);
        let executable = template.instantiate();
        let plan = self.ordering.capture_ended(id).unwrap().unwrap();
        (Graph { plan, executable }, template)
    }

    fn end_capture_of_driver(&self, stream: StreamKey) -> Template {
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is valid, and the stream the driver's.
        check(unsafe { sys::cuStreamEndCapture(Self::raw(stream), &raw mut graph) });
        Template(graph)
    }

    /// Two kernels, one after the other if `ordered`, in a graph that is made by hand.
    pub(crate) fn graph_by_hand(&self, ordered: bool, what: [&[Do]; 2]) -> Graph {
        let mut builder = self.ordering.begin_plan(self.device).unwrap();
        let template = Template::empty();
        let mut before = Vec::new();
        for what in what {
            let node = self.add_kernel(&template, &mut builder, &before, what);
            if ordered {
                before.push(node);
            }
        }
        let executable = template.instantiate();
        let plan = builder.finish().unwrap();
        Graph { plan, executable }
    }

    /// A copy of a captured graph as a node of a new one, between two kernels if `ordered`, else beside them.
    pub(crate) fn graph_around(
        &self,
        (graph, template): &(Graph, Template),
        ordered: bool,
        what: [&[Do]; 2],
    ) -> Graph {
        let mut builder = self.ordering.begin_plan(self.device).unwrap();
        let around = Template::empty();
        let first = self.add_kernel(&around, &mut builder, &[], what[0]);
        let (before, raw_before) = if ordered {
            (vec![first.0], vec![first.1])
        } else {
            (Vec::new(), Vec::new())
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the pointers are valid, and both graphs the driver's, which copies the second one.
        check(unsafe {
            sys::cuGraphAddChildGraphNode(
                &raw mut raw,
                around.0,
                raw_before.as_ptr(),
                raw_before.len(),
                template.0,
            )
        });
        let copy = (builder.graph(&before, &graph.plan).unwrap(), raw);
        let before: &[_] = if ordered { &[copy] } else { &[] };
        self.add_kernel(&around, &mut builder, before, what[1]);
        let executable = around.instantiate();
        let plan = builder.finish().unwrap();
        Graph { plan, executable }
    }

    /// The driver's clone of a captured graph.
    pub(crate) fn clone_of(&self, (graph, template): &(Graph, Template)) -> Graph {
        let mut clone = ptr::null_mut();
        // SAFETY: the pointer is valid, and the graph the driver's.
        check(unsafe { sys::cuGraphClone(&raw mut clone, template.0) });
        let executable = Template(clone).instantiate();
        let mut builder = self.ordering.begin_plan(self.device).unwrap();
        builder.graph(&[], &graph.plan).unwrap();
        let plan = builder.finish().unwrap();
        Graph { plan, executable }
    }

    /// Adds a kernel to a graph that is made by hand, after what comes `before` it.
    fn add_kernel(
        &self,
        template: &Template,
        builder: &mut PlanBuilder,
        before: &[(NodeId, sys::CUgraphNode)],
        what: &[Do],
    ) -> (NodeId, sys::CUgraphNode) {
        let (before, raw_before): (Vec<_>, Vec<_>) = before.iter().copied().unzip();
        let info = LaunchInfo {
            kernel: 1,
            grid: [1, 1, 1],
            ..LaunchInfo::default()
        };
        let (node, given) = builder.kernel(&before, &[], &info).unwrap();
        let mut arguments = self.arguments((given.table, given.index), what);
        let mut pointers = pointers(&mut arguments);
        let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: pointers.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the pointers are valid, and the driver copies what they point to.
        check(unsafe {
            sys::cuGraphAddKernelNode_v2(
                &raw mut raw,
                template.0,
                raw_before.as_ptr(),
                raw_before.len(),
                &raw const parameters,
            )
        });
        (node, raw)
    }

    /// Replays a graph. Returns the number of its first kernel's launch.
    pub(crate) fn replay(&self, graph: &Graph, stream: StreamKey) -> u32 {
        let mut replay = graph.plan.begin_replay(stream).unwrap();
        // SAFETY: both are the driver's; the graph is destroyed after its work.
        check(unsafe { sys::cuGraphLaunch(graph.executable, Self::raw(stream)) });
        replay.finish(true).unwrap();
        replay.first_number()
    }

    /// The races that were told since the last look, when everything is done.
    pub(crate) fn races(&self) -> Vec<RaceEntry> {
        self.settle();
        let count = RaceRing::<Native>::words(RING_ENTRIES) as usize;
        let ring = RaceRing::<Native>::new(&words(&self.ring)[..count]).unwrap();
        let mut races = Vec::new();
        let drained = RaceReader::new(ring).finish(|race| races.push(race));
        assert_eq!(drained.unwritten, 0);
        races
    }

    /// The granules of those races, each once.
    pub(crate) fn granules(&self) -> Vec<u32> {
        let granule = |race: RaceEntry| ((race.address - self.memory) / 8) as u32;
        let mut granules: Vec<u32> = self.races().into_iter().map(granule).collect();
        granules.sort_unstable();
        granules.dedup();
        granules
    }

    /// The line of a site of a device, which may be one of another process.
    pub(crate) fn line_of(&self, rank: DeviceRank, site: u16) -> u32 {
        let (base, _) = self.allocator.state(rank).unwrap();
        let mut global: GlobalState = bytemuck::Zeroable::zeroed();
        let read = |address, into: &mut [u8]| self.backend.read(self.device, address, into);
        read(base, bytemuck::bytes_of_mut(&mut global)).unwrap();
        let table = base + u64::from(global.offsets.sites);
        let mut entry: Site = bytemuck::Zeroable::zeroed();
        let at = table + u64::from(site) * size_of::<Site>() as u64;
        read(at, bytemuck::bytes_of_mut(&mut entry)).unwrap();
        entry.line
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Nothing may run any more when the memory goes.
        let _ = self.context.synchronize();
        // SAFETY: all are the driver's and not used any more; failures leave them to the end of the
        // process.
        unsafe {
            for &stream in &*self.streams.borrow() {
                let _ = sys::cuStreamDestroy_v2(stream);
            }
            for &event in &*self.events.borrow() {
                let _ = sys::cuEventDestroy_v2(event);
            }
            let _ = sys::cuMemFree_v2(self.scratch);
            let _ = result::module::unload(self.module);
        }
    }
}

/// A graph that can be replayed.
pub(crate) struct Graph {
    pub(crate) plan: Arc<Plan>,
    executable: sys::CUgraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it is the driver's; work of it that still runs goes on.
        let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
    }
}

/// A graph of the driver that is not executable yet.
pub(crate) struct Template(sys::CUgraph);

impl Template {
    fn empty() -> Template {
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is valid.
        check(unsafe { sys::cuGraphCreate(&raw mut graph, 0) });
        Template(graph)
    }

    fn instantiate(&self) -> sys::CUgraphExec {
        let mut executable = ptr::null_mut();
        // SAFETY: the pointer is valid, and the graph the driver's.
        check(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, self.0, 0) });
        executable
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        // SAFETY: it is the driver's; what was made of it stays.
        let _ = unsafe { sys::cuGraphDestroy(self.0) };
    }
}

fn raw_event(event: u64) -> sys::CUevent {
    ptr::with_exposed_provenance_mut(event as usize)
}

fn pointers(arguments: &mut [u64; 7]) -> Vec<*mut c_void> {
    let pointer = |argument: &mut u64| ptr::from_mut(argument).cast();
    arguments.iter_mut().map(pointer).collect()
}
