// What the kernels of the tests share.
#pragma once

#include "gsan/device.cuh"

using namespace gsan;

// A kernel, and what the host hands every kernel behind its own arguments.
#define KERNEL extern "C" __attribute__((global)) void
#define LAUNCH gsan_global_state *globals, const void *table, u64 index

GSAN_DEVICE u32 thread() { return ptx::thread_index(); }
GSAN_DEVICE u32 threads() { return ptx::cta_threads(); }
GSAN_DEVICE u32 cta() { return u32(ptx::cta_index()); }
GSAN_DEVICE u32 ctas() { return u32(ptx::grid_ctas()); }
GSAN_DEVICE void barrier() { ptx::barrier(0, threads()); }

// How often something is looked at that another CTA will change. Who runs out of patience says so, and
// goes on.
class Patience {
 public:
  GSAN_DEVICE explicit Patience(u32* gave_up, u32 looks = 1 << 22)
      : gave_up_(gave_up), left_(looks) {}

  GSAN_DEVICE bool more() {
    ptx::pause();
    if (left_-- != 0) return true;
    ptx::store_relaxed(gave_up_, 1u);
    return false;
  }

 private:
  u32* gave_up_;
  u32 left_;
};

// Order in time that the checks know nothing of, so that a race happens one way round.
GSAN_DEVICE void hidden_signal(u32* word) { ptx::add_release(word, 1); }
GSAN_DEVICE void hidden_wait(const u32* word, u32 signals, u32* gave_up) {
  for (Patience patience(gave_up); ptx::load_acquire(word) < signals && patience.more();) {
  }
}
