// Write-once memory: each byte is written once in the life of its allocation. A second write, a read
// before the write and an atomic are errors, whatever orders them.
//
// Word 0 of a cell has the form of a sync record, which no other access touches: its mask says which
// bytes were written, and where a token would be is who wrote last. The other words hold ordinary
// records, so that races are found as well. All ones: the host has forgotten what was written.
#pragma once

#include "gsan/address.cuh"
#include "gsan/past.cuh"
#include "gsan/races.cuh"

namespace gsan {

constexpr u64 kUnknownWrites = ~u64(0);
constexpr u32 kWriterEpochShift = GSAN_RECORD_TOKEN_SHIFT;
constexpr u32 kWriterSiteShift = kWriterEpochShift + GSAN_RECORD_EPOCH_BITS;
static_assert(kWriterSiteShift + GSAN_RECORD_SITE_BITS <= 64, "a writer fits into word 0");

// Word 0 once `record` has written; `before` were written, too.
GSAN_DEVICE u64 written_word(u64 record, u32 before) {
  return u64(record_site(record)) << kWriterSiteShift |
         u64(record_epoch(record)) << kWriterEpochShift | kRecordSync |
         (record_mask(record) | before) << GSAN_RECORD_MASK_SHIFT | record_thread(record);
}

// Which bytes were written, according to word 0.
GSAN_DEVICE u32 written_mask(u64 word) { return is_sync(word) ? record_mask(word) : 0; }

// The record of the last write, of all bytes written, that word 0 tells of.
GSAN_DEVICE u64 last_writer(u64 word) {
  u32 epoch = u32(word >> kWriterEpochShift) & GSAN_CLOCK_EPOCH_MAX;
  u32 site = u32(word >> kWriterSiteShift);
  return make_record(record_thread(word), epoch, record_mask(word), true, GSAN_SCOPE_NOT_ATOMIC,
                     site);
}

// A write of the bytes of `mask` by one of `words`; else the last one.
template <unsigned S>
GSAN_DEVICE u64 writer_of(const Cell<S>& cell, u64 first, u32 mask) {
  u64 writer = last_writer(first);
#pragma unroll
  for (u32 i = 1; i < S; ++i) {
    u64 word = cell.word[i];
    if (has_bytes(u32(word)) && record_writes(word) && record_mask(word) & mask) writer = word;
  }
  return writer;
}

// Notes that the access wrote. Returns word 0 as it was before.
GSAN_DEVICE u64 note_write(u64* words, u64 found, u64 record) {
  // Each failure is a write of another CTA, and there are eight bytes to write; then the newer one stays
  // that is told of.
  while (true) {
    u64 next = written_word(record, written_mask(found));
    u64 before = ptx::compare_exchange_relaxed(words, found, next);
    if (before == found) return found;
    found = before;
    u32 mask = record_mask(record);
    if ((written_mask(found) & mask) == mask) return found;
  }
}

// Checks an ordinary access to a part of a granule of write-once memory against what was written.
// Returns what stands for word 0 when the other words are looked at: it is no record, and no place
// for one.
template <unsigned S>
GSAN_COLD u64 check_write_once(gsan_global_state* globals, u64* words, Cell<S> cell,
                               CellAccess access, u64 granule, Position position) {
  u64 first = access.writes() ? note_write(words, cell.word[0], access.record) : cell.word[0];
  u32 written = written_mask(first);
  u32 wrong = access.mask() & (access.writes() ? written : ~written);
  if (wrong != 0) {
    u32 kind = access.writes() ? u32(GSAN_RACE_WRITTEN_TWICE) : u32(GSAN_RACE_READ_UNWRITTEN);
    u64 earlier = access.writes() ? writer_of(cell, first, wrong) : 0;
    report_kind(globals, kind, earlier, access.record, access.action, granule, wrong,
                position.file, position.line);
  }
  return written_word(access.record, written);
}

}  // namespace gsan
