// Races: what the host is told of them.
//
// The races of one kind between the same two sites, found by the same launch, are told at their
// first, second, fourth, eighth … occurrence, each time with how many were passed over since. A
// place of the filter that two such kinds share goes to the newer one, which may tell a race again.
#pragma once

#include "gsan/cells.cuh"
#include "gsan/sites.cuh"
#include "gsan/slots.cuh"

namespace gsan {

// Where counting ends; as many threads as a device has may still add one each beyond.
constexpr u32 kMostCounted = 1u << 31;
// How often a kind tries to take a place for which others contend.
constexpr u32 kAttempts = 64;

// Whether the race is to be told now, and how many like it were passed over.
GSAN_DEVICE bool passes_filter(Cta cta, u32 kind, u64 earlier, u64 later, u32& repeats) {
  u32 sites = record_site(earlier) << kSiteBits | record_site(later);
  u32 tag = mix(mix(sites ^ kind << 2 * kSiteBits) ^ cta.launch()->number);
  u64* place = cta.region.part<u64>(cta.region.globals->offsets.race_filter) +
               (tag & (GSAN_STATE_RACE_FILTER - 1));
  auto times = [tag](u64 word) { return u32(word >> 32) == tag ? u32(word) : 0; };
  u64 found = ptx::load_relaxed(place);
  // A kind that has the place is counted by an addition, which never has to be tried again: a loop of
  // compare-and-swap takes minutes when all threads find the same race.
#pragma unroll 1
  for (u32 attempt = 0; attempt < kAttempts; ++attempt) {
    u32 seen = times(found);
    if (seen > kMostCounted) return false;
    u64 before;
    if (seen > 0) {
      before = ptx::add_relaxed(place, u64(1));
      seen = times(before);
      if (seen == 0) {
        // Another kind took it; its count is one too high now.
        found = before + 1;
        continue;
      }
    } else {
      before = ptx::compare_exchange_relaxed(place, found, u64(tag) << 32 | 1);
      if (before != found) {
        found = before;
        continue;
      }
    }
    repeats = seen < 2 ? 0 : (seen + 1) / 2 - 1;
    return (seen & (seen + 1)) == 0;
  }
  return false;
}

// In an action: it is an asynchronous copy.
constexpr u32 kAsynchronous = 4;
constexpr u32 kActions = GSAN_RACE_READ | GSAN_RACE_WRITE;

// Of accesses that are told once, only reductions are atomic.
GSAN_DEVICE constexpr u32 scope_of(u32 action) {
  return (action & kActions) == kActions ? GSAN_SCOPE_GPU : GSAN_SCOPE_NOT_ATOMIC;
}

GSAN_DEVICE void write_side(gsan_race_side& side, u64 record, u32 device, u32 action) {
  side.epoch = record_epoch(record);
  side.thread = u16(record_thread(record));
  side.site = u16(record_site(record));
  side.device = u8(device);
  side.action = u8(action & kActions);
  side.scope = u8(record_scope(record));
  side.flags = action & kAsynchronous ? GSAN_RACE_ASYNCHRONOUS : 0;
}

// The side that was found in the cell: who it was is in the history, if not forgotten.
GSAN_DEVICE void write_earlier_side(Region region, gsan_race_side& side, u64 record) {
  u32 device = region.device_of(record_thread(record));
  u32 action = record_writes(record) ? GSAN_RACE_WRITE : GSAN_RACE_READ;
  write_side(side, record, device, action);
  u32 launch = 0;
  u64 coordinates = 0;
  History history = {region.of_device(device)};
  if (!history.find(record_thread(record), record_epoch(record), launch, coordinates)) {
    side.flags = GSAN_RACE_FORGOTTEN;
    count(region, GSAN_LOSS_HISTORY_OVERWRITTEN);
  }
  side.launch = launch;
  side.cta = u32(coordinates);
}

// Whether the launch of `side` may have been ordered by what nobody reports.
GSAN_DEVICE bool is_opaque(Region region, const gsan_race_side& side) {
  if (side.flags & GSAN_RACE_FORGOTTEN) return false;
  const gsan_launch_state* state = region.of_device(side.device).launch(side.launch);
  if (ptx::load_relaxed_system(&state->copied) != side.launch + 1) return false;
  fence_acquire(region);
  return ptx::load_relaxed_system(&state->descriptor.flags) & GSAN_LAUNCH_OPAQUE;
}

// A place in the ring, which the caller fills and then stamps with the index written to `index`,
// plus 1; null if the ring is full.
GSAN_DEVICE gsan_race_entry* take_place(Region region, u64& index) {
  auto ring = reinterpret_cast<gsan_race_ring*>(region.globals->constants.race_ring);
  if (ring == nullptr) return nullptr;
  index = ptx::load_acquire_system(&ring->head);
  while (true) {
    if (index - ptx::load_acquire_system(&ring->tail) >= ring->capacity) {
      ptx::add_relaxed_system(&ring->dropped, 1);
      count(region, GSAN_LOSS_RACE_RING_FULL);
      return nullptr;
    }
    u64 before = ptx::compare_exchange_relaxed_system(&ring->head, index, index + 1);
    if (before == index) break;
    index = before;
  }
  return reinterpret_cast<gsan_race_entry*>(ring + 1) + (index & (ring->capacity - 1));
}

// Tells the host that `later`, an access to `granule`, did what `kind` says of `earlier`; that is 0
// where there is none.
GSAN_COLD void tell(Cta cta, u32 kind, u64 earlier, u64 later, u32 action, u64 granule, u32 mask,
                    u32 repeats) {
  Region region = cta.region;
  u64 index;
  gsan_race_entry* entry = take_place(region, index);
  if (entry == nullptr) return;
  entry->address = granule + ptx::lowest(mask);
  entry->mask = u8(mask);
  entry->kind = u8(kind);
  entry->repeats = repeats;
  if (earlier != 0) {
    write_earlier_side(region, entry->earlier, earlier);
  } else {
    write_side(entry->earlier, 0, region.globals->constants.rank, 0);
    entry->earlier.flags = GSAN_RACE_FORGOTTEN;
    entry->earlier.launch = 0;
    entry->earlier.cta = 0;
  }
  write_side(entry->later, later, region.globals->constants.rank, action);
  const gsan_launch_descriptor& launch = *cta.launch();
  entry->later.launch = launch.number;
  entry->later.cta = u32(cta.state->coordinates);
  bool race = kind <= GSAN_RACE_WRITE_AFTER_WRITE;
  bool possible =
      race && (launch.flags & GSAN_LAUNCH_OPAQUE || is_opaque(region, entry->earlier));
  entry->flags = possible ? GSAN_RACE_POSSIBLE : 0;
  ptx::store_release_system(&entry->stamp, index + 1);
}

GSAN_COLD void halt(u32 kind, const char* file, u32 line) {
  const char* message = kind == GSAN_RACE_READ_AFTER_WRITE    ? "Read after write race detected"
                        : kind == GSAN_RACE_WRITE_AFTER_READ  ? "Write after read race detected"
                        : kind == GSAN_RACE_WRITE_AFTER_WRITE ? "Write after write race detected"
                        : kind == GSAN_RACE_WRITTEN_TWICE
                            ? "Write-once memory written more than once"
                        : kind == GSAN_RACE_READ_UNWRITTEN
                            ? "Read of write-once memory before its first write"
                            : "Atomic operations on write-once memory are not supported";
  ptx::assertion_failed(message, file, line);
}

// Whether clusters copied tensors at a site. It may be so where it is not known which site that is.
GSAN_DEVICE bool is_cluster_copy(Region region, u32 site) {
  const gsan_site* sites = region.part<gsan_site>(region.globals->offsets.sites);
  return site == 0 || ptx::load_relaxed(&sites[site].flags) & GSAN_SITE_CLUSTER_COPY;
}

// Whether `earlier` and `later` are of CTAs of one cluster, and one of them is a copy of a tensor: any CTA
// of the cluster may have moved those bytes, so also the one that made the other access.
GSAN_COLD bool may_be_of_one_cta(Cta cta, u64 earlier, u64 later) {
  u32 size = ptx::load_relaxed(&cta.launch_state()->cluster);
  if (size == 0) return false;
  Region region = cta.region;
  const gsan_constants& constants = region.globals->constants;
  if (region.device_of(record_thread(earlier)) != constants.rank) return false;
  if (!is_cluster_copy(region, record_site(earlier)) &&
      !is_cluster_copy(region, record_site(later))) {
    return false;
  }
  u32 launch = 0;
  u64 coordinates = 0;
  if (!History{region}.find(record_thread(earlier), record_epoch(earlier), launch, coordinates)) {
    // CTAs of a cluster run together, and are in the history as long.
    return false;
  }
  if (launch != cta.launch()->number) return false;
  return size == GSAN_LAUNCH_ONE_CLUSTER || coordinates / size == cta.state->coordinates / size;
}

// An access to the bytes of `mask` of `granule` did what `kind` says of `earlier`. At `file` and `line`.
GSAN_COLD void report_kind(gsan_global_state* globals, u32 kind, u64 earlier, u64 later, u32 action,
                           u64 granule, u32 mask, const char* file, u32 line) {
  Cta cta = Cta::current(globals);
  u32 repeats;
  if (passes_filter(cta, kind, earlier, later, repeats)) {
    tell(cta, kind, earlier, later, action, granule, mask, repeats);
  }
  if (globals->flags & GSAN_STATE_HALT_ON_RACE) halt(kind, file, line);
}

// An access to `granule`, whose record is `later`, met `earlier`. At `file` and `line`.
GSAN_COLD void report(gsan_global_state* globals, u64 earlier, u64 later, u32 action, u64 granule,
                      const char* file, u32 line) {
  if (may_be_of_one_cta(Cta::current(globals), earlier, later)) return;
  u32 kind = CellAccess{later, action, record_scope(later)}.kind(earlier);
  u32 mask = record_mask(earlier) & record_mask(later);
  report_kind(globals, kind, earlier, later, action, granule, mask, file, line);
}

}  // namespace gsan
