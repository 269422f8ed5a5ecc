// Entries of a ring that are written by whoever claims them and read without a lock: the state word
// says which index is there, and whether it is whole.
//
// Other devices may map what is in rings: it is accessed relaxed at `sys` scope. Fences order the
// accesses, and reach beyond the device only where there are other devices.
#pragma once

#include "gsan/state.cuh"
#include "gsan/warps.cuh"

namespace gsan {

// An instruction that acquires costs a wait less than a fence behind a relaxed one.
template <class T>
GSAN_DEVICE T load_acquire(Region region, const T* word) {
  return region.globals->constants.devices > 1 ? ptx::load_acquire_system(word)
                                               : ptx::load_acquire(word);
}

template <class T>
GSAN_DEVICE void store_release(Region region, T* word, T value) {
  fence(region);
  ptx::store_relaxed_system(word, value);
}

struct EntryState {
  Region region;
  u64* word;

  GSAN_DEVICE static u64 complete_at(u64 index) { return (index + 1) << 1; }

  // Claims the entry, one of `length`, for `index`; fails if its writer has not finished, or a newer
  // one has come. Whoever got it writes the fields and then calls `complete`.
  GSAN_DEVICE bool claim(u64 index, u64 length) const {
    u64 writing = complete_at(index) | GSAN_CLOCK_WRITING;
    // Mostly the index a lap before is there.
    u64 expected = index < length ? 0 : complete_at(index - length);
    u64 found = ptx::compare_exchange_relaxed_system(word, expected, writing);
    if (found != expected) {
      if (found & GSAN_CLOCK_WRITING || found >= complete_at(index)) return false;
      expected = found;
      found = ptx::compare_exchange_relaxed_system(word, expected, writing);
    }
    // Whoever reads one of the new fields sees, after its own fence, that the state changed; and the
    // fields of the former writer come first.
    fence(region);
    return found == expected;
  }

  GSAN_DEVICE void complete(u64 index) const { store_release(region, word, complete_at(index)); }

  GSAN_DEVICE bool is_complete(u64 index) const {
    return load_acquire(region, word) == complete_at(index);
  }

  // Whether the fields read since `is_complete` are those of `index`.
  GSAN_DEVICE bool is_still_complete(u64 index) const {
    fence(region);
    return is_complete_now(index);
  }

  // The same, behind a fence.
  GSAN_DEVICE bool is_complete_now(u64 index) const {
    return ptx::load_relaxed_system(word) == complete_at(index);
  }

  // The index that is complete, if one is. What is read of the entry comes behind this look.
  GSAN_DEVICE bool index(u64& index) const {
    u64 state = load_acquire(region, word);
    index = (state >> 1) - 1;
    return state != 0 && (state & GSAN_CLOCK_WRITING) == 0;
  }
};

}  // namespace gsan
