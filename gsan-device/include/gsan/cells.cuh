// Cells: the shadow of one granule, checked and updated by every access.
//
// A cell is S words (2 or 4) that are read together, checked, and then changed by at most one store
// of a record and some stores of 0. There is no lock. Word 0 may hold a sync record, which no access
// to the cell changes, and changes by compare-and-swap only; the other words are plain stores, so two
// accesses at once may lose a record to each other, which loses a report.
//
// All devices that map the memory read and write its cells, so words are accessed relaxed at `sys` scope:
// accesses of two devices at `gpu` scope would not be morally strong, and the PTX ISA promises such
// neither that words are read whole nor that they are ever seen (Memory Consistency Model, "Morally
// Strong Operations", "Conflict and Data-races", "Single-copy Atomicity"). Relaxed accesses go past the
// first-level cache at either scope; only fences cost more at `sys`, and there are none here.
//
// `P` tells what is known of the past: `is_ordered(thread, epoch)` and `is_same_device(thread)`.
#pragma once

#include "gsan/address.cuh"
#include "gsan/reservoir.cuh"

namespace gsan {

constexpr u32 kNoLoss = GSAN_LOSS_COUNT;

// The part of an access that falls into one granule.
struct CellAccess {
  // The record it leaves: an access that reads and writes leaves a write.
  u64 record;
  // GSAN_RACE_READ, GSAN_RACE_WRITE or both.
  u32 action;
  // GSAN_SCOPE_*, as in the record.
  u32 scope;

  GSAN_DEVICE bool reads() const { return action & GSAN_RACE_READ; }
  GSAN_DEVICE bool writes() const { return action & GSAN_RACE_WRITE; }
  GSAN_DEVICE u32 mask() const { return record_mask(record); }

  // Whether one of the two writes.
  GSAN_DEVICE bool conflicts(u64 earlier) const { return writes() || record_writes(earlier); }

  // What the access does to `earlier`, with which it conflicts. It reads before it writes.
  GSAN_DEVICE u32 kind(u64 earlier) const {
    if (!record_writes(earlier)) return GSAN_RACE_WRITE_AFTER_READ;
    return reads() ? GSAN_RACE_READ_AFTER_WRITE : GSAN_RACE_WRITE_AFTER_WRITE;
  }

  // Whether every access that `earlier` could race with, and that is not ordered after this one,
  // races with this one as well. `earlier` is ordered before it and covered by it.
  template <class P>
  GSAN_DEVICE bool supersedes(u64 earlier, const P& past) const {
    return (writes() || !record_writes(earlier)) &&
           (scope == GSAN_SCOPE_NOT_ATOMIC ||
            (scope <= record_scope(earlier) && past.is_same_device(record_thread(earlier))));
  }

  // Whether both are atomic and each scope covers both threads. Threads of one CTA are ordered
  // among themselves: the question comes up for different CTAs only.
  template <class P>
  GSAN_DEVICE bool cover_each_other(u64 earlier, const P& past) const {
    if (scope == GSAN_SCOPE_NOT_ATOMIC) return false;
    u32 other = record_scope(earlier);
    u32 least = scope < other ? scope : other;
    if (least == GSAN_SCOPE_GPU) return past.is_same_device(record_thread(earlier));
    return least == GSAN_SCOPE_SYS;
  }
};

// What a pass over the words of a cell found; a bit for each word.
struct Survey {
  // The access's own record is there.
  bool equal = false;
  // Nothing is there.
  u32 empty = 0;
  // Forgetting the record loses nothing.
  u32 superseded = 0;
  // An atomic write that the access observed.
  u32 observed = 0;
  // The record is ordered before and covered, but not superseded.
  u32 covered = 0;
  // The access races with the record.
  u32 racing = 0;

  // All of it in a word: structures are passed through memory.
  GSAN_DEVICE u32 packed() const {
    return u32(equal) | empty << 4 | superseded << 8 | observed << 12 | covered << 16 | racing << 20;
  }

  GSAN_DEVICE static Survey of(u32 packed) {
    auto words = [&](u32 shift) GSAN_HERE { return packed >> shift & 0xf; };
    return {words(0) != 0, words(4), words(8), words(12), words(16), words(20)};
  }
};

// A cell as it was read.
template <unsigned S>
struct Cell {
  static_assert(S == 2 || S == 4, "a cell has 2 or 4 words");

  u64 word[S];

  // Word `index`, from registers.
  GSAN_DEVICE u64 at(u32 index) const {
    u64 value = word[0];
#pragma unroll
    for (u32 i = 1; i < S; ++i) value = i == index ? word[i] : value;
    return value;
  }

  GSAN_DEVICE static Cell load(const u64* words) {
    Cell cell;
#pragma unroll
    for (unsigned i = 0; i < S; i += 2) {
      ptx::load_relaxed_system_pair(words + i / 2 * kPairStep, cell.word[i], cell.word[i + 1]);
    }
    return cell;
  }
};

// Looks at every word.
// `removes`: what the access observed and supersedes goes, whether it is ordered or not; so that is not looked up.
template <unsigned S, class P>
GSAN_DEVICE Survey survey(const Cell<S>& cell, const CellAccess& access, const P& past, bool removes = false) {
  Survey found;
  // The others that share bytes with the access.
  u32 others = 0;
#pragma unroll
  for (u32 i = 0; i < S; ++i) {
    u64 word = cell.word[i];
    bool equal = word == access.record;
    found.equal |= equal;
    found.empty |= u32(word == 0) << i;
    bool shares = (u32(word) & u32(access.record) & kRecordMask) != 0 && !is_sync(word);
    others |= u32(shares && !equal) << i;
  }
#pragma unroll 1
  for (; others != 0; others &= others - 1) {
    u32 i = ptx::lowest(others);
    u64 word = cell.at(i);
    u32 bit = 1u << i;
    u32 mask = record_mask(word) & access.mask();
    bool conflict = access.conflicts(word);
    bool atomic = access.cover_each_other(word, past);
    bool observes =
        atomic && access.reads() && record_writes(word) && record_mask(word) == access.mask();
    if (found.equal && !observes && (atomic || !conflict)) continue;
    if (removes && observes && !found.equal && access.supersedes(word, past)) {
      found.observed |= bit;
    } else if (past.is_ordered(record_thread(word), record_epoch(word))) {
      if (mask == record_mask(word)) {
        if (access.supersedes(word, past)) {
          found.superseded |= bit;
        } else if (access.writes() || !record_writes(word)) {
          found.covered |= bit;
        }
      }
    } else if (observes) {
      found.observed |= bit;
    } else if (conflict && !atomic) {
      found.racing |= bit;
    }
  }
  return found;
}

// Writes word `index`; word 0 stays as it is if it does not hold `found` any more: a change in
// between wins, its record is as good as this one.
GSAN_DEVICE void replace(u64* words, u32 index, u64 found, u64 value) {
  if (index == 0) {
    ptx::compare_exchange_relaxed_system(words, found, value);
  } else {
    ptx::store_relaxed_system(word_of(words, index), value);
  }
}

// Empties the words of `which`. `found` is what word 0 held.
GSAN_DEVICE void clear(u64* words, u64 found, u32 which) {
#pragma unroll 1
  for (; which != 0; which &= which - 1) replace(words, ptx::lowest(which), found, 0);
}

// Which word gives way when none is free.
struct Victim {
  // No word: the access is not recorded.
  static constexpr u32 kNone = ~0u;

  u32 index;
  u32 loss;
};

// Of the reads of a full cell the one with the largest number; of its writes if it has no read. A read
// takes the place of a write only if that is ordered before it, and of a read only if its own number is
// smaller.
template <unsigned S, class P>
GSAN_COLD Victim victim(Cell<S> cell, u64 record, P past, Sampler sampler) {
  bool writes = record_writes(record);
  u32 index = Victim::kNone;
  u32 number = 0;
  bool reads = false;
#pragma unroll 1
  for (u32 i = 0; i < S; ++i) {
    u64 word = cell.at(i);
    bool read = !record_writes(word);
    if (word == 0 || is_sync(word) || (reads && !read)) continue;
    if (!read && !writes && !past.is_ordered(record_thread(word), record_epoch(word))) continue;
    u32 candidate = sampler.number(word);
    if (index != Victim::kNone && read == reads && candidate < number) continue;
    index = i;
    number = candidate;
    reads = read;
  }
  if (writes) return {index, GSAN_LOSS_WRITE_EVICTED};
  if (reads && sampler.number(record) >= number) index = Victim::kNone;
  bool evicts = !reads && index != Victim::kNone;
  return {index, evicts ? u32(GSAN_LOSS_WRITE_EVICTED) : u32(GSAN_LOSS_READ_NOT_SAMPLED)};
}

// Changes the cell at `words`, read as `cell`, as the access requires. Returns the limit that was
// met, or kNoLoss, and whether anything was changed.
template <unsigned S, class P>
GSAN_COLD u32 update(u64* words, Cell<S> cell, Survey found, CellAccess access, P past,
                     Sampler sampler, bool& changed) {
  u64 first = cell.word[0];
  changed = !found.equal || found.observed != 0;
  if (found.equal) {
    clear(words, first, found.observed);
    return kNoLoss;
  }
  u32 loss = kNoLoss;
  u32 free = found.superseded | found.observed | found.empty;
  u32 choice = (free & ~1u) ? free & ~1u : free ? free : found.covered;
  u32 target;
  if (choice != 0) {
    target = ptx::lowest(choice);
  } else {
    Victim given = victim(cell, access.record, past, sampler);
    loss = given.loss;
    target = given.index;
    if (target == Victim::kNone) {
      changed = false;
      return loss;
    }
  }
  replace(words, target, first, access.record);
  u32 superseded = access.writes() ? found.superseded : 0;
  clear(words, first, (found.observed | superseded) & ~(1u << target));
  return loss;
}

template <unsigned S, class P>
GSAN_DEVICE u32 update(u64* words, const Cell<S>& cell, const Survey& found,
                       const CellAccess& access, const P& past, const Sampler& sampler) {
  bool changed;
  return update(words, cell, found, access, past, sampler, changed);
}

}  // namespace gsan
