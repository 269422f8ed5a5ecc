// Publications: what a release tells, one ring entry each.
//
// A token counts up and is never taken modulo, so an entry that was overwritten is recognised. So is
// one that was never written: a token whose entry says something else is a TOP publication,
// "everything up to a moment", and stands for a checkpoint taken after it was claimed.
#pragma once

#include "gsan/records.cuh"
#include "gsan/rings.cuh"

namespace gsan {

constexpr u64 kLastToken = (u64(1) << GSAN_RECORD_TOKEN_BITS) - 1;

GSAN_DEVICE u64 sync_token(u64 word) { return word >> GSAN_RECORD_TOKEN_SHIFT; }

GSAN_DEVICE u64 make_sync(u32 publisher, u32 mask, u32 scope, u64 token) {
  return token << GSAN_RECORD_TOKEN_SHIFT | kRecordSync | scope << GSAN_RECORD_SCOPE_SHIFT |
         mask << GSAN_RECORD_MASK_SHIFT | publisher;
}

// The fields of a publication, without the state.
struct Publication {
  u64 words[3] = {0, 0, 0};

  GSAN_DEVICE static Publication of(const gsan_publication& fields) {
    Publication result;
    result.words[0] = fields.entry | u64(fields.publisher) << 32 | u64(fields.joined) << 48;
    result.words[1] = fields.snapshot | u64(fields.frontier) << 32;
    result.words[2] = fields.launch | u64(fields.taken) << 32;
    return result;
  }

  // What stands in the ring entry at `words`, which may be anything. The words are under way together.
  GSAN_DEVICE static Publication look(const u64* words) {
    u64 first = ptx::load_relaxed_system(words + 1);
    u64 second = ptx::load_relaxed_system(words + 2);
    u64 third = ptx::load_relaxed_system(words + 3);
    return {{first, second, third}};
  }

  // What the first lane has.
  GSAN_DEVICE Publication from_first(Warp warp) const {
    Publication result;
#pragma unroll
    for (u32 i = 0; i < 3; ++i) result.words[i] = warp.share(words[i]);
    return result;
  }

  GSAN_DEVICE u32 entry() const { return u32(words[0]); }
  GSAN_DEVICE u32 publisher() const { return u32(words[0] >> 32) & 0xffff; }
  GSAN_DEVICE bool joined() const { return words[0] >> 48 != 0; }
  GSAN_DEVICE u32 snapshot() const { return u32(words[1]); }
  GSAN_DEVICE u32 frontier() const { return u32(words[1] >> 32); }
  GSAN_DEVICE u32 launch() const { return u32(words[2]); }
  GSAN_DEVICE u32 taken() const { return u32(words[2] >> 32); }
};
static_assert(sizeof(gsan_publication) == sizeof(u64) + sizeof(Publication) &&
                  offsetof(gsan_publication, entry) == 8 &&
                  offsetof(gsan_publication, publisher) == 12 &&
                  offsetof(gsan_publication, joined) == 14 &&
                  offsetof(gsan_publication, snapshot) == 16 &&
                  offsetof(gsan_publication, frontier) == 20 &&
                  offsetof(gsan_publication, launch) == 24 &&
                  offsetof(gsan_publication, taken) == 28,
              "the words are those of the structure");

// The publications of one device.
struct Publications {
  Region home;

  GSAN_DEVICE u64 length() const { return home.globals->publications; }
  GSAN_DEVICE u64* head() const { return &home.globals->publication_head.value; }

  GSAN_DEVICE u64* entry(u64 token) const {
    u64 index = token & (length() - 1);
    return reinterpret_cast<u64*>(
        home.part<gsan_publication>(home.globals->offsets.publications) + index);
  }

  // A new token; kLastToken when they are used up. What it tells must be known before: a checkpoint
  // that sees it counted stands for it. By one lane.
  GSAN_DEVICE u64 claim() const {
    if (ptx::load_relaxed_system(head()) >= kLastToken) return kLastToken;
    fence_release(home);
    u64 token = ptx::add_relaxed_system(head(), 1);
    return token < kLastToken ? token : kLastToken;
  }

  // A checkpoint is due a sixteenth of the ring after another one.
  GSAN_DEVICE bool checkpoint_is_due(u64 token) const {
    u64 sixteenth = length() / 16;
    return sixteenth < 2 || (token & (sixteenth - 1)) == 0;
  }

  // Whether fewer than half of the ring was claimed since `token`.
  GSAN_DEVICE bool is_recent(u64 token) const {
    u64 now = ptx::load_relaxed_system(head());
    u64 half = length() < 2 ? 1 : length() / 2;
    return now <= token || now - token <= half;
  }

  // Writes what `token` tells. If that is not possible, `token` stays a TOP publication.
  GSAN_DEVICE bool write(u64 token, const Publication& publication) const {
    u64* words = entry(token);
    EntryState state = {home, words};
    if (!state.claim(token, length())) return false;
    for (u32 i = 0; i < 3; ++i) ptx::store_relaxed_system(words + 1 + i, publication.words[i]);
    state.complete(token);
    return true;
  }

  // What `token` tells, which was named before a fence; false for a TOP publication and for one that was
  // overwritten.
  GSAN_DEVICE bool read(u64 token, Publication& publication) const {
    u64* words = entry(token);
    publication = Publication::look(words);
    return EntryState{home, words}.is_still_written(token);
  }

  // The same, for all lanes.
  GSAN_DEVICE bool read(Warp warp, u64 token, Publication& publication) const;
};

// Out of line: what publications say is looked up at several places.
GSAN_COLD bool read_publication(Region home, u64 token, Publication& publication) {
  return Publications{home}.read(token, publication);
}

GSAN_DEVICE bool Publications::read(Warp warp, u64 token, Publication& publication) const {
  u32 there = 0;
  if (warp.leads()) there = read_publication(home, token, publication);
  publication = publication.from_first(warp);
  return warp.share(there) != 0;
}

}  // namespace gsan
