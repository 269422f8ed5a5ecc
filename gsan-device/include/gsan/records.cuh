// Records: one access, or one synchronisation, in 64 bits. The low half tells who, which bytes and
// how; the high half when.
#pragma once

#include "gsan/layout.h"
#include "gsan/ptx.cuh"

namespace gsan {

constexpr u32 kRecordThread = (1u << GSAN_RECORD_THREAD_BITS) - 1;
constexpr u32 kRecordMask = ((1u << GSAN_RECORD_MASK_BITS) - 1) << GSAN_RECORD_MASK_SHIFT;
constexpr u32 kRecordSync = 1u << GSAN_RECORD_SYNC_SHIFT;
constexpr u32 kRecordWrite = 1u << GSAN_RECORD_WRITE_SHIFT;

GSAN_DEVICE u64 make_record(u32 thread, u32 epoch, u32 mask, bool write, u32 scope, u32 site) {
  return u64(epoch) << GSAN_RECORD_EPOCH_SHIFT | u64(site) << GSAN_RECORD_SITE_SHIFT |
         (write ? kRecordWrite : 0) | scope << GSAN_RECORD_SCOPE_SHIFT |
         mask << GSAN_RECORD_MASK_SHIFT | thread;
}

GSAN_DEVICE u32 record_thread(u64 word) {
  return u32(word) & ((1u << GSAN_RECORD_THREAD_BITS) - 1);
}

GSAN_DEVICE u32 record_epoch(u64 word) {
  return u32(word >> 32) >> (GSAN_RECORD_EPOCH_SHIFT - 32);
}

GSAN_DEVICE u32 record_mask(u64 word) {
  return (u32(word) & kRecordMask) >> GSAN_RECORD_MASK_SHIFT;
}

GSAN_DEVICE u32 record_scope(u64 word) {
  return u32(word) >> GSAN_RECORD_SCOPE_SHIFT & ((1u << GSAN_RECORD_SCOPE_BITS) - 1);
}

GSAN_DEVICE u32 record_site(u64 word) {
  return u32(word >> GSAN_RECORD_SITE_SHIFT) & ((1u << GSAN_RECORD_SITE_BITS) - 1);
}

GSAN_DEVICE bool record_writes(u64 word) { return u32(word) & kRecordWrite; }

// Whether the low half is of an ordinary record of at least one byte: not of an empty word, a sync
// record, or the announcement of an atomic write.
GSAN_DEVICE bool has_bytes(u32 low) {
  // Of the bits kept the sync bit is the highest, and 0 wraps around.
  return (low & (kRecordMask | kRecordSync)) - 1 < kRecordSync - 1;
}

GSAN_DEVICE bool is_sync(u64 word) { return u32(word) & kRecordSync; }

}  // namespace gsan
