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
}

GSAN_DEVICE bool knows_everything(Cta cta) { return cta.flags() & GSAN_THREAD_EVERYTHING; }

// Counts once for the warp.
GSAN_DEVICE void count(Cta cta, Warp warp, u32 loss) {
  if (warp.leads()) count(cta.region, loss);
}

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

// Adds a part to `target`, or, if that is null, to the CTA's private clock, which is made when there is
// something to hold; what it has no room for makes everything known. `cuts`: only what lies beyond what
// the CTA knows, with the completions in `taken`. Entries of a snapshot are added once its state was
// found unchanged behind them.
GSAN_COLD Taken take_part(Cta cta, Warp warp, Part part, u32* target, bool cuts, u32 taken) {
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
      fence(part.home);
      warp.meet();
      if (warp.leads()) still = EntryState{part.home, part.state}.is_complete_now(part.index);
      if (warp.share(still) == 0) return Taken::kOverwritten;
    }
    if (target == nullptr && warp.share(u32(knows_everything(cta))) != 0) continue;
    if (cuts && quad.any()) {
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
      clock.words = reinterpret_cast<u32*>(warp.share(address));
      if (clock.words == nullptr) {
        learn_everything(cta, warp, GSAN_LOSS_PRIVATE_POOL_EMPTY);
        continue;
      }
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
// found complete, whose state is `state`. Stops when `body` returns kOverwritten. The lanes see the
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
                                u32 taken, F checkpoint) {
  Snapshots snapshots = {home};
  u64 index = 0;
  u32 named = kNoCheckpoint, there = 0;
  EntryState state = snapshots.state(snapshot);
  Vector clock = snapshots.clock(snapshot);
  if (warp.leads()) {
    if (snapshots.find(snapshot, index)) {
      named = clock.checkpoint();
      there = state.is_still_complete(index);
    }
  }
  if (warp.share(there) == 0) return Taken::kOverwritten;
  index = warp.share(index);
  named = warp.share(named);
  if (named != kNoCheckpoint && !checkpoint(named)) return Taken::kOverwritten;
  return for_each_part(clock, warp, state.word, index, [&](const Part& part) {
    return take_part(cta, warp, part, target, true, taken);
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
GSAN_COLD bool absorb_snapshot(Cta cta, Warp warp, Region home, u32 snapshot) {
  u32 taken = warp.share(ptx::local_load(&cta.state->taken));
  Taken result = take_snapshot(cta, warp, home, snapshot, nullptr, taken, [&](u32 checkpoint) {
    learn_checkpoint(cta, warp, checkpoint);
    return true;
  });
  return result != Taken::kOverwritten;
}

// Merges what `token` of `publisher` says. Under the lock.
GSAN_COLD void absorb(Cta cta, Warp warp, u32 publisher, u64 token) {
  Region home = cta.region.of_device(cta.region.device_of(publisher));
  Publication publication;
  if (!Publications{home}.read(warp, token, publication)) {
    count(cta, warp, GSAN_LOSS_PUBLICATION_OVERRUN);
    learn_checkpoint(cta, warp, covering_checkpoint(cta, warp, home, token));
    return;
  }
  Place place;
  u32 taken = warp.share(ptx::local_load(&cta.state->taken));
  if (Topology{cta.region.globals->constants}.place(publication.publisher(), place)) {
    Part part = single_part(place, publication.entry());
    take_part(cta, warp, part, nullptr, true, taken);
    // What the publisher did is most likely what the CTA meets next.
    if (warp.leads()) cta.remember(publication.publisher(), publication.entry());
  }
  bool same_launch = is_of_launch(cta, home, publication);
  if (same_launch && warp.leads()) take_completions(cta, publication.taken());
  warp.meet();
#pragma unroll 1
  for (u32 i = same_launch ? 1 : 0; i < 2; ++i) {
    u32 snapshot = i == 0 ? publication.frontier() : publication.snapshot();
    if (snapshot == 0 || absorb_snapshot(cta, warp, home, snapshot)) continue;
    count(cta, warp, GSAN_LOSS_SNAPSHOT_OVERRUN);
    learn_checkpoint(cta, warp, covering_checkpoint(cta, warp, home, token));
  }
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
  return ptx::local_load(acquired_place(cta, key)) == key;
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
  // What the sync word names was written before. Each lane's read comes before its fence.
  fence(cta.region);
  lock(cta, warp);
  absorb(cta, warp, record_thread(sync), sync_token(sync));
  unlock(cta, warp);
  if (warp.leads() && sync_token(sync) != kLastToken) {
    ptx::local_store(acquired_place(cta, key), key);
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
