// Address arithmetic of the reservation: shadow in the lower half, real memory in the upper.
#pragma once

#include "gsan/layout.h"
#include "gsan/ptx.cuh"

namespace gsan {

constexpr u64 kGranule = 8;

// From one pair of words of a cell to the next, in words; and from the cell of one granule to that of
// the next of 16 aligned bytes.
//
// Shadow memory has tiles, of a few units of 16 bytes of real memory. In a tile the first two words of the
// cells of the units' first granules come first, then their next two, then those of the second granules.
// So lanes that load the same part of the cells of neighbouring units load neighbouring memory, and whole
// sectors: those of a cell in one piece would be fetched once by each of its loads.
constexpr u32 kPairStep = 2 * GSAN_STATE_TILE;
template <unsigned S>
constexpr u32 kNextCell = S / 2 * kPairStep;

// Word `index` of the cell whose word 0 is `words`.
GSAN_DEVICE u64* word_of(u64* words, u32 index) {
  return words + (index >> 1) * kPairStep + (index & 1);
}

// The part of an access that falls into one granule; nothing if the mask is 0.
struct GranulePart {
  u64 granule;
  u32 mask;
};

// A reservation whose cells have `S` words.
template <unsigned S>
struct AddressSpace {
  u64 base;
  u64 real_base;
  u64 usable;
  // Of that, what comes before write-once memory.
  u64 ordinary;

  // As a CTA has it at hand.
  GSAN_DEVICE explicit AddressSpace(const gsan_thread_state& state)
      : base(ptx::local_load(&state.shadow_base)),
        real_base(ptx::local_load(&state.real_base)),
        usable(ptx::local_load(&state.usable)),
        ordinary(ptx::local_load(&state.ordinary)) {}

  GSAN_DEVICE explicit AddressSpace(const gsan_constants& constants)
      : base(constants.reserve_base),
        real_base(constants.reserve_base + constants.reserve_bytes / 2),
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

  // Word 0 of the cell of `granule`, which must be managed.
  GSAN_DEVICE u64* shadow(u64 granule) const {
    constexpr u32 kUnitBytes = 2 * kGranule;
    constexpr u32 kTileBytes = GSAN_STATE_TILE * kUnitBytes;
    u64 offset = granule - real_base;
    u32 within = u32(offset) % kTileBytes;
    u32 second = within / kGranule % 2;
    u64 place = offset / kTileBytes * (kTileBytes * S) + second * (kNextCell<S> * sizeof(u64)) +
                within / kUnitBytes * kUnitBytes;
    return reinterpret_cast<u64*>(base + place);
  }
};

// The bytes from `low` to before `high` of a granule.
GSAN_DEVICE u32 bytes_between(u32 low, u32 high) { return (1u << high) - (1u << low); }

}  // namespace gsan
