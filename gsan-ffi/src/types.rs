//! Structures and constants of the header.

#![expect(non_camel_case_types, reason = "the names are those of C")]

use std::ffi::{c_char, c_int, c_void};

use crate::arguments::Versioned;

/// The version of this interface. It grows when something that exists changes; what is added does not
/// change it.
pub const GSAN_ABI_VERSION: u32 = 1;

/// gsan_config.backend: CUDA where there is a driver with devices, else the host.
pub const GSAN_BACKEND_AUTO: u32 = 0;
/// gsan_config.backend: the GPUs.
pub const GSAN_BACKEND_CUDA: u32 = 1;
/// gsan_config.backend: memory and kernels on the host, without a GPU.
pub const GSAN_BACKEND_HOST: u32 = 2;

/// gsan_config.handle_type: what the configuration says.
pub const GSAN_HANDLE_TYPE_AUTO: u32 = 0;
/// Memory is shared by POSIX file descriptors, within one host.
pub const GSAN_HANDLE_TYPE_POSIX_FD: u32 = 1;
/// Memory is shared by fabric handles, also between hosts.
pub const GSAN_HANDLE_TYPE_FABRIC: u32 = 8;

/// gsan_config.halt: what the configuration says (report.on_race).
pub const GSAN_ON_RACE_CONFIGURED: u32 = 0;
/// gsan_config.halt: a race is reported, and the program goes on.
pub const GSAN_ON_RACE_CONTINUE: u32 = 1;
/// gsan_config.halt: a race is an error in the program.
pub const GSAN_ON_RACE_HALT: u32 = 2;

/// Bit of gsan_side.action: it read.
pub const GSAN_ACTION_READ: u32 = 1;
/// Bit of gsan_side.action: it wrote.
pub const GSAN_ACTION_WRITE: u32 = 2;

/// Not atomic.
pub const GSAN_MEMORY_SCOPE_NONE: u32 = 0;
/// Atomic among the threads of one CTA.
pub const GSAN_MEMORY_SCOPE_CTA: u32 = 1;
/// Atomic among the threads of one GPU.
pub const GSAN_MEMORY_SCOPE_GPU: u32 = 2;
/// Atomic among all threads of the system.
pub const GSAN_MEMORY_SCOPE_SYSTEM: u32 = 3;

/// Atomic, orders nothing.
pub const GSAN_MEMORY_ORDER_RELAXED: u32 = 1;
/// What was released before the value that is read comes before what follows.
pub const GSAN_MEMORY_ORDER_ACQUIRE: u32 = 2;
/// What came before comes before what follows an acquire of the value that is written.
pub const GSAN_MEMORY_ORDER_RELEASE: u32 = 3;
/// Acquires and releases.
pub const GSAN_MEMORY_ORDER_ACQ_REL: u32 = 4;

/// The later access reads what the earlier one wrote.
pub const GSAN_RACE_KIND_READ_AFTER_WRITE: u32 = 0;
/// The later access writes what the earlier one read.
pub const GSAN_RACE_KIND_WRITE_AFTER_READ: u32 = 1;
/// Both write.
pub const GSAN_RACE_KIND_WRITE_AFTER_WRITE: u32 = 2;
/// Write-once memory was written more than once.
pub const GSAN_RACE_KIND_WRITTEN_TWICE: u32 = 3;
/// Write-once memory was read before it was written.
pub const GSAN_RACE_KIND_READ_UNWRITTEN: u32 = 4;
/// An atomic access to write-once memory.
pub const GSAN_RACE_KIND_WRITE_ONCE_ATOMIC: u32 = 5;

/// gsan_host_atomic: reads.
pub const GSAN_HOST_LOAD: u32 = 1;
/// gsan_host_atomic: writes the operand.
pub const GSAN_HOST_STORE: u32 = 2;
/// gsan_host_atomic: reads, and writes the operand.
pub const GSAN_HOST_EXCHANGE: u32 = 3;
/// gsan_host_atomic: reads, and writes the operand if `compare` was read.
pub const GSAN_HOST_COMPARE_AND_SWAP: u32 = 4;
/// gsan_host_atomic: adds the operand.
pub const GSAN_HOST_ADD: u32 = 5;
/// gsan_host_atomic: bitwise and.
pub const GSAN_HOST_AND: u32 = 6;
/// gsan_host_atomic: bitwise or.
pub const GSAN_HOST_OR: u32 = 7;
/// gsan_host_atomic: bitwise exclusive or.
pub const GSAN_HOST_XOR: u32 = 8;
/// gsan_host_atomic: the smaller one, unsigned.
pub const GSAN_HOST_MIN: u32 = 9;
/// gsan_host_atomic: the larger one, unsigned.
pub const GSAN_HOST_MAX: u32 = 10;

macro_rules! versioned {
    ($($type:ident: $least:literal bytes at least;)*) => {$(
        // SAFETY: `repr(C)`, the size comes first, and the rest is numbers and addresses.
        unsafe impl Versioned for $type {
            const NAME: &'static str = stringify!($type);
            const LEAST: usize = $least;
        }
        const _: () = assert!(size_of::<$type>() >= $least);
    )*};
}

// The sizes of the first version, which never change.
versioned! {
    gsan_config: 56 bytes at least;
    gsan_allocation: 40 bytes at least;
    gsan_shared_allocation: 208 bytes at least;
    gsan_shared_state: 112 bytes at least;
    gsan_launch_info: 48 bytes at least;
    gsan_race: 216 bytes at least;
    gsan_cell_info: 96 bytes at least;
    gsan_thread_info: 32 bytes at least;
    gsan_device_info: 32 bytes at least;
}

/// What is configured by numbers; zero leaves a field to the environment, gsan.toml or the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_config {
    /// sizeof(gsan_config).
    pub size: usize,
    /// GSAN_BACKEND_….
    pub backend: u32,
    /// Devices in the topology, over all processes.
    pub num_devices: u32,
    /// The logical rank of each local device, 0xffffffff for one that takes no part; null: as configured.
    /// With `num_devices`.
    pub device_ranks: *const u32,
    /// How many ranks are given.
    pub num_local: u32,
    /// Records in a cell: 2 or 4.
    pub records: u32,
    /// Released clocks kept for each device.
    pub clock_publications: u32,
    /// The seed of sampling, used if has_seed is not 0.
    pub seed: u32,
    /// Whether `seed` is given.
    pub has_seed: u32,
    /// GSAN_HANDLE_TYPE_….
    pub handle_type: u32,
    /// GSAN_ON_RACE_….
    pub halt: u32,
}

/// An allocation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_allocation {
    /// sizeof(gsan_allocation), set by the caller.
    pub size: usize,
    /// Its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The device it is on.
    pub device: u32,
    /// It has shadow memory, so accesses to it are checked.
    pub managed: u32,
    /// Each byte may be written once.
    pub write_once: u32,
}

/// An allocation on its way to another process. File descriptors are the caller's, who closes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_shared_allocation {
    /// sizeof(gsan_shared_allocation), set by the caller.
    pub size: usize,
    /// The memory; -1 with fabric handles.
    pub real_fd: c_int,
    /// Its shadow; -1 with fabric handles, and if it has none.
    pub shadow_fd: c_int,
    /// The size that was asked for.
    pub bytes: u64,
    /// The size of the memory, which is rounded up.
    pub real_bytes: u64,
    /// The size of its shadow; 0: it has none.
    pub shadow_bytes: u64,
    /// The distance of the exported address from the start of the allocation.
    pub offset: u64,
    /// The rank of the device that it is on.
    pub owner_rank: u32,
    /// Records in a cell of the shadow: 2 or 4.
    pub records: u32,
    /// Each byte may be written once.
    pub write_once: u32,
    /// GSAN_HANDLE_TYPE_….
    pub kind: u32,
    /// The UUID of the device that it is on.
    pub owner: [u8; 16],
    /// Fabric handles of the memory and of its shadow.
    pub fabric: [[u8; 64]; 2],
}

/// A device's runtime state on its way to another process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_shared_state {
    /// sizeof(gsan_shared_state), set by the caller.
    pub size: usize,
    /// The memory, the caller's to close; -1 with a fabric handle.
    pub fd: c_int,
    /// The rank of the device.
    pub rank: u32,
    /// GSAN_HANDLE_TYPE_….
    pub kind: u32,
    /// Its size.
    pub bytes: u64,
    /// The UUID of the device.
    pub owner: [u8; 16],
    /// The fabric handle.
    pub fabric: [u8; 64],
}

/// What is launched.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_launch_info {
    /// sizeof(gsan_launch_info).
    pub size: usize,
    /// The kernel's name in reports; null: unknown.
    pub kernel: *const c_char,
    /// CTAs in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA in x, y, z.
    pub block: [u32; 3],
    /// Not 0: launched with the attribute for programmatic stream serialisation.
    pub programmatic: u32,
    /// Not 0: the kernel synchronises in ways that nobody reports; see gsan_kernel_is_opaque().
    pub opaque: u32,
}

/// One side of a race.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_side {
    /// sizeof(gsan_side).
    pub size: usize,
    /// 0: who it was is forgotten; what follows says nothing then but `action`, `atomic`, `scope`, and
    /// `file` and `line`.
    pub known: u32,
    /// GSAN_ACTION_… bits.
    pub action: u32,
    /// Not 0: an atomic access.
    pub atomic: u32,
    /// Not 0: an asynchronous copy, which was still running as far as the two knew.
    pub asynchronous: u32,
    /// GSAN_MEMORY_SCOPE_….
    pub scope: u32,
    /// The rank of its device.
    pub device_rank: u32,
    /// The CTA's place in the grid.
    pub cta: [u32; 3],
    /// The line in `file`; 0: unknown.
    pub line: u32,
    /// The number of its launch on that device.
    pub launch: u64,
    /// The stream of the launch.
    pub stream: u64,
    /// The source file; null: unknown.
    pub file: *const c_char,
    /// The kernel's name; null: unknown.
    pub kernel: *const c_char,
}

/// A race: two accesses to the same bytes that nothing orders, at least one of which writes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_race {
    /// sizeof(gsan_race).
    pub size: usize,
    /// GSAN_RACE_KIND_….
    pub kind: u32,
    /// Not 0: synchronisation that nobody reports may order the two.
    pub possible: u32,
    /// The first byte that both touched.
    pub address: u64,
    /// How many bytes both touched.
    pub bytes: u64,
    /// How often it was seen between these two lines of these kernels.
    pub times: u64,
    /// The allocation it is in; 0: unknown.
    pub allocation: u64,
    /// The size of that allocation.
    pub allocation_bytes: u64,
    /// The access that came first.
    pub earlier: gsan_side,
    /// The access that met it.
    pub later: gsan_side,
}

/// An epoch of a CTA, as a cell of the shadow remembers it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct gsan_clock_info {
    /// The epoch; 0: nothing is remembered.
    pub epoch: u32,
    /// The number of the CTA.
    pub thread_id: u32,
    /// GSAN_MEMORY_SCOPE_….
    pub scope: u32,
    /// Not 0: it released.
    pub is_release: u32,
}

/// What is remembered of 8 bytes of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_cell_info {
    /// sizeof(gsan_cell_info), set by the caller.
    pub size: usize,
    /// Reads that are remembered.
    pub num_reads: u32,
    /// The newest write.
    pub write_clock: gsan_clock_info,
    /// The reads.
    pub read_clocks: [gsan_clock_info; 4],
    /// How many of read_clocks are set.
    pub read_count: u32,
}

/// What is known of a CTA's place on a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_thread_info {
    /// sizeof(gsan_thread_info), set by the caller.
    pub size: usize,
    /// Its number.
    pub thread_id: u32,
    /// Reads it made that were sampled.
    pub num_reads: u32,
    /// How many such places all devices have.
    pub num_threads: u32,
    /// Where in the ring of released clocks the next one goes.
    pub clock_buffer_head: u32,
    /// Not 0: it accessed memory since its last release.
    pub clock_buffer_dirty: u32,
    /// Released clocks kept for the device.
    pub clock_buffer_size: u32,
}

/// What is known of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct gsan_device_info {
    /// sizeof(gsan_device_info), set by the caller.
    pub size: usize,
    /// Its multiprocessors.
    pub num_sms: u32,
    /// Places of CTAs on all devices.
    pub num_threads: u32,
    /// Devices in the topology.
    pub num_devices: u32,
    /// The seed of sampling.
    pub rng_seed: u32,
    /// Released clocks kept for the device.
    pub clock_buffer_size: u32,
}

/// A launch between gsan_launch_begin() and gsan_launch_end().
pub struct gsan_launch {
    _nothing: [u8; 0],
}
/// A graph whose plan is known: captured, or built by hand.
pub struct gsan_graph {
    _nothing: [u8; 0],
}
/// A replay of a graph between gsan_replay_begin() and gsan_replay_end().
pub struct gsan_replay {
    _nothing: [u8; 0],
}
/// A graph that is being built by hand.
pub struct gsan_graph_builder {
    _nothing: [u8; 0],
}
/// Ranks that meet.
pub struct gsan_group {
    _nothing: [u8; 0],
}
/// Processes that pass memory to each other.
pub struct gsan_rendezvous {
    _nothing: [u8; 0],
}
/// A CTA of a host kernel, within its callback.
pub struct gsan_cta {
    _nothing: [u8; 0],
}

/// What is called with a race. Its texts live until it returns. It must not throw.
pub type gsan_race_callback =
    Option<unsafe extern "C-unwind" fn(race: *const gsan_race, user: *mut c_void)>;
/// What is called with each race in turn, until it returns other than 0. It must not throw.
pub type gsan_race_visitor =
    Option<unsafe extern "C-unwind" fn(race: *const gsan_race, user: *mut c_void) -> c_int>;
/// A CTA of a host kernel. `index`: its x, y, z in the grid. It must not throw.
pub type gsan_host_kernel =
    Option<unsafe extern "C-unwind" fn(cta: *mut gsan_cta, index: *const u32, user: *mut c_void)>;
