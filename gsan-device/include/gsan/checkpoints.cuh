// Checkpoints: copies of all mirrored epochs, "everything up to a moment".
//
// A checkpoint's position is the head of its device's publications when it began to copy: it stands
// for whatever a publication before that can know. Epochs and checkpoints only grow, so one may be
// named for as long as anybody likes. A name is `device << 16 | index + 1`; 0 is none.
#pragma once

#include "gsan/launches.cuh"
#include "gsan/rings.cuh"

namespace gsan {

constexpr u32 kNoCheckpoint = 0;

GSAN_DEVICE u32 checkpoint_device(u32 name) { return name >> GSAN_CLOCK_CHECKPOINT_DEVICE_SHIFT; }

GSAN_DEVICE u32 checkpoint_index(u32 name) {
  return (name & ((1u << GSAN_CLOCK_CHECKPOINT_DEVICE_SHIFT) - 1)) - 1;
}

// The checkpoints of one device.
struct Checkpoints {
  Region home;

  GSAN_DEVICE gsan_checkpoints* memory() const {
    return home.part<gsan_checkpoints>(home.globals->offsets.checkpoints);
  }

  GSAN_DEVICE u32 name(u32 index) const {
    return u32(home.globals->constants.rank) << GSAN_CLOCK_CHECKPOINT_DEVICE_SHIFT | (index + 1);
  }

  // The epochs of checkpoint `index`, by thread id.
  GSAN_DEVICE u32* row(u32 index) const {
    return home.part<u32>(home.globals->offsets.checkpoint_epochs) +
           u64(index) * home.globals->ids;
  }

  GSAN_DEVICE u64 position(u32 name) const {
    return load_acquire(home, memory()->positions + checkpoint_index(name));
  }

  // The oldest one kept that covers what publication `token` knew.
  GSAN_DEVICE u32 covering(u64 token) const {
    u64 oldest = ~u64(0);
    u32 found = kNoCheckpoint;
    for_each_position([&](u32 index, u64 position) {
      bool better = (position > token + 1) & (position < oldest);
      oldest = better ? position : oldest;
      found = better ? name(index) : found;
    });
    fence_acquire(home);
    return found;
  }

  // The position of the newest one plus 1; 0 when none was taken.
  GSAN_DEVICE u64 newest() const {
    u64 newest = 0;
    for_each_position([&](u32, u64 position) { newest = position > newest ? position : newest; });
    return newest;
  }

 private:
  // Calls `body(index, position)`. Several positions are under way at once.
  template <class F>
  GSAN_DEVICE void for_each_position(F body) const {
    constexpr u32 kAtOnce = 8;
    static_assert(GSAN_CLOCK_CHECKPOINTS % kAtOnce == 0, "no rest is left");
#pragma unroll 1
    for (u32 first = 0; first < GSAN_CLOCK_CHECKPOINTS; first += kAtOnce) {
      u64 positions[kAtOnce];
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        positions[i] = ptx::load_relaxed_system(memory()->positions + first + i);
      }
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) body(first + i, positions[i]);
    }
  }
};

GSAN_DEVICE u32 checkpoint_epoch(Region region, u32 name, u32 thread) {
  Checkpoints checkpoints = {region.of_device(checkpoint_device(name))};
  return ptx::load_relaxed_system(checkpoints.row(checkpoint_index(name)) + thread);
}

// Copies the mirrored epochs of `bank` to `row`, as far as slots were taken. Often by one lane alone:
// several epochs are under way at once. By a warp.
GSAN_DEVICE void copy_epochs(Region region, Warp warp, u32 bank, u32* row) {
  constexpr u32 kAtOnce = 8;
  u32 mark = slots_taken(region, bank);
  if (mark == 0) return;
  u32 first = Topology{region.globals->constants}.id({bank, 0});
  const u32* epochs = region.of_device(region.device_of(first)).epoch(first);
  u32 lanes = warp.size();
#pragma unroll 1
  for (u32 slot = warp.rank(); slot < mark; slot += kAtOnce * lanes) {
    u32 copied[kAtOnce];
#pragma unroll
    for (u32 i = 0; i < kAtOnce; ++i) {
      u32 at = slot + i * lanes;
      copied[i] = ptx::load_relaxed_system(epochs + (at < mark ? at : slot));
    }
#pragma unroll
    for (u32 i = 0; i < kAtOnce; ++i) {
      u32 at = slot + i * lanes;
      if (at < mark) ptx::store_relaxed_system(row + first + at, copied[i]);
    }
  }
}

// Takes a checkpoint of this device, unless somebody is just doing so. Never waits. By a warp.
GSAN_COLD u32 take_checkpoint(Region region, Warp warp) {
  Checkpoints checkpoints = {region};
  gsan_checkpoints* memory = checkpoints.memory();
  u32 busy = 0, index = 0;
  u64 position = 0;
  if (warp.leads()) {
    busy = ptx::exchange_relaxed_system(&memory->busy, 1u);
    fence(region);
    // Acquires what every publication below the head knew when it was claimed.
    position = load_acquire(region, &region.globals->publication_head.value);
    index = ptx::load_relaxed_system(&memory->taken) % GSAN_CLOCK_CHECKPOINTS;
  }
  if (warp.share(busy) != 0) return kNoCheckpoint;
  index = warp.share(index);
  u32* row = checkpoints.row(index);
  const gsan_constants& constants = region.globals->constants;
  for (u32 bank = 0; bank < constants.banks * constants.devices; ++bank) {
    copy_epochs(region, warp, bank, row);
  }
  warp.meet();
  if (warp.leads()) {
    store_release(region, memory->positions + index, position + 1);
    ptx::store_relaxed_system(&memory->taken, ptx::load_relaxed_system(&memory->taken) + 1);
    store_release(region, &memory->busy, 0u);
  }
  return checkpoints.name(index);
}

}  // namespace gsan
