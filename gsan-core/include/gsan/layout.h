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

/* Multiplies the high half of a granule's index. */
#define GSAN_HASH_GRANULE_MULTIPLIER 0x9e3779b1u
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
/* How many segments a clock may have. */
#define GSAN_CLOCK_SEGMENTS UINT64_C(0x5)
/* Flag: something found no place, so everything counts as ordered. */
#define GSAN_CLOCK_OUTSIDE 1u
/* Bit of a snapshot's stamp: it is complete; until then its writer is still at work.
 * The index lies above.
 */
#define GSAN_CLOCK_COMPLETE UINT64_C(0x1)
/* How many checkpoints are kept: two laps of sixteenths of the publication ring. */
#define GSAN_CLOCK_CHECKPOINTS 32u

/* Fields of a publication. */

/* Lowest bit of the token in the first word. */
#define GSAN_PUBLICATION_TOKEN_SHIFT 0u
/* Bits of the token. */
#define GSAN_PUBLICATION_TOKEN_BITS 37u
/* In the first word: the entry is complete; until then its writer is still at work. */
#define GSAN_PUBLICATION_COMPLETE_SHIFT 37u
/* In the first word: contains the sequence of an earlier publisher, so that knowing the
 * publisher's epoch is not enough to skip it.
 */
#define GSAN_PUBLICATION_JOINED_SHIFT 38u
/* In the first word: everything up to a moment; the snapshot field names a checkpoint. */
#define GSAN_PUBLICATION_TOP_SHIFT 39u
/* In the first word: there is a snapshot. */
#define GSAN_PUBLICATION_SNAPSHOT_SHIFT 40u
/* In the second word: there is a snapshot of the launch's frontier. */
#define GSAN_PUBLICATION_FRONTIER_SHIFT 54u
/* Lowest bit of the snapshot's stamp in the first word. */
#define GSAN_PUBLICATION_SNAPSHOT_STAMP_SHIFT 42u
/* Lowest bit of the clock entry, epoch and span, in the second word. */
#define GSAN_PUBLICATION_ENTRY_SHIFT 0u
/* Lowest bit of the stamp of the frontier's snapshot in the second word. */
#define GSAN_PUBLICATION_FRONTIER_STAMP_SHIFT 32u
/* Bits of a stamp. */
#define GSAN_PUBLICATION_STAMP_BITS 22u
/* The most publications a ring may have. */
#define GSAN_PUBLICATION_MAX_CAPACITY 0x100000u
/* The most snapshots a ring may have. A publication names snapshots that were made at
 * most half a ring before it, and while it lives at most two more are made for each
 * publication; so stamps never come around.
 */
#define GSAN_PUBLICATION_MAX_SNAPSHOTS 0x100000u

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

/* Flags of a resident CTA. */

/* It found no slot and runs unchecked. */
#define GSAN_THREAD_NO_SLOT 1u
/* Everything counts as ordered before it until it exits. */
#define GSAN_THREAD_EVERYTHING 2u
/* It waited for the predecessor of its launch. */
#define GSAN_THREAD_WAITED 4u
/* It made an access since its last publication that is no part of it. */
#define GSAN_THREAD_DIRTY 8u
/* It is at the last epoch: its accesses count as ordered. */
#define GSAN_THREAD_WORN 16u
/* How many starts the history keeps of each thread id. */
#define GSAN_THREAD_HISTORY 64u

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

/* The state region. */

/* The version of the layout; processes that share memory must agree. */
#define GSAN_STATE_VERSION 1u
/* First word of a state region: "GSAN" and the version would differ in every other use. */
#define GSAN_STATE_MAGIC 0x4753414eu
/* The most devices a topology may have. */
#define GSAN_STATE_MAX_DEVICES 32u
/* How many thread ids there are, over all devices. */
#define GSAN_STATE_THREAD_IDS 0x10000u
/* The most slots an SM may have in one bank. */
#define GSAN_STATE_MAX_SLOTS_PER_SM 32u
/* The most banks a device may have. */
#define GSAN_STATE_MAX_BANKS 256u
/* Thread ids in a block of a launch's row table. */
#define GSAN_STATE_BLOCK 64u
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
/* Flag: an overrun of a ring ends the program. */
#define GSAN_STATE_HALT_ON_OVERRUN 1u
/* Flag: a race ends the program. */
#define GSAN_STATE_HALT_ON_RACE 2u

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
#define GSAN_LOSS_COUNT 20u

/* One released clock, 16 bytes: see the shifts GSAN_PUBLICATION_*. Its publisher is named
 * by the sync record that holds its token.
 *
 * A reader loads the first word, the second, and the first again: the entry is what its token
 * stands for if both times the first word says that token and *complete*.
 */
struct gsan_publication {
    /* Token, state, flags, stamp of the snapshot. 0 before the first use. */
    GSAN_ALIGNED(16) uint64_t stamp;
    /* Clock entry of the publisher, stamp of the launch's frontier snapshot. */
    uint64_t clock;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_publication) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, stamp) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_publication, clock) == 8);

/* A run of thread ids in a clock. */
struct gsan_segment {
    /* The first id of the bank. */
    GSAN_ALIGNED(4) uint16_t first;
    /* How many entries there is room for: the slots of the bank. 0: the segment is unused. */
    uint16_t room;
    /* How many entries, from the first, may be other than 0. */
    uint16_t used;
    /* Where the entries start: in units of 4 entries from the end of the header. */
    uint16_t start;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_segment) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_segment, first) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_segment, room) == 2);
GSAN_STATIC_ASSERT(offsetof(struct gsan_segment, used) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_segment, start) == 6);

/* The head of a private clock or a snapshot; its entries follow. Merging goes by the source's
 * header. Segment 0 is the bank of the owner's launch.
 */
struct gsan_clock_header {
    /* Snapshot: index and GSAN_CLOCK_COMPLETE. Private clock: how often it has changed. */
    GSAN_ALIGNED(64) uint64_t stamp;
    /* GSAN_CLOCK_OUTSIDE. */
    uint32_t flags;
    /* Entries handed out to segments so far. */
    uint32_t taken;
    /* Private clock in the pool: the next free one plus 1. */
    uint32_t link;
    /* Snapshot: the number of the launch whose frontier it is beyond. */
    uint32_t launch;
    /* The banks. */
    struct gsan_segment segments[5];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_clock_header) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_clock_header, stamp) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_clock_header, flags) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_clock_header, taken) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_clock_header, link) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_clock_header, launch) == 20);
GSAN_STATIC_ASSERT(offsetof(struct gsan_clock_header, segments) == 24);

/* The head of a checkpoint: a copy of all mirrored epochs of one device, taken when the head of
 * the publications crossed a sixteenth of the ring. The epochs follow, a u32 for each id.
 */
struct gsan_checkpoint_header {
    /* Index and GSAN_CLOCK_COMPLETE, as in a snapshot. */
    GSAN_ALIGNED(64) uint64_t stamp;
    /* The head of the publications before the copy was begun. */
    uint64_t token;
    /* 0. */
    uint64_t reserved[6];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_checkpoint_header) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_checkpoint_header, stamp) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_checkpoint_header, token) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_checkpoint_header, reserved) == 16);

/* The head of a frontier or completion row; its clock entries follow, one for each slot of the
 * bank, or for each thread id in a foreign row. Rows only grow.
 */
struct gsan_row_header {
    /* Something is in it. Readers skip the row as long as this is 0. */
    GSAN_ALIGNED(64) uint32_t nonempty;
    /* How many entries, from the first, may be other than 0. */
    uint32_t used;
    /* 0. */
    uint32_t reserved[14];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_row_header) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_row_header, nonempty) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_row_header, used) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_row_header, reserved) == 8);

/* What the host says of a launch. In pinned memory: a CTA reads it once, at its start, as one
 * line, from LaunchState if another CTA has left a copy there. Addresses are those of the
 * launching process; 0 means none.
 */
struct gsan_launch_descriptor {
    /* The frontier's row of the own bank. */
    GSAN_ALIGNED(128) uint64_t own_row;
    /* The frontier's row over all ids: what earlier launches of the stream acquired. */
    uint64_t foreign_row;
    /* The frontier's rows of other banks: an address for every block of
     * GSAN_STATE_BLOCK thread ids, each of a row whose entries start at the block.
     */
    uint64_t row_table;
    /* The completion row of the own bank. */
    uint64_t own_done;
    /* The completion row over all ids. */
    uint64_t foreign_done;
    /* The own-bank row to use after griddepcontrol.wait: the predecessor's completion. */
    uint64_t waited_own;
    /* The foreign row to use after griddepcontrol.wait. */
    uint64_t waited_foreign;
    /* The descriptor of the launch before, if this one or that one is dependent. */
    uint64_t previous;
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
    /* The kernel's number in the table of names. */
    uint32_t kernel;
    /* The first thread id of the own bank. */
    uint16_t bank_first;
    /* The number of the own bank. */
    uint16_t bank;
    /* How many slots the bank has: slots per SM times SMs. */
    uint32_t slots;
    /* How many slots an SM has. */
    uint32_t slots_per_sm;
    /* The restart generation it was launched in. */
    uint32_t generation;
    /* The stream, as numbered by the host. */
    uint32_t stream;
    /* 0. */
    uint32_t reserved[3];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_launch_descriptor) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, own_row) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, foreign_row) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, row_table) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, own_done) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, foreign_done) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, waited_own) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, waited_foreign) == 48);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, previous) == 56);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, state) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, slot_masks) == 72);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, number) == 80);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, ctas) == 84);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, flags) == 88);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, kernel) == 92);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, bank_first) == 96);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, bank) == 98);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, slots) == 100);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, slots_per_sm) == 104);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, generation) == 108);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, stream) == 112);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_descriptor, reserved) == 116);

/* What the CTAs of a launch tell each other. In device memory. */
struct gsan_launch_state {
    /* CTAs that started. */
    GSAN_ALIGNED(128) uint32_t started;
    /* CTAs that exited. When it reaches the number of CTAs the completion rows are final. */
    uint32_t exited;
    /* 1 once a CTA has taken on to carry the frontier's rows over to the completion. */
    uint32_t carried;
    /* 1 once a CTA has waited for the predecessor and carries the waited rows over. */
    uint32_t waited;
    /* The snapshot of the launch's frontier: its index plus 2 when it is made, 1 while the
     * first publisher makes it, 0 before.
     */
    uint64_t frontier_snapshot;
    /* The launch whose descriptor is copied below: its number plus 1, written last. */
    uint32_t copied;
    /* CTAs that ran unchecked because no slot was free. */
    uint32_t unchecked;
    /* 0. */
    uint64_t reserved[12];
    /* A copy of the descriptor. */
    struct gsan_launch_descriptor descriptor;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_launch_state) == 256);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, started) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, exited) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, carried) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, waited) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, frontier_snapshot) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, copied) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, unchecked) == 28);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, reserved) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_launch_state, descriptor) == 128);

/* A resident CTA. In its shared memory, or in the state region by SM in kernels that need all
 * shared memory for themselves.
 */
struct gsan_thread_state {
    /* The frontier's row of the own bank, or the waited one. */
    GSAN_ALIGNED(128) uint64_t own_row;
    /* The private clock, an address; 0: it knows no more than the frontier. */
    uint64_t private_clock;
    /* The frontier's foreign row, or the waited one; 0: nothing is in it. */
    uint64_t foreign_row;
    /* The frontier's rows of other banks; 0: there are none. */
    uint64_t row_table;
    /* E: the epoch of its accesses. */
    uint32_t epoch;
    /* S: the epoch at which it started. */
    uint32_t start;
    /* Its thread id. */
    uint16_t thread;
    /* The first thread id of its bank. */
    uint16_t bank_first;
    /* How many slots its bank has. */
    uint32_t slots;
    /* GSAN_THREAD_*. */
    uint32_t flags;
    /* Taken, once per warp, to merge into, make or switch a clock. */
    uint32_t lock;
    /* How often the private clock has changed. */
    uint32_t clock_changes;
    /* The value of clock_changes in the last snapshot. */
    uint32_t snapshot_changes;
    /* Its last publication: the token plus 1. */
    uint64_t last_token;
    /* Its last snapshot: the index plus 1. */
    uint64_t last_snapshot;
    /* The launch descriptor. */
    uint64_t descriptor;
    /* The LaunchState. */
    uint64_t state;
    /* The number of the launch. */
    uint32_t launch;
    /* The position of the CTA in the grid. */
    uint32_t cta;
    /* Accesses checked; added to the device's count at exit. */
    uint32_t accesses;
    /* Warps that are inside an exit call. */
    uint32_t exiting;
    /* 0. */
    uint64_t reserved[2];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_thread_state) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, own_row) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, private_clock) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, foreign_row) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, row_table) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, epoch) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, start) == 36);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, thread) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, bank_first) == 42);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, slots) == 44);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, flags) == 48);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, lock) == 52);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, clock_changes) == 56);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, snapshot_changes) == 60);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, last_token) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, last_snapshot) == 72);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, descriptor) == 80);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, state) == 88);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, launch) == 96);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, cta) == 100);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, accesses) == 104);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, exiting) == 108);
GSAN_STATIC_ASSERT(offsetof(struct gsan_thread_state, reserved) == 112);

/* One start of a CTA. Each thread id has a ring of GSAN_THREAD_HISTORY of them, which its owner
 * alone writes: an access at epoch e was made by the CTA with the newest start not after e.
 */
struct gsan_history_entry {
    /* The epoch at which it started; 0: none. */
    GSAN_ALIGNED(16) uint32_t epoch;
    /* The number of its launch. */
    uint32_t launch;
    /* Its position in the grid. */
    uint32_t cta;
    /* How many CTAs started on this thread id before. */
    uint32_t index;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_history_entry) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_history_entry, epoch) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_history_entry, launch) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_history_entry, cta) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_history_entry, index) == 12);

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
    /* 0. */
    uint64_t reserved;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_site) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, key) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, text) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, bytes) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, line) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, ready) == 20);
GSAN_STATIC_ASSERT(offsetof(struct gsan_site, reserved) == 24);

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

/* What an atomic access keeps from its begin to its end. */
struct gsan_atomic_event {
    /* The first byte; 0: nothing to do at the end. */
    GSAN_ALIGNED(8) uint64_t address;
    /* Word 0 of the first cell at begin. */
    uint64_t found;
    /* A digest of each word of the first cell at begin. */
    uint16_t digests[4];
    /* The epoch at begin. */
    uint32_t epoch;
    /* How many bytes. */
    uint32_t bytes;
    /* The site. */
    uint32_t site;
    /* Whether it reads, as said at begin. */
    uint32_t reads;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_atomic_event) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, address) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, found) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, digests) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, epoch) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, bytes) == 28);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, site) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_atomic_event, reads) == 36);

/* What the CTAs of a cluster hand each other at a barrier: a sync record each, as published at
 * arrival. Lent by the caller, zero at launch.
 */
struct gsan_cluster_scratch {
    /* By rank in the cluster. */
    GSAN_ALIGNED(16) uint64_t arrivals[16];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_cluster_scratch) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_cluster_scratch, arrivals) == 0);

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

/* A mirrored mbarrier. Arrivals of the running phase release into arrivals[phase], completed
 * waits acquire the other.
 */
struct gsan_mbarrier {
    /* The low 24 bits of the shared address, and the owner's rank above; plus 1, so that 0 is
     * free.
     */
    GSAN_ALIGNED(8) uint32_t key;
    /* Arrivals that complete a phase. */
    uint32_t expected;
    /* Arrivals still missing in the running phase. */
    uint32_t pending;
    /* How many phases are complete; the parity of the running one is its lowest bit. */
    uint32_t phase;
    /* Sync records released into the phases of even and odd number. More publishers than
     * places join their predecessors.
     */
    uint64_t arrivals[2][8];
    /* Taken for the update of an arrival. */
    uint32_t lock;
    /* 0. */
    uint32_t reserved[7];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_mbarrier) == 176);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, key) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, expected) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, pending) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, phase) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, arrivals) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, lock) == 144);
GSAN_STATIC_ASSERT(offsetof(struct gsan_mbarrier, reserved) == 148);

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
    /* How many thread ids each device has, less than 65,536: rank 0's start at 0, the next
     * rank's follow. The last one of a device publishes for CTAs without a slot.
     */
    uint16_t ids;
    /* 0. */
    uint64_t reserved;
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
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, ids) == 54);
GSAN_STATIC_ASSERT(offsetof(struct gsan_constants, reserved) == 56);

/* Thread ids of a stream, or of a branch of a graph. */
struct gsan_bank {
    /* The first id. */
    GSAN_ALIGNED(16) uint32_t first;
    /* How many slots. */
    uint32_t slots;
    /* How many slots, from the first, were ever taken. */
    uint32_t used;
    /* Slot masks, one u32 per SM: an offset in the region. */
    uint32_t slot_masks;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_bank) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_bank, first) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_bank, slots) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_bank, used) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_bank, slot_masks) == 12);

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
    /* Bank by number. */
    GSAN_ALIGNED(64) uint32_t banks;
    /* The mirrored epochs: a u32 per id of the device. */
    uint32_t epochs;
    /* How often a CTA started on an id: a u32 per id of the device. */
    uint32_t starts;
    /* HistoryEntry, GSAN_THREAD_HISTORY per id of the device. */
    uint32_t history;
    /* ThreadState by SM. */
    uint32_t threads;
    /* LaunchState by launch number, modulo. */
    uint32_t launches;
    /* Publication by token, modulo. */
    uint32_t publications;
    /* Checkpoints by index, modulo. */
    uint32_t checkpoints;
    /* Snapshots by index, modulo. */
    uint32_t snapshots;
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
    /* Rows of streams, events and graphs, up to the end of the region. */
    uint32_t rows;
    /* The end of the region. */
    uint32_t end;
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_offsets) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, banks) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, epochs) == 4);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, starts) == 8);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, history) == 12);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, threads) == 16);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, launches) == 20);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, publications) == 24);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, checkpoints) == 28);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, snapshots) == 32);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, private_clocks) == 36);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, sites) == 40);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, site_texts) == 44);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, kernels) == 48);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, kernel_texts) == 52);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, rows) == 56);
GSAN_STATIC_ASSERT(offsetof(struct gsan_offsets, end) == 60);

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
    /* How many SMs the device has. */
    uint32_t sms;
    /* How many slots a bank has on each. */
    uint32_t slots_per_sm;
    /* How many banks there are. */
    uint32_t banks;
    /* How many publications the ring holds, a power of two. */
    uint32_t publications;
    /* How many snapshots the ring holds, a power of two. */
    uint32_t snapshots;
    /* How many private clocks there are. */
    uint32_t private_clocks;
    /* The size of a snapshot or private clock in bytes, header included. */
    uint32_t clock_bytes;
    /* The size of a checkpoint in bytes, header included. */
    uint32_t checkpoint_bytes;
    /* 0. */
    uint64_t reserved[10];
    /* The token of the next publication. */
    struct gsan_counter_line publication_head;
    /* The index of the next snapshot. */
    struct gsan_counter_line snapshot_head;
    /* The index of the next checkpoint. */
    struct gsan_counter_line checkpoint_head;
    /* The free private clocks, a stack: how often it changed << 32 | first clock plus 1. */
    struct gsan_counter_line private_free;
    /* Low half: bytes of site texts handed out; high half: sites in the table. */
    struct gsan_counter_line site_head;
    /* Accesses checked by CTAs that have exited. */
    struct gsan_counter_line accesses;
    /* How often each limit was met, by its number. */
    uint64_t losses[32];
};
GSAN_STATIC_ASSERT(sizeof(struct gsan_global_state) == 1280);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, constants) == 0);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, offsets) == 64);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, magic) == 128);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, version) == 132);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, generation) == 136);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, flags) == 140);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, sms) == 144);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, slots_per_sm) == 148);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, banks) == 152);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, publications) == 156);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, snapshots) == 160);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, private_clocks) == 164);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, clock_bytes) == 168);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, checkpoint_bytes) == 172);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, reserved) == 176);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, publication_head) == 256);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, snapshot_head) == 384);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, checkpoint_head) == 512);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, private_free) == 640);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, site_head) == 768);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, accesses) == 896);
GSAN_STATIC_ASSERT(offsetof(struct gsan_global_state, losses) == 1024);

#endif
