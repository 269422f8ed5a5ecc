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
  fence_release(region);
  ptx::store_relaxed_system(word, value);
}

struct EntryState {
  Region region;
  u64* word;

  GSAN_DEVICE static u64 complete_at(u64 index) { return (index + 1) << 1; }

  // What is most likely there before `index`, one of `length` entries: the index a lap before.
  GSAN_DEVICE static u64 lap_before(u64 index, u64 length) {
    return index < length ? 0 : complete_at(index - length);
  }

  GSAN_DEVICE u64 exchange_for(u64 index, u64 expected) const {
    u64 writing = complete_at(index) | GSAN_CLOCK_WRITING;
    return ptx::compare_exchange_relaxed_system(word, expected, writing);
  }

  // Starts to claim the entry, one of `length`, for `index`. Returns what is_claimed needs.
  GSAN_DEVICE u64 try_claim(u64 index, u64 length) const {
    return exchange_for(index, lap_before(index, length));
  }

  // Whether the entry is claimed: not if its writer has not finished, or a newer one has come. `found` is what
  // try_claim returned, and then what was there before. A fence belongs between this and the fields: who reads
  // one of the new fields sees, after its own fence, that the state changed; and the fields of the former
  // writer come first.
  GSAN_DEVICE bool is_claimed(u64 index, u64 length, u64& found) const {
    u64 expected = lap_before(index, length);
    if (found == expected) return true;
    if (found & GSAN_CLOCK_WRITING || found >= complete_at(index)) return false;
    expected = found;
    found = exchange_for(index, expected);
    return found == expected;
  }

  // Puts back what was there before the entry was claimed. No field was written.
  GSAN_DEVICE void put_back(u64 before) const { ptx::store_relaxed_system(word, before); }

  // Claims the entry. Whoever got it writes the fields and then calls `complete`.
  GSAN_DEVICE bool claim(u64 index, u64 length) const {
    u64 found = try_claim(index, length);
    bool claimed = is_claimed(index, length, found);
    fence(region);
    return claimed;
  }

  GSAN_DEVICE void complete(u64 index) const { store_release(region, word, complete_at(index)); }

  // An index is named, by others or by itself, once its fields were written; its state may say that later. So
  // whoever was told of it may read the fields at once, and looks whether they are still there behind a fence.
  GSAN_DEVICE static bool is_written(u64 state, u64 index) {
    return (state & ~u64(GSAN_CLOCK_WRITING)) == complete_at(index);
  }

  // The same for an index of which the low bits are known.
  GSAN_DEVICE static bool is_written(u64 state, u32 name) {
    return state != 0 && u32((state >> 1) - 1) == name;
  }

  // Whether the fields read before are those of `index`.
  GSAN_DEVICE bool is_still_written(u64 index) const {
    fence_acquire(region);
    return is_written_now(index);
  }

  // The same, behind a fence.
  GSAN_DEVICE bool is_written_now(u64 index) const {
    return is_written(ptx::load_relaxed_system(word), index);
  }

  // The index that was claimed last, if one was.
  GSAN_DEVICE bool index(u64& index) const {
    u64 state = ptx::load_relaxed_system(word);
    index = (state >> 1) - 1;
    return state != 0;
  }
};

}  // namespace gsan
