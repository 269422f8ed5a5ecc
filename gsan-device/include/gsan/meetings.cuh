// Cluster barriers and mbarriers: arrivals release into the running phase, completed waits acquire
// the phase.
//
// The counts mirror the hardware's, as far as arrivals are reported. They may lag behind, by any
// number of phases, or be ahead; a wait that has returned proves that its phase is complete,
// whatever the mirror says. So a wait for a parity takes all arrivals so far: which of them belong
// to its phase cannot be told, and missing one would invent a race.
//
// All lanes of a warp call together, those without a part in it as well: they help with clocks.
#pragma once

#include "gsan/strong.cuh"

namespace gsan {

constexpr u32 kMeetingCount = (1u << GSAN_MEETING_COUNT_BITS) - 1;
constexpr u32 kMeetingPhaseShift = 2 * GSAN_MEETING_COUNT_BITS;

// A count that expects `expected` arrivals, of which `left` are still missing in phase `phase`.
GSAN_DEVICE u64 meeting_count(u64 phase, u32 left, u32 expected) {
  return phase << kMeetingPhaseShift | u64(left) << GSAN_MEETING_COUNT_BITS | expected;
}

// One barrier object.
struct Meeting {
  gsan_meeting* memory;

  // Initialised, again or for the first time: `expected` arrivals complete a phase, or none ever do
  // if it is 0. Phase 0 runs. By one lane.
  GSAN_DEVICE void reset(u32 expected) const {
    ptx::store_relaxed(&memory->arrivals, u64(0));
    ptx::store_relaxed(memory->complete, u64(0));
    ptx::store_relaxed(memory->complete + 1, u64(0));
    expected &= kMeetingCount;
    ptx::store_release(&memory->count, meeting_count(0, expected, expected));
  }

  GSAN_DEVICE static u32 left(u64 state) {
    return u32(state >> GSAN_MEETING_COUNT_BITS) & kMeetingCount;
  }
  GSAN_DEVICE static u32 expected(u64 state) { return u32(state) & kMeetingCount; }
  GSAN_DEVICE static u32 phase(u64 state) { return u32(state >> kMeetingPhaseShift); }

  // Publishes what the CTA did and knows, together with what has arrived so far.
  GSAN_DEVICE void publish_into(Cta cta, Warp warp) const {
    u64 found = ptx::load_relaxed_system(&memory->arrivals);
    Known known;
    Released own = publish(cta, warp, found, known);
    // The first lane does it; the others help.
    release_into(cta, warp, &memory->arrivals, warp.leads(), own, known, 0xff, GSAN_SCOPE_GPU,
                 found);
  }

  // `arrivals` of them are counted. By one lane.
  GSAN_DEVICE void count_arrivals(u32 arrivals) const {
    u64 state = ptx::load_relaxed(&memory->count);
    while (true) {
      u32 needed = expected(state);
      if (needed == 0) return;
      if (left(state) <= arrivals) return complete(state);
      u64 next = meeting_count(state >> kMeetingPhaseShift, left(state) - arrivals, needed);
      u64 before = ptx::compare_exchange_relaxed(&memory->count, state, next);
      if (before == state) return;
      state = before;
    }
  }

  // The phase that runs according to `state` is complete, unless somebody else says so. By one lane.
  GSAN_DEVICE void complete(u64 state) const {
    u32 now = phase(state);
    u64 arrivals = ptx::load_relaxed_system(&memory->arrivals);
    ptx::store_relaxed(memory->complete + (now & 1), arrivals);
    constexpr u32 kPhases = ~0u >> (kMeetingPhaseShift - 32);
    u64 next = meeting_count((now + 1) & kPhases, expected(state), expected(state));
    ptx::compare_exchange_relaxed(&memory->count, state, next);
  }

  // All arrivals so far are known.
  GSAN_DEVICE void acquire_arrivals(Cta cta, Warp warp) const {
    u64 arrivals = 0;
    if (warp.leads()) arrivals = ptx::load_relaxed_system(&memory->arrivals);
    arrivals = warp.share(arrivals);
    if (is_sync(arrivals)) acquire(cta, warp, arrivals);
  }

  // `count` arrivals are about to happen; `releases` says whether they publish. The hardware's own
  // arrival orders this before a wait that returns for it.
  GSAN_DEVICE void arrive(Cta cta, Warp warp, bool releases, u32 count) const {
    if (releases) publish_into(cta, warp);
    if (warp.leads()) count_arrivals(count);
    warp.meet();
  }

  // A wait for the phase of `parity` has returned. It acquires that phase, and what has arrived for
  // later ones by now.
  GSAN_DEVICE void wait(Cta cta, Warp warp, u32 parity) const {
    if (warp.leads()) {
      u64 state = ptx::load_relaxed(&memory->count);
      if ((phase(state) & 1) == (parity & 1)) {
        count(cta.region, GSAN_LOSS_BARRIER_MISMATCH);
        complete(state);
      }
    }
    acquire_arrivals(cta, warp);
  }
};

// How often a CTA looks whether the others of its cluster have come: seconds.
constexpr u32 kClusterPatience = 1u << 22;

// Between two hardware barriers of a cluster, which all of its CTAs pass: each publishes, waits
// until all have, and acquires. They are resident together, so each will come. Should one not (it
// has left the kernel), everything so far counts as ordered.
GSAN_COLD void cluster_barrier_sync(Cta cta, Warp warp, gsan_cluster_scratch* scratch, u32 ctas) {
  if (!cta.is_known()) return;
  Meeting meeting = {&scratch->meeting};
  u32 phase = 0;
  if (warp.leads()) {
    // The memory is zero at launch: whoever comes first says how many there are.
    u64 found = ptx::compare_exchange_relaxed(&meeting.memory->count, u64(0),
                                              meeting_count(0, ctas, ctas));
    phase = Meeting::phase(found);
  }
  meeting.publish_into(cta, warp);
  u32 late = 0;
  if (warp.leads()) {
    // Who sees the count sees the arrival.
    ptx::fence_release();
    meeting.count_arrivals(1);
    for (u32 looks = 0; Meeting::phase(ptx::load_relaxed(&meeting.memory->count)) == phase;) {
      late = ++looks == kClusterPatience;
      if (late) break;
      ptx::pause();
    }
    ptx::fence_acquire();
  }
  if (warp.share(late) == 0) {
    // Nobody arrives for the next phase before this CTA has come to the second hardware barrier.
    meeting.acquire_arrivals(cta, warp);
  } else {
    count(cta, warp, GSAN_LOSS_BARRIER_MISMATCH);
    acquire_everything_so_far(cta, warp);
  }
}

// The mirrored mbarriers of a cluster.
struct Mbarriers {
  gsan_mbarrier_table* table;

  GSAN_DEVICE static u32 key(u32 offset, u32 owner) {
    return (owner << GSAN_MEETING_OWNER_SHIFT | (offset & kOffset)) + 1;
  }

  GSAN_DEVICE gsan_mbarrier* entry(u32 index) const {
    return reinterpret_cast<gsan_mbarrier*>(table + 1) + index;
  }

  // By one lane, before a barrier of the cluster.
  GSAN_DEVICE void init(u32 capacity) const {
    ptx::store_relaxed(&table->capacity, capacity);
    // The hardware's barrier may be a relaxed one.
    ptx::fence();
  }

  // The barrier with `key`; null if there is none. `claims`: it gets a place if one is left. By one
  // lane.
  GSAN_DEVICE gsan_mbarrier* find(u32 key, bool claims) const {
    u32 capacity = ptx::load_relaxed(&table->capacity);
    if (capacity == 0) return nullptr;
    // Barriers are 8 bytes, and often 16, apart.
    u32 index = (key >> 3) % capacity;
    for (u32 probe = 0; probe < capacity; ++probe) {
      gsan_mbarrier* place = entry(index);
      u32 found = ptx::load_relaxed(&place->key);
      if (found == 0) {
        if (!claims) return nullptr;
        found = ptx::compare_exchange_relaxed(&place->key, 0u, key);
        if (found == 0) {
          ptx::add_relaxed(&table->used, 1u);
          return place;
        }
      }
      if (found == key) return place;
      index = index + 1 == capacity ? 0 : index + 1;
    }
    return nullptr;
  }

 private:
  static constexpr u32 kOffset = (1u << GSAN_MEETING_OWNER_SHIFT) - 1;
};

// Several lanes may ask for different things: one after the other, those alike together. Calls
// `body(asks)` for each; `same(from)` says whether the calling lane asks for what lane `from` asks.
template <class Same, class F>
GSAN_DEVICE void for_each_request(Warp warp, bool asks, Same same, F body) {
  for (u32 left = warp.ballot(asks); left != 0;) {
    u32 from = ptx::lowest(left);
    u32 alike = warp.ballot(same(from) && asks) & left;
    body(from, alike);
    left &= ~alike;
  }
}

// By one lane.
GSAN_COLD void mbarrier_init(gsan_mbarrier_table* table, u32 offset, u32 owner, u32 expected) {
  Mbarriers mbarriers = {table};
  gsan_mbarrier* mbarrier = mbarriers.find(Mbarriers::key(offset, owner), true);
  if (mbarrier != nullptr) Meeting{&mbarrier->meeting}.reset(expected);
}

// An arrival at the barriers of the CTAs in `recipients` is about to happen. Where the table had no
// room for a barrier, whoever waits for it takes everything for ordered.
GSAN_COLD void mbarrier_arrive(Cta cta, Warp warp, gsan_mbarrier_table* table, bool asks,
                               u32 offset, u32 recipients, u32 arrivals, bool releases) {
  if (!cta.is_known()) return;
  auto same = [&](u32 from) {
    u32 other_offset = warp.share(offset, from);
    u32 other_recipients = warp.share(recipients, from);
    u32 other_releases = warp.share(u32(releases), from);
    return other_offset == offset && other_recipients == recipients &&
           other_releases == u32(releases);
  };
  for_each_request(warp, asks, same, [&](u32 from, u32 alike) {
    u32 at = warp.share(offset, from);
    bool publishes = warp.share(u32(releases), from) != 0;
    u32 arriving = ptx::sum(warp.lanes, alike >> ptx::lane() & 1 ? arrivals : 0);
    for (u32 owners = warp.share(recipients, from); owners != 0; owners &= owners - 1) {
      u64 found = 0;
      if (warp.leads()) {
        u32 key = Mbarriers::key(at, ptx::lowest(owners));
        found = reinterpret_cast<u64>(Mbarriers{table}.find(key, false));
      }
      auto mbarrier = reinterpret_cast<gsan_mbarrier*>(warp.share(found));
      if (mbarrier != nullptr) {
        Meeting{&mbarrier->meeting}.arrive(cta, warp, publishes, arriving);
      } else {
        count(cta, warp, GSAN_LOSS_BARRIER_MISMATCH);
      }
    }
  });
}

// A wait for the phase of `parity` of the barrier of CTA `owner` has returned.
GSAN_COLD void mbarrier_wait(Cta cta, Warp warp, gsan_mbarrier_table* table, bool asks, u32 offset,
                             u32 owner, u32 parity) {
  if (!cta.is_known()) return;
  u32 key = Mbarriers::key(offset, owner);
  parity &= 1;
  auto same = [&](u32 from) {
    u32 other_key = warp.share(key, from);
    u32 other_parity = warp.share(parity, from);
    return other_key == key && other_parity == parity;
  };
  for_each_request(warp, asks, same, [&](u32 from, u32) {
    u64 found = 0;
    u32 wanted = warp.share(key, from);
    if (warp.leads()) found = reinterpret_cast<u64>(Mbarriers{table}.find(wanted, false));
    auto mbarrier = reinterpret_cast<gsan_mbarrier*>(warp.share(found));
    if (mbarrier != nullptr) {
      Meeting{&mbarrier->meeting}.wait(cta, warp, warp.share(parity, from));
    } else {
      count(cta, warp, GSAN_LOSS_BARRIER_MISMATCH);
      acquire_everything_so_far(cta, warp);
    }
  });
}

}  // namespace gsan
