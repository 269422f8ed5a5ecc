// What a CTA learns beyond its frontier: its private clock, from a pool, and a checkpoint.
//
// Clocks change under the CTA's lock, which a warp takes once: its first lane does. Lookups take no
// lock.
#pragma once

#include "gsan/publications.cuh"
#include "gsan/slots.cuh"
#include "gsan/snapshots.cuh"

namespace gsan {

GSAN_DEVICE void lock(Cta cta, Warp warp) {
  if (warp.leads()) {
    while (!ptx::local_claim(&cta.state->lock, 0, 1)) ptx::pause();
    ptx::fence_cta();
  }
  warp.meet();
}

GSAN_DEVICE void unlock(Cta cta, Warp warp) {
  warp.meet();
  if (warp.leads()) {
    ptx::fence_cta();
    ptx::local_store(&cta.state->lock, 0u);
  }
  warp.leave_together();
}

// The place of a thread id, as Topology has it; those of the own bank without a division.
GSAN_DEVICE bool place_of(Cta cta, u32 thread, Place& place) {
  const gsan_constants& constants = cta.region.globals->constants;
  u32 slot = thread - cta.state->bank_first;
  if (cta.has_slot() && slot < constants.slots) {
    place = {cta.state->bank, slot};
    return true;
  }
  return Topology{constants}.place(thread, place);
}

GSAN_DEVICE bool knows_everything(Cta cta) { return cta.flags() & GSAN_THREAD_EVERYTHING; }

// Counts once for the warp.
GSAN_DEVICE void count(Cta cta, Warp warp, u32 loss) {
  if (warp.leads()) count(cta.region, loss);
}

// The rings of the own device, of which a CTA knows where they lie.
struct OwnRings {
  Region region;
  Fixed of;

  GSAN_DEVICE explicit OwnRings(Cta cta) : region(cta.region), of(cta.fixed()) {}

  // The entry of `token`: its state, and the words of the publication behind it.
  GSAN_DEVICE u64* publication(u64 token) const {
    u64 place = token & (of.publications - 1);
    return region.part<u64>(of.publications_at) + place * (sizeof(gsan_publication) / sizeof(u64));
  }

  GSAN_DEVICE u64* snapshot_state(u32 snapshot) const {
    return region.part<u64>(of.snapshot_states_at) + (snapshot & (of.snapshots - 1));
  }

  GSAN_DEVICE Vector snapshot(u32 snapshot) const {
    u64 offset = u64(snapshot & (of.snapshots - 1)) * of.clock_bytes;
    return {region, reinterpret_cast<u32*>(region.part<u8>(of.snapshots_at) + offset)};
  }

  // The entries of the first segment of a clock, and how many there are.
  GSAN_DEVICE u32* entries(Vector clock) const { return clock.words + 1 + of.segments; }
  GSAN_DEVICE u32 length(u32 header) const {
    u32 length = header & 0xffff;
    return length < of.segment_entries ? length : of.segment_entries;
  }

  // Whether fewer than half of the ring was claimed since `snapshot`, with its head at `head`.
  GSAN_DEVICE bool is_recent(u32 snapshot, u64 head) const {
    return u32(head) - snapshot <= (of.snapshots < 2 ? 1 : of.snapshots / 2);
  }
};

// The private clocks of a device.
struct Pool {
  Region region;

  // Takes a clock that knows nothing; null if all are taken. The search begins at a word that depends
  // on `hint`, so that CTAs do not meet. By one lane.
  GSAN_DEVICE u32* take(u32 hint) const {
    const gsan_global_state& globals = *region.globals;
    u32* taken = region.part<u32>(globals.offsets.private_taken);
    u32 words = (globals.private_clocks + 31) / 32;
    for (u32 step = 0; step < words; ++step) {
      u32 at = (hint + step) % words;
      u32 here = globals.private_clocks - at * 32;
      u32 all = here < 32 ? (1u << here) - 1 : ~0u;
      while (true) {
        u32 free = ~ptx::load_relaxed(taken + at) & all;
        if (free == 0) break;
        u32 bit = free & -free;
        if (ptx::or_acquire(taken + at, bit) & bit) continue;
        u64 offset = u64(at * 32 + ptx::lowest(bit)) * globals.clock_bytes;
        Vector clock = {region, reinterpret_cast<u32*>(
                                    region.part<u8>(globals.offsets.private_clocks) + offset)};
        clock.clear();
        return clock.words;
      }
    }
    return nullptr;
  }

  GSAN_DEVICE void give_back(u64 clock) const {
    const gsan_global_state& globals = *region.globals;
    u64 first = reinterpret_cast<u64>(region.part<u8>(globals.offsets.private_clocks));
    u32 index = u32((clock - first) / globals.clock_bytes);
    ptx::and_release(region.part<u32>(globals.offsets.private_taken) + index / 32,
                     ~(1u << index % 32));
  }
};

// The private clock; its words are null if there is none.
GSAN_DEVICE Vector private_clock(Cta cta) {
  u64 address = ptx::local_load(&cta.state->private_clock);
  return {cta.region, reinterpret_cast<u32*>(address)};
}

GSAN_DEVICE u32 known_checkpoint(Cta cta) { return ptx::local_load(&cta.state->checkpoint); }

// The clock changed: the next release has something new to say.
GSAN_DEVICE void learned(Cta cta, Warp warp) {
  if (!warp.leads()) return;
  cta.unsettle();
  ptx::local_or(&cta.state->flags, GSAN_THREAD_CHANGED);
  cta.touch();
}

GSAN_DEVICE void learn_everything(Cta cta, Warp warp, u32 loss) {
  if (warp.leads()) cta.learn_everything(loss);
  warp.meet();
  learned(cta, warp);
}

// The private clock, which is made if there is none. From now on everything is known if there is no more in the
// pool; its words are null then.
GSAN_COLD Vector make_private_clock(Cta cta, Warp warp) {
  u64 address = 0;
  if (warp.leads()) {
    address = ptx::local_load(&cta.state->private_clock);
    if (address == 0) {
      address = reinterpret_cast<u64>(Pool{cta.region}.take(cta.state->id));
      ptx::fence_cta();
      ptx::local_store(&cta.state->private_clock, address);
      cta.unsettle();
    }
  }
  Vector clock = {cta.region, reinterpret_cast<u32*>(warp.share(address))};
  if (clock.words == nullptr) learn_everything(cta, warp, GSAN_LOSS_PRIVATE_POOL_EMPTY);
  return clock;
}

// The part of `entry` that the private clock has to hold: what the frontier, the completions in `taken` and
// the checkpoint do not cover, or a little more. What is known of it is under way at once.
GSAN_COLD u32 beyond(Cta cta, u32 taken, Place place, u32 thread, u32 entry) {
  const gsan_thread_state& state = *cta.state;
  const gsan_launch_descriptor& launch = *cta.launch();
  u32 known[4] = {0, 0, 0, 0};
  // The frontier is the same for as long as the launch runs.
  if (state.slots != 0 && place.bank == launch.bank) {
    known[0] = ptx::load_constant(reinterpret_cast<const u32*>(state.own_row) + place.slot);
  }
  if (state.foreign_row != 0) known[1] = ptx::load_constant(entries(state.foreign_row) + thread);
  if (launch.named_rows != 0) {
    u64 row = reinterpret_cast<const u64*>(launch.named_rows)[place.bank];
    if (row != 0) {
      known[2] = ptx::load_constant(reinterpret_cast<const u32*>(row) + place.slot);
    }
  }
  u32 checkpoint = known_checkpoint(cta);
  if (checkpoint != kNoCheckpoint) {
    known[3] = entry_all(checkpoint_epoch(cta.region, checkpoint, thread));
  }
  if (cta.has_slot() && thread == cta.thread()) entry = cut_from(entry, state.start);
#pragma unroll 1
  for (u32 left = taken; left != 0 && entry != 0; left &= left - 1) {
    entry = completion_of_overtaken(launch, ptx::lowest(left)).cut(place, thread, entry);
  }
#pragma unroll 1
  for (u32 i = 0; i < 4; ++i) {
    u32 other = known[0];
    known[0] = known[1];
    known[1] = known[2];
    known[2] = known[3];
    entry = cut(entry, other);
  }
  return entry;
}

// Entries of consecutive slots of one bank, on their way into a clock.
struct Part {
  // At a multiple of 16 bytes if `whole`, with room for a multiple of 4; null: `single` is the only
  // one.
  const u32* entries;
  u32 bank;
  // The first slot, and how many.
  u32 first;
  u32 count;
  bool whole;
  u32 single;
  // The snapshot they come from: its state and index, or none.
  u64* state;
  u64 index;
  Region home;
};

// kFull: there was no room for some; kOverwritten: the rest is missing.
enum class Taken : u32 { kAll, kFull, kOverwritten };

// What of entries is left out: nothing, what the CTA did itself, or whatever it knows anyway.
enum class Cut : u32 { kNothing, kOwn, kKnown };

// Adds a part to `target`, or, if that is null, to the CTA's private clock, which is made when there is
// something to hold; what it has no room for makes everything known. What the CTA knows includes the
// completions in `taken`. Entries of a snapshot are added once its state was
// found unchanged behind them.
GSAN_COLD Taken take_part(Cta cta, Warp warp, Part part, u32* target, Cut cuts, u32 taken) {
  Topology topology = {cta.region.globals->constants};
  Vector clock = {cta.region, target};
  u32 first_id = topology.id({part.bank, 0});
  // What one step of the warp reads; slots from a multiple of 4 on.
  u32 step = 4 * warp.size();
  for (u32 base = part.first & ~3u; base < part.first + part.count; base += step) {
    u32 slot = base + 4 * warp.rank();
    Quad quad;
    bool here = slot < part.first + part.count;
    if (part.entries != nullptr && part.whole && here) {
      quad = Quad::load(part.entries + slot);
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      bool said = slot + i >= part.first && slot + i < part.first + part.count;
      if (part.entries == nullptr) {
        quad.entry[i] = said ? part.single : 0;
      } else if (!part.whole && said) {
        quad.entry[i] = ptx::load_relaxed_system(part.entries + slot + i);
      } else if (!said) {
        quad.entry[i] = 0;
      }
    }
    if (part.state != nullptr) {
      u32 still = 1;
      // Every lane's reads come before its fence, and the look comes after all of them.
      fence_acquire(part.home);
      warp.meet();
      if (warp.leads()) still = EntryState{part.home, part.state}.is_written_now(part.index);
      if (warp.share(still) == 0) return Taken::kOverwritten;
    }
    if (target == nullptr && warp.share(u32(knows_everything(cta))) != 0) continue;
    if (cuts == Cut::kOwn && cta.has_slot()) {
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        if (first_id + slot + i != cta.thread()) continue;
        quad.entry[i] = cut_from(quad.entry[i], cta.state->start);
      }
    }
    if (cuts == Cut::kKnown && quad.any()) {
#pragma unroll 1
      for (u32 i = 0; i < 4; ++i) {
        u32 entry = quad.take_first();
        if (entry != 0) {
          entry = beyond(cta, taken, {part.bank, slot + i}, first_id + slot + i, entry);
        }
        quad.put_last(entry);
      }
    }
    if (target == nullptr && clock.words == nullptr) {
      if (!warp.any(quad.any())) continue;
      clock = make_private_clock(cta, warp);
      if (clock.words == nullptr) continue;
    }
    Merged merged = merge(clock, warp, part.bank, slot, quad);
    if (target == nullptr && merged == Merged::kFull) {
      learn_everything(cta, warp, GSAN_LOSS_OUTSIDE_CLOCK);
    } else if (merged == Merged::kFull) {
      return Taken::kFull;
    } else if (merged == Merged::kChanged && target == nullptr) {
      learned(cta, warp);
    }
  }
  return Taken::kAll;
}

GSAN_DEVICE Part single_part(Place place, u32 entry) {
  return {nullptr, place.bank, place.slot, 1, false, entry, nullptr, 0, {}};
}

// Calls `body(part)` with the entries of a clock: the CTA's own, under its lock, or a snapshot that was
// found, whose state is `state`. Stops when `body` returns kOverwritten. The lanes see the
// same headers.
template <class F>
GSAN_DEVICE Taken for_each_part(Vector clock, Warp warp, u64* state, u64 index, F body) {
  Taken all = Taken::kAll;
  for (u32 segment = 0; segment < clock.segments(); ++segment) {
    u32 header = 0;
    if (warp.leads()) header = ptx::load_relaxed_system(clock.header(segment));
    header = warp.share(header);
    if (header == 0) break;
    Part part = {clock.entries(segment), Vector::bank(header), 0,     clock.length(header), true, 0,
                 state,                  index,                clock.region};
    Taken taken = body(part);
    if (taken == Taken::kOverwritten) return taken;
    if (taken == Taken::kFull) all = taken;
  }
  return all;
}

// Adds what a snapshot says to `target`, as take_part does, and gives its checkpoint, if any, to
// `checkpoint` first, which may refuse it.
template <class F>
GSAN_DEVICE Taken take_snapshot(Cta cta, Warp warp, Region home, u32 snapshot, u32* target,
                                Cut cuts, u32 taken, F checkpoint) {
  Snapshots snapshots = {home};
  u64 index = 0;
  u32 named = kNoCheckpoint, there = 0;
  EntryState state = snapshots.state(snapshot);
  Vector clock = snapshots.clock(snapshot);
  if (warp.leads()) {
    if (snapshots.find(snapshot, index)) {
      named = clock.checkpoint();
      there = state.is_still_written(index);
    }
  }
  if (warp.share(there) == 0) return Taken::kOverwritten;
  index = warp.share(index);
  named = warp.share(named);
  if (named != kNoCheckpoint && !checkpoint(named)) return Taken::kOverwritten;
  return for_each_part(clock, warp, state.word, index, [&](const Part& part) {
    return take_part(cta, warp, part, target, cuts, taken);
  });
}

// A checkpoint that covers both; none if it could not be taken.
GSAN_COLD u32 later_checkpoint(Cta cta, Warp warp, u32 a, u32 b) {
  if (a == b || b == kNoCheckpoint) return a;
  if (a == kNoCheckpoint) return b;
  u32 device = checkpoint_device(a);
  if (device != checkpoint_device(b)) return take_checkpoint(cta.region, warp);
  u32 newer = a;
  if (warp.leads()) {
    Checkpoints checkpoints = {cta.region.of_device(device)};
    if (checkpoints.position(a) < checkpoints.position(b)) newer = b;
  }
  return warp.share(newer);
}

// A checkpoint that covers what `token` of the device at `home` said; none if it could not be taken.
GSAN_COLD u32 covering_checkpoint(Cta cta, Warp warp, Region home, u64 token) {
  u32 found = kNoCheckpoint;
  if (warp.leads()) found = Checkpoints{home}.covering(token);
  found = warp.share(found);
  return found != kNoCheckpoint ? found : take_checkpoint(cta.region, warp);
}

// Everything that `checkpoint` covers is known; if it is none, everything is.
GSAN_COLD void learn_checkpoint(Cta cta, Warp warp, u32 checkpoint) {
  u32 known = warp.share(known_checkpoint(cta));
  u32 latest = kNoCheckpoint;
  if (checkpoint != kNoCheckpoint) latest = later_checkpoint(cta, warp, known, checkpoint);
  if (latest == kNoCheckpoint) {
    learn_everything(cta, warp, GSAN_LOSS_OUTSIDE_CLOCK);
    return;
  }
  if (latest == known) return;
  if (warp.leads()) {
    ptx::fence_cta();
    ptx::local_store(&cta.state->checkpoint, latest);
  }
  warp.meet();
  learned(cta, warp);
}

// The completions of `taken` are known. By one lane.
GSAN_DEVICE void take_completions(Cta cta, u32 taken) {
  u32 before = ptx::local_or(&cta.state->taken, taken);
  if ((before | taken) == before) return;
  cta.unsettle();
  cta.touch();
}

// Whether a publication of the device at `home` is of the CTA's own launch.
GSAN_DEVICE bool is_of_launch(Cta cta, Region home, const Publication& publication) {
  return home.globals == cta.region.globals && publication.launch() == cta.launch()->number;
}

// Merges a snapshot into the private clock. False if it was overwritten.
GSAN_COLD bool absorb_snapshot(Cta cta, Warp warp, Region home, u32 snapshot, Cut cuts) {
  u32 taken = warp.share(ptx::local_load(&cta.state->taken));
  Taken result = take_snapshot(cta, warp, home, snapshot, nullptr, cuts, taken, [&](u32 checkpoint) {
    learn_checkpoint(cta, warp, checkpoint);
    return true;
  });
  return result != Taken::kOverwritten;
}

// What a CTA of the same launch says mostly lies in the own bank, and fits into the first segment of the
// private clock: then it is merged with no more waits than need be. False if that is not so, with nothing
// changed. `publication` is what `token` seems to say. Under the lock.
GSAN_COLD bool absorb_at_once(Cta cta, Warp warp, u64 token, Publication publication) {
  const gsan_thread_state& state = *cta.state;
  bool knows_more = ptx::local_load(&state.taken) != 0 || known_checkpoint(cta) != kNoCheckpoint;
  u32 place = publication.publisher() - state.bank_first;
  if (knows_more || place >= state.slots || publication.launch() != state.launch.number) return false;
  if (warp.share(u32(knows_everything(cta))) != 0) return false;
  Vector own = private_clock(cta);
  OwnRings rings(cta);
  u32 name = publication.snapshot();
  Vector theirs = rings.snapshot(name);
  // What is loaded here is under way together. A lane takes two times four entries.
  u32 step = 4 * warp.size();
  u32 slot = 4 * warp.rank();
  u32 capacity = rings.of.segment_entries;
  Head head, their_head;
  Quad quads[2], said[2];
  if (own.words != nullptr) head = Head::load(own);
  if (name != 0) their_head = Head::load(theirs);
#pragma unroll
  for (u32 half = 0; half < 2; ++half) {
    u32 at = slot + half * step;
    if (at >= capacity) continue;
    if (own.words != nullptr) quads[half] = Quad::load(rings.entries(own) + at);
    if (name != 0) said[half] = Quad::load(rings.entries(theirs) + at);
  }
  // Every lane's reads come before its fence, and the looks come after all of them.
  ptx::fence_acquire();
  warp.meet();
  u32 there = 0;
  if (warp.leads()) {
    u64 publication_state = ptx::load_relaxed_system(rings.publication(token));
    u64 clock_state = name == 0 ? 0 : ptx::load_relaxed_system(rings.snapshot_state(name));
    there = u32(EntryState::is_written(publication_state, token)) &
            u32(name == 0 || EntryState::is_written(clock_state, name));
  }
  if (warp.share(there) == 0) return false;
  u32 bank = state.bank;
  u32 length = rings.length(head.headers[0]);
  u32 their_length = rings.length(their_head.headers[0]);
  auto is_of_bank = [&](const Head& some) {
    return some.headers[0] == 0 || Vector::bank(some.headers[0]) == bank;
  };
  bool one_segment = their_head.headers[1] == 0 && their_head.checkpoint == kNoCheckpoint;
  bool fits = their_length <= 2 * step && place < 2 * step;
  if (!is_of_bank(head) || !is_of_bank(their_head) || !one_segment || !fits) return false;
  u32 own_slot = cta.thread() - state.bank_first;
  // What the CTA did itself is cut away before hulls are made, which would span what others did on its slot.
  u32 entry = publication.entry();
  if (place == own_slot) entry = cut_from(entry, state.start);
  // The length that is needed: one more than the highest slot of which something is said.
  u32 end = 0;
#pragma unroll 1
  for (u32 half = 0; half < 2; ++half) {
    u32 first = slot + half * step;
    Quad quad = said[0];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if (first + i >= their_length) quad.entry[i] = 0;
    }
    if (own_slot - first < 4) {
      quad.set(own_slot - first, cut_from(quad.get(own_slot - first), state.start));
    }
    if (place - first < 4) {
      quad.set(place - first, hull(quad.get(place - first), entry));
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if (quad.entry[i] != 0) end = first + i + 1;
    }
    said[0] = said[1];
    said[1] = quad;
  }
  end = warp.largest(end);
  if (end != 0 && own.words == nullptr) {
    own = make_private_clock(cta, warp);
    if (own.words == nullptr) end = 0;
  }
  bool changed = end > length;
#pragma unroll 1
  for (u32 half = 0; half < 2; ++half) {
    u32 first = slot + half * step;
    Quad merged = quads[0];
    bool differs = false;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      // What lies behind the length is never seen.
      u32 found = first + i < length ? merged.entry[i] : 0;
      merged.entry[i] = hull(found, said[0].entry[i]);
      differs |= merged.entry[i] != found;
    }
    if (first < end && (differs || first + 4 > length)) merged.store(rings.entries(own) + first);
    changed |= differs && first < end;
    quads[0] = quads[1];
    said[0] = said[1];
  }
  changed = warp.any(changed);
  if (warp.leads()) {
    if (end > length) {
      // Other warps of the CTA look entries up.
      ptx::fence_cta();
      ptx::store_relaxed_system(own.header(0), bank << 16 | end);
    }
    // What the publisher did is most likely what the CTA meets next.
    cta.remember(publication.publisher(), publication.entry());
    take_completions(cta, publication.taken());
  }
  warp.meet();
  if (changed) learned(cta, warp);
  return true;
}

// Merges what `token` of `publisher` says. Under the lock. Returns whether the publication stood in the ring and
// is not joined, or there are no other devices.
GSAN_COLD bool absorb(Cta cta, Warp warp, u32 publisher, u64 token) {
  Region home = cta.home_of(publisher);
  Publication publication;
  if (home.globals == cta.region.globals) {
    if (warp.leads()) publication = Publication::look(OwnRings(cta).publication(token));
    publication = publication.from_first(warp);
    if (absorb_at_once(cta, warp, token, publication)) {
      return !publication.joined() || cta.fixed().devices == 1;
    }
  }
  if (!Publications{home}.read(warp, token, publication)) {
    count(cta, warp, GSAN_LOSS_PUBLICATION_OVERRUN);
    learn_checkpoint(cta, warp, covering_checkpoint(cta, warp, home, token));
    return false;
  }
  Place place;
  u32 taken = warp.share(ptx::local_load(&cta.state->taken));
  bool same_launch = is_of_launch(cta, home, publication);
  // What a CTA of the same launch says lies beyond the frontier already.
  bool knows_more = taken != 0 || warp.share(known_checkpoint(cta)) != kNoCheckpoint;
  Cut cuts = same_launch && !knows_more ? Cut::kOwn : Cut::kKnown;
  if (place_of(cta, publication.publisher(), place)) {
    Part part = single_part(place, publication.entry());
    take_part(cta, warp, part, nullptr, cuts, taken);
    // What the publisher did is most likely what the CTA meets next.
    if (warp.leads()) cta.remember(publication.publisher(), publication.entry());
  }
  if (same_launch && warp.leads()) take_completions(cta, publication.taken());
  warp.meet();
#pragma unroll 1
  for (u32 i = same_launch ? 1 : 0; i < 2; ++i) {
    u32 snapshot = i == 0 ? publication.frontier() : publication.snapshot();
    if (snapshot == 0 || absorb_snapshot(cta, warp, home, snapshot, cuts)) continue;
    count(cta, warp, GSAN_LOSS_SNAPSHOT_OVERRUN);
    learn_checkpoint(cta, warp, covering_checkpoint(cta, warp, home, token));
  }
  return !publication.joined() || cta.fixed().devices == 1;
}

// What tells two sync words apart for an acquirer.
GSAN_DEVICE u64 acquired_key(u64 sync) {
  return GSAN_THREAD_ACQUIRED_VALID | sync_token(sync) << GSAN_THREAD_ACQUIRED_TOKEN_SHIFT |
         record_thread(sync);
}

// Where a CTA keeps that it acquired what has `key`.
GSAN_DEVICE u64* acquired_place(Cta cta, u64 key) {
  return &cta.state->acquired[key % GSAN_THREAD_ACQUIRED];
}

GSAN_DEVICE bool has_acquired(Cta cta, u64 key) {
  return (ptx::local_load(acquired_place(cta, key)) & ~GSAN_THREAD_ACQUIRED_PLAIN) == key;
}

// Merges what a sync record says, which was read without a fence behind it. By a warp; `sync` is the
// same for all lanes. Returns whether it was new.
GSAN_COLD bool acquire(Cta cta, Warp warp, u64 sync) {
  u64 key = acquired_key(sync);
  u32 known = knows_everything(cta) || has_acquired(cta, key);
  if (warp.share(known) != 0) {
    ptx::fence_cta();
    return false;
  }
  // What the sync word names was written before, by the publisher's device. Each lane's read comes before
  // its fence.
  fence_behind(cta, cta.home_of(record_thread(sync)));
  lock(cta, warp);
  bool plain = absorb(cta, warp, record_thread(sync), sync_token(sync));
  unlock(cta, warp);
  if (warp.leads() && sync_token(sync) != kLastToken) {
    ptx::local_store(acquired_place(cta, key), plain ? key | GSAN_THREAD_ACQUIRED_PLAIN : key);
  }
  return true;
}

// Counts everything that happened so far as ordered: more than was read is merged when it is not known
// what was.
GSAN_COLD void acquire_everything_so_far(Cta cta, Warp warp) {
  count(cta, warp, GSAN_LOSS_PUBLICATION_OVERRUN);
  lock(cta, warp);
  learn_checkpoint(cta, warp, take_checkpoint(cta.region, warp));
  unlock(cta, warp);
}

}  // namespace gsan
