// Releases: what a CTA publishes, alone and together with a release sequence that it continues.
//
// By a warp, under the CTA's lock where the ring is written.
#pragma once

#include "gsan/private_clock.cuh"

namespace gsan {

// What a release published: accesses up to `epoch` are covered by `token`.
struct Released {
  u32 publisher;
  u32 epoch;
  u64 token;
  // Whether the lane made a fence behind what the token tells.
  bool fenced;
  // Whether the publication is marked as joined.
  bool joined;
};

// What a CTA knew before it published.
struct Known {
  // Its newest publication, as gsan_thread_state has it.
  u64 published = 0;
  // What the sync word said, if the CTA had acquired it; or 0.
  u64 acquired = 0;
  // Whether that stood in the ring, and is not joined, or there are no other devices.
  bool plain = false;

  GSAN_DEVICE static Known of(Cta cta, u64 found) {
    Known known;
    known.published = ptx::local_load(&cta.state->published);
    if (is_sync(found)) {
      u64 key = acquired_key(found);
      u64 word = ptx::local_load(acquired_place(cta, key));
      if ((word & ~GSAN_THREAD_ACQUIRED_PLAIN) == key) known.acquired = found;
      known.plain = (word & GSAN_THREAD_ACQUIRED_PLAIN) != 0;
    }
    ptx::fence_cta();
    return known;
  }
};

// The id under which the CTA publishes.
GSAN_DEVICE u32 publisher(Cta cta) {
  const gsan_constants& constants = cta.region.globals->constants;
  return cta.has_slot() ? cta.thread() : u32(constants.first_id) + constants.share - 1;
}

// Whether the CTA can say what it knows.
GSAN_DEVICE bool can_say(Cta cta, Warp warp) {
  return warp.share(u32(cta.has_slot() && !knows_everything(cta))) != 0;
}

// Whether the CTA made no access and learned nothing since its publication before.
GSAN_DEVICE bool may_be_unchanged(Cta cta) {
  u64 published = ptx::local_load(&cta.state->published);
  return (published & GSAN_THREAD_PUBLISHED) != 0 &&
         ptx::local_load(&cta.state->touched) < ptx::local_load(&cta.state->epoch);
}

// The publication before, if it still says all. By one lane.
GSAN_DEVICE bool is_unchanged(Cta cta, Released& released) {
  u64 published = ptx::local_load(&cta.state->published);
  u32 current = ptx::local_load(&cta.state->epoch);
  released.publisher = publisher(cta);
  released.epoch = u32(published >> GSAN_THREAD_PUBLISHED_EPOCH_SHIFT) & GSAN_CLOCK_EPOCH_MAX;
  released.token = published & kLastToken;
  if (!(published & GSAN_THREAD_PUBLISHED) || released.epoch + 1 != current) return false;
  if (ptx::local_load(&cta.state->touched) >= current || released.token == kLastToken) return false;
  ptx::fence_cta();
  return Publications{cta.region}.is_recent(released.token);
}

// Claims a token that says nothing, and takes the checkpoint that it stands for. An acquirer that
// finds none takes its own.
GSAN_COLD u64 put_top(Cta cta, Warp warp) {
  u64 token = 0;
  if (warp.leads()) {
    count(cta.region, GSAN_LOSS_TOP_RELEASE);
    token = Publications{cta.region}.claim();
    if (token == kLastToken) count(cta.region, GSAN_LOSS_WORN_TOKEN);
  }
  token = warp.share(token);
  if (token != kLastToken) take_checkpoint(cta.region, warp);
  return token;
}

// Puts a publication into the ring, or TOP if its place is not free. `said`: whether it stands there.
GSAN_COLD u64 put(Cta cta, Warp warp, Publication publication, bool& said) {
  Publications publications = {cta.region};
  u64 token = 0;
  u32 due = 0, written = 0;
  if (warp.leads()) {
    token = publications.claim();
    if (token == kLastToken) {
      count(cta.region, GSAN_LOSS_WORN_TOKEN);
    } else {
      written = publications.write(token, publication);
      if (!written) count(cta.region, GSAN_LOSS_TOP_RELEASE);
      due = !written || publications.checkpoint_is_due(token);
    }
  }
  token = warp.share(token);
  said = warp.share(written) != 0;
  if (warp.share(due) != 0) take_checkpoint(cta.region, warp);
  return token;
}

// Copies what the CTA learned beyond its frontier into an empty clock.
GSAN_COLD void copy_own(Cta cta, Warp warp, Vector target) {
  u32 checkpoint = known_checkpoint(cta);
  if (warp.leads() && checkpoint != kNoCheckpoint) {
    ptx::store_relaxed_system(target.checkpoint_word(), checkpoint);
  }
  Vector clock = private_clock(cta);
  if (clock.words == nullptr) return;
#pragma unroll 1
  for (u32 segment = 0; segment < clock.segments(); ++segment) {
    u32 header = 0;
    if (warp.leads()) header = ptx::load_relaxed_system(clock.header(segment));
    header = warp.share(header);
    if (header == 0) break;
    const u32* from = clock.entries(segment);
    u32* to = target.entries(segment);
    for (u32 slot = 4 * warp.rank(); slot < clock.length(header); slot += 4 * warp.size()) {
      Quad::load(from + slot).store(to + slot);
    }
    if (warp.leads()) ptx::store_relaxed_system(target.header(segment), header);
  }
  warp.meet();
}

// Adds the entries of a launch's rows to a clock. False if there was no room for some.
GSAN_COLD bool add_rows(Cta cta, Warp warp, Vector target, u32 bank, const u32* entries) {
  u32 mark = 0;
  if (warp.leads()) mark = slots_taken(cta.region, bank);
  Part part = {entries, bank, 0, warp.share(mark), false, 0, nullptr, 0, {}};
  return take_part(cta, warp, part, target.words, Cut::kNothing, 0) == Taken::kAll;
}

GSAN_COLD bool add_rows(Cta cta, Warp warp, Vector target, Rows rows) {
  bool fits = true;
  if (rows.own != 0) {
    fits &= add_rows(cta, warp, target, rows.bank, reinterpret_cast<const u32*>(rows.own));
  }
  if (warp.share(u32(is_filled(rows.foreign))) == 0) return fits;
  const gsan_constants& constants = cta.region.globals->constants;
  for (u32 bank = 0; bank < constants.banks * constants.devices; ++bank) {
    u32 first = Topology{constants}.id({bank, 0});
    fits &= add_rows(cta, warp, target, bank, entries(rows.foreign) + first);
  }
  return fits;
}

// The key under which a snapshot of the frontier with the completions in `taken` is kept.
GSAN_DEVICE u64 frontier_key(u32 taken) {
  return u64(taken) << GSAN_THREAD_FRONTIER_TAKEN_SHIFT | GSAN_THREAD_FRONTIER_MADE;
}

// A snapshot of the frontier with the completions in `taken`, for acquirers of other launches. Made by
// the first publisher, and again when it has become old. False if there is no place for it.
GSAN_COLD bool frontier_snapshot(Cta cta, Warp warp, u32 taken, u32& snapshot) {
  gsan_launch_state* shared = cta.launch_state();
  u64 key = frontier_key(taken);
  u64 found = 0;
  u32 usable = 0;
  if (warp.leads()) {
    // The snapshot is only named, and its name is published behind fences.
    found = taken == 0 ? ptx::load_relaxed_system(&shared->frontier)
                       : ptx::local_load(&cta.state->frontier);
    usable = (found & ~u64(~0u)) == key &&
             (u32(found) == 0 || Snapshots{cta.region}.is_recent(u32(found)));
  }
  snapshot = u32(warp.share(found));
  if (warp.share(usable) != 0) return true;
  Draft draft = Draft::claim(cta.region, warp);
  if (!draft.there) return false;
  const gsan_launch_descriptor& launch = *cta.launch();
  const gsan_constants& constants = cta.region.globals->constants;
  bool fits = add_rows(cta, warp, draft.clock(), frontier(launch));
  if (launch.named_rows != 0) {
    for (u32 bank = 0; bank < constants.banks * constants.devices; ++bank) {
      u64 row = reinterpret_cast<const u64*>(launch.named_rows)[bank];
      if (row == 0) continue;
      fits &= add_rows(cta, warp, draft.clock(), bank, reinterpret_cast<const u32*>(row));
    }
  }
  for (u32 left = taken; left != 0; left &= left - 1) {
    Rows rows = completion_of_overtaken(launch, ptx::lowest(left));
    fits &= add_rows(cta, warp, draft.clock(), rows);
  }
  bool said = true;
  if (!fits) {
    count(cta, warp, GSAN_LOSS_OUTSIDE_CLOCK);
    u32 checkpoint = take_checkpoint(cta.region, warp);
    said = checkpoint != kNoCheckpoint;
    if (said && warp.leads()) {
      ptx::store_relaxed_system(draft.clock().checkpoint_word(), checkpoint);
    }
  }
  snapshot = draft.publish(warp);
  if (!said) return false;
  if (warp.leads()) {
    if (taken == 0) {
      store_release(cta.region, &shared->frontier, key | snapshot);
    } else {
      ptx::local_store(&cta.state->frontier, key | snapshot);
    }
  }
  return true;
}

// Copies the private clock, whose head and first entries were loaded, into a snapshot: each lane two times
// four, `slot` being the first of them.
GSAN_DEVICE void fill_snapshot(Warp warp, const OwnRings& rings, Vector clock, Head head,
                               const Quad (&quads)[2], u32 slot, u32 checkpoint, Vector target) {
  u32 step = 4 * warp.size();
  if (clock.words == nullptr) head = Head();
  u32 length = rings.length(head.headers[0]);
#pragma unroll
  for (u32 half = 0; half < 2; ++half) {
    u32 at = slot + half * step;
    if (at < length) quads[half].store(rings.entries(target) + at);
  }
#pragma unroll 1
  for (u32 at = slot + 2 * step; at < length; at += step) {
    Quad::load(rings.entries(clock) + at).store(rings.entries(target) + at);
  }
  if (warp.leads()) {
    ptx::store_relaxed_system_quad(target.words, checkpoint, head.headers[0], head.headers[1],
                                   head.headers[2]);
  }
#pragma unroll 1
  for (u32 segment = 1; segment < rings.of.segments; ++segment) {
    u32 header = segment == 1 ? head.headers[1] : head.headers[2];
    if (segment >= 3) header = ptx::load_relaxed_system(clock.header(segment));
    if (segment >= 3 && warp.leads()) ptx::store_relaxed_system(target.header(segment), header);
    if (header == 0) break;
    for (u32 at = slot; at < rings.length(header); at += step) {
      Quad::load(clock.entries(segment) + at).store(target.entries(segment) + at);
    }
  }
}

// Publishes everything up to `epoch`, with no more waits than need be. Returns the token; `said`: whether what
// it tells stands in the ring. `found` and `known` are as for publish. Under the lock.
GSAN_DEVICE u64 say(Cta cta, Warp warp, u32 epoch, u64 found, Known& known, bool& said, bool& joined) {
  said = joined = false;
  if (!can_say(cta, warp)) {
    known = Known::of(cta, found);
    return put_top(cta, warp);
  }
  gsan_global_state& globals = *cta.region.globals;
  OwnRings rings(cta);
  u32 taken = warp.share(ptx::local_load(&cta.state->taken));
  u32 checkpoint = warp.share(known_checkpoint(cta));
  u64 key = frontier_key(taken);
  // What is loaded here is under way together.
  Vector clock = private_clock(cta);
  u32 slot = 4 * warp.rank();
  u64 frontier = 0;
  Head head;
  Quad quads[2];
  if (clock.words != nullptr) {
    head = Head::load(clock);
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      u32 at = slot + half * 4 * warp.size();
      if (at < rings.of.segment_entries) quads[half] = Quad::load(rings.entries(clock) + at);
    }
  }
  u64 claimed = 0, token = 0;
  u32 usable = 0, last = 0;
  if (warp.leads()) {
    // The snapshot is only named, and its name is published behind fences.
    frontier = taken == 0 ? ptx::load_relaxed_system(&cta.launch_state()->frontier)
                          : ptx::local_load(&cta.state->frontier);
    claimed = ptx::load_relaxed_system(&globals.snapshot_head.value);
    token = ptx::load_relaxed_system(&globals.publication_head.value);
  }
  // This looks at what was found, which is under way as well.
  known = Known::of(cta, found);
  joined = warp.any(known.acquired != 0 && !known.plain);
  if (warp.leads()) {
    usable = frontier >> 32 == key >> 32 && (u32(frontier) == 0 || rings.is_recent(u32(frontier), claimed));
  }
  if (warp.share(usable) == 0) {
    u32 name;
    if (!frontier_snapshot(cta, warp, taken, name)) return put_top(cta, warp);
    frontier = key | name;
    ++claimed;
  }
  if (warp.leads()) {
    if (!(cta.flags() & GSAN_THREAD_CHANGED)) last = ptx::local_load(&cta.state->snapshot);
    if (last != 0 && !rings.is_recent(last, claimed)) last = 0;
  }
  bool holds = checkpoint != kNoCheckpoint || head.headers[0] != 0;
  u32 snapshot = holds ? warp.share(last) : 0;
  bool makes = holds && snapshot == 0;
  u64 index = 0;
  u32 there = 0, due = 0;
  EntryState place = {cta.region, nullptr}, clock_place = {cta.region, nullptr};
  if (warp.leads()) {
    // What is told must be known before: a checkpoint of the device that sees the token counted stands for it.
    ptx::fence_release();
    if (token < kLastToken) token = ptx::add_relaxed_system(&globals.publication_head.value, 1);
    if (makes) index = ptx::add_relaxed_system(&globals.snapshot_head.value, 1);
    if (token >= kLastToken) {
      token = kLastToken;
      count(cta.region, GSAN_LOSS_WORN_TOKEN);
    } else {
      place.word = rings.publication(token);
      clock_place.word = rings.snapshot_state(u32(index));
      u64 before = place.try_claim(token, rings.of.publications);
      u64 clock_before = makes ? clock_place.try_claim(index, rings.of.snapshots) : 0;
      bool is_claimed = place.is_claimed(token, rings.of.publications, before);
      bool clock_claimed =
          makes && clock_place.is_claimed(index, rings.of.snapshots, clock_before);
      // An index whose low bits are 0 could not be named.
      bool clock_there = !makes || (clock_claimed && u32(index) != 0);
      there = is_claimed && clock_there;
      if (!there) {
        if (is_claimed) place.put_back(before);
        if (clock_claimed) clock_place.put_back(clock_before);
        count(cta.region, GSAN_LOSS_TOP_RELEASE);
        due = 1;
      }
      fence(cta);
    }
  }
  said = warp.share(there) != 0;
  index = warp.share(index);
  if (said && makes) {
    snapshot = u32(index);
    fill_snapshot(warp, rings, clock, head, quads, slot, checkpoint, rings.snapshot(snapshot));
  }
  warp.meet();
  if (warp.leads()) {
    if (said) {
      gsan_publication fields = {};
      fields.snapshot = snapshot;
      fields.frontier = u32(frontier);
      fields.publisher = u16(cta.thread());
      fields.entry = entry_closed(cta.state->start, epoch);
      fields.joined = joined;
      fields.launch = cta.launch()->number;
      fields.taken = taken;
      Publication publication = Publication::of(fields);
      for (u32 i = 0; i < 3; ++i) {
        ptx::store_relaxed_system(place.word + 1 + i, publication.words[i]);
      }
      // Who is told the token from now on finds the fields.
      fence_release(cta);
      if (makes) {
        ptx::store_relaxed_system(clock_place.word, EntryState::complete_at(index));
        ptx::local_store(&cta.state->snapshot, snapshot);
        ptx::local_and(&cta.state->flags, ~GSAN_THREAD_CHANGED);
      }
      ptx::store_relaxed_system(place.word, EntryState::complete_at(token));
      u64 sixteenth = rings.of.publications / 16;
      due = sixteenth < 2 || (token & (sixteenth - 1)) == 0;
    }
  }
  token = warp.share(token);
  if (warp.share(due) != 0) take_checkpoint(cta.region, warp);
  return token;
}

// Publishes what the CTA did and knows. Shares the publication before when the CTA made no access and
// learned nothing since. `found` is what the sync word said before, and `known` becomes what the CTA knew
// then: what it had acquired there is in the publication, which is marked as joined if that was.
GSAN_COLD Released publish(Cta cta, Warp warp, u64 found, Known& known) {
  Released released = {};
  u32 unchanged = 0;
  if (warp.leads()) unchanged = may_be_unchanged(cta);
  unchanged = warp.share(unchanged);
  if (unchanged) {
    known = Known::of(cta, found);
    if (warp.leads()) unchanged = is_unchanged(cta, released);
    unchanged = warp.share(unchanged);
  }
  if (!unchanged) {
    lock(cta, warp);
    if (warp.leads()) unchanged = is_unchanged(cta, released);
    unchanged = warp.share(unchanged);
    if (unchanged) {
      known = Known::of(cta, found);
    } else {
      u32 epoch = warp.share(ptx::local_load(&cta.state->epoch));
      bool said, joined;
      u64 token = say(cta, warp, epoch, found, known, said, joined);
      if (warp.leads() && cta.has_slot() && epoch != GSAN_CLOCK_EPOCH_MAX) {
        u32 next = following(cta.region, epoch);
        ptx::store_relaxed_system(cta.region.epoch(cta.thread()), next);
        ptx::local_store(&cta.state->epoch, next);
        ptx::fence_cta();
        ptx::local_store(&cta.state->published,
                         GSAN_THREAD_PUBLISHED | (said ? GSAN_THREAD_PUBLISHED_SAID : 0) |
                             u64(epoch) << GSAN_THREAD_PUBLISHED_EPOCH_SHIFT | token);
      }
      released = {publisher(cta), epoch, token, said && warp.leads(), said && joined};
    }
    unlock(cta, warp);
  }
  released.epoch = warp.share(released.epoch);
  released.token = warp.share(released.token);
  released.publisher = publisher(cta);
  return released;
}

// Whether the publication that the sync record `found` names contains `own`, whose clock has not
// changed since. By each lane for itself.
//
// An entry for the own slot that ends at the published epoch, and does not mean "all", can only come
// from the publication of that epoch.
GSAN_COLD bool contains(Cta cta, u64 found, Released own) {
  Region home = cta.home_of(record_thread(found));
  if (sync_token(found) == own.token && home.globals == cta.region.globals) {
    return own.token != kLastToken;
  }
  if (!cta.has_slot() || own.epoch == GSAN_CLOCK_EPOCH_MAX || knows_everything(cta)) return false;
  Publication publication;
  if (!read_publication(home, sync_token(found), publication)) return false;
  auto says = [&](u32 entry) {
    return entry >> GSAN_CLOCK_SPAN_BITS == own.epoch &&
           (entry & GSAN_CLOCK_SPAN_ALL) != GSAN_CLOCK_SPAN_ALL;
  };
  if (publication.publisher() == cta.thread() && says(publication.entry())) return true;
  Place place;
  u32 entry;
  return publication.snapshot() != 0 &&
         place_of(cta, cta.thread(), place) &&
         Snapshots{home}.get(publication.snapshot(), place, entry) && says(entry);
}

// Whether `own` can stand for anything else.
GSAN_DEVICE bool may_contain(Released own) {
  return own.token != kLastToken && own.epoch != GSAN_CLOCK_EPOCH_MAX;
}

// Whether the sync record `found` names a publication of this CTA's thread id before `own`.
GSAN_DEVICE bool is_older(Cta cta, u64 found, Released own) {
  return cta.has_slot() && record_thread(found) == cta.thread() && sync_token(found) < own.token;
}

// Whether `found` names the publication of this CTA before `own`, which says all of it, as a clock only
// grows; or what it had acquired, if that would not be told apart. Without looking it up.
GSAN_DEVICE bool is_known_before(Cta cta, u64 found, Released own, Known known) {
  if (!may_contain(own)) return false;
  u64 last = known.published & (GSAN_THREAD_PUBLISHED_SAID | kLastToken);
  bool previous = is_older(cta, found, own) &&
                  last == (GSAN_THREAD_PUBLISHED_SAID | sync_token(found));
  return previous || ((known.plain || own.joined) && known.acquired == found &&
                      cta.home_of(record_thread(found)).globals == cta.region.globals);
}

// Whether `own` says all that the sync record `found` says, and nothing would tell the two apart: a
// publication of this CTA before it, or what it had acquired. By each lane for itself.
GSAN_COLD bool is_contained(Cta cta, u64 found, Released own, Known known) {
  if (!may_contain(own)) return false;
  bool newer = is_older(cta, found, own);
  Region home = cta.home_of(record_thread(found));
  bool acquired = known.acquired == found && home.globals == cta.region.globals;
  if (!newer && !acquired) return false;
  Publication publication;
  if (!read_publication(home, sync_token(found), publication)) return false;
  // A joined one has parts of others, and may reach others.
  bool of_this_cta = newer && publication.entry() >> GSAN_CLOCK_SPAN_BITS >= cta.state->start &&
                     !publication.joined();
  bool reaches_the_same = !publication.joined() || cta.region.globals->constants.devices == 1;
  return of_this_cta || (acquired && reaches_the_same);
}

// The scope of a sync record that gets another part.
GSAN_DEVICE u32 widest(Cta cta, u64 found, u32 scope) {
  u32 other = record_thread(found);
  u32 least = scope;
  if (cta.home_of(other).globals != cta.region.globals) {
    least = GSAN_SCOPE_SYS;
  } else if (!cta.has_slot() || other != cta.thread()) {
    least = GSAN_SCOPE_GPU;
  }
  u32 widest = record_scope(found);
  if (widest < scope) widest = scope;
  return widest < least ? least : widest;
}

// A publication that says what `found` and the CTA say; false if that cannot be said. Under the lock.
GSAN_COLD bool joined_publication(Cta cta, Warp warp, u64 found, Released own,
                                  Publication& publication) {
  if (!can_say(cta, warp)) return false;
  Region home = cta.home_of(record_thread(found));
  Publication theirs;
  bool known = Publications{home}.read(warp, sync_token(found), theirs);
  bool same_launch = known && is_of_launch(cta, home, theirs);
  u32 taken = warp.share(ptx::local_load(&cta.state->taken));
  if (same_launch) taken |= theirs.taken();
  gsan_publication fields = {};
  if (!frontier_snapshot(cta, warp, taken, fields.frontier)) return false;
  Draft draft = Draft::claim(cta.region, warp);
  if (!draft.there) return false;
  Vector clock = draft.clock();
  copy_own(cta, warp, clock);
  warp.meet();
  auto add_checkpoint = [&](u32 checkpoint) {
    u32 had = warp.share(clock.checkpoint());
    u32 latest = later_checkpoint(cta, warp, had, checkpoint);
    if (checkpoint == kNoCheckpoint || latest == kNoCheckpoint) return false;
    if (warp.leads()) ptx::store_relaxed_system(clock.checkpoint_word(), latest);
    warp.meet();
    return true;
  };
  bool filled = true;
  if (known) {
    Place place;
    if (place_of(cta, theirs.publisher(), place)) {
      Part part = single_part(place, theirs.entry());
      filled &= take_part(cta, warp, part, clock.words, Cut::kKnown, taken) == Taken::kAll;
    }
#pragma unroll 1
    for (u32 i = same_launch ? 1 : 0; i < 2; ++i) {
      u32 snapshot = i == 0 ? theirs.frontier() : theirs.snapshot();
      if (snapshot == 0) continue;
      Taken taken_all = take_snapshot(cta, warp, home, snapshot, clock.words, Cut::kKnown,
                                      taken, add_checkpoint);
      filled &= taken_all == Taken::kAll;
      if (taken_all == Taken::kOverwritten) break;
    }
  } else {
    filled = add_checkpoint(covering_checkpoint(cta, warp, home, sync_token(found)));
  }
  fields.snapshot = draft.publish(warp);
  fields.publisher = u16(cta.thread());
  fields.entry = entry_closed(cta.state->start, own.epoch);
  fields.joined = 1;
  fields.launch = cta.launch()->number;
  fields.taken = taken;
  publication = Publication::of(fields);
  return filled;
}

// The token that says `own` and what the sync record `found` says, which does not contain it.
GSAN_COLD u64 join(Cta cta, Warp warp, u64 found, Released own) {
  lock(cta, warp);
  Publication publication;
  bool said = joined_publication(cta, warp, found, own, publication);
  u64 token = said ? put(cta, warp, publication, said) : put_top(cta, warp);
  unlock(cta, warp);
  return token;
}

// Whether a release sequence that `sync` tells of may reach an acquire at `scope`. By each lane for
// itself.
GSAN_DEVICE bool reaches(Cta cta, u64 sync, u32 scope) {
  u32 least = record_scope(sync) < scope ? record_scope(sync) : scope;
  if (least == GSAN_SCOPE_NOT_ATOMIC) return false;
  if (least == GSAN_SCOPE_CTA) return cta.has_slot() && cta.thread() == record_thread(sync);
  if (least == GSAN_SCOPE_SYS) return true;
  Region home = cta.home_of(record_thread(sync));
  if (home.globals == cta.region.globals) return true;
  // Parts of a joined sequence may be of this device though the last one is not.
  fence_acquire(cta);
  Publication publication;
  return !read_publication(home, sync_token(sync), publication) || publication.joined();
}

}  // namespace gsan
