// Sites: source positions numbered in a table, 0 being the unknown one.
//
// A position is found, fastest first: in the CTA's own cache; by a hash of kernel, pointer and line
// (a pointer alone means nothing once its module is unloaded); by a hash of the text, which is
// copied once.
#pragma once

#include "gsan/reservoir.cuh"
#include "gsan/state.cuh"

namespace gsan {

// How far from its own place a site may lie.
constexpr u32 kSiteProbes = 128;
constexpr u32 kSiteBits = GSAN_RECORD_SITE_BITS;
constexpr u32 kSiteMask = (1u << kSiteBits) - 1;

// A hash of the text and the line (Fowler, Noll, Vo: FNV-1a), never 0.
GSAN_DEVICE u64 site_key(Position position, u32& bytes) {
  constexpr u64 kBasis = 0xcbf29ce484222325;
  constexpr u64 kPrime = 0x100000001b3;
  u64 key = kBasis;
  for (bytes = 0; position.file[bytes] != 0; ++bytes) {
    key = (key ^ u8(position.file[bytes])) * kPrime;
  }
  key = (key ^ position.line) * kPrime;
  return key == 0 ? 1 : key;
}

GSAN_DEVICE void copy_text(char* target, const char* text, u32 bytes) {
  for (u32 index = 0; index < bytes; ++index) target[index] = text[index];
}

// Tells the host of a site, if it has a copy of the table. The copy outlives the device's context.
GSAN_DEVICE void mirror_site(Region region, const gsan_site& site, u32 number, const char* file) {
  auto mirror = reinterpret_cast<gsan_site_mirror*>(region.globals->site_mirror);
  if (mirror == nullptr || number >= mirror->sites) return;
  auto sites = reinterpret_cast<gsan_site*>(mirror + 1);
  bool fits = site.text <= mirror->text_bytes && site.bytes <= mirror->text_bytes - site.text;
  if (fits) {
    copy_text(reinterpret_cast<char*>(sites + mirror->sites) + site.text, file, site.bytes);
  }
  gsan_site* copy = sites + number;
  copy->key = site.key;
  copy->text = fits ? site.text : 0;
  copy->bytes = fits ? site.bytes : 0;
  copy->line = site.line;
  ptx::store_release_system(&copy->ready, 1u);
}

// Fills the fields of the site `number`, which was claimed.
GSAN_DEVICE void describe_site(Region region, gsan_site* site, u32 number, Position position,
                               u32 bytes) {
  u64 head = ptx::add_relaxed(&region.globals->site_head.value, u64(1) << 32 | bytes);
  u32 text = u32(head);
  bool fits = text <= GSAN_STATE_SITE_TEXT_BYTES && bytes <= GSAN_STATE_SITE_TEXT_BYTES - text;
  if (fits) {
    char* target = region.part<char>(region.globals->offsets.site_texts) + text;
    copy_text(target, position.file, bytes);
  }
  site->text = fits ? text : 0;
  site->bytes = fits ? bytes : 0;
  site->line = position.line;
  ptx::store_release(&site->ready, 1u);
  mirror_site(region, *site, number, position.file);
}

// The number of a position by its text; adds it to the table.
GSAN_COLD u32 site_by_text(Region region, Position position) {
  u32 bytes;
  u64 key = site_key(position, bytes);
  auto sites = region.part<gsan_site>(region.globals->offsets.sites);
  for (u32 probe = 0; probe < kSiteProbes; ++probe) {
    u32 place = u32(key + probe) % (GSAN_STATE_SITES - 1) + 1;
    u64 found = ptx::load_relaxed(&sites[place].key);
    if (found == 0) {
      found = ptx::compare_exchange_relaxed(&sites[place].key, u64(0), key);
      if (found == 0) {
        describe_site(region, sites + place, place, position, bytes);
        return place;
      }
    }
    if (found == key) return place;
  }
  count(region, GSAN_LOSS_SITE_TABLE_FULL);
  return 0;
}

// Where a kernel's position may have its number: the word, and what is in it beside the number.
struct SiteKey {
  u64* word;
  u64 tag;

  GSAN_DEVICE static SiteKey of(Region region, u32 kernel, Position position) {
    u64 pointer = reinterpret_cast<u64>(position.file);
    u32 low = mix(u32(pointer) ^ position.line * GSAN_HASH_THREAD_MULTIPLIER);
    u64 hash = u64(mix(low ^ u32(pointer >> 32))) << 32 | low;
    u64 tag = (hash ^ u64(mix(kernel)) << 32 ^ mix(kernel + u32(hash))) >> kSiteBits << kSiteBits;
    u64* words = region.part<u64>(region.globals->offsets.site_keys);
    return {words + (u32(tag >> 32) & (GSAN_STATE_SITE_KEYS - 1)), tag};
  }
};

// Adds a position of a kernel to both tables; its number.
GSAN_COLD u32 add_site(gsan_global_state* globals, const char* file, u32 line) {
  Cta cta = Cta::current(globals);
  u32 site = site_by_text(cta.region, {file, line});
  u32 kernel = cta.launch()->kernel;
  if (kernel == 0) return site;
  SiteKey key = SiteKey::of(cta.region, kernel, {file, line});
  ptx::store_relaxed(key.word, key.tag | site);
  return site;
}

// The number of a position that the CTA has not looked up before.
GSAN_ONCE u32 site_by_pointer(gsan_global_state* globals, const char* file, u32 line) {
  Cta cta = Cta::current(globals);
  u32 kernel = cta.launch()->kernel;
  if (kernel != 0) {
    SiteKey key = SiteKey::of(cta.region, kernel, {file, line});
    u64 found = ptx::load_relaxed(key.word);
    if ((found & ~u64(kSiteMask)) == key.tag && found != 0) return u32(found) & kSiteMask;
  }
  return add_site(globals, file, line);
}

// A CTA runs one kernel, whose texts lie within 4 GiB: the low half of the pointer tells them apart.
GSAN_DEVICE u32 find_site(Cta cta, Position position) {
  constexpr u32 kLines = 1u << (32 - kSiteBits);
  u32 line = position.line;
  if (line == 0) return 0;
  u32 pointer = u32(reinterpret_cast<u64>(position.file));
  u64* cache = cta.sites();
  if (cache == nullptr || line >= kLines) return site_by_pointer(cta.region.globals, position.file, line);
  u64 tag = u64(pointer) << 32 | line << kSiteBits;
  u64* place = cache + ((line ^ pointer >> 4) & (kCachedSites - 1));
  u64 found = ptx::local_load(place);
  if ((found & ~u64(kSiteMask)) == tag) return u32(found) & kSiteMask;
  // Lanes that call together are at one position.
  return ptx::by_one_lane([&]() GSAN_HERE {
    u32 site = site_by_pointer(cta.region.globals, position.file, line);
    ptx::local_store(place, tag | site);
    return site;
  });
}

}  // namespace gsan
