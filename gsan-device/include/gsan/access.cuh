// Tensor accesses: each lane has a few addresses of one size, with a mask.
//
// Nearly every element is whole granules, and nearly every record it meets is ordered before it by
// what the CTA started with. That much is done at once, the cells of an element or two being loaded before
// the first is checked; anything else is one call a granule, which begins again: first with all that the frontier
// says of other streams, then whatever is there.
#pragma once

#include "gsan/address.cuh"
#include "gsan/past.cuh"
#include "gsan/races.cuh"
#include "gsan/write_once.cuh"

namespace gsan {

constexpr u32 kWholeGranule = (1u << kGranule) - 1;

// CTAs of a grid of up to so many start together, and may make their accesses at the same moment: then none finds
// what the other recorded.
constexpr u64 kSmallGrid = 2048;

// How long such a moment is, in nanoseconds: from the look at a cell to what is recorded in it.
constexpr u32 kMoment = 1000;

// Of how many elements of one call the cells are loaded together.
constexpr u32 kAtOnce = 2;

// The elements of one lane.
struct Elements {
  // Addresses, and for each whether it is accessed.
  const u64* addresses;
  const u8* masks;
  u32 count;
  // The size of each.
  u32 bytes;
};

// What a call for one granule returns.
// A race was told.
constexpr u32 kTold = 1;
// Nothing was changed in the cell, or told.
constexpr u32 kUncommon = 2;
// A read was not kept. Counts of accesses lie below, in the words that count these, too.
constexpr u32 kSampled = 1u << 16;

// Checks and records an access to a part of one granule, whatever is in the cell and in whatever
// memory. `record` has the mask. One function for all actions.
template <unsigned S>
GSAN_COLD u32 access_granule(gsan_global_state* globals, u64 granule, u64 record, u32 action,
                              const char* file, u32 line) {
  Cta cta = Cta::current(globals);
  const gsan_constants& constants = globals->constants;
  AddressSpace<S> space(constants);
  CellAccess access = {record, action, scope_of(action)};
  u64* words = space.shadow(granule);
  bool once = space.is_write_once(granule);
  if (once && access.scope != GSAN_SCOPE_NOT_ATOMIC) {
    report_kind(globals, GSAN_RACE_WRITE_ONCE_ATOMIC, 0, record, action, granule, access.mask(),
                file, line);
    return kTold;
  }
  Cell<S> cell = Cell<S>::load(words);
  if (once) {
    if (cell.word[0] == kUnknownWrites) return 0;
    cell.word[0] = check_write_once(globals, words, cell, access, granule, {file, line});
  }
  Past past(cta);
  Survey found = survey(cta, cell, access);
#pragma unroll 1
  for (u32 racing = found.racing; racing != 0; racing &= racing - 1) {
    u64 earlier = cell.at(ptx::lowest(racing));
    // A second write was told of.
    if (once && access.writes() && record_writes(earlier)) continue;
    report(globals, earlier, record, action, granule, file, line);
  }
  u32 loss = update(words, cell, found, access, past, {constants.seed, granule / kGranule});
  if (loss == GSAN_LOSS_WRITE_EVICTED) ptx::local_add(&cta.state->evicted, 1);
  return (found.racing != 0 ? kTold : 0) | (loss == GSAN_LOSS_READ_NOT_SAMPLED ? kSampled : 0);
}

// Whether two cells hold the same.
template <unsigned S>
GSAN_DEVICE bool alike(const Cell<S>& a, const Cell<S>& b) {
  u32 difference = 0;
#pragma unroll
  for (u32 i = 0; i < S; ++i) {
    difference = ptx::add_difference(difference, u32(a.word[i]), u32(b.word[i]));
    difference = ptx::add_difference(difference, u32(a.word[i] >> 32), u32(b.word[i] >> 32));
  }
  return difference == 0;
}

// What a check asks of what a CTA knows, besides its own epochs and the own bank's row of its frontier.
enum class Asked {
  // Nothing: where there is more, little can be said.
  kNothing,
  // What was looked up before.
  kRecalled,
  // All rows of the frontier, beyond which there is nothing.
  kFrontier,
};

// values[index], from registers.
template <u32 Count>
GSAN_DEVICE u64 select(const u64 (&values)[Count], u32 index) {
  u64 value = values[0];
#pragma unroll
  for (u32 i = 1; i < Count; ++i) value = i == index ? values[i] : value;
  return value;
}

// Accesses to whole granules of ordinary memory, most of which are alike.
template <unsigned S, bool kWrites>
struct CommonAccess {
  Cta cta;
  // The record of an access to a whole granule.
  u64 record;
  // How many granules were accessed; above, how many reads were sampled.
  u32 checked = 0;

  // Checks an access to a whole granule, or to two of 16 aligned bytes whose cells hold the same, if
  // no record of the cell races with it, is a sync record or an announcement, and what is asked tells of each
  // whether it is ordered. Then this is what survey and update come to. Returns false if it is not so. By halves of
  // words: the machine has 32 bits. There are few branches: lanes that go different ways cost more than what is
  // worked out in vain.
  template <Asked What = Asked::kNothing>
  GSAN_DEVICE bool check_common(u64 granule, u64* words, const Cell<S>& cell, bool two) {
    gsan_thread_state* state = cta.state;
    auto own_row = reinterpret_cast<const u32*>(ptx::local_load(&state->own_row));
    u32 bank_first = ptx::local_load(&state->bank_first);
    u32 slots = ptx::local_load(&state->slots);
    u32 entries[S];
    bool within[S];
#pragma unroll
    for (u32 i = 0; i < S; ++i) {
      u32 slot = (u32(cell.word[i]) & kRecordThread) - bank_first;
      within[i] = slot < slots;
      entries[i] = ptx::load_constant(own_row + (within[i] ? slot : 0));
    }
    u32 thread = ptx::local_load(&state->id) - 1;
    u32 start = ptx::local_load(&state->start);
    bool decides = What == Asked::kFrontier || ptx::local_load(&state->more) == 0;
    bool common = true;
    bool reads = false;
    bool free[S];
    u32 difference = ~0u;
    u32 elsewhere = What == Asked::kFrontier ? ordered_by_other_rows(cell) : 0;
#pragma unroll
    for (u32 i = 0; i < S; ++i) {
      u32 low = u32(cell.word[i]);
      u32 high = u32(cell.word[i] >> 32);
      // Whatever is there has a bit set in its low half.
      bool empty = low == 0;
      bool read = (low & kRecordWrite) == 0;
      u32 epoch = high >> (GSAN_RECORD_EPOCH_SHIFT - 32);
      bool own = ((low & kRecordThread) == thread) & (epoch >= start);
      bool ordered = (within[i] & covers(entries[i], epoch)) | own;
      if (What == Asked::kRecalled && !decides) ordered |= covers(cta.recall(low & kRecordThread), epoch);
      if (What == Asked::kFrontier) ordered |= elsewhere >> i & 1;
      common &= empty | (has_bytes(low) & (ordered | (!kWrites & read & decides)));
      u32 differs = ptx::add_difference(low ^ u32(record), high, u32(record >> 32));
      difference = differs < difference ? differs : difference;
      if (!kWrites) {
        free[i] = empty | (ordered & read);
        reads |= read;
      }
    }
    if (!common) return false;
    if (difference == 0) return true;
    if (kWrites) {
      // All that is there is ordered: this is all that is left.
      replace(words, 1, cell.word[0], record);
      if (two) replace(words + kNextCell<S>, 1, cell.word[0], record);
      u32 others = u32(cell.word[0]);
#pragma unroll
      for (u32 i = 2; i < S; ++i) others |= u32(cell.word[i]);
      if (others != 0) clear_others(words, cell, two);
      return true;
    }
    // Word 0 is used last.
    u32 target = free[0] ? 0 : S;
#pragma unroll
    for (u32 i = S - 1; i > 0; --i) target = free[i] ? i : target;
    if (target == S) {
      // All are there.
      if (!reads) return false;
      sample(granule, words, cell, two);
      return true;
    }
    replace(words, target, cell.word[0], record);
    if (two) replace(words + kNextCell<S>, target, cell.word[0], record);
    return true;
  }

  // Which records the frontier orders beyond the own bank's row, a bit each. One by one: few registers are to be
  // put away.
  GSAN_DEVICE u32 ordered_by_other_rows(const Cell<S>& cell) const {
    OtherRows rows(cta);
    u32 ordered = 0;
#pragma unroll 1
    for (u32 i = 0; i < S; ++i) {
      u64 word = cell.at(i);
      if (word == 0) continue;
      u32 thread = record_thread(word);
      u32 epoch = record_epoch(word);
      Place place;
      bool covers =
          epoch == GSAN_CLOCK_EPOCH_MAX || !place_of(cta, thread, place) || rows.covers(place, thread, epoch);
      ordered |= u32(covers) << i;
    }
    return ordered;
  }

  // Checks an access to a whole granule of ordinary memory as check_common does, where nothing but the
  // frontier orders.
  GSAN_DEVICE bool check_by_frontier(u64 granule) {
    u64* words = AddressSpace<S>(*cta.state).shadow(granule);
    return check_common<Asked::kFrontier>(granule, words, Cell<S>::load(words), false);
  }

  // Empties the words that are not, word 1 excepted.
  GSAN_DEVICE static void clear_others(u64* words, const Cell<S>& cell, bool two) {
#pragma unroll
    for (u32 i = 0; i < S; ++i) {
      if (i == 1 || u32(cell.word[i]) == 0) continue;
      replace(words, i, cell.word[0], 0);
      if (two) replace(words + kNextCell<S>, i, cell.word[0], 0);
    }
  }

  // A read meets a full cell: of the readers the one with the largest number goes, which may be
  // this one.
  GSAN_DEVICE void sample(u64 granule, u64* words, const Cell<S>& cell, bool two) {
    checked += kSampled << two;
    u32 salt = Sampler{ptx::local_load(&cta.state->seed), granule / kGranule}.salt();
    u32 largest = 0;
    u32 target = 0;
#pragma unroll
    for (u32 i = 0; i < S; ++i) {
      u32 number = Sampler::number(salt, cell.word[i]);
      bool larger = !record_writes(cell.word[i]) & (number >= largest);
      largest = larger ? number : largest;
      target = larger ? i : target;
    }
    if (Sampler::number(salt, record) >= largest) return;
    replace(words, target, cell.word[0], record);
    if (two) replace(words + kNextCell<S>, target, cell.word[0], record);
  }
};

// An access to a whole granule that was found not to be a common one. CTAs of streams that read the same at once meet
// each other's records, which often are ordered by nothing or by rows of other banks: then the frontier says all.
// Otherwise this returns kUncommon.
template <unsigned S>
GSAN_ONCE u32 access_by_frontier(gsan_global_state* globals, u64 granule, u64 record) {
  Cta cta = Cta::current(globals);
  if (!knows_frontier_only(cta) || !AddressSpace<S>(*cta.state).is_ordinary(granule, kGranule)) return kUncommon;
  if (record_writes(record)) {
    CommonAccess<S, true> access = {cta, record};
    return access.check_by_frontier(granule) ? 0 : kUncommon;
  }
  CommonAccess<S, false> access = {cta, record};
  return access.check_by_frontier(granule) ? access.checked : kUncommon;
}

// What all accesses of one call share. It is little: kernels need the registers. What the common access needs
// of the CTA is read from its state each time, while the cells are under way.
template <unsigned S, u32 Action>
struct Accesses : CommonAccess<S, (Action & GSAN_RACE_WRITE) != 0> {
  using Common = CommonAccess<S, (Action & GSAN_RACE_WRITE) != 0>;
  using Common::checked;
  using Common::cta;
  using Common::record;

  Position position;

  // Whether a race was told.
  bool told = false;
  // Whether the cells are looked at once more.
  bool again = false;

  static constexpr bool kWrites = Action & GSAN_RACE_WRITE;

  GSAN_DEVICE Accesses(Cta cta, Position position) : Common{cta, 0}, position(position) {
    u32 site = find_site(cta, position);
    record = make_record(cta.thread(), cta.touch(), kWholeGranule, kWrites, scope_of(Action), site);
  }

  GSAN_DEVICE AddressSpace<S> space() const { return AddressSpace<S>(*cta.state); }

  // Checks what `check` checks. In a small grid what is about to be written is looked at again a moment later:
  // of two accesses at once, the write then finds the other's record, or that its own is gone. All `lanes`
  // take part.
  template <class F>
  GSAN_DEVICE void look(u32 lanes, F check) {
#pragma unroll 1
    for (u32 counted = 0;; counted = checked) {
      check();
      if (again) checked = counted;
      if (!kWrites || again || ptx::grid_ctas() > kSmallGrid || ptx::ballot(lanes, told) != 0) return;
      again = true;
      ptx::pause_for(kMoment);
    }
  }

  // Checks an access whatever is in its cell.
  GSAN_DEVICE void check_uncommon(u64 granule, u64 record) {
    constexpr bool kPlain = Action == GSAN_RACE_READ || Action == GSAN_RACE_WRITE;
    gsan_global_state* globals = cta.region.globals;
    u32 found = kUncommon;
    if (kPlain && record_mask(record) == kWholeGranule) found = access_by_frontier<S>(globals, granule, record);
    if (found == kUncommon) {
      found = access_granule<S>(globals, granule, record, Action, position.file, position.line);
    }
    told |= (found & kTold) != 0;
    checked += found & kSampled;
  }

  // The cells of 16 aligned bytes.
  struct Pair {
    Cell<S> cell;
    Cell<S> next;
  };

  // Whether an access to the bytes of `mask`, of 16 aligned ones, may be a common one.
  GSAN_DEVICE static bool may_be_common(const AddressSpace<S>& space, u64 address, u32 mask) {
    return scope_of(Action) == GSAN_SCOPE_NOT_ATOMIC && mask == 0xffff &&
           space.is_ordinary(address, 2 * kGranule);
  }

  // Loads the cells, if they are going to be looked at.
  GSAN_DEVICE Pair load_pair(u64 address, u32 mask) const {
    Pair pair = {};
    AddressSpace<S> there = space();
    if (!may_be_common(there, address, mask)) return pair;
    u64* words = there.shadow(address);
    pair.cell = Cell<S>::load(words);
    pair.next = Cell<S>::load(words + kNextCell<S>);
    return pair;
  }

  // Checks an access to the bytes of `mask` of 16 aligned ones. Returns which of the two granules are to be
  // checked by check_bytes, a bit each.
  GSAN_DEVICE u32 check_pair(u64 address, u32 mask, Pair& pair) {
    AddressSpace<S> there = space();
    u32 granules = u32((mask & kWholeGranule) != 0) | u32(mask > kWholeGranule) << 1;
    if (!may_be_common(there, address, mask)) {
      if (!there.is_managed(address, 2 * kGranule)) return 0;
      checked += ptx::count_bits(granules);
      return granules;
    }
    checked += 2;
    return check_cells<2>(address, there.shadow(address), pair);
  }

  // Checks an access to the one or two granules from `address` on, whose cells were loaded. Returns which of
  // them are uncommon, a bit each.
  template <u32 Granules, Asked What = Asked::kNothing>
  GSAN_DEVICE u32 check_cells(u64 address, u64* words, Pair& pair) {
    bool two = Granules == 2 && alike(pair.cell, pair.next);
    u32 uncommon = 0;
#pragma unroll 1
    for (u32 part = 0; part < Granules; part += 1 + two) {
      if (!this->template check_common<What>(address, words, pair.cell, two)) uncommon |= (two ? 3u : 1u) << part;
      words += kNextCell<S>;
      pair.cell = pair.next;
    }
    return uncommon;
  }

  // Checks an access to a part of a managed granule that was counted.
  GSAN_DEVICE void check_bytes(GranulePart part) {
    u64 bytes = (record & ~u64(kRecordMask)) | part.mask << GSAN_RECORD_MASK_SHIFT;
    check_uncommon(part.granule, bytes);
  }

  GSAN_DEVICE void check_part(GranulePart part) {
    AddressSpace<S> there = space();
    if (part.mask == 0 || !there.is_managed(part.granule)) return;
    // Memory that is written once says so.
    if (kWrites && again && !there.is_ordinary(part.granule, kGranule)) return;
    ++checked;
    if (part.mask == kWholeGranule && there.is_ordinary(part.granule, kGranule)) {
      u64* words = there.shadow(part.granule);
      if (this->check_common(part.granule, words, Cell<S>::load(words), false)) return;
    }
    check_bytes(part);
  }

  // Loads the cells of an element of one or two granules that lies in ordinary memory; returns where
  // they lie. Null if it does not lie there.
  template <u32 Granules>
  GSAN_DEVICE u64* load_element(u64 address, Pair& pair) const {
    AddressSpace<S> there = space();
    if (!there.is_ordinary(address, Granules * kGranule)) return nullptr;
    u64* words = there.shadow(address);
    pair.cell = Cell<S>::load(words);
    if (Granules == 2) pair.next = Cell<S>::load(words + kNextCell<S>);
    return words;
  }

  // Checks an element whose cells were loaded from `words`. Returns which granules are uncommon, a bit each.
  template <u32 Granules, Asked What = Asked::kNothing>
  GSAN_DEVICE u32 check_element(u64 address, u64* words, Pair& pair) {
    if (words == nullptr && !space().is_managed(address, Granules * kGranule)) return 0;
    if (kWrites && again && words == nullptr) return 0;
    checked += Granules;
    if (words == nullptr) return Granules == 2 ? 3 : 1;
    return check_cells<Granules, What>(address, words, pair);
  }

  // Elements of one or two whole granules each. Elements of one call may overlap: those of one lane then
  // find each other's records, which are their own.
  template <u32 Granules>
  GSAN_DEVICE void check_whole(const Elements& elements) {
    static_assert(Granules == 1 || Granules == 2, "the hardware has no larger vectors");
#pragma unroll 1
    for (u32 first = 0; first < elements.count; first += kAtOnce) {
      // The cells of a few are under way before the first is looked at.
      u64 addresses[kAtOnce];
      u64* words[kAtOnce];
      Pair pairs[kAtOnce];
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        u32 index = first + i;
        bool there = index < elements.count && elements.masks[index] != 0;
        // The hardware refuses vectors that are not aligned: the kernel is about to end.
        addresses[i] = there ? elements.addresses[index] & ~(Granules * kGranule - 1) : 0;
        words[i] = load_element<Granules>(addresses[i], pairs[i]);
      }
      u32 uncommon = 0;
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        // What the one before stored in the same cells is not in what was loaded.
        if (i != 0 && addresses[i] == addresses[i - 1]) {
          words[i] = load_element<Granules>(addresses[i], pairs[i]);
        }
        uncommon |= check_element<Granules, Asked::kRecalled>(addresses[i], words[i], pairs[i])
                    << Granules * i;
      }
#pragma unroll 1
      for (; uncommon != 0; uncommon &= uncommon - 1) {
        u32 index = ptx::lowest(uncommon);
        u64 granule = select(addresses, index / Granules) + index % Granules * kGranule;
        check_uncommon(granule, record);
      }
    }
  }

  // The same for `Count` elements of two granules, in line and without a place in memory for addresses.
  template <u32 Count>
  GSAN_DEVICE void check_in_line(const Elements& elements) {
    constexpr u32 kInStep = 2;
    static_assert(Count % kInStep == 0, "no rest is left");
    u64 addresses[Count];
#pragma unroll
    for (u32 i = 0; i < Count; ++i) {
      u64 address = elements.addresses[i] & ~(2 * kGranule - 1);
      addresses[i] = elements.masks[i] != 0 ? address : 0;
    }
    // What is not common, a bit each granule, waits until little else has to be kept.
    u32 uncommon = 0;
#pragma unroll 1
    for (u32 first = 0; first < Count; first += kInStep) {
#pragma unroll
      for (u32 i = 0; i < kInStep; ++i) {
        u64 address = addresses[i];
#pragma unroll
        for (u32 j = kInStep; j < Count; j += kInStep) {
          address = first == j ? addresses[i + j] : address;
        }
        Pair pair;
        u64* words = load_element<2>(address, pair);
        uncommon |= check_element<2>(address, words, pair) << 2 * (first + i);
      }
    }
#pragma unroll 1
    for (; uncommon != 0; uncommon &= uncommon - 1) {
      u32 index = ptx::lowest(uncommon);
      check_uncommon(select(addresses, index / 2) + index % 2 * kGranule, record);
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

  // Adds the counts of `lanes`, which call together, to the CTA's.
  GSAN_DEVICE void finish(u32 lanes) const {
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
  Warp warp = Warp::current();
  Elements elements = {args, reinterpret_cast<const u8*>(args + count), count, bytes};
  u32 bits = misalignment(elements);
  Accesses<S, Action> accesses(Cta::current(globals), {file, line});
  accesses.look(warp.lanes, [&]() GSAN_HERE {
    if (bytes % kGranule == 0 && bits % kGranule == 0) {
      accesses.check_many(elements);
    } else if ((bytes == 4 || bytes == 2 || bytes == 1) && bits % bytes == 0) {
      accesses.check_small(elements, warp.lanes);
    } else {
      accesses.check_any(elements);
    }
  });
  accesses.finish(warp.lanes);
  warp.leave_together();
}

// The common sizes, of which kernels call a function each: in line, every access of a kernel would have its own
// for the assembler to work on, and for the instruction cache.
template <unsigned S, u32 Action, u32 Granules>
GSAN_CALLED void access_tensor_whole(gsan_global_state* globals, const u64* args, u32 count,
                                     const char* file, u32 line) {
  Warp warp = Warp::current();
  Accesses<S, Action> accesses(Cta::current(globals), {file, line});
  Elements elements = {args, reinterpret_cast<const u8*>(args + count), count, Granules * u32(kGranule)};
  accesses.look(warp.lanes, [&]() GSAN_HERE { accesses.template check_whole<Granules>(elements); });
  accesses.finish(warp.lanes);
  warp.leave_together();
}

// Kernels whose lanes have many elements each hold tiles in registers, as products do, and a call would put
// those away: measured, that costs a third. By whole warps: what comes before and after is in line, too, and groups
// of lanes with masks of their own would meet there.
template <unsigned S, u32 Action, u32 Count>
GSAN_DEVICE void access_tensor_in_line(Cta cta, Warp warp, const Elements& elements, Position position) {
  Accesses<S, Action> accesses(cta, position);
  accesses.look(warp.lanes, [&]() GSAN_HERE { accesses.template check_in_line<Count>(elements); });
  accesses.finish(warp.lanes);
  warp.leave_together();
}

// Checks and records the accesses that the lanes which come are about to make. `count` and `bytes` are constants
// in the kernel, so that one of the cases is left there.
template <unsigned S, u32 Action>
GSAN_DEVICE void access_tensor(gsan_global_state* globals, const void* args, u32 count, u32 bytes,
                               Position position) {
  if (!Cta::current(globals).has_slot()) return;
  auto addresses = static_cast<const u64*>(args);
  if (bytes == 2 * kGranule) {
    access_tensor_whole<S, Action, 2>(globals, addresses, count, position.file, position.line);
  } else if (bytes == kGranule) {
    access_tensor_whole<S, Action, 1>(globals, addresses, count, position.file, position.line);
  } else {
    access_tensor_general<S, Action>(globals, addresses, count, bytes, position.file,
                                     position.line);
  }
}

// The same for a whole warp.
template <unsigned S, u32 Action>
GSAN_DEVICE void access_tensor_of_warp(Warp warp, gsan_global_state* globals, const void* args, u32 count,
                                       u32 bytes, Position position) {
  Cta cta = Cta::current(globals);
  auto addresses = static_cast<const u64*>(args);
  Elements elements = {addresses, reinterpret_cast<const u8*>(addresses + count), count, bytes};
  if (bytes == 2 * kGranule && (count == 4 || count == 8)) {
    if (!cta.has_slot()) return;
    if (count == 4) {
      access_tensor_in_line<S, Action, 4>(cta, warp, elements, position);
    } else {
      access_tensor_in_line<S, Action, 8>(cta, warp, elements, position);
    }
  } else {
    access_tensor<S, Action>(globals, args, count, bytes, position);
  }
}

}  // namespace gsan
