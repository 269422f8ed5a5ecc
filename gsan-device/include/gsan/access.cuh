// Tensor accesses: each lane has a few addresses of one size, with a mask.
//
// Nearly every element is whole granules, and nearly every record it meets is ordered before it by
// what the CTA started with. That much is inline, the cells of an element being loaded before the
// first is checked; anything else is one call a granule, out of line, which begins again.
#pragma once

#include "gsan/address.cuh"
#include "gsan/past.cuh"
#include "gsan/races.cuh"
#include "gsan/write_once.cuh"

namespace gsan {

constexpr u32 kWholeGranule = (1u << kGranule) - 1;

// The elements of one lane.
struct Elements {
  // Addresses, and for each whether it is accessed.
  const u64* addresses;
  const u8* masks;
  u32 count;
  // The size of each.
  u32 bytes;
};

// Checks and records an access to a part of one granule, whatever is in the cell and in whatever
// memory. `record` has the mask. One function for all actions: every kernel has a copy.
template <unsigned S>
GSAN_COLD void access_granule(gsan_global_state* globals, u64 granule, u64 record, u32 action,
                              const char* file, u32 line) {
  Cta cta = Cta::current(globals);
  const gsan_constants& constants = globals->constants;
  AddressSpace<S> space(constants);
  CellAccess access = {record, action, scope_of(action)};
  u64* words = space.shadow(granule, constants.reserve_base);
  bool once = space.is_write_once(granule);
  if (once && access.scope != GSAN_SCOPE_NOT_ATOMIC) {
    return report_kind(globals, GSAN_RACE_WRITE_ONCE_ATOMIC, 0, record, action, granule,
                       access.mask(), file, line);
  }
  Cell<S> cell = Cell<S>::load(words);
  if (once) {
    if (cell.word[0] == kUnknownWrites) return;
    cell.word[0] = check_write_once(globals, words, cell, access, granule, {file, line});
  }
  Past past(cta);
  Survey found = survey(cell, access, past);
#pragma unroll 1
  for (u32 racing = found.racing; racing != 0; racing &= racing - 1) {
    u64 earlier = cell.at(ptx::lowest(racing));
    // A second write was told of.
    if (once && access.writes() && record_writes(earlier)) continue;
    report(globals, earlier, record, action, granule, file, line);
  }
  u32 loss = update(words, cell, found, access, past, {constants.seed, granule / kGranule});
  if (loss == GSAN_LOSS_READ_NOT_SAMPLED) ptx::local_add(&cta.state->not_sampled, 1);
  if (loss == GSAN_LOSS_WRITE_EVICTED) ptx::local_add(&cta.state->evicted, 1);
}

// Whether two cells hold the same.
template <unsigned S>
GSAN_DEVICE bool alike(const Cell<S>& a, const Cell<S>& b) {
  u64 difference = 0;
#pragma unroll
  for (u32 i = 0; i < S; ++i) difference |= a.word[i] ^ b.word[i];
  return difference == 0;
}

// values[index], from registers.
template <u32 Count>
GSAN_DEVICE u64 select(const u64 (&values)[Count], u32 index) {
  u64 value = values[0];
#pragma unroll
  for (u32 i = 1; i < Count; ++i) value = i == index ? values[i] : value;
  return value;
}

// What all accesses of one call share.
template <unsigned S, u32 Action>
struct Accesses {
  Cta cta;
  Position position;
  u64 base;
  AddressSpace<S> space;
  // The record of an access to a whole granule.
  u64 record;
  FrontierView frontier;
  // How many granules were accessed; above, how many reads were sampled.
  u32 checked = 0;

  static constexpr bool kWrites = Action & GSAN_RACE_WRITE;
  static constexpr u32 kSampled = 1u << 16;

  GSAN_DEVICE Accesses(Cta cta, Position position)
      : cta(cta),
        position(position),
        base(cta.region.globals->constants.reserve_base),
        space(cta.region.globals->constants),
        frontier(cta) {
    u32 site = find_site(cta, position);
    record = make_record(frontier.thread, cta.touch(), kWholeGranule, kWrites, scope_of(Action),
                         site);
  }

  GSAN_DEVICE u64* shadow(u64 granule) const { return space.shadow(granule, base); }

  // Checks an access to a whole granule, or to two of 16 aligned bytes whose cells hold the same, if
  // no record of the cell races with it, is a sync record or an announcement. Then this is what
  // survey and update come to. Returns false if it is not so. By halves of words: the machine has
  // 32 bits.
  GSAN_DEVICE bool check_common(u64 granule, u64* words, const Cell<S>& cell, bool two) {
    u32 entries[S];
#pragma unroll
    for (u32 i = 0; i < S; ++i) {
      u32 low = u32(cell.word[i]);
      // Whatever is there has a bit set in its low half.
      if (low != 0) entries[i] = frontier.entry(low & kRecordThread);
    }
    bool common = true;
    bool equal = false;
    bool reads = false;
    u32 taken = 0;
    u32 superseded = 0;
#pragma unroll
    for (u32 i = 0; i < S; ++i) {
      u32 low = u32(cell.word[i]);
      u32 high = u32(cell.word[i] >> 32);
      if (low == 0) continue;
      taken |= 1u << i;
      u32 epoch = high >> (GSAN_RECORD_EPOCH_SHIFT - 32);
      bool ordered = frontier.covers(entries[i], low & kRecordThread, epoch);
      bool read = (low & kRecordWrite) == 0;
      equal |= (low == u32(record)) & (high == u32(record >> 32));
      common &= has_bytes(low) & (ordered | (!kWrites & read & !frontier.more));
      if (!kWrites) {
        reads |= read;
        superseded |= u32(ordered & read) << i;
      }
    }
    if (!common) return false;
    if (equal) return true;
    if (kWrites) superseded = taken;
    constexpr u32 kAll = (1u << S) - 1;
    u32 free = (kAll & ~taken) | superseded;
    if (!kWrites && free == 0 && reads) {
      sample(granule, words, cell, two);
      return true;
    }
    if (free == 0) return false;
    u32 plain = free & ~1u;
    u32 target = plain != 0 ? plain & (0u - plain) : 1;
    u32 changed = kWrites ? target | superseded : target;
#pragma unroll
    for (u32 i = 0; i < S; ++i) {
      if ((changed >> i & 1) == 0) continue;
      u64 left = (target >> i & 1) != 0 ? record : 0;
      replace(words, i, cell.word[0], left);
      if (two) replace(words + S, i, cell.word[0], left);
    }
    return true;
  }

  // A read meets a full cell: of the readers the one with the largest number goes, which may be
  // this one.
  GSAN_DEVICE void sample(u64 granule, u64* words, const Cell<S>& cell, bool two) {
    checked += kSampled << two;
    u32 salt = Sampler{cta.region.globals->constants.seed, granule / kGranule}.salt();
    u32 largest = 0;
    u32 target = 0;
#pragma unroll
    for (u32 i = 0; i < S; ++i) {
      if (record_writes(cell.word[i])) continue;
      u32 number = Sampler::number(salt, cell.word[i]);
      if (number < largest) continue;
      largest = number;
      target = i;
    }
    if (Sampler::number(salt, record) >= largest) return;
    replace(words, target, cell.word[0], record);
    if (two) replace(words + S, target, cell.word[0], record);
  }

  // Checks an access whatever is in its cell.
  GSAN_DEVICE void check_uncommon(u64 granule, u64 record) const {
    access_granule<S>(cta.region.globals, granule, record, Action, position.file, position.line);
  }

  // The cells of 16 aligned bytes.
  struct Pair {
    Cell<S> cell;
    Cell<S> next;
  };

  // Whether an access to the bytes of `mask`, of 16 aligned ones, may be a common one.
  GSAN_DEVICE bool may_be_common(u64 address, u32 mask) const {
    return scope_of(Action) == GSAN_SCOPE_NOT_ATOMIC && mask == 0xffff &&
           space.is_ordinary(address, 2 * kGranule);
  }

  // Loads the cells, if they are going to be looked at.
  GSAN_DEVICE Pair load_pair(u64 address, u32 mask) const {
    Pair pair = {};
    if (!may_be_common(address, mask)) return pair;
    u64* words = shadow(address);
    pair.cell = Cell<S>::load(words);
    pair.next = Cell<S>::load(words + S);
    return pair;
  }

  // Checks an access to the bytes of `mask` of 16 aligned ones. Returns which of the two granules are to be
  // checked by check_bytes, a bit each.
  GSAN_DEVICE u32 check_pair(u64 address, u32 mask, Pair& pair) {
    u32 granules = u32((mask & kWholeGranule) != 0) | u32(mask > kWholeGranule) << 1;
    if (!may_be_common(address, mask)) {
      if (!space.is_managed(address, 2 * kGranule)) return 0;
      checked += ptx::count_bits(granules);
      return granules;
    }
    checked += 2;
    u64* words = shadow(address);
    bool two = alike(pair.cell, pair.next);
    u32 uncommon = 0;
#pragma unroll 1
    for (u32 part = 0; part < 2; part += 1 + two) {
      if (!check_common(address, words, pair.cell, two)) uncommon |= (two ? 3u : 1u) << part;
      words += S;
      pair.cell = pair.next;
    }
    return uncommon;
  }

  // Checks an access to a part of a managed granule that was counted.
  GSAN_DEVICE void check_bytes(GranulePart part) const {
    u64 bytes = (record & ~u64(kRecordMask)) | part.mask << GSAN_RECORD_MASK_SHIFT;
    check_uncommon(part.granule, bytes);
  }

  GSAN_DEVICE void check_part(GranulePart part) {
    if (part.mask == 0 || !space.is_managed(part.granule)) return;
    ++checked;
    if (part.mask == kWholeGranule && space.is_ordinary(part.granule, kGranule)) {
      u64* words = shadow(part.granule);
      if (check_common(part.granule, words, Cell<S>::load(words), false)) return;
    }
    check_bytes(part);
  }

  // `Count` elements of one or two whole granules each. Elements of one call may overlap: those of
  // one lane then find each other's records, which are their own.
  template <u32 Granules, u32 Count>
  GSAN_DEVICE void check_few(const Elements& elements) {
    static_assert(Granules == 1 || Granules == 2, "the hardware has no larger vectors");
    u64 addresses[Count];
#pragma unroll
    for (u32 i = 0; i < Count; ++i) {
      // The hardware refuses vectors that are not aligned: the kernel is about to end.
      u64 address = elements.addresses[i] & ~(Granules * kGranule - 1);
      addresses[i] = elements.masks[i] != 0 ? address : 0;
    }
    // Loops, though their length is known: what is in them is in the kernel once an access. What is
    // not common, a bit each granule, waits until little else has to be kept.
    u32 uncommon = 0;
#pragma unroll 1
    for (u32 index = 0; index < Count; ++index) {
      u64 address = select(addresses, index);
      if (!space.is_ordinary(address, Granules * kGranule)) {
        if (!space.is_managed(address, Granules * kGranule)) continue;
        checked += Granules;
        uncommon |= (Granules == 2 ? 3u : 1u) << (Granules * index);
        continue;
      }
      u64* words = shadow(address);
      Cell<S> cell = Cell<S>::load(words);
      Cell<S> next = Granules == 2 ? Cell<S>::load(words + S) : cell;
      checked += Granules;
      bool two = Granules == 2 && alike(cell, next);
#pragma unroll 1
      for (u32 part = 0; part < Granules; part += 1 + two) {
        if (!check_common(address, words, cell, two)) {
          uncommon |= (two ? 3u : 1u) << (Granules * index + part);
        }
        words += S;
        cell = next;
      }
    }
#pragma unroll 1
    for (; uncommon != 0; uncommon &= uncommon - 1) {
      u32 index = ptx::lowest(uncommon);
      u64 granule = select(addresses, index / Granules) + index % Granules * kGranule;
      check_uncommon(granule, record);
    }
  }

  // Any number of elements, of any number of whole granules each.
  GSAN_DEVICE void check_many(const Elements& elements) {
#pragma unroll 1
    for (u32 i = 0; i < elements.count; ++i) {
      if (elements.masks[i] == 0) continue;
#pragma unroll 1
      for (u64 at = elements.addresses[i]; at - elements.addresses[i] < elements.bytes;
           at += kGranule) {
        check_part({at, kWholeGranule});
      }
    }
  }

  // Elements that lie within a granule each. Those of one lane are merged with its neighbours in
  // order, then with those of neighbouring lanes, so that one lane does the granule.
  GSAN_DEVICE void check_small(const Elements& elements, u32 lanes) {
    GranulePart part = {0, 0};
#pragma unroll 1
    for (u32 i = 0; i < elements.count; ++i) {
      GranulePart next = small_part(elements, i);
      if (next.granule == part.granule) next.mask |= part.mask;
      part = next;
      bool last = i + 1 == elements.count ||
                  elements.addresses[i + 1] - part.granule >= kGranule;
      GranulePart merged = {part.granule, last ? part.mask : 0};
      merge_lanes(merged, elements.bytes, lanes);
      check_part(merged);
    }
  }

  GSAN_DEVICE static GranulePart small_part(const Elements& elements, u32 index) {
    u64 address = elements.addresses[index];
    u32 offset = u32(address) & (kGranule - 1);
    u32 mask = elements.masks[index] != 0 ? bytes_between(offset, offset + elements.bytes) : 0;
    return {address - offset, mask};
  }

  // Parts of one granule that lanes at a power of two apart hold go to the lowest of them.
  GSAN_DEVICE static void merge_lanes(GranulePart& part, u32 bytes, u32 lanes) {
    u32 lane = ptx::lane();
#pragma unroll 1
    for (u32 distance = 1; distance * bytes < kGranule; distance *= 2) {
      u32 other = lane ^ distance;
      bool there = lanes >> other & 1;
      u32 low = ptx::exchange(lanes, u32(part.granule), distance);
      u32 high = ptx::exchange(lanes, u32(part.granule >> 32), distance);
      u32 mask = ptx::exchange(lanes, part.mask, distance);
      if (!there || other == lane || part.granule != (u64(high) << 32 | low)) continue;
      part.mask = lane < other ? part.mask | mask : 0;
    }
  }

  // Elements of any size at any address.
  GSAN_DEVICE void check_any(const Elements& elements) {
#pragma unroll 1
    for (u32 i = 0; i < elements.count; ++i) {
      if (elements.masks[i] == 0) continue;
      u64 end = elements.addresses[i] + elements.bytes;
      // The end may lie beyond the address space.
#pragma unroll 1
      for (u64 at = elements.addresses[i]; at - elements.addresses[i] < elements.bytes;) {
        u32 low = u32(at) & (kGranule - 1);
        u64 granule = at - low;
        u32 high = end - granule < kGranule ? u32(end - granule) : u32(kGranule);
        check_part({granule, bytes_between(low, high)});
        at = granule + kGranule;
      }
    }
  }

  // Adds the counts of all lanes to the CTA's.
  GSAN_DEVICE void finish() const {
    u32 lanes = ptx::active_lanes();
    u32 sums = ptx::sum(lanes, checked);
    if (ptx::lane() != ptx::lowest(lanes)) return;
    u32 total = sums % kSampled;
    u32 before = ptx::local_add(&cta.state->accesses, total);
    if (before + total < before) {
      ptx::add_relaxed(&cta.region.globals->accesses.value, u64(1) << 32);
    }
    if (sums >= kSampled) ptx::local_add(&cta.state->not_sampled, sums / kSampled);
  }
};

// The lowest bits of all addresses that are accessed.
GSAN_DEVICE u32 misalignment(const Elements& elements) {
  u32 bits = 0;
#pragma unroll 1
  for (u32 i = 0; i < elements.count; ++i) {
    if (elements.masks[i] != 0) bits |= u32(elements.addresses[i]);
  }
  return bits;
}

// Everything that is too large to be put into the kernel at each access.
template <unsigned S, u32 Action>
GSAN_COLD void access_tensor_general(gsan_global_state* globals, const u64* args, u32 count,
                                     u32 bytes, const char* file, u32 line) {
  Elements elements = {args, reinterpret_cast<const u8*>(args + count), count, bytes};
  u32 bits = misalignment(elements);
  Accesses<S, Action> accesses(Cta::current(globals), {file, line});
  if (bytes % kGranule == 0 && bits % kGranule == 0) {
    accesses.check_many(elements);
  } else if ((bytes == 4 || bytes == 2 || bytes == 1) && bits % bytes == 0) {
    accesses.check_small(elements, ptx::active_lanes());
  } else {
    accesses.check_any(elements);
  }
  accesses.finish();
}

template <unsigned S, u32 Action, u32 Granules, u32 Count>
GSAN_DEVICE void access_tensor_few(Cta cta, const Elements& elements, Position position) {
  Accesses<S, Action> accesses(cta, position);
  accesses.template check_few<Granules, Count>(elements);
  accesses.finish();
}

// Checks and records the accesses that a warp is about to make. `count` and `bytes` are constants
// in the kernel, so that one of the cases is left there, without a loop.
template <unsigned S, u32 Action>
GSAN_DEVICE void access_tensor(gsan_global_state* globals, const void* args, u32 count, u32 bytes,
                               Position position) {
  Cta cta = Cta::current(globals);
  if (!cta.has_slot()) return;
  auto addresses = static_cast<const u64*>(args);
  Elements elements = {addresses, reinterpret_cast<const u8*>(addresses + count), count, bytes};
  if (bytes == 2 * kGranule && count == 1) {
    access_tensor_few<S, Action, 2, 1>(cta, elements, position);
  } else if (bytes == 2 * kGranule && count == 2) {
    access_tensor_few<S, Action, 2, 2>(cta, elements, position);
  } else if (bytes == 2 * kGranule && count == 4) {
    access_tensor_few<S, Action, 2, 4>(cta, elements, position);
  } else if (bytes == 2 * kGranule && count == 8) {
    access_tensor_few<S, Action, 2, 8>(cta, elements, position);
  } else if (bytes == kGranule && count == 1) {
    access_tensor_few<S, Action, 1, 1>(cta, elements, position);
  } else if (bytes == kGranule && count == 2) {
    access_tensor_few<S, Action, 1, 2>(cta, elements, position);
  } else if (bytes == kGranule && count == 4) {
    access_tensor_few<S, Action, 1, 4>(cta, elements, position);
  } else {
    access_tensor_general<S, Action>(globals, addresses, count, bytes, position.file,
                                     position.line);
  }
}

}  // namespace gsan
