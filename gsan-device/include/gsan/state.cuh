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

struct CtaMemory {
  gsan_thread_state state;
  u64 sites[kCachedSites];
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

  // Whether the host has set it up as this library understands it, with cells of `records` words.
  GSAN_DEVICE bool is_ready(u32 records) const {
    return globals->magic == GSAN_STATE_MAGIC && globals->version == GSAN_STATE_VERSION &&
           globals->constants.records == records;
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

}  // namespace gsan
