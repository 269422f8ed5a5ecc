// The names of ptx.cuh on the host: `__atomic` builtins, and warps of GSAN_LANES lanes: 1, or 32,
// which are fibres.
//
// Whoever includes this says where the CTA is: `gsan::host::sm` and `gsan::host::cta_index`, per
// host thread. With one lane, each host thread is a CTA of one thread.
#pragma once

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef GSAN_LANES
#define GSAN_LANES 1
#endif

#define GSAN_DEVICE inline
#ifndef GSAN_API
#define GSAN_API extern "C"
#endif
#define GSAN_COLD __attribute__((noinline)) inline
#define GSAN_CALLED __attribute__((noinline)) inline
#define GSAN_ONCE GSAN_CALLED
#define GSAN_HERE

namespace gsan::host {

inline thread_local u32 sm = 0;
// Which warp of the SM the CTA's first one is.
inline thread_local u32 warp_of_sm = 0;
inline thread_local u64 cta_index = 0;
inline thread_local u32 thread_index = 0;
inline thread_local u32 cluster_ctas = 1;
// No grid is small, unless a test says so: what overlapping elements of one lane leave in a cell depends on how
// often it is looked at.
inline u64 grid_ctas = ~u64(0);

// What would take long on a device: fences that reach beyond the CTA, and accesses to global memory
// whose result is waited for.
struct Costs {
  u64 fences = 0;
  u64 answers = 0;
};
inline thread_local Costs costs;

}  // namespace gsan::host

#if GSAN_LANES > 1
#include "gsan/fibres.h"
#endif

namespace gsan::host {

// An access to global memory: others may come before it.
inline void turn() {
#if GSAN_LANES > 1
  Fibres::instance().access();
#endif
}

// One whose result is waited for.
inline void answer() {
  ++costs.answers;
  turn();
}

}  // namespace gsan::host

namespace gsan::ptx {

template <class T>
T load_relaxed(const T* word) {
  host::answer();
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

inline void load_relaxed_system_pair(const u64* words, u64& first, u64& second) {
  host::answer();
  first = __atomic_load_n(words, __ATOMIC_RELAXED);
  second = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
}

template <class T>
T load_acquire(const T* word) {
  host::answer();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

inline u32 add_difference(u32 accumulated, u32 a, u32 b) { return accumulated | (a ^ b); }

inline u32 divide(u32 a, u32 b) { return a / b; }

template <class T>
T load_constant(const T* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

template <class T>
void store_relaxed(T* word, T value) {
  host::turn();
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

template <class T>
void store_release(T* word, T value) {
  host::turn();
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

template <class T>
T compare_exchange_relaxed(T* word, T expected, T desired) {
  host::answer();
  __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

template <class T>
T add_relaxed(T* word, T value) {
  host::answer();
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

inline u32 or_relaxed(u32* word, u32 value) {
  host::answer();
  return __atomic_fetch_or(word, value, __ATOMIC_RELAXED);
}

inline u32 or_acquire(u32* word, u32 value) {
  host::answer();
  return __atomic_fetch_or(word, value, __ATOMIC_ACQUIRE);
}

inline void and_relaxed(u32* word, u32 value) { __atomic_fetch_and(word, value, __ATOMIC_RELAXED); }

inline void and_release(u32* word, u32 value) { __atomic_fetch_and(word, value, __ATOMIC_RELEASE); }

inline void max_relaxed_system(u32* word, u32 value) {
  u32 found = load_relaxed(word);
  while (found < value) {
    u32 before = compare_exchange_relaxed(word, found, value);
    if (before == found) return;
    found = before;
  }
}

inline u64 load_acquire_system(const u64* word) { return load_acquire(word); }
template <class T>
void store_release_system(T* word, T value) {
  store_release(word, value);
}
inline u64 add_relaxed_system(u64* word, u64 value) { return add_relaxed(word, value); }
inline u64 compare_exchange_relaxed_system(u64* word, u64 expected, u64 desired) {
  return compare_exchange_relaxed(word, expected, desired);
}

template <class T>
T load_relaxed_system(const T* word) {
  return load_relaxed(word);
}

template <class T>
void store_relaxed_system(T* word, T value) {
  store_relaxed(word, value);
}

inline void load_relaxed_system_quad(const u32* words, u32& a, u32& b, u32& c, u32& d) {
  host::answer();
  a = __atomic_load_n(words, __ATOMIC_RELAXED);
  b = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
  c = __atomic_load_n(words + 2, __ATOMIC_RELAXED);
  d = __atomic_load_n(words + 3, __ATOMIC_RELAXED);
}

inline void store_relaxed_system_quad(u32* words, u32 a, u32 b, u32 c, u32 d) {
  store_relaxed(words, a);
  store_relaxed(words + 1, b);
  store_relaxed(words + 2, c);
  store_relaxed(words + 3, d);
}

template <class T>
T exchange_relaxed_system(T* word, T value) {
  host::answer();
  return __atomic_exchange_n(word, value, __ATOMIC_RELAXED);
}

inline void fence_cta() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void fence_system() {
  ++host::costs.fences;
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
inline void fence() {
  ++host::costs.fences;
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
inline void fence_release() {
  ++host::costs.fences;
  __atomic_thread_fence(__ATOMIC_RELEASE);
}
inline void fence_acquire() {
  ++host::costs.fences;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
}
inline void fence_release_system() { fence_release(); }
inline void fence_acquire_system() { fence_acquire(); }

#if GSAN_LANES > 1
using host::Meeting;
inline u32 active_lanes() { return u32(host::meet(Meeting::kActive, 0, 0, 0, 1)); }
inline u32 lane() { return host::Fibres::instance().lane(); }
inline u32 exchange(u32 lanes, u32 value, u32 distance) {
  return u32(host::meet(Meeting::kExchange, lanes, value, distance, value));
}
inline u32 share(u32 lanes, u32 value, u32 from) {
  return u32(host::meet(Meeting::kShare, lanes, value, from, value));
}
inline u32 ballot(u32 lanes, bool condition) {
  return u32(host::meet(Meeting::kBallot, lanes, condition, 0, condition));
}
inline u32 alike(u32 lanes, u64 value) {
  return u32(host::meet(Meeting::kAlike, lanes, value, 0, lanes));
}
inline u32 largest(u32 lanes, u32 value) {
  return u32(host::meet(Meeting::kLargest, lanes, value, 0, value));
}
inline u32 sum(u32 lanes, u32 value) {
  return u32(host::meet(Meeting::kSum, lanes, value, 0, value));
}
inline void meet(u32 lanes) { host::meet(Meeting::kBarrier, lanes, 0, 0, 0); }
inline void pause() {
  if (host::Fibres::instance().runs()) host::Fibres::instance().pause();
}
inline void pause_for(u32) { pause(); }
#else
inline u32 active_lanes() { return 1; }
inline u32 lane() { return 0; }
inline u32 exchange(u32, u32 value, u32) { return value; }
inline u32 share(u32, u32 value, u32) { return value; }
inline u32 ballot(u32, bool condition) { return condition; }
inline u32 alike(u32 lanes, u64) { return lanes; }
inline u32 largest(u32, u32 value) { return value; }
inline void meet(u32) {}
inline void pause() { sched_yield(); }
inline void pause_for(u32) { pause(); }
inline u32 sum(u32, u32 value) { return value; }
#endif
inline u32 cluster_ctas() { return host::cluster_ctas; }
inline u32 cluster_width() { return host::cluster_ctas; }
inline u32 load_tensor_map(const u32* word, bool) { return *word; }
inline u32 warp_of_sm() { return host::warp_of_sm; }
inline u32 cta_warps() { return 1; }
inline bool is_global(const void*) { return true; }
inline u32 sm() { return host::sm; }
inline u64 grid_ctas() { return host::grid_ctas; }
inline u64 cta_index() { return host::cta_index; }
inline u32 thread_index() { return host::thread_index + lane(); }
#if GSAN_LANES > 1
inline void barrier(u32 id, u32 threads) { host::meet(Meeting::kGroup, threads, 0, id, 0); }
#else
inline void barrier(u32, u32) {}
#endif

// These save work or keep lanes together, and mean nothing else: a fibre that met others there would let
// whatever is ready run in between.
template <class F>
inline u32 by_one_lane(F body) {
  return body();
}
inline void leave_together(u32) {}

inline void assertion_failed(const char* message, const char* file, u32 line) {
  fprintf(stderr, "%s:%u: Assertion `%s` failed.\n", file, line, message);
  abort();
}

inline void local_max(u32* word, u32 value) {
  u32 found = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (found < value && !__atomic_compare_exchange_n(word, &found, value, false,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

}  // namespace gsan::ptx
