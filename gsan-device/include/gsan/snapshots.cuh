// Snapshots: published copies of clocks, in a ring. One is named by the low 32 bits of its index, which
// is enough: a publication names none that is older than half the ring.
#pragma once

#include "gsan/vectors.cuh"

namespace gsan {

// The snapshots of one device.
struct Snapshots {
  Region home;

  GSAN_DEVICE u64* head() const { return &home.globals->snapshot_head.value; }
  GSAN_DEVICE u32 place(u32 snapshot) const { return snapshot & (home.globals->snapshots - 1); }

  GSAN_DEVICE EntryState state(u32 snapshot) const {
    return {home, home.part<u64>(home.globals->offsets.snapshot_states) + place(snapshot)};
  }

  GSAN_DEVICE Vector clock(u32 snapshot) const {
    u64 offset = u64(place(snapshot)) * home.globals->clock_bytes;
    return {home, reinterpret_cast<u32*>(home.part<u8>(home.globals->offsets.snapshots) + offset)};
  }

  // Whether fewer than half of the ring was claimed since `snapshot`.
  GSAN_DEVICE bool is_recent(u32 snapshot) const {
    u32 age = u32(ptx::load_relaxed_system(head())) - snapshot;
    u32 count = home.globals->snapshots;
    return age <= (count < 2 ? 1 : count / 2);
  }

  // Whether `snapshot` is there, and its whole index.
  GSAN_DEVICE bool find(u32 snapshot, u64& index) const {
    return state(snapshot).index(index) && u32(index) == snapshot;
  }

  // What `snapshot` says of `place`; false if it was overwritten.
  GSAN_DEVICE bool get(u32 snapshot, Place place, u32& entry) const {
    u64 index;
    if (!find(snapshot, index)) return false;
    entry = clock(snapshot).get(place);
    return state(snapshot).is_still_written(index);
  }
};

// A snapshot that a warp is making.
struct Draft {
  Snapshots snapshots;
  u64 index;
  // Whether the ring entry could be claimed.
  bool there;

  GSAN_DEVICE Vector clock() const { return snapshots.clock(u32(index)); }

  // Claims the next entry of the own device's ring.
  GSAN_COLD static Draft claim(Region region, Warp warp) {
    Snapshots snapshots = {region};
    u64 index = 0;
    u32 there = 0;
    if (warp.leads()) {
      index = ptx::add_relaxed_system(snapshots.head(), 1);
      // An index whose low bits are 0 could not be named.
      there = u32(index) != 0 && snapshots.state(u32(index)).claim(index, region.globals->snapshots);
      if (there) snapshots.clock(u32(index)).clear();
    }
    warp.meet();
    return {snapshots, warp.share(index), warp.share(there) != 0};
  }

  // The clock is filled. Names it, or 0 if nothing is in it.
  GSAN_COLD u32 publish(Warp warp) const {
    u32 name = 0;
    warp.meet();
    if (warp.leads()) {
      snapshots.state(u32(index)).complete(index);
      if (!clock().is_empty()) name = u32(index);
    }
    return warp.share(name);
  }
};

}  // namespace gsan
