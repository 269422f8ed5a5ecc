// A clock in memory: entries of a few banks, and a checkpoint. Private clocks and snapshots have this
// form; see gsan_clock_header.
//
// A clock has one writer at a time: a warp, whose lanes take four entries each, 16 bytes. Others may
// look entries up meanwhile.
#pragma once

#include "gsan/checkpoints.cuh"

namespace gsan {

struct Vector {
  Region region;
  u32* words;

  GSAN_DEVICE u32 segments() const { return region.globals->segments; }
  GSAN_DEVICE u32 capacity() const { return region.globals->segment_entries; }
  GSAN_DEVICE u32* checkpoint_word() const { return words; }
  GSAN_DEVICE u32* header(u32 index) const { return words + 1 + index; }
  GSAN_DEVICE u32* entries(u32 index) const {
    return words + 1 + segments() + u64(index) * capacity();
  }

  GSAN_DEVICE static u32 bank(u32 header) { return header >> 16; }
  GSAN_DEVICE u32 length(u32 header) const {
    // A header that changes while it is read may promise more than there is room for.
    u32 length = header & 0xffff;
    return length < capacity() ? length : capacity();
  }

  // Forgets everything. By one lane.
  GSAN_DEVICE void clear() const {
    for (u32 word = 0; word <= segments(); ++word) ptx::store_relaxed_system(words + word, 0u);
  }

  GSAN_DEVICE u32 checkpoint() const { return ptx::load_relaxed_system(checkpoint_word()); }

  GSAN_DEVICE bool is_empty() const {
    u32 named = checkpoint();
    u32 first = ptx::load_relaxed_system(header(0));
    return (named == kNoCheckpoint) & (first == 0);
  }

  // What is known of `place`. The clock is the CTA's own, or a snapshot whose state is looked at before
  // and after.
  GSAN_DEVICE u32 get(Place place) const {
    for (u32 index = 0; index < segments(); ++index) {
      u32 found = ptx::load_relaxed_system(header(index));
      if (found == 0) break;
      if (bank(found) != place.bank) continue;
      // The entries that the length promises: another warp of the CTA wrote them.
      ptx::fence_cta();
      return place.slot < length(found) ? ptx::load_relaxed_system(entries(index) + place.slot) : 0;
    }
    return 0;
  }
};
static_assert(offsetof(gsan_clock_header, checkpoint) == 0 &&
                  offsetof(gsan_clock_header, segments) == 4 &&
                  offsetof(gsan_segment, length) == 0 && offsetof(gsan_segment, bank) == 2,
              "a vector is read as the structure says");

// Four entries of consecutive slots, the share of one lane.
struct Quad {
  u32 entry[4] = {0, 0, 0, 0};

  GSAN_DEVICE bool any() const { return (entry[0] | entry[1] | entry[2] | entry[3]) != 0; }

  // Takes the first entry, and puts one behind the others: a loop over all four needs no index.
  GSAN_DEVICE u32 take_first() {
    u32 first = entry[0];
    entry[0] = entry[1];
    entry[1] = entry[2];
    entry[2] = entry[3];
    return first;
  }
  GSAN_DEVICE void put_last(u32 value) { entry[3] = value; }

  // The entry at `index`, without an index into registers.
  GSAN_DEVICE u32 get(u32 index) const {
    u32 low = index & 1 ? entry[1] : entry[0];
    u32 high = index & 1 ? entry[3] : entry[2];
    return index & 2 ? high : low;
  }
  GSAN_DEVICE void set(u32 index, u32 value) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) entry[i] = i == index ? value : entry[i];
  }

  GSAN_DEVICE static Quad load(const u32* words) {
    Quad quad;
    ptx::load_relaxed_system_quad(words, quad.entry[0], quad.entry[1], quad.entry[2],
                                  quad.entry[3]);
    return quad;
  }

  GSAN_DEVICE void store(u32* words) const {
    ptx::store_relaxed_system_quad(words, entry[0], entry[1], entry[2], entry[3]);
  }
};

// The first words of a clock: what is outside its segments, and the headers of three of them.
struct Head {
  u32 checkpoint = kNoCheckpoint;
  u32 headers[3] = {0, 0, 0};

  GSAN_DEVICE static Head load(const Vector& clock) {
    Head head;
    ptx::load_relaxed_system_quad(clock.words, head.checkpoint, head.headers[0], head.headers[1],
                                  head.headers[2]);
    return head;
  }
};

enum class Merged : u32 { kNothingNew, kChanged, kFull };

// Adds to `target` what the lanes have: `quad` is what is said of the four slots of `bank` from `slot`
// on, a multiple of 4. By the clock's writer.
GSAN_DEVICE Merged merge(const Vector& target, Warp warp, u32 bank, u32 slot, const Quad& quad) {
  // The length that is needed: one more than the highest slot of which something is said.
  u32 end = 0;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    if (quad.entry[i] != 0) end = slot + i + 1;
  }
  end = warp.largest(end);
  if (end == 0) return Merged::kNothingNew;
  u32 segments = target.segments();
  u32 index = 0, length = 0;
  for (; index < segments; ++index) {
    u32 header = ptx::load_relaxed_system(target.header(index));
    if (header == 0) break;
    if (Vector::bank(header) != bank) continue;
    length = target.length(header);
    break;
  }
  if (index == segments) return Merged::kFull;
  u32* entries = target.entries(index);
  if (end > length) {
    // What lay there before is never seen.
    for (u32 at = length + warp.rank(); at < end; at += warp.size()) {
      ptx::store_relaxed_system(entries + at, 0u);
    }
    warp.meet();
  }
  bool changed = end > length;
  if (quad.any()) {
    // Nobody else writes the four; those of which nothing is said stay as they are.
    Quad found = Quad::load(entries + slot);
    Quad merged = found;
    bool differs = false;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if (quad.entry[i] == 0) continue;
      merged.entry[i] = hull(found.entry[i], quad.entry[i]);
      differs |= merged.entry[i] != found.entry[i];
    }
    if (differs) merged.store(entries + slot);
    changed |= differs;
  }
  changed = warp.any(changed);
  if (end > length) {
    warp.meet();
    if (warp.leads()) {
      // Other warps of the CTA look entries up; who reads a snapshot sees it complete first.
      ptx::fence_cta();
      ptx::store_relaxed_system(target.header(index), bank << 16 | end);
    }
    warp.meet();
  }
  return changed ? Merged::kChanged : Merged::kNothingNew;
}

}  // namespace gsan
