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

// A snapshot of what the CTA learned beyond its frontier: 0 if that is nothing. False if there is no
// place for it.
GSAN_COLD bool own_snapshot(Cta cta, Warp warp, u32& snapshot) {
  snapshot = 0;
  if (ptx::local_load(&cta.state->private_clock) == 0 && known_checkpoint(cta) == kNoCheckpoint) {
    return true;
  }
  u32 last = 0;
  if (warp.leads() && !(cta.flags() & GSAN_THREAD_CHANGED)) {
    last = ptx::local_load(&cta.state->snapshot);
    if (last != 0 && !Snapshots{cta.region}.is_recent(last)) last = 0;
  }
  snapshot = warp.share(last);
  if (snapshot != 0) return true;
  Draft draft = Draft::claim(cta.region, warp);
  if (!draft.there) return false;
  copy_own(cta, warp, draft.clock());
  snapshot = draft.publish(warp);
  if (warp.leads()) {
    ptx::local_store(&cta.state->snapshot, snapshot);
    ptx::local_and(&cta.state->flags, ~GSAN_THREAD_CHANGED);
  }
  warp.meet();
  return true;
}

// Adds the entries of a launch's rows to a clock. False if there was no room for some.
GSAN_COLD bool add_rows(Cta cta, Warp warp, Vector target, u32 bank, const u32* entries) {
  u32 mark = 0;
  if (warp.leads()) mark = slots_taken(cta.region, bank);
  Part part = {entries, bank, 0, warp.share(mark), false, 0, nullptr, 0, {}};
  return take_part(cta, warp, part, target.words, false, 0) == Taken::kAll;
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

// A snapshot of the frontier with the completions in `taken`, for acquirers of other launches. Made by
// the first publisher, and again when it has become old. False if there is no place for it.
GSAN_COLD bool frontier_snapshot(Cta cta, Warp warp, u32 taken, u32& snapshot) {
  gsan_launch_state* shared = cta.launch_state();
  u64 key = u64(taken) << GSAN_THREAD_FRONTIER_TAKEN_SHIFT | GSAN_THREAD_FRONTIER_MADE;
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

// What a publication of everything up to `epoch` says; false if that cannot be said.
GSAN_DEVICE bool sayable(Cta cta, Warp warp, u32 epoch, Publication& publication) {
  if (!can_say(cta, warp)) return false;
  u32 taken = warp.share(ptx::local_load(&cta.state->taken));
  gsan_publication fields = {};
  if (!own_snapshot(cta, warp, fields.snapshot)) return false;
  if (!frontier_snapshot(cta, warp, taken, fields.frontier)) return false;
  fields.publisher = u16(cta.thread());
  fields.entry = entry_closed(cta.state->start, epoch);
  fields.launch = cta.launch()->number;
  fields.taken = taken;
  publication = Publication::of(fields);
  return true;
}

// Publishes what the CTA did and knows. Shares the publication before when the CTA made no access and
// learned nothing since.
GSAN_COLD Released publish(Cta cta, Warp warp) {
  Released released = {};
  u32 unchanged = 0;
  if (warp.leads()) unchanged = is_unchanged(cta, released);
  unchanged = warp.share(unchanged);
  if (!unchanged) {
    lock(cta, warp);
    if (warp.leads()) unchanged = is_unchanged(cta, released);
    unchanged = warp.share(unchanged);
    if (!unchanged) {
      u32 epoch = warp.share(ptx::local_load(&cta.state->epoch));
      Publication publication;
      bool said = sayable(cta, warp, epoch, publication);
      u64 token = said ? put(cta, warp, publication, said) : put_top(cta, warp);
      if (warp.leads() && cta.has_slot() && epoch != GSAN_CLOCK_EPOCH_MAX) {
        u32 next = following(cta.region, epoch);
        ptx::store_relaxed_system(cta.region.epoch(cta.thread()), next);
        ptx::local_store(&cta.state->epoch, next);
        ptx::fence_cta();
        ptx::local_store(&cta.state->published,
                         GSAN_THREAD_PUBLISHED | (said ? GSAN_THREAD_PUBLISHED_SAID : 0) |
                             u64(epoch) << GSAN_THREAD_PUBLISHED_EPOCH_SHIFT | token);
      }
      released = {publisher(cta), epoch, token};
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
  Region home = cta.region.of_device(cta.region.device_of(record_thread(found)));
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
         Topology{cta.region.globals->constants}.place(cta.thread(), place) &&
         Snapshots{home}.get(publication.snapshot(), place, entry) && says(entry);
}

// What a CTA knew before it published.
struct Known {
  // Its newest publication, as gsan_thread_state has it.
  u64 published = 0;
  // What the sync word said, if the CTA had acquired it; or 0.
  u64 acquired = 0;

  GSAN_DEVICE static Known of(Cta cta, u64 found) {
    Known known;
    known.published = ptx::local_load(&cta.state->published);
    if (is_sync(found) && has_acquired(cta, acquired_key(found))) known.acquired = found;
    ptx::fence_cta();
    return known;
  }
};

// Whether `own` can stand for anything else.
GSAN_DEVICE bool may_contain(Released own) {
  return own.token != kLastToken && own.epoch != GSAN_CLOCK_EPOCH_MAX;
}

// Whether the sync record `found` names a publication of this CTA's thread id before `own`.
GSAN_DEVICE bool is_older(Cta cta, u64 found, Released own) {
  return cta.has_slot() && record_thread(found) == cta.thread() && sync_token(found) < own.token;
}

// Whether `found` names the publication of this CTA before `own`, which says all of it: a clock only
// grows. Without looking it up.
GSAN_DEVICE bool is_previous(Cta cta, u64 found, Released own, Known known) {
  u64 last = known.published & (GSAN_THREAD_PUBLISHED_SAID | kLastToken);
  return may_contain(own) && is_older(cta, found, own) &&
         last == (GSAN_THREAD_PUBLISHED_SAID | sync_token(found));
}

// Whether `own` says all that the sync record `found` says, and nothing would tell the two apart: a
// publication of this CTA before it, or what it had acquired. By each lane for itself.
GSAN_COLD bool is_contained(Cta cta, u64 found, Released own, Known known) {
  if (!may_contain(own)) return false;
  bool newer = is_older(cta, found, own);
  Region home = cta.region.of_device(cta.region.device_of(record_thread(found)));
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
  const gsan_constants& constants = cta.region.globals->constants;
  u32 least = scope;
  if (other - constants.first_id >= constants.share) {
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
  Region home = cta.region.of_device(cta.region.device_of(record_thread(found)));
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
    if (Topology{cta.region.globals->constants}.place(theirs.publisher(), place)) {
      Part part = single_part(place, theirs.entry());
      filled &= take_part(cta, warp, part, clock.words, true, taken) == Taken::kAll;
    }
#pragma unroll 1
    for (u32 i = same_launch ? 1 : 0; i < 2; ++i) {
      u32 snapshot = i == 0 ? theirs.frontier() : theirs.snapshot();
      if (snapshot == 0) continue;
      Taken taken_all = take_snapshot(cta, warp, home, snapshot, clock.words, taken,
                                      add_checkpoint);
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
  Region home = cta.region.of_device(cta.region.device_of(record_thread(sync)));
  if (home.globals == cta.region.globals) return true;
  // Parts of a joined sequence may be of this device though the last one is not.
  fence(cta.region);
  Publication publication;
  return !read_publication(home, sync_token(sync), publication) || publication.joined();
}

}  // namespace gsan
