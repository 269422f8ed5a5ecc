// Which readers a full cell keeps: those with the smallest numbers.
#pragma once

#include "gsan/records.cuh"

namespace gsan {

// Spreads every bit of `x` over all bits of the result.
GSAN_DEVICE u32 mix(u32 x) {
  x ^= x >> GSAN_HASH_MIX_SHIFT_1;
  x *= GSAN_HASH_MIX_MULTIPLIER_1;
  x ^= x >> GSAN_HASH_MIX_SHIFT_2;
  x *= GSAN_HASH_MIX_MULTIPLIER_2;
  return x ^ x >> GSAN_HASH_MIX_SHIFT_3;
}

// The numbers of the readers of one granule, which lies at `granule * 8`. The two granules of 16
// aligned bytes share them.
struct Sampler {
  u32 seed;
  u64 granule;

  // What the numbers of all readers share.
  GSAN_DEVICE u32 salt() const {
    u64 pair = granule >> 1;
    return mix(seed ^ mix(u32(pair) ^ u32(pair >> 32) * GSAN_HASH_PAIR_MULTIPLIER));
  }

  GSAN_DEVICE static u32 number(u32 salt, u64 record) {
    u32 thread = record_thread(record) * GSAN_HASH_THREAD_MULTIPLIER;
    u32 epoch = record_epoch(record) * GSAN_HASH_EPOCH_MULTIPLIER;
    return mix(salt ^ (thread + epoch));
  }

  GSAN_DEVICE u32 number(u64 record) const { return number(salt(), record); }
};

}  // namespace gsan
