// Clock entries: an interval of one thread id's epochs, `epoch << 8 | span`.
#pragma once

#include "gsan/layout.h"
#include "gsan/ptx.cuh"

namespace gsan {

// Covers the epochs above `below` up to `last`.
GSAN_DEVICE u32 entry_between(u32 below, u32 last) {
  if (below >= last) return 0;
  bool all = below == 0 || last - below >= GSAN_CLOCK_SPAN_ALL;
  return last << GSAN_CLOCK_SPAN_BITS | (all ? GSAN_CLOCK_SPAN_ALL : last - below);
}

// Covers the epochs from `first` to `last`; more than 254 of them become all up to `last`.
GSAN_DEVICE u32 entry_closed(u32 first, u32 last) {
  return entry_between(first == 0 ? 0 : first - 1, last);
}

// Covers all epochs up to `epoch`.
GSAN_DEVICE u32 entry_all(u32 epoch) {
  return epoch == 0 ? 0 : epoch << GSAN_CLOCK_SPAN_BITS | GSAN_CLOCK_SPAN_ALL;
}

// Whether `entry` covers `epoch`.
GSAN_DEVICE bool covers(u32 entry, u32 epoch) {
  // The subtraction wraps for a newer epoch, to more than any span.
  u32 age = (entry >> GSAN_CLOCK_SPAN_BITS) - epoch;
  u32 span = entry & GSAN_CLOCK_SPAN_ALL;
  return (age < span) | ((span == GSAN_CLOCK_SPAN_ALL) & (age <= GSAN_CLOCK_EPOCH_MAX));
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

// Whether every epoch that `b` covers is covered by `a`.
GSAN_DEVICE bool contains(u32 a, u32 b) {
  if (b == 0) return true;
  return a != 0 && b >> GSAN_CLOCK_SPAN_BITS <= a >> GSAN_CLOCK_SPAN_BITS && below(a) <= below(b);
}

// What `entry` must still cover when `frontier` is known anyway: the part of it that `frontier` does
// not cover, or a little more.
GSAN_DEVICE u32 cut(u32 entry, u32 frontier) {
  if (frontier == 0) return entry;
  if (contains(frontier, entry)) return 0;
  u32 first = below(entry), last = entry >> GSAN_CLOCK_SPAN_BITS;
  u32 known_first = below(frontier), known_last = frontier >> GSAN_CLOCK_SPAN_BITS;
  if (known_first <= first && first < known_last) return entry_between(known_last, last);
  if (last <= known_last && known_first < last) return entry_between(first, known_first);
  return entry;
}

// What `entry` says of the epochs before `start`: at its own slot, epochs from there on are the
// CTA's own.
GSAN_DEVICE u32 cut_from(u32 entry, u32 start) {
  u32 last = entry >> GSAN_CLOCK_SPAN_BITS;
  if (last < start || entry == 0) return entry;
  return entry_between(below(entry), start == 0 ? 0 : start - 1);
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
