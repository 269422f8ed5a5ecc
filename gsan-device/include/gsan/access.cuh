// Tensor accesses: each lane has a few addresses of one size, with a mask.
//
// Whole granules are taken as they come, several cells being loaded before the first is checked.
// Elements smaller than a granule are merged with those of neighbouring lanes, so that one lane
// does the granule.
#pragma once

#include "gsan/address.cuh"
#include "gsan/past.cuh"
#include "gsan/races.cuh"

namespace gsan {

// The elements of one lane.
struct Elements {
  // Addresses, and for each whether it is accessed.
  const u64* addresses;
  const u8* masks;
  u32 count;
  // The size of each.
  u32 bytes;
};

// One call of a warp: everything that its accesses share.
template <unsigned S, u32 Action>
struct Accesses {
  Cta cta;
  AddressSpace<S> space;
  Past past;
  Position position;
  // The record of each access, without its mask.
  u64 record;
  // How many granules were checked, reads not kept, and records evicted.
  u32 checked = 0;
  u32 not_sampled = 0;
  u32 evicted = 0;

  GSAN_DEVICE Accesses(Cta cta, Position position)
      : cta(cta), space(cta.region.globals->constants), past(cta), position(position) {
    constexpr bool write = Action & GSAN_RACE_WRITE;
    u32 site = find_site(cta, position);
    record = make_record(past.thread, cta.touch(), 0, write, GSAN_SCOPE_NOT_ATOMIC, site);
  }

  GSAN_DEVICE void check(u64* words, const Cell<S>& cell, GranulePart part) {
    CellAccess access = {record | part.mask << GSAN_RECORD_MASK_SHIFT, Action,
                         GSAN_SCOPE_NOT_ATOMIC};
    Survey found = survey(cell, access, past);
    if (found.racing != 0) {
#pragma unroll
      for (unsigned i = 0; i < S; ++i) {
        if (found.racing >> i & 1) report(cta, {cell.word[i], access, part.granule, position});
      }
    }
    Sampler sampler = {cta.region.globals->constants.seed, part.granule / kGranule};
    u32 loss = update(words, cell, found, access, past, sampler);
    ++checked;
    not_sampled += loss == GSAN_LOSS_READ_NOT_SAMPLED;
    evicted += loss == GSAN_LOSS_WRITE_EVICTED;
  }

  // Checks several parts, of different granules.
  template <int N>
  GSAN_DEVICE void check_all(const GranulePart (&parts)[N]) {
    u64* words[N];
    Cell<S> cells[N];
    u64 base = cta.region.globals->constants.reserve_base;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      bool checked = parts[i].mask != 0 && space.is_managed(parts[i].granule);
      words[i] = checked ? space.shadow(parts[i].granule, base) : nullptr;
      if (checked) cells[i] = Cell<S>::load(words[i]);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (words[i] != nullptr) check(words[i], cells[i], parts[i]);
    }
  }

  // Elements that are `Granules` whole granules each. Elements of one call may overlap: those of
  // one lane then find each other's records, which are their own.
  template <u32 Granules>
  GSAN_DEVICE void whole(const Elements& elements) {
    constexpr u32 kAtOnce = 4 / Granules;
    for (u32 first = 0; first < elements.count; first += kAtOnce) {
      GranulePart parts[4];
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        bool there = first + i < elements.count;
        u64 address = there ? elements.addresses[first + i] : 0;
        u32 mask = there && elements.masks[first + i] != 0 ? 0xff : 0;
#pragma unroll
        for (u32 j = 0; j < Granules; ++j) {
          parts[i * Granules + j] = {address + j * kGranule, mask};
        }
      }
      check_all(parts);
    }
  }

  // Elements that lie within a granule, of 1, 2 or 4 bytes.
  GSAN_DEVICE void within(const Elements& elements, u32 lanes) {
    u32 lane = ptx::lane();
    for (u32 i = 0; i < elements.count; ++i) {
      u64 address = elements.addresses[i];
      u32 offset = u32(address) & (kGranule - 1);
      GranulePart part = {address - offset, 0};
      if (elements.masks[i] != 0) part.mask = bytes_between(offset, offset + elements.bytes);
      for (u32 distance = 1; distance * elements.bytes < kGranule; distance *= 2) {
        u32 other = lane ^ distance;
        bool there = lanes >> other & 1;
        u32 low = ptx::exchange(lanes, u32(part.granule), distance);
        u32 high = ptx::exchange(lanes, u32(part.granule >> 32), distance);
        u32 mask = ptx::exchange(lanes, part.mask, distance);
        if (!there || other == lane || part.granule != (u64(high) << 32 | low)) continue;
        part.mask = lane < other ? part.mask | mask : 0;
      }
      GranulePart parts[1] = {part};
      check_all(parts);
    }
  }

  // Elements of any size at any address.
  GSAN_DEVICE void any(const Elements& elements) {
    for (u32 i = 0; i < elements.count; ++i) {
      if (elements.masks[i] == 0) continue;
      u64 end = elements.addresses[i] + elements.bytes;
      for (u64 at = elements.addresses[i]; at < end;) {
        u32 low = u32(at) & (kGranule - 1);
        u64 granule = at - low;
        u32 high = end - granule < kGranule ? u32(end - granule) : u32(kGranule);
        GranulePart parts[1] = {{granule, bytes_between(low, high)}};
        check_all(parts);
        at = granule + kGranule;
      }
    }
  }

  // Adds the counts of all lanes to the CTA's.
  GSAN_DEVICE void finish(u32 lanes) const {
    u32 total = ptx::sum(lanes, checked);
    u32 lost = ptx::sum(lanes, not_sampled | evicted << 16);
    if (ptx::lane() != ptx::lowest(lanes)) return;
    u32 before = ptx::local_add(&cta.state->accesses, total);
    if (before + total < before) {
      ptx::add_relaxed(&cta.region.globals->accesses.value, u64(1) << 32);
    }
    if (lost == 0) return;
    ptx::local_add(&cta.state->not_sampled, lost & 0xffff);
    ptx::local_add(&cta.state->evicted, lost >> 16);
  }
};

// The lowest bits of all addresses that are accessed.
GSAN_DEVICE u32 misalignment(const Elements& elements) {
  u32 bits = 0;
  for (u32 i = 0; i < elements.count; ++i) {
    if (elements.masks[i] != 0) bits |= u32(elements.addresses[i]);
  }
  return bits;
}

// Sizes and addresses that vectors of the hardware do not have.
template <unsigned S, u32 Action>
GSAN_COLD void access_any(Cta cta, Elements elements, Position position) {
  Accesses<S, Action> accesses(cta, position);
  accesses.any(elements);
  accesses.finish(ptx::active_lanes());
}

template <unsigned S, u32 Action>
GSAN_COLD void access_within(Cta cta, Elements elements, Position position) {
  Accesses<S, Action> accesses(cta, position);
  accesses.within(elements, ptx::active_lanes());
  accesses.finish(ptx::active_lanes());
}

template <unsigned S, u32 Action, u32 Granules>
GSAN_COLD void access_whole(Cta cta, Elements elements, Position position) {
  Accesses<S, Action> accesses(cta, position);
  accesses.template whole<Granules>(elements);
  accesses.finish(ptx::active_lanes());
}

// Checks and records the accesses that a warp is about to make.
template <unsigned S, u32 Action>
GSAN_DEVICE void access_tensor(gsan_global_state* globals, const void* args, u32 count, u32 bytes,
                               Position position) {
  Cta cta = Cta::current(globals);
  if (!cta.has_slot()) return;
  auto addresses = static_cast<const u64*>(args);
  Elements elements = {addresses, reinterpret_cast<const u8*>(addresses + count), count, bytes};
  u32 bits = misalignment(elements);
  if (bytes == 16 && bits % kGranule == 0) {
    access_whole<S, Action, 2>(cta, elements, position);
  } else if (bytes == 8 && bits % kGranule == 0) {
    access_whole<S, Action, 1>(cta, elements, position);
  } else if ((bytes == 4 || bytes == 2 || bytes == 1) && bits % bytes == 0) {
    access_within<S, Action>(cta, elements, position);
  } else {
    access_any<S, Action>(cta, elements, position);
  }
}

}  // namespace gsan
