/* GSan: data races in GPU global memory. The C interface of libgsan.so.
 *
 * Written by `cargo xtask header` from gsan-ffi: do not edit. C11 and C++17.
 *
 * Functions return a gsan_status; when that is not GSAN_OK, nothing was changed, unless it says
 * otherwise, and gsan_last_error() says why. Any thread may call at any time. Null and misaligned
 * arguments are refused, and so are handles that were ended. Structures that begin with `size` must
 * have it set to their sizeof, also where they are only written: so a later version can append
 * fields. Callbacks must not throw.
 *
 * A forked child has no session: its calls return GSAN_UNSUPPORTED.
 */

#ifndef GSAN_H
#define GSAN_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of this interface. It grows when something that exists changes; what is added does not
 * change it.
 */
#define GSAN_ABI_VERSION 1

/**
 * gsan_config.backend: CUDA where there is a driver with devices, else the host.
 */
#define GSAN_BACKEND_AUTO 0

/**
 * gsan_config.backend: the GPUs.
 */
#define GSAN_BACKEND_CUDA 1

/**
 * gsan_config.backend: memory and kernels on the host, without a GPU.
 */
#define GSAN_BACKEND_HOST 2

/**
 * gsan_config.handle_type: what the configuration says.
 */
#define GSAN_HANDLE_TYPE_AUTO 0

/**
 * Memory is shared by POSIX file descriptors, within one host.
 */
#define GSAN_HANDLE_TYPE_POSIX_FD 1

/**
 * Memory is shared by fabric handles, also between hosts.
 */
#define GSAN_HANDLE_TYPE_FABRIC 8

/**
 * gsan_config.halt: what the configuration says (report.on_race).
 */
#define GSAN_ON_RACE_CONFIGURED 0

/**
 * gsan_config.halt: a race is reported, and the program goes on.
 */
#define GSAN_ON_RACE_CONTINUE 1

/**
 * gsan_config.halt: a race is an error in the program.
 */
#define GSAN_ON_RACE_HALT 2

/**
 * Bit of gsan_side.action: it read.
 */
#define GSAN_ACTION_READ 1

/**
 * Bit of gsan_side.action: it wrote.
 */
#define GSAN_ACTION_WRITE 2

/**
 * Not atomic.
 */
#define GSAN_MEMORY_SCOPE_NONE 0

/**
 * Atomic among the threads of one CTA.
 */
#define GSAN_MEMORY_SCOPE_CTA 1

/**
 * Atomic among the threads of one GPU.
 */
#define GSAN_MEMORY_SCOPE_GPU 2

/**
 * Atomic among all threads of the system.
 */
#define GSAN_MEMORY_SCOPE_SYSTEM 3

/**
 * Atomic, orders nothing.
 */
#define GSAN_MEMORY_ORDER_RELAXED 1

/**
 * What was released before the value that is read comes before what follows.
 */
#define GSAN_MEMORY_ORDER_ACQUIRE 2

/**
 * What came before comes before what follows an acquire of the value that is written.
 */
#define GSAN_MEMORY_ORDER_RELEASE 3

/**
 * Acquires and releases.
 */
#define GSAN_MEMORY_ORDER_ACQ_REL 4

/**
 * The later access reads what the earlier one wrote.
 */
#define GSAN_RACE_KIND_READ_AFTER_WRITE 0

/**
 * The later access writes what the earlier one read.
 */
#define GSAN_RACE_KIND_WRITE_AFTER_READ 1

/**
 * Both write.
 */
#define GSAN_RACE_KIND_WRITE_AFTER_WRITE 2

/**
 * Write-once memory was written more than once.
 */
#define GSAN_RACE_KIND_WRITTEN_TWICE 3

/**
 * Write-once memory was read before it was written.
 */
#define GSAN_RACE_KIND_READ_UNWRITTEN 4

/**
 * An atomic access to write-once memory.
 */
#define GSAN_RACE_KIND_WRITE_ONCE_ATOMIC 5

/**
 * gsan_host_atomic: reads.
 */
#define GSAN_HOST_LOAD 1

/**
 * gsan_host_atomic: writes the operand.
 */
#define GSAN_HOST_STORE 2

/**
 * gsan_host_atomic: reads, and writes the operand.
 */
#define GSAN_HOST_EXCHANGE 3

/**
 * gsan_host_atomic: reads, and writes the operand if `compare` was read.
 */
#define GSAN_HOST_COMPARE_AND_SWAP 4

/**
 * gsan_host_atomic: adds the operand.
 */
#define GSAN_HOST_ADD 5

/**
 * gsan_host_atomic: bitwise and.
 */
#define GSAN_HOST_AND 6

/**
 * gsan_host_atomic: bitwise or.
 */
#define GSAN_HOST_OR 7

/**
 * gsan_host_atomic: bitwise exclusive or.
 */
#define GSAN_HOST_XOR 8

/**
 * gsan_host_atomic: the smaller one, unsigned.
 */
#define GSAN_HOST_MIN 9

/**
 * gsan_host_atomic: the larger one, unsigned.
 */
#define GSAN_HOST_MAX 10

/**
 * What a function has to say. Every value but GSAN_OK comes with a text: gsan_last_error().
 */
typedef enum gsan_status {
    /**
     * Done.
     */
    GSAN_OK = 0,
    /**
     * An argument is null, misaligned, out of range, of an unknown size, or stale. Nothing was done.
     */
    GSAN_INVALID_ARGUMENT = 1,
    /**
     * The configuration is fixed since its first use.
     */
    GSAN_FROZEN = 2,
    /**
     * Allocations, graphs or work are live, which the text names.
     */
    GSAN_LIVE = 3,
    /**
     * Another call must come first, or this one came already.
     */
    GSAN_WRONG_ORDER = 4,
    /**
     * This machine, backend or build cannot do it.
     */
    GSAN_UNSUPPORTED = 5,
    /**
     * Out of memory or out of addresses.
     */
    GSAN_OUT_OF_MEMORY = 6,
    /**
     * Somebody did not come in time.
     */
    GSAN_TIMEOUT = 7,
    /**
     * There is no such thing.
     */
    GSAN_NOT_FOUND = 8,
    /**
     * The driver refused or failed.
     */
    GSAN_DEVICE = 9,
    /**
     * A file or socket could not be used.
     */
    GSAN_IO = 10,
    /**
     * A fault of GSan.
     */
    GSAN_INTERNAL = 11,
} gsan_status;

/**
 * A CTA of a host kernel, within its callback.
 */
typedef struct gsan_cta gsan_cta;

/**
 * A graph whose plan is known: captured, or built by hand.
 */
typedef struct gsan_graph gsan_graph;

/**
 * A graph that is being built by hand.
 */
typedef struct gsan_graph_builder gsan_graph_builder;

/**
 * Ranks that meet.
 */
typedef struct gsan_group gsan_group;

/**
 * A launch between gsan_launch_begin() and gsan_launch_end().
 */
typedef struct gsan_launch gsan_launch;

/**
 * Processes that pass memory to each other.
 */
typedef struct gsan_rendezvous gsan_rendezvous;

/**
 * A replay of a graph between gsan_replay_begin() and gsan_replay_end().
 */
typedef struct gsan_replay gsan_replay;

/**
 * What is configured by numbers; zero leaves a field to the environment, gsan.toml or the default.
 */
typedef struct gsan_config {
    /**
     * sizeof(gsan_config).
     */
    size_t size;
    /**
     * GSAN_BACKEND_….
     */
    uint32_t backend;
    /**
     * Devices in the topology, over all processes.
     */
    uint32_t num_devices;
    /**
     * The logical rank of each local device, 0xffffffff for one that takes no part; null: as configured.
     * With `num_devices`.
     */
    const uint32_t *device_ranks;
    /**
     * How many ranks are given.
     */
    uint32_t num_local;
    /**
     * Records in a cell: 2 or 4.
     */
    uint32_t records;
    /**
     * Released clocks kept for each device.
     */
    uint32_t clock_publications;
    /**
     * The seed of sampling, used if has_seed is not 0.
     */
    uint32_t seed;
    /**
     * Whether `seed` is given.
     */
    uint32_t has_seed;
    /**
     * GSAN_HANDLE_TYPE_….
     */
    uint32_t handle_type;
    /**
     * GSAN_ON_RACE_….
     */
    uint32_t halt;
} gsan_config;

/**
 * An allocation.
 */
typedef struct gsan_allocation {
    /**
     * sizeof(gsan_allocation), set by the caller.
     */
    size_t size;
    /**
     * Its first byte.
     */
    uint64_t address;
    /**
     * Its size.
     */
    uint64_t bytes;
    /**
     * The device it is on.
     */
    uint32_t device;
    /**
     * It has shadow memory, so accesses to it are checked.
     */
    uint32_t managed;
    /**
     * Each byte may be written once.
     */
    uint32_t write_once;
} gsan_allocation;

/**
 * What is launched.
 */
typedef struct gsan_launch_info {
    /**
     * sizeof(gsan_launch_info).
     */
    size_t size;
    /**
     * The kernel's name in reports; null: unknown.
     */
    const char *kernel;
    /**
     * CTAs in x, y, z.
     */
    uint32_t grid[3];
    /**
     * Threads of a CTA in x, y, z.
     */
    uint32_t block[3];
    /**
     * Not 0: launched with the attribute for programmatic stream serialisation.
     */
    uint32_t programmatic;
    /**
     * Not 0: the kernel synchronises in ways that nobody reports; see gsan_kernel_is_opaque().
     */
    uint32_t opaque;
} gsan_launch_info;

/**
 * A CTA of a host kernel. `index`: its x, y, z in the grid. It must not throw.
 */
typedef void (*gsan_host_kernel)(struct gsan_cta *cta, const uint32_t *index, void *user);

/**
 * An allocation on its way to another process. File descriptors are the caller's, who closes them.
 */
typedef struct gsan_shared_allocation {
    /**
     * sizeof(gsan_shared_allocation), set by the caller.
     */
    size_t size;
    /**
     * The memory; -1 with fabric handles.
     */
    int real_fd;
    /**
     * Its shadow; -1 with fabric handles, and if it has none.
     */
    int shadow_fd;
    /**
     * The size that was asked for.
     */
    uint64_t bytes;
    /**
     * The size of the memory, which is rounded up.
     */
    uint64_t real_bytes;
    /**
     * The size of its shadow; 0: it has none.
     */
    uint64_t shadow_bytes;
    /**
     * The distance of the exported address from the start of the allocation.
     */
    uint64_t offset;
    /**
     * The rank of the device that it is on.
     */
    uint32_t owner_rank;
    /**
     * Records in a cell of the shadow: 2 or 4.
     */
    uint32_t records;
    /**
     * Each byte may be written once.
     */
    uint32_t write_once;
    /**
     * GSAN_HANDLE_TYPE_….
     */
    uint32_t kind;
    /**
     * The UUID of the device that it is on.
     */
    uint8_t owner[16];
    /**
     * Fabric handles of the memory and of its shadow.
     */
    uint8_t fabric[2][64];
} gsan_shared_allocation;

/**
 * A device's runtime state on its way to another process.
 */
typedef struct gsan_shared_state {
    /**
     * sizeof(gsan_shared_state), set by the caller.
     */
    size_t size;
    /**
     * The memory, the caller's to close; -1 with a fabric handle.
     */
    int fd;
    /**
     * The rank of the device.
     */
    uint32_t rank;
    /**
     * GSAN_HANDLE_TYPE_….
     */
    uint32_t kind;
    /**
     * Its size.
     */
    uint64_t bytes;
    /**
     * The UUID of the device.
     */
    uint8_t owner[16];
    /**
     * The fabric handle.
     */
    uint8_t fabric[64];
} gsan_shared_state;

/**
 * One side of a race.
 */
typedef struct gsan_side {
    /**
     * sizeof(gsan_side).
     */
    size_t size;
    /**
     * 0: who it was is forgotten; what follows says nothing then but `action`, `atomic`, `scope`, and
     * `file` and `line`.
     */
    uint32_t known;
    /**
     * GSAN_ACTION_… bits.
     */
    uint32_t action;
    /**
     * Not 0: an atomic access.
     */
    uint32_t atomic;
    /**
     * Not 0: an asynchronous copy, which was still running as far as the two knew.
     */
    uint32_t asynchronous;
    /**
     * GSAN_MEMORY_SCOPE_….
     */
    uint32_t scope;
    /**
     * The rank of its device.
     */
    uint32_t device_rank;
    /**
     * The CTA's place in the grid.
     */
    uint32_t cta[3];
    /**
     * The line in `file`; 0: unknown.
     */
    uint32_t line;
    /**
     * The number of its launch on that device.
     */
    uint64_t launch;
    /**
     * The stream of the launch.
     */
    uint64_t stream;
    /**
     * The source file; null: unknown.
     */
    const char *file;
    /**
     * The kernel's name; null: unknown.
     */
    const char *kernel;
} gsan_side;

/**
 * A race: two accesses to the same bytes that nothing orders, at least one of which writes.
 */
typedef struct gsan_race {
    /**
     * sizeof(gsan_race).
     */
    size_t size;
    /**
     * GSAN_RACE_KIND_….
     */
    uint32_t kind;
    /**
     * Not 0: synchronisation that nobody reports may order the two.
     */
    uint32_t possible;
    /**
     * The first byte that both touched.
     */
    uint64_t address;
    /**
     * How many bytes both touched.
     */
    uint64_t bytes;
    /**
     * How often it was seen between these two lines of these kernels.
     */
    uint64_t times;
    /**
     * The allocation it is in; 0: unknown.
     */
    uint64_t allocation;
    /**
     * The size of that allocation.
     */
    uint64_t allocation_bytes;
    /**
     * The access that came first.
     */
    struct gsan_side earlier;
    /**
     * The access that met it.
     */
    struct gsan_side later;
} gsan_race;

/**
 * What is called with each race in turn, until it returns other than 0. It must not throw.
 */
typedef int (*gsan_race_visitor)(const struct gsan_race *race, void *user);

/**
 * What is called with a race. Its texts live until it returns. It must not throw.
 */
typedef void (*gsan_race_callback)(const struct gsan_race *race, void *user);

/**
 * An epoch of a CTA, as a cell of the shadow remembers it.
 */
typedef struct gsan_clock_info {
    /**
     * The epoch; 0: nothing is remembered.
     */
    uint32_t epoch;
    /**
     * The number of the CTA.
     */
    uint32_t thread_id;
    /**
     * GSAN_MEMORY_SCOPE_….
     */
    uint32_t scope;
    /**
     * Not 0: it released.
     */
    uint32_t is_release;
} gsan_clock_info;

/**
 * What is remembered of 8 bytes of memory.
 */
typedef struct gsan_cell_info {
    /**
     * sizeof(gsan_cell_info), set by the caller.
     */
    size_t size;
    /**
     * Reads that are remembered.
     */
    uint32_t num_reads;
    /**
     * The newest write.
     */
    struct gsan_clock_info write_clock;
    /**
     * The reads.
     */
    struct gsan_clock_info read_clocks[4];
    /**
     * How many of read_clocks are set.
     */
    uint32_t read_count;
} gsan_cell_info;

/**
 * What is known of a CTA's place on a device.
 */
typedef struct gsan_thread_info {
    /**
     * sizeof(gsan_thread_info), set by the caller.
     */
    size_t size;
    /**
     * Its number.
     */
    uint32_t thread_id;
    /**
     * Reads it made that were sampled.
     */
    uint32_t num_reads;
    /**
     * How many such places all devices have.
     */
    uint32_t num_threads;
    /**
     * Where in the ring of released clocks the next one goes.
     */
    uint32_t clock_buffer_head;
    /**
     * Not 0: it accessed memory since its last release.
     */
    uint32_t clock_buffer_dirty;
    /**
     * Released clocks kept for the device.
     */
    uint32_t clock_buffer_size;
} gsan_thread_info;

/**
 * What is known of a device.
 */
typedef struct gsan_device_info {
    /**
     * sizeof(gsan_device_info), set by the caller.
     */
    size_t size;
    /**
     * Its multiprocessors.
     */
    uint32_t num_sms;
    /**
     * Places of CTAs on all devices.
     */
    uint32_t num_threads;
    /**
     * Devices in the topology.
     */
    uint32_t num_devices;
    /**
     * The seed of sampling.
     */
    uint32_t rng_seed;
    /**
     * Released clocks kept for the device.
     */
    uint32_t clock_buffer_size;
} gsan_device_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of this interface that the library has. A program that was built with another
 * GSAN_ABI_VERSION than this does not go with it.
 */
uint32_t gsan_abi_version(void);

/**
 * The version of GSan, as text.
 */
const char *gsan_version(void);

/**
 * Why this thread's last call failed: what was wrong, where, and what would be right. An empty text if
 * it did not. It lives until this thread's next call; this function, gsan_version() and
 * gsan_abi_version() do not count.
 */
const char *gsan_last_error(void);

/**
 * Configures by numbers. Calls win over the environment (GSAN_SECTION_KEY), which wins over gsan.toml,
 * which wins over the defaults; of several calls the last one wins, key by key. Refused as a whole if
 * anything in it is wrong. GSAN_FROZEN after the first use of anything but configuration.
 */
enum gsan_status gsan_configure(const struct gsan_config *config);

/**
 * Configures by text: TOML with the keys of gsan.toml.
 */
enum gsan_status gsan_configure_toml(const char *toml);

/**
 * The configuration that holds, as TOML, with the origin of each value in a comment.
 *
 * Texts are returned so: `*bytes` says how much room there is at `text`, and after the call how many
 * bytes are needed, the zero byte included. With `text` null nothing is written, and the call only
 * asks. GSAN_INVALID_ARGUMENT if there is too little room.
 */
enum gsan_status gsan_configuration(char *text,
                                    size_t *bytes);

/**
 * Starts the session, which fixes the configuration. Any use does it, too.
 */
enum gsan_status gsan_freeze(void);

/**
 * Whether the configuration is fixed: `*frozen` is 1 or 0.
 */
enum gsan_status gsan_is_frozen(int *frozen);

/**
 * Puts everything back to the start: no session, the configuration that of environment and file. Races
 * that were found stay found. GSAN_LIVE with allocations, graphs or running work, which the text names;
 * nothing changes then.
 */
enum gsan_status gsan_reset(void);

/**
 * Allocates memory on a device, with shadow memory, so that accesses to it are checked. Where only the
 * shadow cannot be had, the memory is handed out unchecked, and counted. Null when there is no memory,
 * with the reason in gsan_last_error(); null without a reason for 0 bytes.
 */
void *gsanMalloc(ptrdiff_t bytes,
                 int device,
                 void *stream);

/**
 * The same, of memory in which each byte may be written once: a second write, a read before the write,
 * and atomics are reported.
 */
void *gsanMallocWriteOnce(ptrdiff_t bytes,
                          int device,
                          void *stream);

/**
 * Gives memory back: at once for the program, for the device when `stream` has come this far. Bytes 0:
 * not known. What is not live, is no start of an allocation, or has another size or device is refused:
 * nothing changes, and gsan_last_error() says why. Null is nothing.
 */
void gsanFree(void *address,
              ptrdiff_t bytes,
              int device,
              void *stream);

/**
 * The reservation of addresses that managed memory and its shadow lie in.
 */
enum gsan_status gsan_reserve(uint64_t *base, uint64_t *bytes);

/**
 * Where the runtime state of rank 0 lies; that of rank r lies r * gsan_state_stride() behind it. Kernels
 * take the address of their own device's as first argument of gsan::Kernel.
 */
enum gsan_status gsan_state_pointer(uint64_t *base);

/**
 * Distance between the runtime states of neighbouring ranks, in bytes.
 */
uint64_t gsan_state_stride(void);

/**
 * The rank of a local device in the topology.
 */
enum gsan_status gsan_device_rank(int device, uint32_t *rank);

/**
 * The allocations that are live. `*count` says how many `out` has room for, and after the call how many
 * there are; `out` may be null to ask. The size field of the first one must be set, and holds for all.
 * If there are more than there is room for, the first ones are written.
 */
enum gsan_status gsan_live_allocations(struct gsan_allocation *out,
                                       size_t *count);

/**
 * The live allocation that holds an address. GSAN_NOT_FOUND if none does.
 */
enum gsan_status gsan_find_allocation(uint64_t address, struct gsan_allocation *out);

/**
 * How the runtime state of this configuration is laid out, as JSON: version, offsets, sizes. For the
 * form of texts see gsan_configuration().
 */
enum gsan_status gsan_layout(char *json,
                             size_t *bytes);

/**
 * Whether a device can share memory by fabric handles: `*yes` is 1 or 0.
 */
enum gsan_status gsan_supports_fabric(int device, int *yes);

/**
 * What was checked and what was lost, as JSON: memory, launches, accesses, losses of coverage.
 */
enum gsan_status gsan_usage(char *json, size_t *bytes);

/**
 * The device library as LLVM bitcode, for compilers that link it into kernels. `records`: 2 or 4.
 * `by_sm` not 0: the variant without shared memory of its own. The bytes live as long as the process.
 */
enum gsan_status gsan_device_library(uint32_t records,
                                     uint32_t by_sm,
                                     const void **bitcode,
                                     size_t *bytes);

/**
 * What of this machine works, as JSON: driver, devices, peers, addresses, fabric handles. What is missing
 * says why. Starts nothing.
 */
enum gsan_status gsan_doctor(char *json,
                             size_t *bytes);

/**
 * Begins a launch: chooses what it starts after. From here to gsan_launch_end() the stream is this
 * thread's; in between the program launches the kernel, and hands it `*table` and `*index` (with the
 * address of the device's runtime state: gsan::Kernel's arguments). If they are 0, the kernel runs
 * unchecked.
 *
 * `stream` is the CUstream (0 and 1: the legacy default stream, 2: the thread's own), or a stream of the
 * host backend; streams become known at their first use. While the stream is captured, the launch
 * becomes a node of the graph.
 *
 * Calls about the stream by other threads wait for the end. Two threads that wait for each other so are
 * told it by GSAN_WRONG_ORDER, and so is who waits for a thread that has ended; after ten minutes
 * GSAN_TIMEOUT says who keeps the stream.
 */
enum gsan_status gsan_launch_begin(int device,
                                   void *stream,
                                   const struct gsan_launch_info *info,
                                   struct gsan_launch **launch,
                                   uint64_t *table,
                                   uint64_t *index);

/**
 * Ends a launch: `submitted` not 0 if the kernel was given to the stream, 0 if that failed. The handle is
 * gone, whatever is returned.
 */
enum gsan_status gsan_launch_end(struct gsan_launch *launch,
                                 int submitted);

/**
 * Whether a kernel that Triton instrumented synchronises in ways that nobody reports: `*opaque` is 1 or 0,
 * and `why` says how. `ir` is Triton's intermediate representation of it (ttir or ttgir). For the form of
 * `why` and `bytes` see gsan_configuration(); both may be null.
 */
enum gsan_status gsan_kernel_is_opaque(const char *ir,
                                       int *opaque,
                                       char *why,
                                       size_t *bytes);

/**
 * An event was recorded on a stream. Call it after the CUDA call; during capture too. On the host backend,
 * which has no CUDA, this and the functions below also record, wait and synchronise.
 */
enum gsan_status gsan_event_recorded(uint64_t event,
                                     int device,
                                     void *stream);

/**
 * A stream waits for an event. Call it after the CUDA call; during capture too. An event that nobody
 * has recorded orders nothing.
 */
enum gsan_status gsan_event_waited(uint64_t event,
                                   int device,
                                   void *stream);

/**
 * An event was destroyed.
 */
enum gsan_status gsan_event_forgotten(uint64_t event);

/**
 * The host has waited for an event, or a query said that it is done. Call it after that.
 */
enum gsan_status gsan_event_synchronized(uint64_t event);

/**
 * A stream waits for all that another one was given so far: an event recorded on one and waited for on
 * the other.
 */
enum gsan_status gsan_stream_waited(int device,
                                    void *waiting,
                                    void *awaited);

/**
 * The host has waited for a stream, or a query said that it is done. Call it after that.
 */
enum gsan_status gsan_stream_synchronized(int device, void *stream);

/**
 * A stream is about to be destroyed: another one may get its handle. GSAN_WRONG_ORDER while a launch or a
 * replay on it was begun and not ended.
 */
enum gsan_status gsan_stream_forgotten(int device,
                                       void *stream);

/**
 * The host has waited for a device. Call it after that.
 */
enum gsan_status gsan_device_synchronized(int device);

/**
 * Memory of an allocator on top of gsanMalloc() is used on a stream other than the one that it was handed
 * out to: whoever gets it after it was freed starts after what that stream does until then.
 */
enum gsan_status gsan_memory_used(uint64_t address,
                                  uint64_t bytes,
                                  int device,
                                  void *stream);

/**
 * Such memory was freed by the program.
 */
enum gsan_status gsan_memory_freed(uint64_t address);

/**
 * Such memory was handed out to a stream.
 */
enum gsan_status gsan_memory_handed_out(uint64_t address, uint64_t bytes, int device, void *stream);

/**
 * Which capture a stream takes part in; 0: none. It is the id of cuStreamGetCaptureInfo.
 */
enum gsan_status gsan_capture_id(int device, void *stream, uint64_t *id);

/**
 * A capture has ended: its launches, records and waits are a graph now. GSAN_NOT_FOUND if there were
 * none.
 */
enum gsan_status gsan_capture_ended(int device,
                                    uint64_t capture_id,
                                    struct gsan_graph **graph);

/**
 * A capture has ended, and there is no graph of it: it was invalidated, or its graph thrown away.
 */
enum gsan_status gsan_capture_abandoned(int device, uint64_t capture_id);

/**
 * Begins a replay of a graph. From here to gsan_replay_end() the stream is this thread's; in between the
 * program launches the graph. While the stream is captured, a copy of the graph becomes part of the new one;
 * see gsan_graph_copy().
 */
enum gsan_status gsan_replay_begin(struct gsan_graph *graph,
                                   int device,
                                   void *stream,
                                   struct gsan_replay **replay);

/**
 * On the host backend, which has no graphs of its own: launches a function as a kernel of the graph, between
 * the begin and the end of a replay. Call it once for each kernel, in an order and on streams that go with
 * the graph's edges; gsan_event_recorded() and gsan_event_waited() order streams. `node` is the kernel's
 * number; nodes of another graph that was added have the numbers right before that of the node that stands
 * for it.
 */
enum gsan_status gsan_host_replay(struct gsan_replay *replay,
                                  void *stream,
                                  uint32_t node,
                                  gsan_host_kernel kernel,
                                  void *user);

/**
 * Ends a replay: `submitted` not 0 if the graph was given to the stream. The handle is gone, whatever is
 * returned.
 */
enum gsan_status gsan_replay_end(struct gsan_replay *replay,
                                 int submitted);

/**
 * Gives a graph up, when no replay of it runs any more. GSAN_LIVE if one does: the handle stays then.
 */
enum gsan_status gsan_graph_close(struct gsan_graph *graph);

/**
 * Begins a graph that is built by hand, with cuGraphAdd…Node for instance. Nodes are numbered from 0 in
 * the order in which they are added, and depend on earlier ones.
 */
enum gsan_status gsan_graph_begin(int device,
                                  struct gsan_graph_builder **builder);

/**
 * Adds a kernel, which gets `*table` and `*index` at every replay. `programmatic`: dependencies by
 * programmatic edges, which `dependencies` must not list.
 */
enum gsan_status gsan_graph_kernel(struct gsan_graph_builder *builder,
                                   const uint32_t *dependencies,
                                   size_t count,
                                   const uint32_t *programmatic,
                                   size_t programmatic_count,
                                   const struct gsan_launch_info *info,
                                   uint32_t *node,
                                   uint64_t *table,
                                   uint64_t *index);

/**
 * Adds a node that is no kernel of ours: a copy, a memset, another kernel.
 */
enum gsan_status gsan_graph_other(struct gsan_graph_builder *builder,
                                  const uint32_t *dependencies,
                                  size_t count,
                                  uint32_t *node);

/**
 * Adds a node that records an event.
 */
enum gsan_status gsan_graph_record(struct gsan_graph_builder *builder,
                                   const uint32_t *dependencies,
                                   size_t count,
                                   uint64_t event,
                                   uint32_t *node);

/**
 * Adds a node that waits for an event.
 */
enum gsan_status gsan_graph_wait(struct gsan_graph_builder *builder,
                                 const uint32_t *dependencies,
                                 size_t count,
                                 uint64_t event,
                                 uint32_t *node);

/**
 * Adds another graph that is built by hand as a node. The child's handle is gone, unless it or the builder's is none.
 */
enum gsan_status gsan_graph_child(struct gsan_graph_builder *builder,
                                  const uint32_t *dependencies,
                                  size_t count,
                                  struct gsan_graph_builder *child,
                                  uint32_t *node);

/**
 * Adds a copy of a graph that can be replayed already, as cuGraphAddChildGraphNode() does with one that was
 * captured. The graph stays as it is. If a kernel is in the new graph more than once, it is unchecked
 * there.
 */
enum gsan_status gsan_graph_copy(struct gsan_graph_builder *builder,
                                 const uint32_t *dependencies,
                                 size_t count,
                                 struct gsan_graph *graph,
                                 uint32_t *node);

/**
 * Ends the building. The builder's handle is gone, whatever is returned.
 */
enum gsan_status gsan_graph_finish(struct gsan_graph_builder *builder, struct gsan_graph **graph);

/**
 * Opens the group of these ranks, the device's own among them, in the same order for all. Their states
 * must have been imported.
 */
enum gsan_status gsan_group_open(int device,
                                 const uint32_t *ranks,
                                 size_t count,
                                 struct gsan_group **group);

/**
 * All that any rank's stream was given before comes before all that any is given after. Returns when all
 * have come. GSAN_TIMEOUT names those that did not come in time; timeout_ms 0: ten minutes.
 */
enum gsan_status gsan_group_barrier(struct gsan_group *group,
                                    void *stream,
                                    uint32_t timeout_ms);

/**
 * A collective of the group's ranks is about to be put into the stream.
 *
 * If the stream is captured, races of the graph's kernels are possible ones from now on: what the collective
 * orders inside of the graph is not known. Call this before each replay and gsan_group_after_collective()
 * after it, so that what comes before and after the replay is ordered.
 */
enum gsan_status gsan_group_before_collective(struct gsan_group *group,
                                              void *stream);

/**
 * The collective was put into the stream.
 */
enum gsan_status gsan_group_after_collective(struct gsan_group *group, void *stream);

/**
 * Leaves the group.
 */
void gsan_group_close(struct gsan_group *group);

/**
 * Exports the allocation that holds an address, with its shadow. The caller closes the descriptors.
 */
enum gsan_status gsan_export_allocation(uint64_t address, struct gsan_shared_allocation *out);

/**
 * Maps what another process exported, for a device of this one. The descriptors stay the caller's. Of the
 * structure `records`, `real_bytes`, `shadow_bytes` and `owner` may be 0, if both processes have the same
 * configuration.
 * `*address` is where the exported address lies here; gsanFree() with the start of the allocation
 * unmaps it.
 */
enum gsan_status gsan_import_allocation(const struct gsan_shared_allocation *shared,
                                        int device,
                                        uint64_t *address);

/**
 * Exports the runtime state of a device. The caller closes the descriptor.
 */
enum gsan_status gsan_export_state(int device, struct gsan_shared_state *out);

/**
 * Maps the runtime state of another process's device. The descriptor stays the caller's.
 */
enum gsan_status gsan_import_state(const struct gsan_shared_state *shared, int device);

/**
 * Meets the other processes of a group on this host. All of them give the same name and size, and a
 * rank of their own below it. timeout_ms holds for this and for every later call with the rendezvous;
 * 0: ten minutes.
 *
 * The processes agree on the ranks of their devices: those that are configured or in use stay, the others
 * follow from the UUIDs of all GPUs that the processes see, if this is called before the first use. It is
 * an error for two GPUs to have the same rank.
 */
enum gsan_status gsan_rendezvous_join(const char *name,
                                      uint32_t rank,
                                      uint32_t size,
                                      uint32_t timeout_ms,
                                      struct gsan_rendezvous **out);

/**
 * Everybody exports an allocation and its device's state, and imports those of the others. addresses
 * has room for as many as the group has ranks: each rank's memory as it is mapped here, the own one
 * included. Called by all ranks. It is an error for two processes to use one device rank: a GPU that is
 * to play two devices is given a rank in each process (topology.device_ranks).
 */
enum gsan_status gsan_rendezvous_share(struct gsan_rendezvous *rendezvous,
                                       uint64_t address,
                                       int device,
                                       uint64_t *addresses);

/**
 * Everybody gives some bytes, as many each, and gets those of all, in the order of ranks. Called by all
 * ranks.
 */
enum gsan_status gsan_rendezvous_exchange(struct gsan_rendezvous *rendezvous,
                                          const void *mine,
                                          size_t bytes,
                                          void *all);

/**
 * Leaves the group. What was imported stays.
 */
void gsan_rendezvous_close(struct gsan_rendezvous *rendezvous);

/**
 * How many distinct races were found, wrong uses of write-once memory among them, and how many possible
 * races; those that are kept, so at most `report.limit` of each. Either may be null.
 */
enum gsan_status gsan_race_count(uint64_t *races,
                                 uint64_t *possible);

/**
 * Calls back with each distinct race, then with wrong uses of write-once memory, then with possible
 * races, until the callback returns other than 0.
 */
enum gsan_status gsan_races(gsan_race_visitor callback, void *user);

/**
 * Calls back with each distinct race when it is first seen, from whichever thread takes it in; null: no
 * more. When this returns, the callback from before is not running and will not run any more, but for the
 * one that calls this. The callback may call GSan, but must not wait for a thread that does: that thread
 * may be waiting for it.
 */
enum gsan_status gsan_on_race(gsan_race_callback callback,
                              void *user);

/**
 * Waits for the devices, and takes in what they found.
 */
enum gsan_status gsan_drain(void);

/**
 * Forgets the races that were found so far: they are not counted, shown or reported any more.
 */
enum gsan_status gsan_forget_races(void);

/**
 * The report so far. `format`: "human", "json" or "sarif". For the form of `text` and `bytes` see
 * gsan_configuration(); between two calls the report may grow.
 */
enum gsan_status gsan_report(const char *format, char *text, size_t *bytes);

/**
 * Writes the report so far to a file, which appears as a whole. One that is there keeps its mode;
 * symbolic links are followed; what is no ordinary file, such as "/dev/stdout", is written to.
 * `path` need not be UTF-8.
 */
enum gsan_status gsan_write_report(const char *format, const char *path);

/**
 * Takes in what was found and, unless `gsan run` does so, writes the files that the configuration asks
 * for. Done at exit, too; may be called again.
 */
enum gsan_status gsan_finish(void);

/**
 * Makes a stream of the host backend. `blocking` not 0: it waits for the default stream, and that for it,
 * as streams of cudaStreamCreate do.
 */
enum gsan_status gsan_host_stream_create(int device,
                                         int blocking,
                                         void **stream);

/**
 * Gives a stream up, when all it was given is done. GSAN_WRONG_ORDER while a launch or a replay on it was
 * begun and not ended.
 */
enum gsan_status gsan_host_stream_destroy(int device,
                                          void *stream);

/**
 * Waits for a stream, which orders what follows after it.
 */
enum gsan_status gsan_host_stream_synchronize(int device, void *stream);

/**
 * A number for an event, which no other event has: for gsan_event_recorded() and the like.
 */
enum gsan_status gsan_host_event_create(uint64_t *event);

/**
 * Launches a function as a kernel, with its begin and end: it is called for each CTA of the grid, from a
 * thread of GSan, in the order of the stream. CTAs take turns; the seed of the configuration decides
 * whose it is. Returns at once.
 */
enum gsan_status gsan_host_launch(int device,
                                  void *stream,
                                  const struct gsan_launch_info *info,
                                  gsan_host_kernel kernel,
                                  void *user);

/**
 * A CTA reads memory: the access is checked, and made. `file`: null for unknown.
 */
enum gsan_status gsan_host_read(struct gsan_cta *cta,
                                uint64_t address,
                                void *to,
                                size_t bytes,
                                const char *file,
                                uint32_t line);

/**
 * A CTA writes memory: the access is checked, and made. `file`: null for unknown.
 */
enum gsan_status gsan_host_write(struct gsan_cta *cta,
                                 uint64_t address,
                                 const void *from,
                                 size_t bytes,
                                 const char *file,
                                 uint32_t line);

/**
 * An atomic access of a CTA to 1, 2, 4 or 8 bytes, at a multiple of that. `operation`: GSAN_HOST_…; `order`:
 * GSAN_MEMORY_ORDER_…; `scope`: GSAN_MEMORY_SCOPE_…. `*old`, which may be null, is what was there;
 * `compare` is for GSAN_HOST_COMPARE_AND_SWAP. Others get a turn before it, so that CTAs may wait for
 * each other in a loop of atomics.
 */
enum gsan_status gsan_host_atomic(struct gsan_cta *cta,
                                  uint32_t operation,
                                  uint64_t address,
                                  size_t bytes,
                                  uint64_t operand,
                                  uint64_t compare,
                                  uint64_t *old,
                                  uint32_t order,
                                  uint32_t scope,
                                  const char *file,
                                  uint32_t line);

/**
 * A CTA of a kernel that was launched as a programmatic dependent launch waits for the launch before it, as
 * griddepcontrol.wait does. A kernel that does not is not ordered after that launch. Of others it does
 * nothing.
 */
enum gsan_status gsan_host_grid_dependency_wait(struct gsan_cta *cta);

/**
 * What is remembered of the 8 bytes that hold an address. GSAN_NOT_FOUND outside of managed memory.
 */
enum gsan_status gsan_cell_at(uint64_t address, struct gsan_cell_info *out);

/**
 * What is known of a CTA's place on a device. `*entries` says how many `vector_clock` has room for, and
 * after the call how many there are; both may be null.
 */
enum gsan_status gsan_thread_state_at(int device,
                                      uint32_t thread_id,
                                      struct gsan_thread_info *out,
                                      uint32_t *vector_clock,
                                      size_t *entries);

/**
 * What is known of a device.
 */
enum gsan_status gsan_global_state_of(int device, struct gsan_device_info *out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GSAN_H */
