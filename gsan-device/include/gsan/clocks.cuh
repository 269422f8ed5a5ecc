// Clock entries: an interval of one thread id's epochs, `epoch << 8 | span`.
#pragma once

#include "gsan/layout.h"
#include "gsan/ptx.cuh"

namespace gsan {

// Covers all epochs up to `epoch`.
GSAN_DEVICE u32 entry_all(u32 epoch) {
  return epoch == 0 ? 0 : epoch << GSAN_CLOCK_SPAN_BITS | GSAN_CLOCK_SPAN_ALL;
}

// Whether `entry` covers `epoch`.
GSAN_DEVICE bool covers(u32 entry, u32 epoch) {
  // The subtraction wraps for a newer epoch, to more than any span.
  u32 age = (entry >> GSAN_CLOCK_SPAN_BITS) - epoch;
  u32 span = entry & GSAN_CLOCK_SPAN_ALL;
  return age < span || (span == GSAN_CLOCK_SPAN_ALL && age <= GSAN_CLOCK_EPOCH_MAX);
}

// The newest epoch below the interval; above every epoch for an empty entry.
GSAN_DEVICE u32 below(u32 entry) {
  u32 epoch = entry >> GSAN_CLOCK_SPAN_BITS;
  u32 span = entry & GSAN_CLOCK_SPAN_ALL;
  if (entry == 0) return GSAN_CLOCK_EPOCH_MAX;
  return span == GSAN_CLOCK_SPAN_ALL || span > epoch ? 0 : epoch - span;
}

// The smallest entry that covers what either covers.
GSAN_DEVICE u32 hull(u32 a, u32 b) {
  if ((a | b) == 0) return 0;
  u32 first = below(a) < below(b) ? below(a) : below(b);
  // The larger word has the larger epoch.
  u32 last = (a > b ? a : b) & ~GSAN_CLOCK_SPAN_ALL;
  u32 span = (last >> GSAN_CLOCK_SPAN_BITS) - first;
  bool all = first == 0 || span > GSAN_CLOCK_SPAN_ALL;
  return last | (all ? GSAN_CLOCK_SPAN_ALL : span);
}

// Merges `entry` into a word that others may write meanwhile. A maximum of the packed words would
// not do: of two entries the one with the newer epoch may cover less.
GSAN_DEVICE void merge_word(u32* word, u32 entry) {
  u32 found = ptx::load_relaxed(word);
  while (true) {
    u32 merged = hull(found, entry);
    if (merged == found) return;
    u32 before = ptx::compare_exchange_relaxed(word, found, merged);
    if (before == found) return;
    found = before;
  }
}

}  // namespace gsan
