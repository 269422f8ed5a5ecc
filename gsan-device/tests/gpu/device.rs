//! A GPU with everything that the device library needs. All raw calls of these tests are here.

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use cudarc::driver::sys::CUfunction_attribute_enum as FunctionAttribute;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use gsan_core::address::Records;
use gsan_core::atomics::{Native, map_words64};
use gsan_core::ids::{DeviceRank, SiteId};
use gsan_core::layout::{GlobalState, STATE_STRIDE, limits};
use gsan_core::race_ring::{RaceReader, RaceRing};
use gsan_core::site_mirror::{SiteMirror, SourceLine};
use gsan_vmm::backend::cuda::CudaBackend;
use gsan_vmm::backend::{Backend, Device};
use gsan_vmm::{Allocator, Options};

use crate::cases::{Argument, Case, Launch};
use crate::kernels::Module;
use crate::runtime::{Found, MIRROR_BYTES, Machine, Places, RING_BYTES, Runtime, TABLE_BYTES};

const GPU: Device = Device(0);

/// The memory that all buffers of a case have together.
const ARENA_BYTES: u64 = 256 << 20;

/// As many CTAs as an SM of any GPU holds.
const SLOTS_PER_SM: u32 = 32;

/// Memory of the host that the GPU can reach, at one address for both.
struct Pinned {
    memory: *mut c_void,
}

impl Pinned {
    fn new(bytes: u64) -> Pinned {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: a context is current; the memory is freed when `self` is dropped.
        let memory = unsafe { result::malloc_host(bytes as usize, flags) }.unwrap();
        // SAFETY: it has that many bytes.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes as usize) };
        Pinned { memory }
    }

    fn address(&self) -> u64 {
        self.memory as u64
    }

    /// Writes while no kernel runs.
    fn write(&self, offset: u64, bytes: &[u8]) {
        // SAFETY: the callers' offsets lie within the memory, which nobody else uses now.
        unsafe {
            let target = self.memory.cast::<u8>().add(offset as usize);
            target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: it was allocated by `malloc_host`. A failure leaves it to the end of the process.
        let _ = unsafe { result::free_host(self.memory) };
    }
}

pub(crate) struct Gpu {
    backend: Arc<CudaBackend>,
    allocator: Allocator,
    context: Arc<CudaContext>,
    streams: [Arc<CudaStream>; 2],
    code: sys::CUmodule,
    module: Module,
    records: Records,
    ring: Pinned,
    mirror: Pinned,
    table: Pinned,
    runtime: Runtime,
    arena: u64,
    dynamic_shared: u32,
    loading: Duration,
}

impl Gpu {
    pub(crate) fn new(
        backend: &Arc<CudaBackend>,
        module: Module,
        ptx: &str,
        records: Records,
    ) -> Gpu {
        let context = CudaContext::new(0).unwrap();
        let options = Options {
            records,
            ..Options::default()
        };
        let allocator = Allocator::new(Arc::<CudaBackend>::clone(backend), options).unwrap();
        let state = allocator
            .create_state(DeviceRank(0), GPU, STATE_STRIDE)
            .unwrap();
        let arena = allocator.allocate(ARENA_BYTES, GPU).unwrap();
        let [ring, table, mirror] = [RING_BYTES, TABLE_BYTES, MIRROR_BYTES].map(Pinned::new);
        let count = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let machine = Machine {
            sms: context.attribute(count).unwrap() as u32,
            slots_per_sm: SLOTS_PER_SM,
            publications: 65_536,
            clock_bytes: 256 << 20,
        };
        let places = Places {
            space: allocator.space(),
            state,
            ring: ring.address(),
            mirror: mirror.address(),
            table: table.address(),
        };
        let runtime = Runtime::new(&machine, places);
        backend
            .write(GPU, state, bytemuck::bytes_of(&runtime.global))
            .unwrap();
        ring.write(0, bytemuck::cast_slice(&Runtime::empty_ring()));
        mirror.write(0, bytemuck::cast_slice(&Runtime::empty_mirror()));
        let text = CString::new(ptx).unwrap();
        let start = Instant::now();
        // SAFETY: the text ends with a NUL and is PTX; the context is current.
        let code = unsafe { result::module::load_data(text.as_ptr().cast()) }.unwrap();
        let loading = start.elapsed();
        let streams = [context.new_stream().unwrap(), context.new_stream().unwrap()];
        Gpu {
            backend: Arc::clone(backend),
            allocator,
            context,
            streams,
            code,
            module,
            records,
            ring,
            mirror,
            table,
            runtime,
            arena,
            dynamic_shared: 0,
            loading,
        }
    }

    /// How long it took the driver to make machine code of the PTX.
    pub(crate) fn loading(&self) -> Duration {
        self.loading
    }

    pub(crate) fn sms(&self) -> u32 {
        self.runtime.global.sms
    }

    fn function(&self, kernel: &str) -> sys::CUfunction {
        let name = CString::new(kernel).unwrap();
        // SAFETY: the module is loaded.
        unsafe { result::module::get_function(self.code, name) }.unwrap()
    }

    /// How many granules and atomics were checked.
    pub(crate) fn accesses(&self) -> u64 {
        let offset = core::mem::offset_of!(GlobalState, accesses) as u64;
        let mut bytes = [0; 8];
        self.read(self.runtime.places.state + offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn read(&self, address: u64, into: &mut [u8]) {
        self.backend.read(GPU, address, into).unwrap();
    }

    /// Where the buffers of `case` lie.
    fn buffers(&self, case: &Case) -> Vec<u64> {
        let mut next = self.arena;
        let place = |words: &u32| {
            let start = next;
            next = (start + 4 * u64::from(*words)).next_multiple_of(256);
            start
        };
        let buffers = case.buffers.iter().map(place).collect();
        assert!(next <= self.arena + ARENA_BYTES);
        buffers
    }

    /// Gives the buffers of `case` their first contents.
    fn fill(&self, case: &Case, buffers: &[u64]) {
        for (number, (&address, &words)) in buffers.iter().zip(&case.buffers).enumerate() {
            let value = u32::from(case.ones == Some(number));
            let contents = vec![value; words as usize];
            let bytes = bytemuck::cast_slice(&contents);
            self.backend.write(GPU, address, bytes).unwrap();
        }
    }

    /// Forgets all accesses.
    fn clear_shadow(&self) {
        let shadow = self.runtime.places.space.shadow(self.arena);
        let bytes = ARENA_BYTES * self.records.count() as u64;
        self.backend.fill(GPU, shadow, bytes, 0).unwrap();
    }

    /// From now on a CTA of `kernel` takes all shared memory of its SM.
    pub(crate) fn take_all_shared_memory(&mut self, kernel: &str) {
        let most = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let used = FunctionAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let limit = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let function = self.function(kernel);
        // SAFETY: the function belongs to a loaded module.
        unsafe {
            let own = result::function::get_function_attribute(function, used).unwrap();
            let rest = self.context.attribute(most).unwrap() - own;
            result::function::set_function_attribute(function, limit, rest).unwrap();
            self.dynamic_shared = rest as u32;
        }
    }

    fn launch(&mut self, launch: &Launch, buffers: &[u64]) {
        let announced = self.runtime.launch(self.module, launch.stream, launch.grid);
        let offset = announced.address - self.table.address();
        self.table
            .write(offset, bytemuck::bytes_of(&announced.descriptor));
        let own = launch.arguments.iter().map(|argument| match *argument {
            Argument::Buffer(number) => buffers[number],
            Argument::Number(number) => number.into(),
        });
        // Little-endian: a number of 32 bits is the first half of one of 64.
        let mut arguments: Vec<u64> = own.chain(announced.arguments).collect();
        let mut pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| std::ptr::from_mut(argument).cast())
            .collect();
        let function = self.function(launch.kernel);
        let stream = self.streams[launch.stream as usize].cu_stream();
        // SAFETY: the arguments are those of the kernel, and one more pointer than a kernel without
        // checks has parameters is not looked at; buffers outlive the launch.
        unsafe {
            let [grid, block] = [launch.grid, launch.block].map(|count| (count, 1, 1));
            let shared = self.dynamic_shared;
            if launch.cluster == 1 {
                result::launch_kernel(function, grid, block, shared, stream, &mut pointers)
                    .unwrap();
            } else {
                let mut attribute: sys::CUlaunchAttribute = std::mem::zeroed();
                attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
                attribute.value.clusterDim.x = launch.cluster;
                attribute.value.clusterDim.y = 1;
                attribute.value.clusterDim.z = 1;
                let config = sys::CUlaunchConfig {
                    gridDimX: grid.0,
                    gridDimY: 1,
                    gridDimZ: 1,
                    blockDimX: block.0,
                    blockDimY: 1,
                    blockDimZ: 1,
                    sharedMemBytes: shared,
                    hStream: stream,
                    attrs: &raw mut attribute,
                    numAttrs: 1,
                };
                let arguments = pointers.as_mut_ptr();
                sys::cuLaunchKernelEx(&raw const config, function, arguments, std::ptr::null_mut())
                    .result()
                    .unwrap();
            }
        }
    }

    /// Lets clusters of a kernel have more CTAs than every GPU can run.
    pub(crate) fn allow_large_clusters(&mut self, kernel: &str) {
        let function = self.function(kernel);
        let allowed = FunctionAttribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        // SAFETY: the function is of a module that is loaded.
        unsafe { result::function::set_function_attribute(function, allowed, 1) }.unwrap();
    }

    /// From now on a race ends the kernel, and with it the context.
    pub(crate) fn halt_on_race(&mut self) {
        self.runtime.global.flags = limits::HALT_ON_RACE;
        let state = self.runtime.places.state;
        let bytes = bytemuck::bytes_of(&self.runtime.global);
        self.backend.write(GPU, state, bytes).unwrap();
    }

    /// Runs `case`, which ends with an error of the driver, and says what is left of the races in memory of
    /// the host: files and lines of the earlier and the later side.
    pub(crate) fn run_to_death(
        &mut self,
        case: &Case,
    ) -> (Option<DriverError>, Vec<[Option<SourceLine>; 2]>) {
        let buffers = self.buffers(case);
        self.fill(case, &buffers);
        self.clear_shadow();
        for launch in &case.launches {
            self.launch(launch, &buffers);
        }
        let error = self.context.synchronize().err();
        let (ring, mirror) = self.told();
        let mut races = Vec::new();
        RaceReader::new(ring).finish(|race| {
            let sites = [race.earlier.site, race.later.site];
            races.push(sites.map(|site| mirror.get(SiteId(site.into()))));
        });
        (error, races)
    }

    /// What kernels leave in memory of the host.
    fn told(&self) -> (RaceRing<'_, Native>, SiteMirror<'_, Native>) {
        // SAFETY: they have that many bytes, kernels access the words by atomics and have ended.
        let [ring, mirror] = unsafe {
            [(&self.ring, RING_BYTES), (&self.mirror, MIRROR_BYTES)]
                .map(|(pinned, bytes)| map_words64(pinned.memory.cast(), bytes as usize / 8))
        };
        (
            RaceRing::new(ring).unwrap(),
            SiteMirror::new(mirror).unwrap(),
        )
    }

    /// Runs `case` on memory that was never accessed, and says what was found.
    pub(crate) fn run(&mut self, case: &Case) -> Found {
        self.run_after(0, case)
    }

    /// The same after `runs` others, with their records still there.
    pub(crate) fn run_after(&mut self, runs: u32, case: &Case) -> Found {
        assert_eq!(case.module, self.module);
        let buffers = self.buffers(case);
        self.fill(case, &buffers);
        if runs == 0 {
            self.clear_shadow();
        }
        for launch in &case.launches {
            self.launch(launch, &buffers);
            // Which of two streams comes first is to be known.
            self.context.synchronize().unwrap();
        }
        let words = |address, count: usize| {
            let mut words = vec![0u32; count];
            self.read(address, bytemuck::cast_slice_mut(&mut words));
            words
        };
        let gave_up = words(*buffers.last().unwrap(), 1);
        assert_eq!(gave_up, [0], "{}: a CTA gave up waiting", case.name);
        if let Some((buffer, expected)) = &case.result {
            let found = words(buffers[*buffer], expected.len());
            assert_eq!(found, *expected, "{}", case.name);
        }
        let read = |address, into: &mut [u8]| self.read(address, into);
        let (ring, mirror) = self.told();
        Found::read(&self.runtime, ring, mirror, read)
    }

    /// The shortest of `runs` runs, in milliseconds, of a case that is one launch.
    pub(crate) fn time(&mut self, case: &Case, runs: u32) -> f32 {
        let buffers = self.buffers(case);
        let flags = Some(sys::CUevent_flags_enum::CU_EVENT_DEFAULT);
        let stream = Arc::clone(&self.streams[0]);
        // Enqueued ahead, so that nothing waits for the host in between.
        let events: Vec<_> = (0..runs)
            .map(|_| {
                let start = stream.record_event(flags).unwrap();
                self.launch(&case.launches[0], &buffers);
                (start, stream.record_event(flags).unwrap())
            })
            .collect();
        self.context.synchronize().unwrap();
        let times = events
            .iter()
            .map(|(start, end)| start.elapsed_ms(end).unwrap());
        times.fold(f32::INFINITY, f32::min)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Nothing may run any more when the memory goes.
        let _ = self.context.synchronize();
        let _ = self.allocator.release_state(DeviceRank(0));
        // SAFETY: none of its functions runs or will be called.
        let _ = unsafe { result::module::unload(self.code) };
    }
}
