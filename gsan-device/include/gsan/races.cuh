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

// What an access met in a cell.
struct Race {
  u64 earlier;
  CellAccess access;
  u64 granule;
  Position position;

  GSAN_DEVICE u32 mask() const { return record_mask(earlier) & access.mask(); }
};

// Whether the race is to be told now, and how many like it were passed over.
GSAN_DEVICE bool passes_filter(Cta cta, const Race& race, u32& repeats) {
  u32 sites = record_site(race.earlier) << kSiteBits | record_site(race.access.record);
  u32 kind = race.access.kind(race.earlier);
  u32 tag = mix(mix(sites ^ kind << 2 * kSiteBits) ^ cta.launch()->number);
  u64* place = cta.region.part<u64>(cta.region.globals->offsets.race_filter) +
               (tag & (GSAN_STATE_RACE_FILTER - 1));
  u64 found = ptx::load_relaxed(place);
  while (true) {
    bool same = found != 0 && u32(found >> 32) == tag;
    u32 times = same ? u32(found) : 0;
    if (times == ~0u) return false;
    u64 before = ptx::compare_exchange_relaxed(place, found, u64(tag) << 32 | (times + 1));
    if (before == found) {
      repeats = times < 2 ? 0 : (times + 1) / 2 - 1;
      return (times & (times + 1)) == 0;
    }
    found = before;
  }
}

GSAN_DEVICE gsan_race_side side(u64 record, u32 device, u32 action) {
  gsan_race_side side = {};
  side.epoch = record_epoch(record);
  side.thread = u16(record_thread(record));
  side.site = u16(record_site(record));
  side.device = u8(device);
  side.action = u8(action);
  side.scope = u8(record_scope(record));
  return side;
}

// The side that was found in the cell: who it was is in the history, if not forgotten.
GSAN_DEVICE gsan_race_side earlier_side(Cta cta, u64 record) {
  u32 device = cta.region.device_of(record_thread(record));
  u32 action = record_writes(record) ? GSAN_RACE_WRITE : GSAN_RACE_READ;
  gsan_race_side result = side(record, device, action);
  u64 coordinates = 0;
  History history = {cta.region.of_device(device)};
  if (history.find(record_thread(record), record_epoch(record), result.launch, coordinates)) {
    result.cta = u32(coordinates);
  } else {
    result.flags = GSAN_RACE_FORGOTTEN;
    count(cta.region, GSAN_LOSS_HISTORY_OVERWRITTEN);
  }
  return result;
}

// Whether `number` of device `device` may have been ordered by what nobody reports.
GSAN_DEVICE bool is_opaque(Cta cta, u32 device, u32 number) {
  const gsan_launch_state* state = cta.region.of_device(device).launch(number);
  return ptx::load_acquire(&state->copied) == number + 1 &&
         state->descriptor.flags & GSAN_LAUNCH_OPAQUE;
}

// Appends `entry` to the ring, unless it is full.
GSAN_DEVICE void append(Region region, const gsan_race_entry& entry) {
  auto ring = reinterpret_cast<gsan_race_ring*>(region.globals->constants.race_ring);
  if (ring == nullptr) return;
  u64 head = ptx::load_acquire_system(&ring->head);
  while (true) {
    if (head - ptx::load_acquire_system(&ring->tail) >= ring->capacity) {
      ptx::add_relaxed_system(&ring->dropped, 1);
      count(region, GSAN_LOSS_RACE_RING_FULL);
      return;
    }
    u64 before = ptx::compare_exchange_relaxed_system(&ring->head, head, head + 1);
    if (before == head) break;
    head = before;
  }
  auto place = reinterpret_cast<gsan_race_entry*>(ring + 1) + (head & (ring->capacity - 1));
  // The stamp of `entry` is 0: not there yet.
  *place = entry;
  ptx::store_release_system(&place->stamp, head + 1);
}

GSAN_DEVICE void halt(u32 kind, Position position) {
  const char* message = kind == GSAN_RACE_READ_AFTER_WRITE   ? "Read after write race detected"
                        : kind == GSAN_RACE_WRITE_AFTER_READ ? "Write after read race detected"
                                                             : "Write after write race detected";
  ptx::assertion_failed(message, position.file, position.line);
}

GSAN_COLD void report(Cta cta, Race race) {
  u32 kind = race.access.kind(race.earlier);
  gsan_race_entry entry = {};
  if (passes_filter(cta, race, entry.repeats)) {
    const gsan_launch_descriptor& launch = *cta.launch();
    entry.address = race.granule + ptx::lowest(race.mask());
    entry.mask = u8(race.mask());
    entry.kind = u8(kind);
    entry.earlier = earlier_side(cta, race.earlier);
    entry.later =
        side(race.access.record, cta.region.globals->constants.rank, race.access.action);
    entry.later.launch = launch.number;
    entry.later.cta = u32(cta.state->coordinates);
    bool forgotten = entry.earlier.flags & GSAN_RACE_FORGOTTEN;
    if (launch.flags & GSAN_LAUNCH_OPAQUE ||
        (!forgotten && is_opaque(cta, entry.earlier.device, entry.earlier.launch))) {
      entry.flags = GSAN_RACE_POSSIBLE;
    }
    append(cta.region, entry);
  }
  if (cta.region.globals->flags & GSAN_STATE_HALT_ON_RACE) halt(kind, race.position);
}

}  // namespace gsan
