// What a CTA knows of the past: its own epochs, the frontier, the completions it took, and what it
// learned.
#pragma once

#include "gsan/cells.cuh"
#include "gsan/private_clock.cuh"

namespace gsan {

// Whether `entry`, of `thread`, covers an epoch; then it is kept at hand.
GSAN_DEVICE bool knows(Cta cta, u32 thread, u32 entry, u32 epoch) {
  if (!covers(entry, epoch)) return false;
  cta.remember(thread, entry);
  return true;
}

// The frontier's rows beyond that of the own bank. While the launch runs they say no less: a graph's nodes share a
// foreign row, to which others may add.
struct OtherRows {
  Cta cta;
  u64 foreign;
  const u64* named;

  GSAN_DEVICE explicit OtherRows(Cta cta)
      : cta(cta),
        foreign(ptx::local_load(&cta.state->foreign_row)),
        named(reinterpret_cast<const u64*>(ptx::local_load(&cta.state->named_rows))) {}

  // Whether one of them covers an epoch of `thread`, which is at `place`.
  GSAN_DEVICE bool covers(Place place, u32 thread, u32 epoch) const {
    if (foreign != 0 && knows(cta, thread, ptx::load_constant(entries(foreign) + thread), epoch)) return true;
    if (named == nullptr) return false;
    auto row = reinterpret_cast<const u32*>(ptx::load_constant(named + place.bank));
    return row != nullptr && knows(cta, thread, ptx::load_constant(row + place.slot), epoch);
  }
};

// Whether the CTA knows nothing but its own epochs and its frontier, so that what is not ordered by these is not
// ordered.
GSAN_DEVICE bool knows_frontier_only(Cta cta) {
  return (cta.flags() & GSAN_THREAD_EVERYTHING) == 0 && ptx::local_load(&cta.state->taken) == 0 &&
         known_checkpoint(cta) == kNoCheckpoint && private_clock(cta).words == nullptr;
}

// Beyond the own bank's row of the frontier, which was looked at.
GSAN_COLD bool is_ordered_elsewhere(Cta cta, u32 thread, u32 epoch) {
  if (epoch == GSAN_CLOCK_EPOCH_MAX || cta.flags() & GSAN_THREAD_EVERYTHING) return true;
  if (covers(cta.recall(thread), epoch)) return true;
  Place place;
  if (!place_of(cta, thread, place)) return true;
  if (OtherRows(cta).covers(place, thread, epoch)) return true;
  const gsan_launch_descriptor& launch = *cta.launch();
  for (u32 taken = ptx::local_load(&cta.state->taken); taken != 0; taken &= taken - 1) {
    Rows rows = completion_of_overtaken(launch, ptx::lowest(taken));
    if (rows.covers(place, thread, epoch)) return true;
  }
  u32 checkpoint = known_checkpoint(cta);
  if (checkpoint != kNoCheckpoint &&
      knows(cta, thread, entry_all(checkpoint_epoch(cta.region, checkpoint, thread)), epoch)) {
    return true;
  }
  Vector clock = private_clock(cta);
  return clock.words != nullptr && knows(cta, thread, clock.get(place), epoch);
}

// The view of one access. Most records are ordered by the own row, which the constructor keeps at
// hand.
struct Past {
  Cta cta;
  const u32* own_row;
  u32 thread;
  u32 start;
  u32 bank_first;
  u32 slots;
  // Whether the CTA knows more than this.
  bool more;

  GSAN_DEVICE explicit Past(Cta cta)
      : cta(cta),
        own_row(reinterpret_cast<const u32*>(cta.state->own_row)),
        thread(cta.thread()),
        start(cta.state->start),
        bank_first(cta.state->bank_first),
        slots(cta.state->slots),
        more(ptx::local_load(&cta.state->more) != 0) {}

  GSAN_DEVICE bool is_ordered(u32 other, u32 epoch) const {
    if (other == thread && epoch >= start) return true;
    u32 slot = other - bank_first;
    if (slot < slots && covers(ptx::load_constant(own_row + slot), epoch)) return true;
    // Ids of the own bank are in use; of others that is looked up.
    if (!more && slot < slots && epoch != GSAN_CLOCK_EPOCH_MAX) return false;
    return is_ordered_elsewhere(cta, other, epoch);
  }

  GSAN_DEVICE bool is_same_device(u32 other) const {
    const gsan_constants& constants = cta.region.globals->constants;
    return other - constants.first_id < constants.share;
  }
};

// survey, out of line.
template <unsigned S>
GSAN_ONCE u32 survey_by_call(gsan_global_state* globals, u64 word0, u64 word1, u64 word2, u64 word3,
                             u64 record, u32 action, u32 scope, bool removes) {
  Cell<S> cell;
  u64 words[] = {word0, word1, word2, word3};
#pragma unroll
  for (u32 i = 0; i < S; ++i) cell.word[i] = words[i];
  return survey(cell, CellAccess{record, action, scope}, Past(Cta::current(globals)), removes).packed();
}

template <unsigned S>
GSAN_DEVICE Survey survey(Cta cta, const Cell<S>& cell, const CellAccess& access, bool removes = false) {
  return Survey::of(survey_by_call<S>(cta.region.globals, cell.word[0], cell.word[1], cell.at(2 % S),
                                      cell.at(3 % S), access.record, access.action, access.scope,
                                      removes));
}

}  // namespace gsan
