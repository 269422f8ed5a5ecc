/* Memory that the GSan host library and device code share.
 *
 * Written by `cargo xtask header` from gsan-core/src/layout: do not edit.
 * C11, C++17 and CUDA C++.
 */
#ifndef GSAN_LAYOUT_H
#define GSAN_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define GSAN_STATIC_ASSERT(condition) static_assert(condition, #condition)
#define GSAN_ALIGNED(bytes) alignas(bytes)
#else
#define GSAN_STATIC_ASSERT(condition) _Static_assert(condition, #condition)
#define GSAN_ALIGNED(bytes) _Alignas(bytes)
#endif

/* Fields of a word of a cell. */

/* Lowest bit of the thread id. */
#define GSAN_RECORD_THREAD_SHIFT 0u
/* Bits of the thread id. */
#define GSAN_RECORD_THREAD_BITS 16u
/* Lowest bit of the byte mask. */
#define GSAN_RECORD_MASK_SHIFT 16u
/* Bits of the byte mask. */
#define GSAN_RECORD_MASK_BITS 8u
/* Lowest bit of the scope. */
#define GSAN_RECORD_SCOPE_SHIFT 24u
/* Bits of the scope. */
#define GSAN_RECORD_SCOPE_BITS 2u
/* The bit that tells a sync record. */
#define GSAN_RECORD_SYNC_SHIFT 26u
/* The bit that tells a write. */
#define GSAN_RECORD_WRITE_SHIFT 27u
/* Lowest bit of the site. */
#define GSAN_RECORD_SITE_SHIFT 28u
/* Bits of the site. */
#define GSAN_RECORD_SITE_BITS 12u
/* Lowest bit of the epoch. */
#define GSAN_RECORD_EPOCH_SHIFT 40u
/* Bits of the epoch. */
#define GSAN_RECORD_EPOCH_BITS 24u
/* Lowest bit of the token of a sync record. */
#define GSAN_RECORD_TOKEN_SHIFT 27u
/* Bits of the token of a sync record. */
#define GSAN_RECORD_TOKEN_BITS 37u

/* Scopes in a record. */

/* An ordinary access. */
#define GSAN_SCOPE_NOT_ATOMIC 0u
/* Atomic among the threads of one CTA. */
#define GSAN_SCOPE_CTA 1u
/* Atomic among the threads of one device. */
#define GSAN_SCOPE_GPU 2u
/* Atomic among all threads. */
#define GSAN_SCOPE_SYS 3u

/* The hash that decides which readers a full cell keeps. */

/* Multiplies the high half of the index of a pair of granules. */
#define GSAN_HASH_PAIR_MULTIPLIER 0x9e3779b1u
/* Multiplies the thread id. */
#define GSAN_HASH_THREAD_MULTIPLIER 0x85ebca77u
/* Multiplies the epoch. */
#define GSAN_HASH_EPOCH_MULTIPLIER 0xc2b2ae3du
/* First multiplier of the mixing. */
#define GSAN_HASH_MIX_MULTIPLIER_1 0x7feb352du
/* Second multiplier of the mixing. */
#define GSAN_HASH_MIX_MULTIPLIER_2 0x846ca68bu
/* Shift before the first multiplication. */
#define GSAN_HASH_MIX_SHIFT_1 16u
/* Shift between the multiplications. */
#define GSAN_HASH_MIX_SHIFT_2 15u
/* Shift after the second multiplication. */
#define GSAN_HASH_MIX_SHIFT_3 16u

/* Clock entries and clocks. */

/* Bits of the span of a clock entry; the epoch lies above it. */
#define GSAN_CLOCK_SPAN_BITS 8u
/* The span that covers all epochs up to the entry's. */
#define GSAN_CLOCK_SPAN_ALL 255u
/* The last epoch of a thread id. */
#define GSAN_CLOCK_EPOCH_MAX 0xffffffu
/* In the state of a ring entry: its writer is still at work. The index plus 1 lies above;
 * all of it is 0 before the first use.
 */
#define GSAN_CLOCK_WRITING UINT64_C(0x1)
/* The most publications a ring may have. */
#define GSAN_CLOCK_MAX_PUBLICATIONS 0x100000u
/* How many checkpoints are kept: two laps of sixteenths of the publication ring. */
#define GSAN_CLOCK_CHECKPOINTS 32u
/* Lowest bit of the device rank in the name of a checkpoint; its index plus 1 lies below. */
#define GSAN_CLOCK_CHECKPOINT_DEVICE_SHIFT 16u
/* How many entries of a snapshot are read before its state is looked at again. */
#define GSAN_CLOCK_SNAPSHOT_CHUNK 32u

/* Flags of a launch. */

/* Launched with the programmatic attribute: it starts with its predecessor's own
 * starting frontier.
 */
#define GSAN_LAUNCH_DEPENDENT 1u
/* Its kernel contains synchronisation nobody reports. */
#define GSAN_LAUNCH_OPAQUE 2u
/* Its bank is shared with another stream. */
#define GSAN_LAUNCH_SHARED_BANK 4u
/* Part of a graph. */
#define GSAN_LAUNCH_GRAPH 8u
/* Of the rows carried over: the frontier's. */
#define GSAN_LAUNCH_FRONTIER_CARRIED 0x80000000u
/* In cluster: all CTAs of the launch count as one cluster. */
#define GSAN_LAUNCH_ONE_CLUSTER 0xffffffffu
/* In the launch index that a kernel is given, the lowest bit of the launch's number plus
 * 1, or of 0 where it is not known beforehand (graphs); below lies the entry of the table
 * of descriptors.
 */
#define GSAN_LAUNCH_INDEX_NUMBER_SHIFT 32u

/* Flags and words of a resident CTA. */

/* It found no slot and runs unchecked. */
#define GSAN_THREAD_NO_SLOT 1u
/* Everything counts as ordered before it until it exits. */
#define GSAN_THREAD_EVERYTHING 2u
/* It waited for the predecessor of its launch. */
#define GSAN_THREAD_WAITED 4u
/* Its clock changed since its last snapshot. */
#define GSAN_THREAD_CHANGED 8u
/* It saw more sync words than are kept. */
#define GSAN_THREAD_OVERFLOWED 16u
/* It made a fence that is not followed: whatever it writes by atomics releases. */
#define GSAN_THREAD_FENCED 32u
/* How many sync words are kept that were acquired. */
#define GSAN_THREAD_ACQUIRED 4u
/* How many sync words are kept that relaxed reads saw. */
#define GSAN_THREAD_SEEN 8u
/* How many entries are kept that were looked up beyond the own bank's row of the frontier. */
#define GSAN_THREAD_KNOWN 4u
/* In published: there is a publication. */
#define GSAN_THREAD_PUBLISHED UINT64_C(0x2000000000000000)
/* In published: the publication stands in the ring. */
#define GSAN_THREAD_PUBLISHED_SAID UINT64_C(0x4000000000000000)
/* Lowest bit of the epoch in published; the token lies below. */
#define GSAN_THREAD_PUBLISHED_EPOCH_SHIFT 37u
/* In the snapshot of a frontier: it was made; the low bits of its index lie below, 0 if
 * nothing is in it.
 */
#define GSAN_THREAD_FRONTIER_MADE UINT64_C(0x100000000)
/* Lowest bit, in the snapshot of a frontier, of the launches overtaken that it includes. */
#define GSAN_THREAD_FRONTIER_TAKEN_SHIFT 33u
/* In acquired: there is an entry. It lies at its publisher, modulo. */
#define GSAN_THREAD_ACQUIRED_VALID UINT64_C(0x8000000000000000)
/* In acquired: the publication stood in the ring, and is not joined, or there are no other devices. */
#define GSAN_THREAD_ACQUIRED_PLAIN UINT64_C(0x4000000000000000)
/* Lowest bit of the token in acquired; the publisher lies below. */
#define GSAN_THREAD_ACQUIRED_TOKEN_SHIFT 16u

/* The history. */

/* Lowest bit of the launch's number, below the epoch. */
#define GSAN_HISTORY_LAUNCH_SHIFT 8u
/* The position in the grid, below the epoch. */
#define GSAN_HISTORY_COORDINATES_MASK UINT64_C(0xffffffffff)
/* Lowest bit of the epoch of the start. */
#define GSAN_HISTORY_START_SHIFT 40u

/* The event of an atomic access. */

/* Bits of the offset in real memory; the state region lies above. */
#define GSAN_EVENT_OFFSET_BITS 46u
/* Bits of the address of a state region below which it is 0. */
#define GSAN_EVENT_REGION_SHIFT 30u
/* Lowest bit of the place of the announcement. */
#define GSAN_EVENT_PLACE_SHIFT 62u
/* The most bytes of an access that is checked. */
#define GSAN_EVENT_MAX_BYTES 8u

/* Meetings. */

/* Bits of the arrivals that complete a phase. Above lie as many of the arrivals still missing, then
 * how many phases are complete.
 */
#define GSAN_MEETING_COUNT_BITS 20u
/* In the key of an mbarrier, the lowest bit of the owner's rank; the shared address lies below. */
#define GSAN_MEETING_OWNER_SHIFT 24u

/* Numbers in a race entry. */

/* Kind: the later access reads what the earlier one wrote. */
#define GSAN_RACE_READ_AFTER_WRITE 0u
/* Kind: the later access writes what the earlier one read. */
#define GSAN_RACE_WRITE_AFTER_READ 1u
/* Kind: both write. */
#define GSAN_RACE_WRITE_AFTER_WRITE 2u
/* Kind: a second write to write-once memory. */
#define GSAN_RACE_WRITTEN_TWICE 3u
/* Kind: a read of write-once memory before its first write. */
#define GSAN_RACE_READ_UNWRITTEN 4u
/* Kind: an atomic on write-once memory. */
#define GSAN_RACE_WRITE_ONCE_ATOMIC 5u
/* Flag of an entry: an opaque launch may have ordered the two. */
#define GSAN_RACE_POSSIBLE 1u
/* Flag of a side: launch and CTA are not known any more. */
#define GSAN_RACE_FORGOTTEN 1u
/* Flag of a side: an asynchronous copy. */
#define GSAN_RACE_ASYNCHRONOUS 2u
/* Action of a side: it read. */
#define GSAN_RACE_READ 1u
/* Action of a side: it wrote. With GSAN_RACE_READ: an atomic that does both. */
#define GSAN_RACE_WRITE 2u

/* Numbers of a site. */

/* Flag: clusters copied tensors here, whose parts any CTA of the cluster may have moved. */
#define GSAN_SITE_CLUSTER_COPY 1u

/* The state region. */

/* The version of the layout; processes that share memory must agree. */
#define GSAN_STATE_VERSION 7u
/* First word of a state region: "GSAN" and the version would differ in every other use. */
#define GSAN_STATE_MAGIC 0x4753414eu
/* How many units of 16 bytes of real memory a tile of shadow memory has. */
#define GSAN_STATE_TILE 8u
/* The most devices a topology may have. */
#define GSAN_STATE_MAX_DEVICES 32u
/* How many starts of CTAs the history keeps of each thread id. */
#define GSAN_STATE_HISTORY 16u
/* How many launch states there are; a descriptor uses the one of its number, modulo. */
#define GSAN_STATE_LAUNCHES 0x1000u
/* How many sites there are, the unknown site 0 included. */
#define GSAN_STATE_SITES 0x1000u
/* Bytes for the file names of sites. */
#define GSAN_STATE_SITE_TEXT_BYTES 0x100000u
/* How many kernels have names. */
#define GSAN_STATE_KERNELS 0x1000u
/* Bytes for the names of kernels. */
#define GSAN_STATE_KERNEL_TEXT_BYTES 0x100000u
/* How many words map kernel, file pointer and line to a site; a power of two. */
#define GSAN_STATE_SITE_KEYS 0x2000u
/* How many words count races that are alike; a power of two. */
#define GSAN_STATE_RACE_FILTER 0x1000u
/* Bytes from the state region of one device to that of the next. */
#define GSAN_STATE_STRIDE UINT64_C(0x40000000)
/* Flag: an overrun of a ring ends the program. */
#define GSAN_STATE_HALT_ON_OVERRUN 1u
/* Flag: a race ends the program. */
#define GSAN_STATE_HALT_ON_RACE 2u

/* Steps of the host in streams. */

/* Merges count clock entries from source into target. */
#define GSAN_STEP_MERGE 0u
/* Copies count words of 64 bits. */
#define GSAN_STEP_COPY 1u
/* Zeroes count words of 32 bits. */
#define GSAN_STEP_ZERO 2u
/* Counts up from value in count words of 32 bits, stride bytes apart. */
#define GSAN_STEP_COUNT 3u
/* Stores value, a u32, after everything before: a system-scope release. */
#define GSAN_STEP_ARRIVE 4u
/* Waits for count ranks: at source there are pairs of u64, a rank and the address of its
 * u32. Ranks that have not come to value after limit get a bit in the u32 at target,
 * and the steps after this one are left out.
 */
#define GSAN_STEP_AWAIT 5u

/* Limits that were met, by number. */

#define GSAN_LOSS_NO_SLOT 0u
#define GSAN_LOSS_SHARED_BANK 1u
#define GSAN_LOSS_PRIVATE_POOL_EMPTY 2u
#define GSAN_LOSS_OUTSIDE_CLOCK 3u
#define GSAN_LOSS_PUBLICATION_OVERRUN 4u
#define GSAN_LOSS_SNAPSHOT_OVERRUN 5u
#define GSAN_LOSS_TOP_RELEASE 6u
#define GSAN_LOSS_WORN_EPOCH 7u
#define GSAN_LOSS_WORN_TOKEN 8u
#define GSAN_LOSS_SITE_TABLE_FULL 9u
#define GSAN_LOSS_HISTORY_OVERWRITTEN 10u
#define GSAN_LOSS_RACE_RING_FULL 11u
#define GSAN_LOSS_READ_NOT_SAMPLED 12u
#define GSAN_LOSS_WRITE_EVICTED 13u
#define GSAN_LOSS_FAILED_RELEASE 14u
#define GSAN_LOSS_UNMANAGED 15u
#define GSAN_LOSS_NOT_INSTRUMENTED 16u
#define GSAN_LOSS_BARRIER_MISMATCH 17u
#define GSAN_LOSS_NEVER_WAITED 18u
#define GSAN_LOSS_OPAQUE_LAUNCH 19u
#define GSAN_LOSS_UNMANAGED_ATOMIC 20u
#define GSAN_LOSS_UNCHECKED_LAUNCH 21u
#define GSAN_LOSS_COUNT 22u

/* One released clock. A reader looks at the state before and after it reads the rest. */
struct gsan_publication {
    /* The token plus 1, shifted left by one, and GSAN_CLOCK_WRITING. */
    GSAN_ALIGNED(32) uint64_t state;
    /* The publisher's own epochs that are released: a clock entry. */
    uint32_t entry;
    /* The publisher's thread id. */
    uint16_t publisher;
    /* 1: it contains another release sequence, so that knowing the publisher's epochs is not
     * enough to skip it.
     */
    uint16_t joined;
    /* The low bits of the index of the snapshot of what the publisher knew beyond its frontier; 0:
     * nothing.
     */
    uint32_t snapshot;
    /* The low bits of the index of the snapshot of the launch's frontier; 0: nothing is in it. */
    uint32_t frontier;
    /* The number of the launch on the publisher's device. */
    uint32_t launch;
    /* Which of the overtaken launches the publisher knew to be complete, a bit each. */
    uint32_t taken;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_publication) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, state) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, entry) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, publisher) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, joined) == 14);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, snapshot) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, frontier) == 20);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, launch) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, taken) == 28);

/* The entries of one bank in a clock. */
struct gsan_segment {
    /* How many entries, from slot 0, are held; 0: the segment is unused. */
    GSAN_ALIGNED(4) uint16_t length;
    /* The bank, counted over all devices. */
    uint16_t bank;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_segment) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_segment, length) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_segment, bank) == 2);

/* The head of a private clock or a snapshot. If clocks have more than three segments, the others
 * follow; then the entries, segment by segment. Merging goes by the source's header.
 */
struct gsan_clock_header {
    /* The checkpoint whose epochs are part of the clock; 0: none. */
    GSAN_ALIGNED(16) uint32_t checkpoint;
    /* The first segments, used from the front. */
    struct gsan_segment segments[3];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_clock_header) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_clock_header, checkpoint) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_clock_header, segments) == 4);

/* The checkpoints of a device: copies of all mirrored epochs. Their epochs lie apart, a u32 for each
 * thread id of the topology.
 */
struct gsan_checkpoints {
    /* 1 while somebody copies. */
    GSAN_ALIGNED(128) uint32_t busy;
    /* How many were taken. */
    uint32_t taken;
    /* The head of the publications before each was begun, plus 1; 0: not taken yet. */
    uint64_t positions[32];
    /* 0. */
    uint64_t reserved[15];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_checkpoints) == 384);
GSAN_STATIC_ASSERT(offsetof(struct gsan_checkpoints, busy) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_checkpoints, taken) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_checkpoints, positions) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_checkpoints, reserved) == 264);

/* The head of a foreign row; a clock entry for each thread id of the topology follows. A row of one
 * bank is an entry for each of its slots, without a head. Rows only grow.
 */
struct gsan_row_header {
    /* Not 0 once an entry was made: readers skip the row until then. */
    GSAN_ALIGNED(64) uint32_t filled;
    /* 0. */
    uint32_t reserved[15];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_row_header) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_row_header, filled) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_row_header, reserved) == 4);

/* What the host says of a launch. In pinned memory: a CTA copies it once, at its start, as one
 * line, from LaunchState if the launch's first CTA has left a copy there. Addresses are those of the
 * launching process; 0 means none.
 */
struct gsan_launch_descriptor {
    /* The frontier's row of the own bank. */
    GSAN_ALIGNED(128) uint64_t own_row;
    /* The frontier's row over all ids: what earlier launches of the stream acquired. */
    uint64_t foreign_row;
    /* The frontier's rows of other banks: a table of addresses by bank, counted over all devices. */
    uint64_t named_rows;
    /* The completion row of the own bank. */
    uint64_t own_done;
    /* The completion row over all ids. */
    uint64_t foreign_done;
    /* Overtaken: the launches that this one may overtake. */
    uint64_t overtaken;
    /* The LaunchState, in device memory. */
    uint64_t state;
    /* The slot masks of the bank, one u32 per SM. */
    uint64_t slot_masks;
    /* The number of the launch on its device; never reused between restarts. */
    uint32_t number;
    /* How many CTAs the grid has. */
    uint32_t ctas;
    /* GSAN_LAUNCH_*. */
    uint32_t flags;
    /* The kernel's number in the table of names; 0: it has none. */
    uint32_t kernel;
    /* The own bank, counted over all devices. */
    uint32_t bank;
    /* The first thread id of the own bank. */
    uint32_t bank_first;
    /* How many launches may be overtaken, at most 16. */
    uint32_t overtaken_count;
    /* Which of them griddepcontrol.wait waits for, plus 1; 0: none. */
    uint32_t waits_for;
    /* The restart generation it was launched in. */
    uint32_t generation;
    /* The stream, as numbered by the host. */
    uint32_t stream;
    /* The grid, in CTAs. */
    uint32_t grid[3];
    /* 0. */
    uint32_t reserved[3];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_launch_descriptor) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, own_row) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, foreign_row) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, named_rows) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, own_done) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, foreign_done) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, overtaken) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, state) == 48);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, slot_masks) == 56);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, number) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, ctas) == 68);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, flags) == 72);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, kernel) == 76);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, bank) == 80);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, bank_first) == 84);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, overtaken_count) == 88);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, waits_for) == 92);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, generation) == 96);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, stream) == 100);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, grid) == 104);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, reserved) == 116);

/* A launch of the same stream that a dependent launch may overtake. */
struct gsan_overtaken {
    /* Its completion row of the own bank. */
    GSAN_ALIGNED(32) uint64_t own_row;
    /* Its completion row over all ids. */
    uint64_t foreign_row;
    /* Its LaunchState. */
    uint64_t state;
    /* How many CTAs its grid has. */
    uint32_t ctas;
    /* 0. */
    uint32_t reserved;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_overtaken) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_overtaken, own_row) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_overtaken, foreign_row) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_overtaken, state) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_overtaken, ctas) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_overtaken, reserved) == 28);

/* What the CTAs of a launch tell each other. In device memory. */
struct gsan_launch_state {
    /* CTAs that started before the first one passed the descriptor on. */
    GSAN_ALIGNED(128) uint32_t started;
    /* CTAs that exited. When it reaches the number of CTAs the completion rows are final. */
    uint32_t exited;
    /* Which rows were carried over to the completion: a bit for each launch overtaken, and
     * GSAN_LAUNCH_FRONTIER_CARRIED.
     */
    uint32_t carried;
    /* The launch whose descriptor is copied below: its number plus 1, written last, by the CTA that
     * started first.
     */
    uint32_t copied;
    /* The snapshot of the starting frontier, once the first publisher has made it, as in
     * ThreadState.
     */
    uint64_t frontier;
    /* CTAs that ran unchecked because no slot was free. */
    uint32_t unchecked;
    /* How many CTAs, one after the other in the grid, a cluster has, once one has copied a tensor;
     * GSAN_LAUNCH_ONE_CLUSTER if they do not lie so; 0: none has.
     */
    uint32_t cluster;
    /* 0. */
    uint32_t reserved[24];
    /* A copy of the descriptor. */
    struct gsan_launch_descriptor descriptor;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_launch_state) == 256);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, started) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, exited) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, carried) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, copied) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, frontier) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, unchecked) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, cluster) == 28);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, reserved) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, descriptor) == 128);

/* A resident CTA. In its shared memory, or in the state region by SM in kernels that need all
 * shared memory for themselves. The first line is what accesses and releases look at.
 */
struct gsan_thread_state {
    /* The frontier's row of the own bank; if there is none, some other place. */
    GSAN_ALIGNED(128) uint64_t own_row;
    /* The frontier's foreign row; 0: nothing is in it. */
    uint64_t foreign_row;
    /* The frontier's rows of other banks; 0: there are none. */
    uint64_t named_rows;
    /* The private clock; 0: it knows no more than the frontier. */
    uint64_t private_clock;
    /* E: the epoch of its accesses. */
    uint32_t epoch;
    /* S: the epoch at which it started. */
    uint32_t start;
    /* Its thread id plus 1; 0: it has no slot. */
    uint32_t id;
    /* Its bank, counted over all devices. */
    uint32_t bank;
    /* The first thread id of its bank. */
    uint32_t bank_first;
    /* How many slots its bank's row has; 0: there is no row. */
    uint32_t slots;
    /* GSAN_THREAD_*. */
    uint32_t flags;
    /* Which launches overtaken it knows to be complete, a bit each. */
    uint32_t taken;
    /* The newest epoch at which an access was made or the clock changed. */
    uint32_t touched;
    /* Taken, once per warp, to merge into, make, switch or publish a clock. */
    uint32_t lock;
    /* Its newest snapshot: the low bits of the index; 0: none. */
    uint32_t snapshot;
    /* Accesses checked; added to the device's count at exit. */
    uint32_t accesses;
    /* The name of the checkpoint that is part of its clock; 0: none is. */
    uint32_t checkpoint;
    /* Where its newest atomic load was, as a fingerprint of the position; 0: nowhere. */
    uint32_t load_position;
    /* Its newest publication, as GSAN_THREAD_PUBLISHED says; 0: none. */
    uint64_t published;
    /* The snapshot of its frontier with the launches overtaken that it knows to be complete. */
    uint64_t frontier;
    /* The LaunchState; 0: the launch is not known, and nothing is checked. */
    uint64_t state;
    /* Where an atomic announced itself in vain, address and position as a fingerprint, above the epoch;
     * 0: nowhere.
     */
    uint64_t in_vain;
    /* The sync words it acquired last, so as not to merge them again. */
    uint64_t acquired[4];
    /* Its position in the grid: x + y * grid.x + z * grid.x * grid.y. */
    uint64_t coordinates;
    /* Which rows it carries over to the completion, as in LaunchState. */
    uint32_t carries;
    /* Reads not kept because their cell was full; added to the device's losses at exit. */
    uint32_t not_sampled;
    /* Records evicted because their cell was full; the same. */
    uint32_t evicted;
    /* Where it made an atomic load as well as another atomic, as a fingerprint; 0: nowhere. */
    uint32_t mixed_position;
    /* The newest strong read that left its cell as it was, and that cell, as a fingerprint; 0: it
     * may do otherwise now.
     */
    uint64_t settled;
    /* Whether it knows more than its own epochs and the row of its bank. */
    uint32_t more;
    /* The seed of sampling. */
    uint32_t seed;
    /* What it found last when it looked beyond its own bank's row of the frontier: the thread id
     * above the entry.
     */
    uint64_t known[4];
    /* Where the reservation, and with it shadow memory, begins. */
    uint64_t shadow_base;
    /* Where real memory begins. */
    uint64_t real_base;
    /* How many bytes of real memory have shadow. */
    uint64_t usable;
    /* How many of them come before write-once memory. */
    uint64_t ordinary;
    /* The launch. */
    struct gsan_launch_descriptor launch;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_thread_state) == 384);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, own_row) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, foreign_row) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, named_rows) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, private_clock) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, epoch) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, start) == 36);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, id) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, bank) == 44);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, bank_first) == 48);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, slots) == 52);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, flags) == 56);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, taken) == 60);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, touched) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, lock) == 68);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, snapshot) == 72);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, accesses) == 76);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, checkpoint) == 80);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, load_position) == 84);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, published) == 88);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, frontier) == 96);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, state) == 104);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, in_vain) == 112);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, acquired) == 120);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, coordinates) == 152);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, carries) == 160);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, not_sampled) == 164);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, evicted) == 168);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, mixed_position) == 172);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, settled) == 176);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, more) == 184);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, seed) == 188);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, known) == 192);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, shadow_base) == 224);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, real_base) == 232);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, usable) == 240);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, ordinary) == 248);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, launch) == 256);

/* One start of a CTA. Each thread id has a ring of them, which the holder of the slot alone writes: an
 * access at epoch e was made by the CTA with the newest start not after e. Both words have the
 * epoch of the start; they are of one entry if it is the same.
 */
struct gsan_history_entry {
    /* The epoch and the launch's number; 0: none. */
    GSAN_ALIGNED(16) uint64_t start;
    /* The epoch and the low bits of the position in the grid, as in ThreadState. */
    uint64_t coordinates;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_history_entry) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_history_entry, start) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_history_entry, coordinates) == 8);

/* One side of a race. */
struct gsan_race_side {
    /* The number of the launch on the device. */
    GSAN_ALIGNED(4) uint32_t launch;
    /* The position of the CTA in the grid. */
    uint32_t cta;
    /* The epoch of the access. */
    uint32_t epoch;
    /* The thread id. */
    uint16_t thread;
    /* The site, in the table of the side's device; 0: unknown. */
    uint16_t site;
    /* The device rank. */
    uint8_t device;
    /* Read, write or both. */
    uint8_t action;
    /* Scope of an atomic, as in a record. */
    uint8_t scope;
    /* GSAN_RACE_FORGOTTEN, GSAN_RACE_ASYNCHRONOUS. */
    uint8_t flags;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_race_side) == 20);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, launch) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, cta) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, epoch) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, thread) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, site) == 14);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, device) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, action) == 17);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, scope) == 18);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_side, flags) == 19);

/* One race. The device takes a place in the ring, fills it, and writes stamp last. */
struct gsan_race_entry {
    /* The index of the entry plus 1, never taken modulo; anything else: not there yet. */
    GSAN_ALIGNED(64) uint64_t stamp;
    /* The first byte that both sides touched. */
    uint64_t address;
    /* The granule's bytes that both sides touched. */
    uint8_t mask;
    /* What happened. */
    uint8_t kind;
    /* GSAN_RACE_POSSIBLE. */
    uint16_t flags;
    /* How many more of its kind the device saw since it last told of one. */
    uint32_t repeats;
    /* What was found in the cell. */
    struct gsan_race_side earlier;
    /* The access that found it. */
    struct gsan_race_side later;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_race_entry) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_entry, stamp) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_entry, address) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_entry, mask) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_entry, kind) == 17);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_entry, flags) == 18);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_entry, repeats) == 20);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_entry, earlier) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_entry, later) == 44);

/* The head of the race ring; its entries follow. In memory of the host. */
struct gsan_race_ring {
    /* How many places devices have taken. */
    GSAN_ALIGNED(128) uint64_t head;
    /* How many races found the ring full. */
    uint64_t dropped;
    /* How many entries there are, a power of two. */
    uint64_t capacity;
    /* 0. */
    uint64_t reserved[13];
    /* How many entries the host has read; a line of its own, since the host writes it. */
    uint64_t tail;
    /* 0. */
    uint64_t reserved_tail[15];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_race_ring) == 256);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_ring, head) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_ring, dropped) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_ring, capacity) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_ring, reserved) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_ring, tail) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_race_ring, reserved_tail) == 136);

/* A source location. The table is open-addressed by key; an entry's place is its number. */
struct gsan_site {
    /* A hash of file and line, never 0; 0: free. Claimed by compare-and-swap. */
    GSAN_ALIGNED(32) uint64_t key;
    /* Where the file's name starts in the site texts. */
    uint32_t text;
    /* How many bytes it has. */
    uint32_t bytes;
    /* The line, from 1; 0 if unknown. */
    uint32_t line;
    /* 1 once the other fields are there. */
    uint32_t ready;
    /* GSAN_SITE_CLUSTER_COPY. In the device's own table only. */
    uint32_t flags;
    /* 0. */
    uint32_t reserved;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_site) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, key) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, text) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, bytes) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, line) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, ready) == 20);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, flags) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, reserved) == 28);

/* The head of a copy of a device's site table in memory of the host, which outlives the device's
 * context. sites entries of Site follow, by number, then the file names, text_bytes bytes.
 * The device copies each site that it adds to its own table: name, entry, and ready last, released
 * at system scope. It reads nothing here but this head.
 */
struct gsan_site_mirror {
    /* GSAN_STATE_MAGIC, written last when the host sets it up. */
    GSAN_ALIGNED(128) uint32_t magic;
    /* GSAN_STATE_VERSION. */
    uint32_t version;
    /* How many sites there is room for, the unknown site 0 included. */
    uint32_t sites;
    /* How many bytes of file names there is room for. */
    uint32_t text_bytes;
    /* 0. */
    uint64_t reserved[14];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_site_mirror) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site_mirror, magic) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site_mirror, version) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site_mirror, sites) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site_mirror, text_bytes) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site_mirror, reserved) == 16);

/* The name of a kernel, by its number. */
struct gsan_kernel_name {
    /* Where the name starts in the kernel texts. */
    GSAN_ALIGNED(16) uint32_t text;
    /* How many bytes it has; 0: no such kernel. */
    uint32_t bytes;
    /* GSAN_LAUNCH_OPAQUE if its code contains synchronisation nobody reports. */
    uint32_t flags;
    /* 0. */
    uint32_t reserved;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_kernel_name) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_kernel_name, text) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_kernel_name, bytes) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_kernel_name, flags) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_kernel_name, reserved) == 12);

/* What an atomic access keeps from its begin to its end: 40 bytes of private memory that Triton's
 * code lends, uninitialised, and reuses.
 *
 * The announcement is made again from the thread id, the epoch, the bytes and the position of the
 * thread in its CTA. What word 0 was left as is what was found unless something was published.
 */
struct gsan_atomic_event {
    /* Where the first byte lies in real memory, counted from its start: GSAN_EVENT_OFFSET_BITS. Above,
     * the address of the state region in units of 1 GiB. 0: nothing to do at the end.
     */
    GSAN_ALIGNED(8) uint64_t access;
    /* Word 0 as it was found. */
    uint64_t found;
    /* What gave way to the announcement; 0: nothing. */
    uint64_t evicted;
    /* The epoch at begin, the token of what was published into word 0 in place of what was found, if
     * anything was, as in the published of a ThreadState(super::ThreadState); above, the word of
     * the announcement, 0 if there is none.
     */
    uint64_t begun;
    /* Digests at begin of the words of the cell but word 0. */
    uint16_t digests[3];
    /* How many bytes: 1 to GSAN_EVENT_MAX_BYTES, all of one granule. 0: the memory is write-once, and
     * found says how many.
     */
    uint16_t bytes;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_atomic_event) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, access) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, found) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, evicted) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, begun) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, digests) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, bytes) == 38);

/* A cluster barrier or an mbarrier, mirrored: arrivals release into the running phase, completed waits
 * acquire the phase.
 */
struct gsan_meeting {
    /* A sync record of all arrivals so far. */
    GSAN_ALIGNED(8) uint64_t arrivals;
    /* The same, as it was when the newest phase of parity 0 and 1 was complete. */
    uint64_t complete[2];
    /* Arrivals, as GSAN_MEETING_COUNT_BITS says. */
    uint64_t count;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_meeting) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_meeting, arrivals) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_meeting, complete) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_meeting, count) == 24);

/* What the CTAs of a cluster hand each other at its hardware barrier. Lent by the caller, zero at launch. */
struct gsan_cluster_scratch {
    /* The barrier. */
    GSAN_ALIGNED(16) struct gsan_meeting meeting;
    /* 0. */
    uint64_t reserved[12];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_cluster_scratch) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_cluster_scratch, meeting) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_cluster_scratch, reserved) == 32);

/* The head of the mirrored mbarriers of a cluster; the mbarriers follow. */
struct gsan_mbarrier_table {
    /* How many mbarriers there is room for. */
    GSAN_ALIGNED(16) uint32_t capacity;
    /* How many are in use. */
    uint32_t used;
    /* 0. */
    uint64_t reserved;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_mbarrier_table) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier_table, capacity) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier_table, used) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier_table, reserved) == 8);

/* A mirrored mbarrier. */
struct gsan_mbarrier {
    /* The low 24 bits of the shared address, and the owner's rank above; plus 1, so that 0 is
     * free.
     */
    GSAN_ALIGNED(8) uint32_t key;
    /* 0. */
    uint32_t reserved_word;
    /* The mbarrier. */
    struct gsan_meeting meeting;
    /* 0. */
    uint64_t reserved[17];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_mbarrier) == 176);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, key) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, reserved_word) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, meeting) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, reserved) == 40);

/* What every access needs. A CTA copies it to its shared memory at its start. */
struct gsan_constants {
    /* The first address of the reservation: shadow below, real memory above. */
    GSAN_ALIGNED(64) uint64_t reserve_base;
    /* Its size in bytes, a power of two. */
    uint64_t reserve_bytes;
    /* The state region of device rank 0 in this process; others follow at 1 GiB. */
    uint64_t state_base;
    /* The race ring in this process. */
    uint64_t race_ring;
    /* Addresses of real memory from here on are write-once; 0: none are. */
    uint64_t write_once;
    /* Records in a cell: 2 or 4. */
    uint32_t records;
    /* Seed of the reservoir. */
    uint32_t seed;
    /* The device's rank. */
    uint16_t rank;
    /* How many devices there are. */
    uint16_t devices;
    /* The first thread id of the device. */
    uint16_t first_id;
    /* How many thread ids each device has, less than 65,536: those of rank 0 start at 0, the
     * next rank's follow. The last one of a device publishes for CTAs without a slot.
     */
    uint16_t share;
    /* How many slots a bank has; the first bank of a device starts at its first id. */
    uint32_t slots;
    /* How many banks a device has. */
    uint32_t banks;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_constants) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, reserve_base) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, reserve_bytes) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, state_base) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, race_ring) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, write_once) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, records) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, seed) == 44);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, rank) == 48);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, devices) == 50);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, first_id) == 52);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, share) == 54);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, slots) == 56);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, banks) == 60);

/* A word that many write, on a line of its own. */
struct gsan_counter_line {
    /* The count. */
    GSAN_ALIGNED(128) uint64_t value;
    /* 0. */
    uint64_t reserved[15];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_counter_line) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_counter_line, value) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_counter_line, reserved) == 8);

/* Where the parts of a state region start, in bytes from its start. */
struct gsan_offsets {
    /* Slot masks: a u32 per SM, for each bank of the device. */
    GSAN_ALIGNED(64) uint32_t slot_masks;
    /* How many slots of each bank of the device were ever taken: a u32 each. */
    uint32_t high_water;
    /* The mirrored epochs: a u32 per id of the device. */
    uint32_t epochs;
    /* How often a CTA started on an id: a u32 per id of the device. */
    uint32_t starts;
    /* HistoryEntry, GSAN_STATE_HISTORY per id of the device. */
    uint32_t history;
    /* ThreadState by SM. */
    uint32_t threads;
    /* LaunchState by launch number, modulo. */
    uint32_t launches;
    /* Publication by token, modulo. */
    uint32_t publications;
    /* Checkpoints. */
    uint32_t checkpoints;
    /* The epochs of checkpoints by index: a u32 per id of the topology. */
    uint32_t checkpoint_epochs;
    /* The states of snapshots by index, modulo: a u64 each. */
    uint32_t snapshot_states;
    /* The clocks of snapshots by index, modulo. */
    uint32_t snapshots;
    /* Which private clocks are taken, a bit each. */
    uint32_t private_taken;
    /* Private clocks. */
    uint32_t private_clocks;
    /* Site by number. */
    uint32_t sites;
    /* The file names of sites. */
    uint32_t site_texts;
    /* KernelName by number. */
    uint32_t kernels;
    /* The names of kernels. */
    uint32_t kernel_texts;
    /* Hashes of kernel, file pointer and line, with the site in the low bits: a u64 each. */
    uint32_t site_keys;
    /* Counts of races that are alike: a u64 each. */
    uint32_t race_filter;
    /* Rows of streams, events and graphs, up to the end of the region. */
    uint32_t rows;
    /* The end of the region. */
    uint32_t end;
    /* 0. */
    uint32_t reserved[10];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_offsets) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, slot_masks) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, high_water) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, epochs) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, starts) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, history) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, threads) == 20);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, launches) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, publications) == 28);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, checkpoints) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, checkpoint_epochs) == 36);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, snapshot_states) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, snapshots) == 44);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, private_taken) == 48);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, private_clocks) == 52);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, sites) == 56);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, site_texts) == 60);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, kernels) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, kernel_texts) == 68);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, site_keys) == 72);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, race_filter) == 76);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, rows) == 80);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, end) == 84);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, reserved) == 88);

/* The start of a device's state region. The first line is Constants. */
struct gsan_global_state {
    /* What every access needs. */
    GSAN_ALIGNED(128) struct gsan_constants constants;
    /* Where the parts of the region start. */
    struct gsan_offsets offsets;
    /* GSAN_STATE_MAGIC, written last when the region is set up. */
    uint32_t magic;
    /* GSAN_STATE_VERSION. */
    uint32_t version;
    /* How many restarts there were. */
    uint32_t generation;
    /* GSAN_STATE_HALT_*. */
    uint32_t flags;
    /* How many SMs the device has at most. */
    uint32_t sms;
    /* How many slots an SM has in each bank. */
    uint32_t slots_per_sm;
    /* How many thread ids the topology has. */
    uint32_t ids;
    /* How many publications the ring holds, a power of two. */
    uint32_t publications;
    /* How many snapshots the ring holds, a power of two. */
    uint32_t snapshots;
    /* How many private clocks there are. */
    uint32_t private_clocks;
    /* How many segments a clock has; 3, or more by multiples of 4. */
    uint32_t segments;
    /* How many entries a segment has room for, a multiple of 4. */
    uint32_t segment_entries;
    /* The size of a clock in bytes. */
    uint32_t clock_bytes;
    /* Ranks whose state is mapped in this process, a bit each: the device looks at no other's. */
    uint32_t present;
    /* Where the device tells the host of new sites: a site mirror in this process; 0: nowhere. */
    uint64_t site_mirror;
    /* The token of the next publication. */
    struct gsan_counter_line publication_head;
    /* The index of the next snapshot. */
    struct gsan_counter_line snapshot_head;
    /* The sync word of all sequentially consistent fences; that of rank 0 counts. */
    struct gsan_counter_line sequential;
    /* Low half: bytes of site texts handed out; high half: sites in the table. */
    struct gsan_counter_line site_head;
    /* Accesses checked by CTAs that have exited. */
    struct gsan_counter_line accesses;
    /* How often each limit was met, by its number. */
    uint64_t losses[32];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_global_state) == 1152);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, constants) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, offsets) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, magic) == 192);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, version) == 196);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, generation) == 200);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, flags) == 204);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, sms) == 208);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, slots_per_sm) == 212);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, ids) == 216);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, publications) == 220);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, snapshots) == 224);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, private_clocks) == 228);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, segments) == 232);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, segment_entries) == 236);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, clock_bytes) == 240);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, present) == 244);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, site_mirror) == 248);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, publication_head) == 256);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, snapshot_head) == 384);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, sequential) == 512);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, site_head) == 640);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, accesses) == 768);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, losses) == 896);

/* One step. In pinned memory. */
struct gsan_step {
    /* GSAN_STEP_*. */
    GSAN_ALIGNED(64) uint32_t kind;
    /* How many words or entries. */
    uint32_t count;
    /* What is written. */
    uint64_t target;
    /* What is read. */
    uint64_t source;
    /* A u32 that is 0 while the source is empty; 0: there is none. */
    uint64_t source_filled;
    /* A u32 that becomes 1 when an entry was merged; 0: there is none. */
    uint64_t target_filled;
    /* A number. */
    uint32_t value;
    /* Bytes from one word to the next. */
    uint32_t stride;
    /* A time limit in nanoseconds. */
    uint64_t limit;
    /* 0. */
    uint64_t reserved;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_step) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, kind) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, count) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, target) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, source) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, source_filled) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, target_filled) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, value) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, stride) == 44);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, limit) == 48);
GSAN_STATIC_ASSERT(offsetof(struct gsan_step, reserved) == 56);

#endif
