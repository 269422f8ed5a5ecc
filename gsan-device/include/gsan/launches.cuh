// Frontiers and completions: what a launch starts after, and what later ones start after.
//
// A frontier is a few rows that all CTAs of the launch share and never write: that of the own bank,
// a foreign row over all ids, and rows of other banks that the host named. A completion is a row of
// the own bank and a foreign row, which CTAs fill as they exit.
#pragma once

#include "gsan/clocks.cuh"
#include "gsan/state.cuh"

namespace gsan {

// A bank and a slot in it; banks are counted over all devices.
struct Place {
  u32 bank;
  u32 slot;
};

// How thread ids are divided.
struct Topology {
  const gsan_constants& constants;

  // Where `thread` is, or false for ids that are reserved or not in use.
  GSAN_DEVICE bool place(u32 thread, Place& place) const {
    u32 device = constants.devices == 1 ? 0 : ptx::divide(thread, constants.share);
    u32 rest = thread - device * constants.share;
    u32 bank = ptx::divide(rest, constants.slots);
    place = {device * constants.banks + bank, rest - bank * constants.slots};
    return rest < constants.banks * constants.slots && device < constants.devices;
  }

  GSAN_DEVICE u32 id(Place place) const {
    return place.bank / constants.banks * constants.share +
           place.bank % constants.banks * constants.slots + place.slot;
  }
};

// The entries of a row over all ids.
GSAN_DEVICE u32* entries(u64 foreign_row) {
  return reinterpret_cast<u32*>(foreign_row + sizeof(gsan_row_header));
}

GSAN_DEVICE bool is_filled(u64 foreign_row) {
  return foreign_row != 0 && ptx::load_relaxed(reinterpret_cast<const u32*>(foreign_row)) != 0;
}

// The rows of a stream: 0 where there is none.
struct Rows {
  u32 bank;
  u64 own;
  u64 foreign;

  GSAN_DEVICE bool covers(Place place, u32 thread, u32 epoch) const {
    if (own != 0 && place.bank == bank &&
        gsan::covers(ptx::load_relaxed(reinterpret_cast<const u32*>(own) + place.slot), epoch)) {
      return true;
    }
    return is_filled(foreign) &&
           gsan::covers(ptx::load_relaxed(entries(foreign) + thread), epoch);
  }

  // The part of `entry` that these rows do not cover, or a little more.
  GSAN_DEVICE u32 cut(Place place, u32 thread, u32 entry) const {
    if (own != 0 && place.bank == bank) {
      u32 known = ptx::load_relaxed(reinterpret_cast<const u32*>(own) + place.slot);
      entry = gsan::cut(entry, known);
    }
    if (is_filled(foreign)) {
      entry = gsan::cut(entry, ptx::load_relaxed(entries(foreign) + thread));
    }
    return entry;
  }

  // The word for what is known of `thread`, at `place`; null if there is no row for it.
  GSAN_DEVICE u32* word(Place place, u32 thread) const {
    u64 row = place.bank == bank ? own : foreign;
    if (row == 0) return nullptr;
    return place.bank == bank ? reinterpret_cast<u32*>(row) + place.slot : entries(row) + thread;
  }

  GSAN_DEVICE void add(Place place, u32 thread, u32 entry) const {
    u32* known = word(place, thread);
    if (known == nullptr || entry == 0) return;
    merge_word(known, entry);
    if (place.bank != bank) ptx::store_relaxed(reinterpret_cast<u32*>(foreign), 1u);
  }
};

GSAN_DEVICE Rows frontier(const gsan_launch_descriptor& launch) {
  return {launch.bank, launch.own_row, launch.foreign_row};
}

GSAN_DEVICE Rows completion(const gsan_launch_descriptor& launch) {
  return {launch.bank, launch.own_done, launch.foreign_done};
}

GSAN_DEVICE const gsan_overtaken& overtaken(const gsan_launch_descriptor& launch, u32 index) {
  return reinterpret_cast<const gsan_overtaken*>(launch.overtaken)[index];
}

GSAN_DEVICE Rows completion_of_overtaken(const gsan_launch_descriptor& launch, u32 index) {
  const gsan_overtaken& other = overtaken(launch, index);
  return {launch.bank, other.own_row, other.foreign_row};
}

// The bits of the launches overtaken whose CTAs have all exited.
GSAN_DEVICE u32 complete(const gsan_launch_descriptor& launch) {
  u32 bits = 0;
  for (u32 index = 0; index < launch.overtaken_count; ++index) {
    const gsan_overtaken& other = overtaken(launch, index);
    auto state = reinterpret_cast<const gsan_launch_state*>(other.state);
    // Acquires the rows that the last CTA filled before it counted itself.
    if (ptx::load_acquire(&state->exited) >= other.ctas) bits |= 1u << index;
  }
  return bits;
}

// The word that says how many slots of `bank` were ever taken.
GSAN_DEVICE u32* high_water(Region region, u32 bank) {
  u32 banks = region.globals->constants.banks;
  Region home = region.of_device(bank / banks);
  return home.part<u32>(home.globals->offsets.high_water) + bank % banks;
}

// The same as a number: of a rank that is not present, none were.
GSAN_DEVICE u32 slots_taken(Region region, u32 bank) {
  if (!region.is_present(bank / region.globals->constants.banks)) return 0;
  return ptx::load_relaxed_system(high_water(region, bank));
}

// Calls `body(place, thread)` for every place of `bank` that was ever taken; `share` threads that
// call with different `first` divide them.
template <class F>
GSAN_DEVICE void for_each_place(Region region, u32 bank, u32 first, u32 share, F body) {
  Topology topology = {region.globals->constants};
  u32 mark = slots_taken(region, bank);
  for (u32 slot = first; slot < mark; slot += share) {
    Place place = {bank, slot};
    body(place, topology.id(place));
  }
}

template <class F>
GSAN_DEVICE void for_each_place(Region region, u32 first, u32 share, F body) {
  const gsan_constants& constants = region.globals->constants;
  for (u32 bank = 0; bank < constants.banks * constants.devices; ++bank) {
    for_each_place(region, bank, first, share, body);
  }
}

// Adds what `from` knows to `to`, which belongs to the same bank.
GSAN_COLD void carry_over(Region region, Rows from, Rows to, u32 first, u32 share) {
  bool foreign = is_filled(from.foreign);
  if (from.own == 0 && !foreign) return;
  u32 banks = region.globals->constants.banks * region.globals->constants.devices;
  for (u32 bank = foreign ? 0 : from.bank; bank < (foreign ? banks : from.bank + 1); ++bank) {
    for_each_place(region, bank, first, share, [&](Place place, u32 thread) {
      u32 entry = 0;
      if (place.bank == from.bank && from.own != 0) {
        entry = ptx::load_relaxed(reinterpret_cast<const u32*>(from.own) + place.slot);
      }
      if (foreign) entry = hull(entry, ptx::load_relaxed(entries(from.foreign) + thread));
      to.add(place, thread, entry);
    });
  }
}

}  // namespace gsan
