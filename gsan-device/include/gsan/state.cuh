// Where the state of a CTA lies, and the views that everything else works on.
//
// With its state in shared memory, the library has one variable of 1,024 bytes, aligned to 1,024:
// what comes after it keeps the alignment that TMA and wgmma ask for. Kernels that need all shared
// memory for themselves take the variant GSAN_STATE_BY_SM: one CTA runs on an SM at a time, and its
// state lies in the state region.
#pragma once

#include "gsan/layout.h"
#include "gsan/ptx.cuh"

namespace gsan {

// Source locations that a CTA has looked up, by a hash of file and line: `tag << 12 | site`.
constexpr u32 kCachedSites = 64;

// Numbers that stay as they are: how many devices there are, how many SMs the own one has, where its rings
// lie, as offsets, and how long they are.
struct Fixed {
  u32 devices;
  u32 sms;
  u32 publications;
  u32 publications_at;
  u32 snapshots;
  u32 snapshots_at;
  u32 snapshot_states_at;
  u32 clock_bytes;
  u32 segments;
  u32 segment_entries;

  GSAN_DEVICE static Fixed of(const gsan_global_state& globals) {
    Fixed fixed;
    fixed.devices = globals.constants.devices;
    fixed.sms = globals.sms;
    fixed.publications = globals.publications;
    fixed.publications_at = globals.offsets.publications;
    fixed.snapshots = globals.snapshots;
    fixed.snapshots_at = globals.offsets.snapshots;
    fixed.snapshot_states_at = globals.offsets.snapshot_states;
    fixed.clock_bytes = globals.clock_bytes;
    fixed.segments = globals.segments;
    fixed.segment_entries = globals.segment_entries;
    return fixed;
  }
};

// What a CTA has at hand. Behind a fence that acquires, what is not comes from the second-level cache.
struct CtaMemory {
  gsan_thread_state state;
  u64 sites[kCachedSites];
  Fixed fixed;
};

constexpr u32 kCtaMemoryBytes = 1024;
static_assert(sizeof(CtaMemory) <= kCtaMemoryBytes, "the state of a CTA fits into its memory");

// Functions of one translation unit are called by kernels of another: the variables are one for all then.
#if defined(__CLANG_RDC__) || defined(__CUDACC_RDC__)
#define GSAN_VARIABLE inline
#else
#define GSAN_VARIABLE static
#endif

#if defined(GSAN_HOST) || defined(GSAN_STATE_BY_SM)
#define GSAN_STATE_IN_REGION 1
#else
#define GSAN_STATE_IN_REGION 0
GSAN_VARIABLE __attribute__((shared, aligned(1024))) unsigned char cta_memory[kCtaMemoryBytes];
#endif

// A position in the source, as the compiler's calls name it.
struct Position {
  // NUL-terminated, in the kernel's own module.
  const char* file;
  u32 line;
};

// The state region of a device, and the parts of it.
struct Region {
  gsan_global_state* globals;

  template <class T>
  GSAN_DEVICE T* part(u32 offset) const {
    return reinterpret_cast<T*>(reinterpret_cast<u64>(globals) + offset);
  }

  // The region of another device of the topology.
  GSAN_DEVICE Region of_device(u32 rank) const {
    u64 base = globals->constants.state_base + u64(rank) * GSAN_STATE_STRIDE;
    return {reinterpret_cast<gsan_global_state*>(base)};
  }

  // Whether the state of a rank is mapped here. Of one that is not, no thread was ever met.
  GSAN_DEVICE bool is_present(u32 rank) const {
    return ptx::load_relaxed(&globals->present) >> rank & 1;
  }

  GSAN_DEVICE u32 device_of(u32 thread) const { return thread / globals->constants.share; }

  // The region of the device that has `thread`.
  GSAN_DEVICE Region home_of(u32 thread) const {
    const gsan_constants& constants = globals->constants;
    return thread - constants.first_id < constants.share ? *this : of_device(device_of(thread));
  }

  // The mirrored epoch of a thread id of this device.
  GSAN_DEVICE u32* epoch(u32 thread) const {
    return part<u32>(globals->offsets.epochs) + (thread - globals->constants.first_id);
  }

  GSAN_DEVICE gsan_launch_state* launch(u32 number) const {
    return part<gsan_launch_state>(globals->offsets.launches) + number % GSAN_STATE_LAUNCHES;
  }
};

// A fence between accesses to memory that all devices of the topology map.
GSAN_DEVICE void fence(Region region) {
  if (region.globals->constants.devices > 1) {
    ptx::fence_system();
  } else {
    ptx::fence();
  }
}

// The halves of it.
GSAN_DEVICE void fence_release(Region region) {
  if (region.globals->constants.devices > 1) {
    ptx::fence_release_system();
  } else {
    ptx::fence_release();
  }
}

GSAN_DEVICE void fence_acquire(Region region) {
  if (region.globals->constants.devices > 1) {
    ptx::fence_acquire_system();
  } else {
    ptx::fence_acquire();
  }
}

// Counts a limit that was met.
GSAN_COLD void count(Region region, u32 loss, u64 times = 1) {
  ptx::add_relaxed(&region.globals->losses[loss], times);
}

// A resident CTA.
struct Cta {
  Region region;
  gsan_thread_state* state;

  GSAN_DEVICE static Cta current(gsan_global_state* globals) {
    Region region = {globals};
#if GSAN_STATE_IN_REGION
    return {region, region.part<gsan_thread_state>(globals->offsets.threads) + ptx::sm()};
#else
    return {region, &reinterpret_cast<CtaMemory*>(cta_memory)->state};
#endif
  }

  // Looked-up source locations, or null where there is no room for them.
  GSAN_DEVICE u64* sites() const {
#if GSAN_STATE_IN_REGION
    return nullptr;
#else
    return reinterpret_cast<CtaMemory*>(cta_memory)->sites;
#endif
  }

  GSAN_DEVICE Fixed fixed() const {
#if GSAN_STATE_IN_REGION
    return Fixed::of(*region.globals);
#else
    return reinterpret_cast<CtaMemory*>(cta_memory)->fixed;
#endif
  }

  // At the start, once the launch is known. By one lane.
  GSAN_DEVICE void keep([[maybe_unused]] const Fixed& fixed) const {
#if !GSAN_STATE_IN_REGION
    reinterpret_cast<CtaMemory*>(cta_memory)->fixed = fixed;
#endif
  }

  // The region of the device that has `other`.
  GSAN_DEVICE Region home_of(u32 other) const {
    return other - state->bank_first < state->slots ? region : region.home_of(other);
  }

  // Whether the host said what is launched.
  GSAN_DEVICE bool is_known() const { return state->state != 0; }

  GSAN_DEVICE const gsan_launch_descriptor* launch() const { return &state->launch; }

  GSAN_DEVICE gsan_launch_state* launch_state() const {
    return reinterpret_cast<gsan_launch_state*>(state->state);
  }

  GSAN_DEVICE bool has_slot() const { return state->id != 0; }

  GSAN_DEVICE u32 thread() const { return state->id - 1; }

  GSAN_DEVICE u32 flags() const { return ptx::local_load(&state->flags); }

  // The epoch of an access that is being made.
  GSAN_DEVICE u32 touch() const {
    u32 epoch = ptx::local_load(&state->epoch);
    if (ptx::local_load(&state->touched) != epoch) ptx::local_max(&state->touched, epoch);
    return epoch;
  }

  // That `entry` covers epochs of `thread`, all of which are ordered before the CTA: it may be asked
  // again. What is known once stays known.
  GSAN_DEVICE void remember(u32 thread, u32 entry) const {
    ptx::local_store(&state->known[thread % GSAN_THREAD_KNOWN], u64(thread) << 32 | entry);
  }

  // What was remembered last of `thread`; 0 if it is forgotten.
  GSAN_DEVICE u32 recall(u32 thread) const {
    u64 word = ptx::local_load(&state->known[thread % GSAN_THREAD_KNOWN]);
    return u32(word >> 32) == thread ? u32(word) : 0;
  }

  // What the CTA knows has changed: what an access found is to be worked out anew, and with what lies
  // beyond the own bank's row.
  GSAN_DEVICE void unsettle() const {
    ptx::local_store(&state->more, 1u);
    ptx::local_store(&state->settled, u64(0));
  }

  // From now on everything counts as ordered before this CTA.
  GSAN_DEVICE void learn_everything(u32 loss) const {
    count(region, loss);
    ptx::local_or(&state->flags, GSAN_THREAD_EVERYTHING);
    unsettle();
  }
};

// The same as fence(Region) for the CTA's own.
GSAN_DEVICE void fence(Cta cta) {
  if (cta.fixed().devices > 1) {
    ptx::fence_system();
  } else {
    ptx::fence();
  }
}

GSAN_DEVICE void fence_release(Cta cta) {
  if (cta.fixed().devices > 1) {
    ptx::fence_release_system();
  } else {
    ptx::fence_release();
  }
}

GSAN_DEVICE void fence_acquire(Cta cta) {
  if (cta.fixed().devices > 1) {
    ptx::fence_acquire_system();
  } else {
    ptx::fence_acquire();
  }
}

// A fence behind a look at what a thread of the device at `home` wrote, to which its rings belong.
GSAN_DEVICE void fence_behind(Cta cta, Region home) {
  if (home.globals == cta.region.globals) {
    ptx::fence_acquire();
  } else {
    ptx::fence_acquire_system();
  }
}

}  // namespace gsan
