// The lanes of a warp that call together. What they do together must be the same for all: the first
// of them reads what others may change, and shares it.
#pragma once

#include "gsan/ptx.cuh"

namespace gsan {

constexpr u32 kWarpSize = 32;

// GSAN_WHOLE_WARPS says that all callers come as whole warps, though a check or a loop may have parted the lanes.
// Then they wait for each other wherever they do something together. A mask that is found at run time can be that
// of a part, and parts that have become one again differ in it.
struct Warp {
#if defined(GSAN_WHOLE_WARPS) && !defined(GSAN_HOST)
  static constexpr u32 lanes = ~0u;

  GSAN_DEVICE static Warp of(u32) { return {}; }
  GSAN_DEVICE static Warp current() {
    ptx::meet_all();
    return {};
  }

  // All lanes go on from here as one. Kernels take for granted that they make an access at once: what they read while
  // others write it would differ, and where they go from there.
  GSAN_DEVICE void leave_together() const { ptx::become_one(); }
#else
  u32 lanes;

  GSAN_DEVICE static Warp of(u32 lanes) { return {lanes}; }
  // Those that are here now; others of the warp may be elsewhere.
  GSAN_DEVICE static Warp current() { return {ptx::active_lanes()}; }

  // All lanes go on from here, as they came.
  GSAN_DEVICE void leave_together() const { ptx::leave_together(lanes); }
#endif

  GSAN_DEVICE u32 first() const { return ptx::lowest(lanes); }
  GSAN_DEVICE bool leads() const { return ptx::lane() == first(); }
  GSAN_DEVICE u32 size() const { return ptx::count_bits(lanes); }
  // How many of `some` lanes come before the calling one.
  GSAN_DEVICE static u32 before(u32 some) {
    return ptx::count_bits(some & ((1u << ptx::lane()) - 1));
  }
  GSAN_DEVICE u32 rank() const { return before(lanes); }

  GSAN_DEVICE u32 share(u32 value, u32 from) const { return ptx::share(lanes, value, from); }
  GSAN_DEVICE u64 share(u64 value, u32 from) const {
    u32 low = share(u32(value), from);
    return u64(share(u32(value >> 32), from)) << 32 | low;
  }
  // What the first lane has.
  GSAN_DEVICE u32 share(u32 value) const { return share(value, first()); }
  GSAN_DEVICE u64 share(u64 value) const { return share(value, first()); }

  GSAN_DEVICE u32 ballot(bool condition) const { return ptx::ballot(lanes, condition); }
  GSAN_DEVICE bool any(bool condition) const { return ballot(condition) != 0; }
  GSAN_DEVICE u32 largest(u32 value) const { return ptx::largest(lanes, value); }
  GSAN_DEVICE void meet() const { ptx::meet(lanes); }
};

}  // namespace gsan
