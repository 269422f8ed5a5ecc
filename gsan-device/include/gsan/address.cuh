// Address arithmetic of the reservation: shadow in the lower half, real memory in the upper.
#pragma once

#include "gsan/layout.h"
#include "gsan/ptx.cuh"

namespace gsan {

constexpr u64 kGranule = 8;

// The part of an access that falls into one granule; nothing if the mask is 0.
struct GranulePart {
  u64 granule;
  u32 mask;
};

// A reservation whose cells have `S` words.
template <unsigned S>
struct AddressSpace {
  u64 real_base;
  u64 usable;
  // Of that, what comes before write-once memory.
  u64 ordinary;

  GSAN_DEVICE explicit AddressSpace(const gsan_constants& constants)
      : real_base(constants.reserve_base + constants.reserve_bytes / 2),
        usable(constants.reserve_bytes / 2 / S),
        ordinary(constants.write_once == 0 ? usable : constants.write_once - real_base) {}

  // Whether `address` is real memory that can have shadow.
  GSAN_DEVICE bool is_managed(u64 address) const { return address - real_base < usable; }

  // The same for `bytes` bytes from `address` on.
  GSAN_DEVICE bool is_managed(u64 address, u64 bytes) const {
    return address - real_base <= usable - bytes;
  }

  // Whether that is managed memory that may be written many times.
  GSAN_DEVICE bool is_ordinary(u64 address, u64 bytes) const {
    return address - real_base <= ordinary - bytes;
  }

  GSAN_DEVICE bool is_write_once(u64 address) const {
    return is_managed(address) && address - real_base >= ordinary;
  }

  // The cell of `granule`, which must be managed. A cell takes S bytes for each byte of real
  // memory, and the lower half of the reservation is as long as the upper.
  GSAN_DEVICE u64* shadow(u64 granule, u64 base) const {
    return reinterpret_cast<u64*>(base + (granule - real_base) * S);
  }
};

// The bytes from `low` to before `high` of a granule.
GSAN_DEVICE u32 bytes_between(u32 low, u32 high) { return (1u << high) - (1u << low); }

}  // namespace gsan
