// The host's own work in streams: one CTA takes steps one after the other. It is launched with 1024
// threads.

#include "gsan/clocks.cuh"

using namespace gsan;

namespace {

GSAN_DEVICE u32 thread() { return ptx::thread_index(); }

template <class T>
GSAN_DEVICE T* at(u64 address) {
  return reinterpret_cast<T*>(address);
}

constexpr u32 kThreads = 1024;

GSAN_DEVICE void merge(const gsan_step& step) {
  if (step.source_filled != 0 && ptx::load_relaxed_system(at<u32>(step.source_filled)) == 0) return;
  for (u32 index = thread(); index < step.count; index += kThreads) {
    u32 entry = ptx::load_relaxed_system(at<u32>(step.source) + index);
    if (entry == 0) continue;
    merge_word(at<u32>(step.target) + index, entry);
    if (step.target_filled != 0) ptx::store_relaxed(at<u32>(step.target_filled), 1u);
  }
}

// Whether all ranks came in time. By one thread.
GSAN_DEVICE bool await(const gsan_step& step) {
  const u64* ranks = at<const u64>(step.source);
  u64 start = ptx::nanoseconds();
  u32 late;
  do {
    late = 0;
    for (u32 index = 0; index < step.count; ++index) {
      u32 found = ptx::load_relaxed_system(at<const u32>(ranks[2 * index + 1]));
      if (found - step.value > ~0u / 2) late |= 1u << ranks[2 * index];
    }
    if (late == 0) break;
    ptx::pause();
  } while (ptx::nanoseconds() - start < step.limit);
  // Acquires what the others wrote before they arrived.
  ptx::fence_system();
  if (late != 0) ptx::store_relaxed_system(at<u32>(step.target), late);
  return late == 0;
}

}  // namespace

static __attribute__((shared)) u32 stopped;

// As many registers as that many threads have.
extern "C" __attribute__((global, launch_bounds(kThreads))) void gsan_steps(const gsan_step* steps, u32 count) {
  if (thread() == 0) stopped = 0;
  ptx::barrier(0, kThreads);
  for (u32 index = 0; index < count; ++index) {
    const gsan_step& step = steps[index];
    switch (step.kind) {
      case GSAN_STEP_MERGE:
        merge(step);
        break;
      case GSAN_STEP_COPY:
        for (u32 word = thread(); word < step.count; word += kThreads) {
          ptx::store_relaxed(at<u64>(step.target) + word, at<const u64>(step.source)[word]);
        }
        break;
      case GSAN_STEP_ZERO:
        for (u32 word = thread(); word < step.count; word += kThreads) {
          ptx::store_relaxed(at<u32>(step.target) + word, 0u);
        }
        break;
      case GSAN_STEP_COUNT:
        for (u32 word = thread(); word < step.count; word += kThreads) {
          ptx::store_relaxed(at<u32>(step.target + u64(word) * step.stride), step.value + word);
        }
        break;
      case GSAN_STEP_ARRIVE:
        if (thread() == 0) {
          // The other threads' steps came before this one's, over a barrier.
          ptx::fence_system();
          ptx::store_relaxed_system(at<u32>(step.target), step.value);
        }
        break;
      case GSAN_STEP_AWAIT:
        if (thread() == 0 && !await(step)) stopped = 1;
        ptx::barrier(0, kThreads);
        // All look before the barrier below, and nobody writes before it: all leave together.
        if (stopped != 0) return;
        break;
    }
    ptx::fence_system();
    ptx::barrier(0, kThreads);
  }
}
