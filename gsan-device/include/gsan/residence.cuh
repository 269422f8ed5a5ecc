// The start and the end of a CTA.
//
// The threads of the CTA's default group call together; the barrier they lend is used as often as
// needed. Neither start nor end passes over all slots, apart from the one CTA of a launch that
// carries the frontier over, and those that count everything as ordered.
#pragma once

#include "gsan/private_clock.cuh"

namespace gsan {

// Threads that share something out among them.
struct Share {
  u32 rank;
  u32 size;
};

// The threads that call together, with the barrier that they lend. Functions that are out of line get their
// share only: for a barrier whose number is no constant the assembler reserves all sixteen, and an SM has
// them for four CTAs.
struct Group {
  u32 thread;
  u32 threads;
  u32 barrier_id;

  GSAN_DEVICE bool leads() const { return thread == 0; }
  GSAN_DEVICE Share share() const { return {thread, threads}; }
  // A barrier counts whole warps.
  GSAN_DEVICE void wait() const {
    ptx::barrier(barrier_id, (threads + kWarpSize - 1) / kWarpSize * kWarpSize);
  }
};

// What the start of a CTA needs of the state region. It is read at once: what is read later waits for the
// second-level cache again, because instructions that acquire empty the first.
struct Setting {
  Fixed fixed;
  gsan_constants constants;
  u32 magic;
  u32 version;
  u32 slots_per_sm;
  u32 launches_at;
  u32 high_water_at;
  u32 epochs_at;
  u32 starts_at;
  u32 history_at;

  GSAN_DEVICE static Setting of(const gsan_global_state& globals) {
    Setting setting;
    setting.fixed = Fixed::of(globals);
    setting.constants = globals.constants;
    setting.magic = globals.magic;
    setting.version = globals.version;
    setting.slots_per_sm = globals.slots_per_sm;
    setting.launches_at = globals.offsets.launches;
    setting.high_water_at = globals.offsets.high_water;
    setting.epochs_at = globals.offsets.epochs;
    setting.starts_at = globals.offsets.starts;
    setting.history_at = globals.offsets.history;
    return setting;
  }

  // Whether the host has set up the region as this library understands it, with cells of `records` words.
  GSAN_DEVICE bool is_ready(u32 records) const {
    return magic == GSAN_STATE_MAGIC && version == GSAN_STATE_VERSION && constants.records == records;
  }

  // The slots of the own bank.
  GSAN_DEVICE Slots slots(Region region, const gsan_launch_descriptor& launch) const {
    return {reinterpret_cast<u32*>(launch.slot_masks),
            region.part<u32>(high_water_at) + launch.bank % constants.banks, fixed.sms, slots_per_sm};
  }
};

// The descriptor of the launch: the copy in device memory, if the first CTA has left it there, which
// `passed_on` says. The low half of `index` is the entry of the host's table, the high half the launch's
// number plus 1, or 0 where the number is not known beforehand (graphs).
GSAN_DEVICE const gsan_launch_descriptor* descriptor(Region region, const Setting& setting,
                                                     const void* table, u64 index, bool& passed_on) {
  u32 number = u32(index >> GSAN_LAUNCH_INDEX_NUMBER_SHIFT);
  if (number != 0) {
    const gsan_launch_state* state = region.part<gsan_launch_state>(setting.launches_at) +
                                     (number - 1) % GSAN_STATE_LAUNCHES;
    passed_on = ptx::load_acquire(&state->copied) == number;
    if (passed_on) return &state->descriptor;
  }
  return static_cast<const gsan_launch_descriptor*>(table) + u32(index);
}

// Leaves a copy of the launch's descriptor in device memory. One CTA of a launch does. Who asks whether
// a launch is opaque may be on another device, and in a graph may look at what the replay before left
// there, which says the same.
GSAN_DEVICE void pass_on(Region region, const gsan_launch_descriptor& launch,
                         gsan_launch_state* shared) {
  auto source = reinterpret_cast<const u64*>(&launch);
  auto target = reinterpret_cast<u64*>(&shared->descriptor);
  for (u32 word = 0; word < sizeof(gsan_launch_descriptor) / sizeof(u64); ++word) {
    ptx::store_relaxed_system(target + word, source[word]);
  }
  // A release and not a fence before the store: ThreadSanitizer knows nothing of fences.
  if (region.globals->constants.devices > 1) {
    ptx::store_release_system(&shared->copied, launch.number + 1);
  } else {
    ptx::store_release(&shared->copied, launch.number + 1);
  }
}

// Starts the state of a CTA that becomes resident: it knows its launch, if the host said what that is. By
// the warp of thread 0 of the group, of which `leader` is the lane. The words are shared out and moved one by
// one: what the compiler makes of whole structures here goes byte by byte. Tells the leader whether the first
// CTA of the launch has passed the descriptor on.
GSAN_DEVICE bool enter(Cta cta, Warp warp, u32 leader, const Setting& setting, u32 records,
                       const void* table, u64 index) {
  gsan_thread_state* state = cta.state;
  auto words = reinterpret_cast<u64*>(state);
  constexpr u32 kWords = sizeof(gsan_thread_state) / sizeof(u64);
  for (u32 word = warp.rank(); word < kWords; word += warp.size()) {
    ptx::local_store(words + word, u64(0));
  }
  u64 source = 0;
  bool passed_on = false;
  if (ptx::lane() == leader && table != nullptr && setting.is_ready(records)) {
    source = reinterpret_cast<u64>(descriptor(cta.region, setting, table, index, passed_on));
  }
  source = warp.share(source, leader);
  warp.meet();
  if (source != 0) {
    auto launch = reinterpret_cast<u64*>(&state->launch);
    constexpr u32 kLaunchWords = sizeof(gsan_launch_descriptor) / sizeof(u64);
    for (u32 word = warp.rank(); word < kLaunchWords; word += warp.size()) {
      ptx::local_store(launch + word, reinterpret_cast<const u64*>(source)[word]);
    }
  }
  warp.meet();
  if (ptx::lane() != leader) return passed_on;
  state->flags = GSAN_THREAD_NO_SLOT | GSAN_THREAD_EVERYTHING;
  // 0 for a graph's launch that the host has not described yet.
  state->state = cta.launch()->state;
  state->coordinates = ptx::cta_index();
  return passed_on;
}

// A CTA of a known launch becomes resident. Whether a checkpoint is due: the CTA is the launch's first, and
// publications may have been overwritten since the newest one. A CTA that found the descriptor passed on is not
// the first: most spare the word to which all would add.
GSAN_DEVICE bool join_launch(Cta cta, bool passed_on) {
  gsan_thread_state* state = cta.state;
  Region region = cta.region;
  const gsan_launch_descriptor& launch = *cta.launch();
  bool first = !passed_on && ptx::add_relaxed(&cta.launch_state()->started, 1u) == 0;
  state->taken = complete(launch);
  if (!first) return false;
  pass_on(region, launch, cta.launch_state());
  state->carries = GSAN_LAUNCH_FRONTIER_CARRIED;
  u64 newest = Checkpoints{region}.newest();
  u64 head = ptx::load_relaxed_system(&region.globals->publication_head.value);
  return head + 1 > (newest == 0 ? 1 : newest);
}

// start_by_warp, after which the lanes may be apart.
GSAN_DEVICE void start_lanes(Cta cta, Warp warp, u32 thread, u32 records, const void* table, u64 index) {
  u32 first = warp.ballot(thread == 0);
  if (first == 0) return;
  u32 leader = ptx::lowest(first);
  Setting setting = {};
  if (thread == 0 && table != nullptr) setting = Setting::of(*cta.region.globals);
  bool passed_on = enter(cta, warp, leader, setting, records, table, index);
  u32 due = 0;
  if (thread == 0 && cta.is_known()) due = join_launch(cta, passed_on);
  if (warp.share(due, leader) != 0) take_checkpoint(cta.region, warp);
  if (thread != 0) return;
  Region region = cta.region;
  gsan_thread_state* state = cta.state;
  if (!cta.is_known()) return;
  cta.keep(setting.fixed);
  const gsan_launch_descriptor* launch = cta.launch();
  // CTAs of one kernel that are resident together have neighbouring warps of the SM: as many of each of its four
  // parts, or one of any.
  u32 likely = ptx::warp_of_sm() / ((ptx::cta_warps() + 3) & ~3u);
  u32 slot = setting.slots(region, *launch).take(ptx::sm(), likely);
  if (slot == kNoSlot) {
    count(region, GSAN_LOSS_NO_SLOT);
    ptx::add_relaxed(&cta.launch_state()->unchecked, 1u);
    return;
  }

  u32 id = launch->bank_first + slot;
  // These are under way together.
  const gsan_constants& constants = setting.constants;
  u32 place = id - constants.first_id;
  u32* epochs = region.part<u32>(setting.epochs_at) + place;
  u32* starts = region.part<u32>(setting.starts_at) + place;
  auto history = region.part<gsan_history_entry>(setting.history_at) + u64(place) * GSAN_STATE_HISTORY;
  u32 last = ptx::load_relaxed(epochs);
  u32 number = ptx::load_relaxed(starts);
  u64 foreign_row = launch->foreign_row;
  u32 filled = foreign_row == 0 ? 0 : ptx::load_relaxed(reinterpret_cast<const u32*>(foreign_row));
  u32 epoch = following(region, last < kFirstEpoch ? kFirstEpoch - 1 : last);
  ptx::store_relaxed_system(epochs, epoch);
  start_history(history, starts, number, epoch, launch->number, state->coordinates);
  u64 half = constants.reserve_bytes / 2;
  // Divided by `records`, which is 2 or 4.
  u64 usable = half >> records / 2;
  state->shadow_base = constants.reserve_base;
  state->real_base = constants.reserve_base + half;
  state->usable = usable;
  state->ordinary =
      constants.write_once == 0 ? usable : constants.write_once - constants.reserve_base - half;
  state->seed = constants.seed;
  bool has_row = launch->own_row != 0;
  state->own_row = has_row ? launch->own_row : reinterpret_cast<u64>(region.globals);
  state->slots = has_row ? constants.slots : 0;
  state->foreign_row = filled != 0 ? foreign_row : 0;
  state->named_rows = launch->named_rows;
  state->more = (state->foreign_row | launch->named_rows | state->taken) != 0;
  state->epoch = epoch;
  state->start = epoch;
  state->id = id + 1;
  state->bank = launch->bank;
  state->bank_first = launch->bank_first;
  state->flags = 0;
  // Who finds a record of this CTA finds it in the history.
  fence_release(region);
}

// The first thread of the group starts the CTA, and those of its warp that are with it help.
GSAN_COLD void start_by_warp(gsan_global_state* globals, u32 thread, u32 records, const void* table,
                             u64 index) {
  Cta cta = Cta::current(globals);
  Warp warp = Warp::current();
  start_lanes(cta, warp, thread, records, table, index);
  warp.leave_together();
}

// A CTA becomes resident: takes a slot if one is free, and starts a new epoch. It stays unchecked if
// the host has not set up what this library, with cells of `records` words, expects. `thread` is the
// position in the group of `threads` that starts. A barrier of the group follows.
GSAN_DEVICE void start(Cta cta, u32 thread, u32 threads, u32 records, const void* table, u64 index) {
  if (u64* sites = cta.sites()) {
#pragma unroll 1
    for (u32 place = thread; place < kCachedSites; place += threads) sites[place] = 0;
  }
  // For all threads, a call would put away what few need.
  if (thread < kWarpSize) start_by_warp(cta.region.globals, thread, records, table, index);
}

// What the CTA knew goes into the completion, by all threads of the group.
GSAN_DEVICE void complete_rows(Cta cta, Share share) {
  Region region = cta.region;
  const gsan_launch_descriptor& launch = *cta.launch();
  Rows done = completion(launch);
  u32 checkpoint = known_checkpoint(cta);
  bool everything = cta.flags() & GSAN_THREAD_EVERYTHING;
  // What is mirrored now is no less than what any checkpoint copied.
  if (everything || checkpoint != kNoCheckpoint) {
    for_each_place(region, share.rank, share.size, [&](Place place, u32 thread) {
      Region home = region.of_device(region.device_of(thread));
      u32 epoch = everything ? ptx::load_relaxed_system(home.epoch(thread))
                             : checkpoint_epoch(region, checkpoint, thread);
      done.add(place, thread, entry_all(epoch));
    });
  }
  Vector clock = private_clock(cta);
  for (u32 index = 0; clock.words != nullptr && index < clock.segments(); ++index) {
    u32 header = ptx::load_relaxed_system(clock.header(index));
    if (header == 0) break;
    u32 bank = Vector::bank(header);
    u32 first_id = Topology{region.globals->constants}.id({bank, 0});
    for (u32 slot = share.rank; slot < clock.length(header); slot += share.size) {
      u32 entry = ptx::load_relaxed_system(clock.entries(index) + slot);
      done.add({bank, slot}, first_id + slot, entry);
    }
  }
}

// One CTA carries over the frontier's own rows, and one each completion that it knew. Rows of other
// banks stay named by the host. `mine` are those that this CTA carries.
GSAN_DEVICE void carry(Cta cta, Share share, u32 mine) {
  const gsan_launch_descriptor& launch = *cta.launch();
  Rows done = completion(launch);
  if (mine & GSAN_LAUNCH_FRONTIER_CARRIED) {
    carry_over(cta.region, frontier(launch), done, share.rank, share.size);
  }
  for (u32 taken = mine & ~GSAN_LAUNCH_FRONTIER_CARRIED; taken != 0; taken &= taken - 1) {
    Rows from = completion_of_overtaken(launch, ptx::lowest(taken));
    carry_over(cta.region, from, done, share.rank, share.size);
  }
}

// Whether all that the CTA has to complete is its own epoch.
GSAN_DEVICE bool knows_nothing_else(const gsan_thread_state& state) {
  return (state.flags | state.taken | state.carries | state.checkpoint) == 0 &&
         state.private_clock == 0;
}

// Which completions that the CTA knew it carries over. By the first thread of the group.
GSAN_COLD void claim_completions(Cta cta) {
  gsan_thread_state* state = cta.state;
  if (state->taken == 0) return;
  u32 before = ptx::or_relaxed(&cta.launch_state()->carried, state->taken);
  state->carries |= state->taken & ~before;
}

// The rest of the completion, by all threads of the group.
GSAN_COLD void complete_all(Cta cta, Share share) {
  complete_rows(cta, share);
  if (cta.state->carries != 0) carry(cta, share, cta.state->carries);
  // The rows that the threads filled come before the leader's release.
  ptx::fence_release();
}

// The first thread of the group completes the own epoch and frees the slot.
GSAN_COLD void leave(gsan_global_state* globals) {
  Cta cta = Cta::current(globals);
  gsan_thread_state* state = cta.state;
  Region region = cta.region;
  const gsan_launch_descriptor& launch = *cta.launch();
  if (state->private_clock != 0) {
    Pool{region}.give_back(state->private_clock);
    state->private_clock = 0;
  }
  u32 slot = cta.thread() - launch.bank_first;
  if (cta.has_slot() && launch.own_done != 0) {
    // Whatever is there covers nothing newer: only this CTA knows of its epochs to come.
    u32 own = entry_all(ptx::local_load(&state->epoch));
    ptx::max_relaxed_system(reinterpret_cast<u32*>(launch.own_done) + slot, own);
  }
  u32 sms = cta.fixed().sms;
  ptx::fence_release();
  if (cta.has_slot()) {
    give_back(launch, slot, sms);
    state->id = 0;
  }
  ptx::add_relaxed(&cta.launch_state()->exited, 1u);
  // Behind the fence, which would wait for them: all CTAs add to the same words. Not by a call, around which
  // registers would be put away.
  if (state->accesses != 0) {
    ptx::add_relaxed(&region.globals->accesses.value, u64(state->accesses));
  }
  u64* losses = region.globals->losses;
  if (state->not_sampled != 0) {
    ptx::add_relaxed(losses + GSAN_LOSS_READ_NOT_SAMPLED, u64(state->not_sampled));
  }
  if (state->evicted != 0) {
    ptx::add_relaxed(losses + GSAN_LOSS_WRITE_EVICTED, u64(state->evicted));
  }
}

// The CTA returns from the kernel: its completion is filled, its slot is free.
GSAN_DEVICE void exit(Cta cta, Group group) {
  if (!cta.is_known()) return;
  // Nobody makes accesses any more.
  group.wait();
  if (!knows_nothing_else(*cta.state)) {
    if (group.leads()) claim_completions(cta);
    group.wait();
    complete_all(cta, group.share());
    group.wait();
  }
  if (group.leads()) leave(cta.region.globals);
}

// What grid_dependency_wait learns. By the first thread of the group.
GSAN_COLD void take_what_was_waited_for(Cta cta) {
  const gsan_launch_descriptor& launch = *cta.launch();
  if (launch.waits_for == 0) return;
  take_completions(cta, 1u << (launch.waits_for - 1) | complete(launch));
  ptx::local_or(&cta.state->flags, GSAN_THREAD_WAITED);
}

// `griddepcontrol.wait` returned: the completion of the launch waited for is known.
GSAN_DEVICE void grid_dependency_wait(Cta cta, Group group) {
  if (!cta.is_known()) return;
  if (group.leads()) take_what_was_waited_for(cta);
  // The other threads of the group go on with what the first has learned.
  group.wait();
}

}  // namespace gsan
