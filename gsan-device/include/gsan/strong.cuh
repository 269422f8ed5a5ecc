// Strong accesses, whose begin comes before the instruction and whose end after it.
//
// Lanes of one warp call together, and may name the same cell: then they take turns. A strong write
// announces itself at begin: a record with an empty mask, which conflicts with nothing, holds its place.
// Whoever observes the write removes the announcement, so that no record accuses him afterwards; the
// record replaces the announcement and nothing else. It says which half of the granule it is for:
// neighbours observe nothing of each other.
//
// At begin it is not known whether something will be written: whatever reads is announced, too. But what is
// at the position of an atomic load is most likely one again, which needs no announcement: threads that
// poll store nothing until they see something new. Should it write for once, that is not recorded.
#pragma once

#include "gsan/address.cuh"
#include "gsan/past.cuh"
#include "gsan/races.cuh"
#include "gsan/releases.cuh"

namespace gsan {

// What the program says of a strong access.
struct Strong {
  bool acquires;
  bool releases;
  // GSAN_SCOPE_*.
  u32 scope;
  // Whether an instruction that reads and writes has this order itself, so that no fence need be beside it.
  bool by_instruction;

  // The same without a release that reaches no other CTA. The threads of one are ordered among themselves as it is, and
  // what is put to another's release sequence has the widest scope of all its parts.
  GSAN_DEVICE Strong reaching() const { return {acquires, releases && scope != GSAN_SCOPE_CTA, scope, by_instruction}; }

  // In a word: structures are passed through memory.
  GSAN_DEVICE u32 packed() const {
    return u32(acquires) | u32(releases) << 1 | u32(by_instruction) << 2 | scope << 3;
  }

  // `Ordering`: whether it may acquire or release.
  template <bool Ordering>
  GSAN_DEVICE static Strong of(u32 packed) {
    return {Ordering && (packed & 1) != 0, Ordering && (packed & 2) != 0, packed >> 3, (packed & 4) != 0};
  }
};

// Never 0.
GSAN_DEVICE u32 position_print(Position position) {
  u64 file = reinterpret_cast<u64>(position.file);
  return mix(u32(file) ^ u32(file >> 32) ^ position.line * GSAN_HASH_THREAD_MULTIPLIER) | 1;
}

// Whether nothing but atomic loads was seen at `position`.
GSAN_DEVICE bool expects_load(Cta cta, Position position) {
  u32 print = position_print(position);
  return ptx::local_load(&cta.state->load_position) == print &&
         ptx::local_load(&cta.state->mixed_position) != print;
}

GSAN_DEVICE void note_position(Cta cta, Position position, bool loads) {
  u32 print = position_print(position);
  u32 known = ptx::local_load(&cta.state->load_position);
  if (loads && known != print) {
    ptx::local_store(&cta.state->load_position, print);
  } else if (!loads && known == print) {
    ptx::local_store(&cta.state->mixed_position, print);
  }
}

// What tells an atomic from others for as long as it is the same to other threads.
GSAN_DEVICE u64 place_in_epoch(u64 address, Position position, u32 epoch) {
  return u64(position_print(position) ^ mix(u32(address))) << 32 | epoch;
}

// Whether this atomic announced itself in vain before, in the same epoch: it wrote nothing, or others took the
// place of its record. Then it does not announce itself, and if it writes that is not recorded. So threads that
// poll with atomics leave the cell alone; races with what comes they find themselves.
GSAN_DEVICE bool was_in_vain(Cta cta, u64 address, Position position) {
  u64 place = ptx::local_load(&cta.state->in_vain);
  return place != 0 && place == place_in_epoch(address, position, ptx::local_load(&cta.state->epoch));
}

// What comes before goes ahead of the strong write, as far as `scope` reaches.
GSAN_DEVICE void fence_before(u32 scope) {
  if (scope == GSAN_SCOPE_CTA) {
    ptx::fence_cta();
  } else if (scope == GSAN_SCOPE_GPU) {
    ptx::fence_release();
  } else {
    ptx::fence_release_system();
  }
}

// The strong read goes ahead of what comes behind, as far as `scope` reaches.
GSAN_DEVICE void fence_after(u32 scope) {
  if (scope == GSAN_SCOPE_CTA) {
    ptx::fence_cta();
  } else if (scope == GSAN_SCOPE_GPU) {
    ptx::fence_acquire();
  } else {
    ptx::fence_acquire_system();
  }
}

// A short fingerprint of a word.
GSAN_DEVICE u32 digest(u64 word) { return mix(u32(word) ^ mix(u32(word >> 32))) >> 16; }

// The sync word some time after another CTA was faster again. When many release into one word, each takes
// longer to join what it found than the next one takes to come; so they spread out, the further the more often
// they have failed.
GSAN_COLD u64 look_again_later(Cta cta, u64* word, u32 attempt) {
  constexpr u32 kMostDoubled = 9;
  u32 window = 1024u << (attempt < kMostDoubled ? attempt : kMostDoubled);
  ptx::pause_for(mix(publisher(cta) * GSAN_HASH_THREAD_MULTIPLIER + attempt) & (window - 1));
  return ptx::load_relaxed_system(word);
}

// Publishes `own` together with what the sync word says; `found` is what was there, read without a
// fence behind it. Returns what is there now. Lanes for which `releases` does not hold only take part.
GSAN_COLD u64 release_into(Cta cta, Warp warp, u64* word, bool releases, Released own, Known known,
                           u32 mask, u32 scope, u64& found) {
  constexpr u32 kAttempts = 64;
  bool pending = releases;
  u64 left = found;
  for (u32 attempt = 0; attempt < kAttempts && warp.any(pending); ++attempt) {
    u64 next = 0;
    bool joins = false;
    if (pending) {
      if (!is_sync(found)) {
        next = make_sync(own.publisher, mask, scope, own.token);
      } else {
        u32 wide_mask = record_mask(found) | mask;
        u32 wide_scope = widest(cta, found, scope);
        bool contained = is_known_before(cta, found, own, known);
        // What the sync word names was written before.
        if (!contained) fence_acquire(cta);
        if (contained || is_contained(cta, found, own, known)) {
          next = make_sync(own.publisher, wide_mask, wide_scope, own.token);
        } else if (contains(cta, found, own)) {
          next = make_sync(record_thread(found), wide_mask, wide_scope, sync_token(found));
        } else {
          joins = true;
          next = make_sync(own.publisher, wide_mask, wide_scope, 0);
        }
      }
    }
    // A publication for each sequence that is met, for all lanes that met it.
    for (u32 turns = warp.ballot(joins); turns != 0;) {
      u64 theirs = warp.share(found, ptx::lowest(turns));
      u64 token = join(cta, warp, theirs, own);
      bool mine = joins && acquired_key(found) == acquired_key(theirs);
      if (mine) next |= token << GSAN_RECORD_TOKEN_SHIFT;
      turns &= ~warp.ballot(mine);
    }
    if (!pending) continue;
    u64 before = found;
    if (next != found) {
      if (!own.fenced || joins) fence_release(cta);
      before = ptx::compare_exchange_relaxed_system(word, found, next);
    }
    if (before == found) {
      left = next;
      pending = false;
    } else {
      found = attempt == 0 ? before : look_again_later(cta, word, attempt);
    }
  }
  if (pending) {
    // Everything up to the moment of the acquire, for all bytes and everybody.
    count(cta.region, GSAN_LOSS_TOP_RELEASE);
    left = make_sync(publisher(cta), 0xff, GSAN_SCOPE_SYS, kLastToken);
    fence(cta);
    found = ptx::exchange_relaxed_system(word, left);
    fence(cta);
  }
  warp.meet();
  return left;
}

// Below the halves of an announcement: which of the CTA's threads it is.
constexpr u32 kNonceBits = 10;

// Which halves of its granule an access touches.
GSAN_DEVICE u32 halves(u32 mask) { return u32((mask & 0x0f) != 0) | u32((mask & 0xf0) != 0) << 1; }

// The record by which an access to the bytes of `mask` says that it is under way.
GSAN_DEVICE u64 announcement(Cta cta, u32 epoch, u32 mask, bool publishes, u32 scope) {
  u32 nonce = ptx::thread_index() & ((1u << kNonceBits) - 1);
  return make_record(cta.thread(), epoch, 0, publishes, scope, nonce | halves(mask) << kNonceBits);
}

// What an access keeps of a cell.
struct Announced {
  // The word of the announcement; 0 if there is none.
  u32 place = 0;
  // What had to give way to it: checked at the end, and put back if nothing was written.
  u64 evicted = 0;
  u16 digests[3] = {0, 0, 0};

  template <unsigned S>
  GSAN_DEVICE void digest_all(const Cell<S>& cell) {
#pragma unroll
    for (unsigned i = 1; i < S; ++i) digests[i - 1] = u16(digest(cell.word[i]));
  }
};

// A strong access that may write begins. The cell was read as `cell`.
template <unsigned S>
GSAN_DEVICE Announced announce(u64* words, const Cell<S>& cell, const CellAccess& access, u64 mark,
                               const Past& past, const Sampler& sampler) {
  Announced announced;
  announced.digest_all(cell);
  u32 choice = 0;
  bool equal = false;
#pragma unroll
  for (unsigned i = 0; i < S; ++i) {
    equal |= cell.word[i] == access.record;
    choice |= u32(i != 0 && cell.word[i] == 0) << i;
  }
  if (equal) return announced;
  if (choice == 0) {
    Survey found = survey(past.cta, cell, access);
    choice = (found.superseded | found.covered) & ~1u;
  }
  u32 place = 0;
  if (choice != 0) {
    place = ptx::lowest(choice);
  } else {
    bool read = false;
    u32 number = 0;
#pragma unroll
    for (unsigned i = 1; i < S; ++i) {
      u64 word = cell.word[i];
      if (word == 0 || is_sync(word) || record_mask(word) == 0) continue;
      bool reads = !record_writes(word);
      u32 candidate = sampler.number(word);
      if (place != 0 && (reads < read || (reads == read && candidate < number))) continue;
      place = i;
      read = reads;
      number = candidate;
    }
    if (place == 0) return announced;
  }
  announced.place = place;
  if (cell.at(place) == 0) {
    // Nothing is waited for.
    ptx::store_relaxed_system(word_of(words, place), mark);
    return announced;
  }
  u64 evicted = ptx::exchange_relaxed_system(word_of(words, place), mark);
  if (record_mask(evicted) != 0) announced.evicted = evicted;
  return announced;
}

// Removes the announcements of accesses that the current one may have observed. Returns whether there
// were any.
template <unsigned S>
GSAN_DEVICE bool remove_announcements(u64* words, const Cell<S>& cell, u64 own,
                                      const CellAccess& access, bool acquires, const Past& past) {
  u32 here = halves(record_mask(access.record));
  u32 marks = 0;
#pragma unroll
  for (unsigned i = 1; i < S; ++i) {
    u64 word = cell.word[i];
    bool announces = word != 0 && (u32(word) & (kRecordMask | kRecordSync)) == 0 && word != own &&
                     (record_site(word) >> kNonceBits & here) != 0;
    marks |= u32(announces) << i;
  }
  bool any = false;
#pragma unroll 1
  for (; marks != 0; marks &= marks - 1) {
    u32 i = ptx::lowest(marks);
    u64 mark = cell.at(i);
    bool known = record_writes(mark) && acquires && access.cover_each_other(mark, past);
    // Whatever has become of it meanwhile goes, too.
    if (!known) ptx::exchange_relaxed_system(word_of(words, i), u64(0));
    any |= !known;
  }
  return any;
}

// Tells the races of the words of `which`.
template <unsigned S>
GSAN_DEVICE void report_all(Cta cta, const Cell<S>& cell, const CellAccess& access, u32 which,
                            u64 granule, Position position) {
#pragma unroll 1
  for (; which != 0; which &= which - 1) {
    report(cta.region.globals, cell.at(ptx::lowest(which)), access.record, access.action, granule,
           position.file, position.line);
  }
}

constexpr u64 kFindingMultiplier = 0x9e3779b97f4a7c15;

template <unsigned S>
GSAN_ONCE u64 finding_by_call(u64 print, u64 word0, u64 word1, u64 word2, u64 word3) {
  u64 words[] = {is_sync(word0) ? u64(kRecordSync) : word0, word1, word2, word3};
#pragma unroll
  for (unsigned i = 0; i < S; ++i) print = (print ^ print >> 32 ^ words[i]) * kFindingMultiplier;
  return ((print ^ print >> 32) & ~u64(3)) | 2;
}

// What a strong read finds, as a fingerprint: the lowest bit is left free, the next is set. A sync record is
// not part of it. The rest of the arguments tells the access from others.
template <unsigned S>
GSAN_DEVICE u64 finding(const Cell<S>& cell, u64 begun_at, u32 epoch, u32 mask, const Strong& strong,
                        bool wrote, Position position) {
  u32 kind = mask << 4 | strong.scope << 2 | u32(wrote) << 1 | u32(strong.acquires);
  u64 where = u64(position_print(position)) << 32 ^ u64(epoch) << 12;
  return finding_by_call<S>((begun_at ^ where ^ kind) * kFindingMultiplier, cell.word[0], cell.word[1],
                            cell.at(2 % S), cell.at(3 % S));
}

// A strong access ends; `access` says what came of it, `cell` what is there now. Words that changed since
// begin are not checked. Returns the limit that was met, or kNoLoss. `print` is what an access found that
// announced nothing, as a fingerprint; or 0.
template <unsigned S>
GSAN_DEVICE u32 finish(Cta cta, u64* words, Cell<S> cell, const Announced& announced,
                       u64 found_first, u64 mark, const CellAccess& access, bool acquires,
                       const Past& past, const Sampler& sampler, u64 granule, Position position,
                       u64 print) {
  u32 place = announced.place;
  bool may_settle = print != 0;
  if (may_settle) ptx::local_store(&cta.state->settled, u64(0));
  bool holds = false;
  u32 unchanged = cell.word[0] == found_first;
#pragma unroll
  for (unsigned i = 1; i < S; ++i) {
    holds |= i == place && cell.word[i] == mark;
    if (digest(cell.word[i]) == announced.digests[i - 1]) unchanged |= 1u << i;
  }
  if (access.reads() && remove_announcements(words, cell, mark, access, acquires, past)) {
    may_settle = false;
  }
  if (holds) {
#pragma unroll
    for (unsigned i = 1; i < S; ++i) {
      if (i == place) cell.word[i] = announced.evicted;
    }
    unchanged |= 1u << place;
  } else if (place != 0 && announced.evicted != 0) {
    Cell<S> evicted = {};
    evicted.word[1] = announced.evicted;
    report_all(cta, evicted, access, survey(cta, evicted, access).racing, granule, position);
  }
  Survey found = survey(cell, access, past, access.writes());
  report_all(cta, cell, access, found.racing & unchanged, granule, position);
  if (!access.writes()) {
    // Nothing was written after all.
    if (holds) ptx::compare_exchange_relaxed_system(word_of(words, place), mark, announced.evicted);
    bool changed;
    u32 loss = update(words, cell, found, access, past, sampler, changed);
    if (may_settle && !changed && found.racing == 0) {
      ptx::local_store(&cta.state->settled, print | u64(loss == GSAN_LOSS_READ_NOT_SAMPLED));
    }
    return loss;
  }
  u32 gone = found.observed | found.superseded;
  if (holds) gone &= ~(1u << place);
  if (may_settle && (gone & found.observed) == 0 && found.racing == 0) {
    ptx::local_store(&cta.state->settled, print | u64(!found.equal));
  }
  if (found.equal) {
    if (holds) ptx::compare_exchange_relaxed_system(word_of(words, place), mark, u64(0));
    clear(words, cell.word[0], gone & found.observed);
    return kNoLoss;
  }
  bool recorded =
      holds && ptx::compare_exchange_relaxed_system(word_of(words, place), mark, access.record) == mark;
  if (!recorded) {
    clear(words, cell.word[0], gone & found.observed);
    return GSAN_LOSS_WRITE_EVICTED;
  }
  clear(words, cell.word[0], gone);
  u32 free = found.empty | found.observed | found.superseded | found.covered;
  return free >> place & 1 ? kNoLoss : GSAN_LOSS_WRITE_EVICTED;
}

// The reservation. What a CTA has at hand saves a wait: behind a fence, constants come from the second-level
// cache.
template <unsigned S>
GSAN_DEVICE AddressSpace<S> space_of(Cta cta) {
  if (cta.has_slot()) return AddressSpace<S>(*cta.state);
  return AddressSpace<S>(cta.region.globals->constants);
}

// Whether an access of `bytes` bytes is one that an event can name.
template <unsigned S>
GSAN_DEVICE bool can_be_named(Cta cta, const AddressSpace<S>& space, u64 address, u32 bytes) {
  u64 region = reinterpret_cast<u64>(cta.region.globals);
  return bytes != 0 && (address & (kGranule - 1)) + bytes <= GSAN_EVENT_MAX_BYTES &&
         (address - space.real_base) >> GSAN_EVENT_OFFSET_BITS == 0 &&
         region >> GSAN_EVENT_REGION_SHIFT << GSAN_EVENT_REGION_SHIFT == region &&
         region >> GSAN_EVENT_REGION_SHIFT >> (64 - GSAN_EVENT_OFFSET_BITS) == 0;
}

// Calls `body(first)` once in each of `lanes`, which call together; those that name the same granule take
// turns. `first`: it is the first of them. Most often there is one lane.
template <class F>
GSAN_DEVICE void take_turns(u32 lanes, u64 granule, F body) {
  u32 turn = 0, turns = 1;
  if ((lanes & (lanes - 1)) != 0) {
    u32 same = ptx::alike(lanes, granule);
    turn = Warp::before(same);
    turns = ptx::largest(lanes, ptx::count_bits(same));
  }
#pragma unroll 1
  for (u32 now = 0; now < turns; ++now) {
    if (now == turn) body(now == 0);
    if (turns != 1) ptx::meet(lanes);
  }
}

// What an event keeps of region and address.
template <unsigned S>
GSAN_DEVICE u64 event_access(Cta cta, const AddressSpace<S>& space, u64 address) {
  u64 region = reinterpret_cast<u64>(cta.region.globals) >> GSAN_EVENT_REGION_SHIFT;
  return region << GSAN_EVENT_OFFSET_BITS | (address - space.real_base);
}

// What is not checked may have brought something. `loss` counts it, unless it is kNoLoss.
GSAN_COLD void begin_unchecked(Cta cta, bool acquires, u32 loss) {
  if (loss != kNoLoss) count(cta.region, loss);
  if (!acquires) return;
  ptx::local_or(&cta.state->flags, GSAN_THREAD_EVERYTHING | GSAN_THREAD_CHANGED);
  cta.unsettle();
  cta.touch();
}

// Whether a strong access is checked, and starts its event. One that is not may bring something.
template <unsigned S>
GSAN_DEVICE bool may_begin(Cta cta, gsan_atomic_event* event, u64 address, u32 bytes, bool acquires) {
  event->access = 0;
  if (!cta.is_known()) return false;
  AddressSpace<S> space = space_of<S>(cta);
  u32 loss = kNoLoss;
  if (!space.is_managed(address)) {
    loss = GSAN_LOSS_UNMANAGED_ATOMIC;
  } else if (!can_be_named(cta, space, address, bytes)) {
    loss = GSAN_LOSS_NOT_INSTRUMENTED;
  } else {
    event->access = event_access(cta, space, address);
    if (!space.is_write_once(address)) return true;
    event->found = bytes;
    event->bytes = 0;
  }
  begin_unchecked(cta, acquires, loss);
  return false;
}

// begin_strong, after which the lanes may be apart.
template <unsigned S>
GSAN_DEVICE void begin_lanes(Cta cta, Warp warp, bool takes, gsan_atomic_event* event, u64 address,
                             u32 bytes, bool reads, bool may_write, Strong strong) {
  if (takes) takes = may_begin<S>(cta, event, address, bytes, strong.acquires && reads);
  u32 takers = warp.ballot(takes);
  if (takers == 0) return;
  u32 offset = u32(address) & (kGranule - 1);
  u64 granule = address - offset;
  u32 mask = bytes_between(offset, offset + bytes);
  u64* words = space_of<S>(cta).shadow(granule);
  u64 found = 0;
  u64 left = 0;
  Cell<S> cell = {};
  Released own = {};
  if (strong.releases) {
    // Before the release, which takes a while and is waited for: one load less behind it.
    if (takes) cell = Cell<S>::load(words);
    found = cell.word[0];
    Known known;
    own = publish(cta, warp, found, known);
    left = release_into(cta, warp, words, takes, own, known, mask, strong.scope, found);
    cell.word[0] = left;
  }
  // Of lanes at other addresses, some may be quiet.
  u32 announcers = warp.ballot(takes && may_write);
  if (!takes) return;
  if (!strong.releases) {
    cell = Cell<S>::load(words);
    found = left = cell.word[0];
  }
  u32 epoch = strong.releases ? own.epoch : cta.has_slot() ? cta.touch() : 0;
  Announced announced;
  if (!may_write) {
    announced.digest_all(cell);
  } else if (cta.has_slot()) {
    CellAccess access = {make_record(cta.thread(), epoch, mask, true, strong.scope, 0),
                         GSAN_RACE_WRITE | (reads ? u32(GSAN_RACE_READ) : 0), strong.scope};
    u64 mark = announcement(cta, epoch, mask, strong.releases, strong.scope);
    Sampler sampler = {ptx::local_load(&cta.state->seed), granule / kGranule};
    Past past(cta);
    take_turns(announcers, granule, [&](bool first) GSAN_HERE {
      if (!first) cell = Cell<S>::load(words);
      announced = announce<S>(words, cell, access, mark, past, sampler);
    });
  }
  // Whoever observes the value sees the announcement, and what was published.
  bool orders = reads && strong.releases && strong.by_instruction;
  if (may_write && !orders) fence_before(strong.scope);
  event->found = found;
  event->evicted = announced.evicted;
  bool published = acquired_key(left) != acquired_key(found) || is_sync(left) != is_sync(found);
  event->begun = u64(announced.place) << GSAN_EVENT_PLACE_SHIFT |
                 u64(epoch) << GSAN_THREAD_PUBLISHED_EPOCH_SHIFT |
                 (published ? GSAN_THREAD_PUBLISHED | sync_token(left) : 0);
  for (u32 i = 0; i < 3; ++i) event->digests[i] = announced.digests[i];
  event->bytes = u16(bytes);
}

// Functions of their own for accesses that order nothing: what is never reached is not in the way.
template <unsigned S, bool Ordering>
GSAN_ONCE void begin_by_call(gsan_global_state* globals, u32 lanes, bool takes, gsan_atomic_event* event,
                             u64 address, u32 bytes, bool reads, bool may_write, u32 strong) {
  Warp warp = Warp::of(lanes);
  begin_lanes<S>(Cta::current(globals), warp, takes, event, address, bytes, reads, may_write,
                 Strong::of<Ordering>(strong));
  warp.leave_together();
}

// A strong access is about to be executed by the lanes for which `takes` holds. The others of the warp
// that call help with clocks.
template <unsigned S>
GSAN_DEVICE void begin_strong(Cta cta, Warp warp, bool takes, gsan_atomic_event* event, u64 address,
                              u32 bytes, bool reads, bool may_write, const Strong& said) {
  Strong strong = said.reaching();
  if (strong.acquires || strong.releases) {
    begin_by_call<S, true>(cta.region.globals, warp.lanes, takes, event, address, bytes, reads, may_write,
                           strong.packed());
  } else {
    begin_by_call<S, false>(cta.region.globals, warp.lanes, takes, event, address, bytes, reads, may_write,
                            strong.packed());
  }
}

// An acquire returned a value that one of the release sequences may have brought which the sync word
// tells of: as it was `found`, as it is `now`, or in between. Lanes for which `acquires` does not hold
// only take part. Returns whether anything was new to the CTA.
GSAN_ONCE bool observe(gsan_global_state* globals, u32 lanes, bool acquires, u64 found, u64 left, u64 now,
                       u32 mask, u32 scope) {
  Cta cta = Cta::current(globals);
  Warp warp = Warp::of(lanes);
  auto may_have_been_read = [&](u64 sync) GSAN_HERE {
    return is_sync(sync) && (record_mask(sync) & mask) != 0 &&
           !has_acquired(cta, acquired_key(sync)) && reaches(cta, sync, scope);
  };
  bool first = acquires && may_have_been_read(found);
  bool second = false;
  if (acquires && is_sync(now)) {
    if (is_sync(left) && acquired_key(left) == acquired_key(now)) {
      // The access's own publication says no more than the CTA knew and what was found.
      bool own = !is_sync(found) || acquired_key(found) != acquired_key(left);
      second = !own && may_have_been_read(now);
    } else if (scope != GSAN_SCOPE_CTA) {
      // Others released meanwhile, each with what was there before. Their parts are not told apart:
      // any may have been read. What was released to its own CTA only has no parts of others: those
      // would have widened it.
      second = record_scope(now) != GSAN_SCOPE_CTA ||
               (cta.has_slot() && record_thread(now) == cta.thread());
    }
  }
  bool learned = false;
  for (u32 step = 0; step < 2; ++step) {
    bool takes = step == 0 ? first : second;
    u64 sync = step == 0 ? found : now;
    for (u32 turns = warp.ballot(takes); turns != 0;) {
      u64 one = warp.share(sync, ptx::lowest(turns));
      learned |= acquire(cta, warp, one);
      turns &= ~warp.ballot(takes && acquired_key(sync) == acquired_key(one));
    }
  }
  return learned;
}

// An atomic on write-once memory was executed.
template <unsigned S>
GSAN_COLD void end_on_write_once(Cta cta, u64 address, u32 bytes, bool returns_value, bool wrote,
                                 u32 scope, Position position) {
  if (!cta.has_slot()) return;
  u32 offset = u32(address) & (kGranule - 1);
  u32 mask = bytes_between(offset, offset + bytes);
  u64 record = make_record(cta.thread(), cta.touch(), mask, wrote, scope, find_site(cta, position));
  u32 action = (returns_value ? u32(GSAN_RACE_READ) : 0) | (wrote ? u32(GSAN_RACE_WRITE) : 0);
  report_kind(cta.region.globals, GSAN_RACE_WRITE_ONCE_ATOMIC, 0, record, action, address - offset,
              mask, position.file, position.line);
}

// Counts accesses that were checked, and which of them were not kept or took the place of others.
GSAN_DEVICE void count_accesses(Cta cta, u32 checked, u32 not_sampled, u32 evicted) {
  u32 before = ptx::local_add(&cta.state->accesses, checked);
  if (before + checked < before) {
    ptx::add_relaxed(&cta.region.globals->accesses.value, u64(1) << 32);
  }
  if (not_sampled != 0) ptx::local_add(&cta.state->not_sampled, not_sampled);
  if (evicted != 0) ptx::local_add(&cta.state->evicted, evicted);
}

// end_strong, after which the lanes may be apart.
template <unsigned S>
GSAN_DEVICE void end_lanes(Warp warp, bool takes, const gsan_atomic_event* event, bool wrote,
                           bool is_rmw, Strong strong, Position position) {
  u64 begun_at = takes ? event->access : 0;
  takes = begun_at != 0;
  u32 takers = warp.ballot(takes);
  if (takers == 0) return;
  u64 region = warp.share(begun_at, ptx::lowest(takers)) >> GSAN_EVENT_OFFSET_BITS
                                                                << GSAN_EVENT_REGION_SHIFT;
  Cta cta = Cta::current(reinterpret_cast<gsan_global_state*>(region));
  AddressSpace<S> space = space_of<S>(cta);
  u64 address = space.real_base + (begun_at & ((u64(1) << GSAN_EVENT_OFFSET_BITS) - 1));
  bool returns_value = is_rmw || !wrote;
  if (takes && event->bytes == 0) {
    end_on_write_once<S>(cta, address, u32(event->found), returns_value, wrote, strong.scope,
                         position);
    takes = false;
  }
  takers = warp.ballot(takes);
  if (takers == 0) return;
  u32 offset = u32(address) & (kGranule - 1);
  u64 granule = address - offset;
  u32 mask = takes ? bytes_between(offset, offset + event->bytes) : 0;
  u64* words = space.shadow(granule);
  u64 begun = takes ? event->begun : 0;
  u64 found = takes ? event->found : 0;
  Cell<S> cell = {};
  if (takes) {
    bool orders = is_rmw && strong.acquires && strong.by_instruction;
    if (returns_value && !orders) fence_after(strong.scope);
    cell = Cell<S>::load(words);
  }
  u32 epoch = u32(begun >> GSAN_THREAD_PUBLISHED_EPOCH_SHIFT) & GSAN_CLOCK_EPOCH_MAX;
  // An access that announced nothing, and finds what the one before it found, which then brought and changed
  // nothing, does the same again, unless the CTA has learned something since: so threads that poll do
  // little.
  u64 print = 0, settled = 0;
  bool quiet = false;
  if (takes && returns_value && !strong.releases && begun >> GSAN_EVENT_PLACE_SHIFT == 0) {
    print = finding(cell, begun_at, epoch, mask, strong, wrote, position);
    settled = ptx::local_load(&cta.state->settled);
    quiet = (settled & ~u64(1)) == print;
    if (quiet) count_accesses(cta, 1, wrote ? 0 : settled & 1, wrote ? settled & 1 : 0);
    // Nor does the sync record bring anything.
    bool known = !strong.acquires || !is_sync(found) || has_acquired(cta, acquired_key(found));
    if (quiet && known && found == cell.word[0]) takes = false;
  }
  if (!warp.any(takes)) return;
  bool acquires = takes && strong.acquires && returns_value;
  bool learned = false;
  if (warp.any(acquires)) {
    u64 left = found;
    if (begun & GSAN_THREAD_PUBLISHED) {
      left = make_sync(publisher(cta), mask, strong.scope, begun & kLastToken);
    }
    learned = observe(cta.region.globals, warp.lanes, acquires, found, left, cell.word[0], mask,
                      strong.scope);
  }
  takers = warp.ballot(takes && !quiet);
  if (!takes) return;
  if (quiet) {
    // What the CTA has learned may let a read be kept that was not; a write is not kept again.
    if (wrote || !(settled & 1)) ptx::local_store(&cta.state->settled, settled);
    return;
  }
  if (is_rmw && !wrote && strong.releases) count(cta.region, GSAN_LOSS_FAILED_RELEASE);
  if (!cta.has_slot()) return;
  note_position(cta, position, !is_rmw && !wrote);
  u32 site = find_site(cta, position);
  u32 action = (returns_value ? u32(GSAN_RACE_READ) : 0) | (wrote ? u32(GSAN_RACE_WRITE) : 0);
  CellAccess access = {make_record(cta.thread(), epoch, mask, wrote, strong.scope, site), action,
                       strong.scope};
  Announced announced;
  announced.place = u32(begun >> GSAN_EVENT_PLACE_SHIFT);
  announced.evicted = event->evicted;
  for (u32 i = 0; i < 3; ++i) announced.digests[i] = event->digests[i];
  u64 mark = announcement(cta, epoch, mask, strong.releases, strong.scope);
  Sampler sampler = {ptx::local_load(&cta.state->seed), granule / kGranule};
  Past past(cta);
  u32 loss = kNoLoss;
  take_turns(takers, granule, [&](bool first) GSAN_HERE {
    // Learning takes long.
    if (!first || learned) {
      cell = Cell<S>::load(words);
      if (print != 0) print = finding(cell, begun_at, epoch, mask, strong, wrote, position);
    }
    loss = finish<S>(cta, words, cell, announced, found, mark, access, acquires, past, sampler,
                     granule, position, print);
  });
  bool in_vain = !wrote || loss == GSAN_LOSS_WRITE_EVICTED;
  if (is_rmw && in_vain && !strong.releases) {
    ptx::local_store(&cta.state->in_vain, place_in_epoch(address, position, epoch));
  }
  u32 checked = ptx::count_bits(takers);
  u32 lost = ptx::sum(takers, u32(loss == GSAN_LOSS_READ_NOT_SAMPLED) |
                                  u32(loss == GSAN_LOSS_WRITE_EVICTED) << 16);
  if (ptx::lane() != ptx::lowest(takers)) return;
  count_accesses(cta, checked, lost & 0xffff, lost >> 16);
}

template <unsigned S, bool Ordering>
GSAN_ONCE void end_by_call(u32 lanes, bool takes, const gsan_atomic_event* event, bool wrote, bool is_rmw,
                           u32 strong, const char* file, u32 line) {
  Warp warp = Warp::of(lanes);
  end_lanes<S>(warp, takes, event, wrote, is_rmw, Strong::of<Ordering>(strong), {file, line});
  warp.leave_together();
}

// The strong access begun was executed by the lanes for which `takes` holds. The others of the warp that
// call help with clocks.
template <unsigned S>
GSAN_DEVICE void end_strong(Warp warp, bool takes, const gsan_atomic_event* event, bool wrote, bool is_rmw,
                            const Strong& said, Position position) {
  Strong strong = said.reaching();
  if (strong.acquires || strong.releases) {
    end_by_call<S, true>(warp.lanes, takes, event, wrote, is_rmw, strong.packed(), position.file, position.line);
  } else {
    end_by_call<S, false>(warp.lanes, takes, event, wrote, is_rmw, strong.packed(), position.file, position.line);
  }
}

}  // namespace gsan
