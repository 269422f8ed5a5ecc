// Slots and history: which resident CTA has which thread id, and which had it before.
#pragma once

#include "gsan/launches.cuh"

namespace gsan {

constexpr u32 kNoSlot = ~0u;

// Epoch 1 is left out so that the epochs of one CTA are told from "all up to".
constexpr u32 kFirstEpoch = 2;
// The epoch of an asynchronous copy that is still running: no clock covers it.
constexpr u32 kRunning = GSAN_CLOCK_EPOCH_MAX - 1;
constexpr u32 kLastEpoch = kRunning - 1;

// A CTA may start before memory has what the one that left its place gave back: how often a CTA that finds no slot
// looks again, and after how many nanoseconds.
constexpr u32 kLooksForSlot = 8;
constexpr u32 kBetweenLooks = 500;

// The slots of one bank: a mask per SM, the lowest free bit first.
struct Slots {
  u32* masks;
  u32* high_water;
  u32 sms;
  u32 slots_per_sm;

  // A slot of `sm`, or kNoSlot: number `likely` if it is free, else the lowest one that is. To look first which
  // are free takes as long as to try one.
  GSAN_DEVICE u32 take(u32 sm, u32 likely) const {
    if (sm >= sms) return kNoSlot;
    u32 all = ~0u >> (32 - slots_per_sm);
    u32 most = ptx::load_relaxed_system(high_water);
    u32 bit = likely < slots_per_sm ? 1u << likely : 1u;
    while (true) {
      // Acquires what the last holder of the slot wrote before it gave it back.
      u32 taken = ptx::or_acquire(masks + sm, bit);
      if ((taken & bit) == 0) break;
      u32 free = ~taken & all;
#pragma unroll 1
      for (u32 looks = 0; free == 0 && looks < kLooksForSlot; ++looks) {
        ptx::pause_for(kBetweenLooks);
        free = ~ptx::load_relaxed(masks + sm) & all;
      }
      if (free == 0) return kNoSlot;
      bit = free & -free;
    }
    u32 slot = ptx::lowest(bit) * sms + sm;
    // All CTAs would write to this word.
    if (slot >= most) ptx::max_relaxed_system(high_water, slot + 1);
    return slot;
  }
};

// The holder of a slot gives it back, behind a fence.
GSAN_DEVICE void give_back(const gsan_launch_descriptor& launch, u32 slot, u32 sms) {
  ptx::and_relaxed(reinterpret_cast<u32*>(launch.slot_masks) + slot % sms, ~(1u << slot / sms));
}

// The epoch after `epoch`: the last one when they are worn out.
GSAN_DEVICE u32 following(Region region, u32 epoch) {
  if (epoch < kLastEpoch) return epoch + 1;
  count(region, GSAN_LOSS_WORN_EPOCH);
  return GSAN_CLOCK_EPOCH_MAX;
}

// A CTA starts on a thread id whose history is `ring`, after `number` others, which `starts` counts. By the
// holder of the slot. Each word has the epoch: words of two starts are not taken for one.
GSAN_DEVICE void start_history(gsan_history_entry* ring, u32* starts, u32 number, u32 epoch, u32 launch,
                               u64 coordinates) {
  gsan_history_entry* entry = ring + number % GSAN_STATE_HISTORY;
  u64 tag = u64(epoch) << GSAN_HISTORY_START_SHIFT;
  ptx::store_relaxed_system(&entry->start, tag | u64(launch) << GSAN_HISTORY_LAUNCH_SHIFT);
  ptx::store_relaxed_system(&entry->coordinates, tag | coordinates);
  ptx::store_relaxed(starts, number + 1);
}

// The last few CTAs of the thread ids of one device.
struct History {
  Region region;

  GSAN_DEVICE gsan_history_entry* ring(u32 thread) const {
    return region.part<gsan_history_entry>(region.globals->offsets.history) +
           u64(thread - region.globals->constants.first_id) * GSAN_STATE_HISTORY;
  }

  // The CTA that had `thread` at `epoch`; false if it is forgotten.
  GSAN_DEVICE bool find(u32 thread, u32 epoch, u32& launch, u64& coordinates) const {
    // What the CTA wrote at its start comes before the record that was found.
    fence_acquire(region);
    gsan_history_entry* entries = ring(thread);
    u64 newest = 0;
#pragma unroll 1
    for (u32 index = 0; index < GSAN_STATE_HISTORY; ++index) {
      u64 word = ptx::load_relaxed_system(&entries[index].start);
      u64 where = ptx::load_relaxed_system(&entries[index].coordinates);
      u64 start = word >> GSAN_HISTORY_START_SHIFT;
      if (start != where >> GSAN_HISTORY_START_SHIFT) continue;
      if (start > epoch || start < newest >> GSAN_HISTORY_START_SHIFT || start == 0) continue;
      newest = word;
      coordinates = where & GSAN_HISTORY_COORDINATES_MASK;
    }
    launch = u32(newest >> GSAN_HISTORY_LAUNCH_SHIFT);
    return newest != 0;
  }
};

}  // namespace gsan
