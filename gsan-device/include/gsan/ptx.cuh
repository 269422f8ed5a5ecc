// The machine: memory, lanes, barriers. All inline PTX of the library is in this file; with
// GSAN_HOST, host.h has the same names.
//
// Functions named `..._relaxed`, `..._acquire` and `..._release` are at `gpu` scope unless they
// say `system`. The state of a CTA may lie in shared memory: it is accessed with the functions
// `local_...`, for which the compiler finds the address space.
#pragma once

#include <stdint.h>

namespace gsan {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

}  // namespace gsan

#ifdef GSAN_HOST
#include "gsan/host.h"
#else

// `convergent`: lanes that call together stay together, whatever the caller's compiler does.
// GSAN_DEVICE is for what belongs into the caller, GSAN_COLD for what is kept out of line, and
// GSAN_API for what kernels call by name.
#define GSAN_API extern "C" __attribute__((device, convergent))
#define GSAN_INLINE_API extern "C" __attribute__((device, always_inline, convergent))
#ifdef __CUDACC__
#define GSAN_DEVICE __device__ __forceinline__
#define GSAN_COLD __device__ __noinline__
#else
#define GSAN_DEVICE __attribute__((device, always_inline, convergent)) inline
#define GSAN_COLD __attribute__((device, noinline, convergent, minsize)) inline
#endif

extern "C" __attribute__((device)) void __assertfail(const char* message, const char* file,
                                                     unsigned line, const char* function,
                                                     size_t char_size);

namespace gsan::ptx {

GSAN_DEVICE u32 load_relaxed(const u32* word) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

GSAN_DEVICE u64 load_relaxed(const u64* word) {
  u64 value;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

// Two words at a multiple of 16 bytes; each is read as a whole, the two together are not.
GSAN_DEVICE void load_relaxed_pair(const u64* words, u64& first, u64& second) {
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(words)
               : "memory");
}

GSAN_DEVICE u32 load_acquire(const u32* word) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

GSAN_DEVICE u64 load_acquire(const u64* word) {
  u64 value;
  asm volatile("ld.acquire.gpu.global.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

// What does not change while the kernel runs: through the first-level cache.
GSAN_DEVICE u32 load_constant(const u32* word) {
  u32 value;
  asm("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(word));
  return value;
}

GSAN_DEVICE void store_relaxed(u32* word, u32 value) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

GSAN_DEVICE void store_relaxed(u64* word, u64 value) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

GSAN_DEVICE void store_release(u32* word, u32 value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

GSAN_DEVICE void store_release(u64* word, u64 value) {
  asm volatile("st.release.gpu.global.b64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

// Returns what was found; the exchange took place if that is `expected`.
GSAN_DEVICE u32 compare_exchange_relaxed(u32* word, u32 expected, u32 desired) {
  u32 found;
  asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(found)
               : "l"(word), "r"(expected), "r"(desired)
               : "memory");
  return found;
}

GSAN_DEVICE u64 compare_exchange_relaxed(u64* word, u64 expected, u64 desired) {
  u64 found;
  asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(found)
               : "l"(word), "l"(expected), "l"(desired)
               : "memory");
  return found;
}

GSAN_DEVICE u32 add_relaxed(u32* word, u32 value) {
  u32 found;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
  return found;
}

GSAN_DEVICE u64 add_relaxed(u64* word, u64 value) {
  u64 found;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(found)
               : "l"(word), "l"(value)
               : "memory");
  return found;
}

GSAN_DEVICE u32 add_release(u32* word, u32 value) {
  u32 found;
  asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
  return found;
}

GSAN_DEVICE u32 or_relaxed(u32* word, u32 value) {
  u32 found;
  asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
  return found;
}

GSAN_DEVICE u32 or_acquire(u32* word, u32 value) {
  u32 found;
  asm volatile("atom.acquire.gpu.global.or.b32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
  return found;
}

GSAN_DEVICE void and_release(u32* word, u32 value) {
  u32 found;
  asm volatile("atom.release.gpu.global.and.b32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
}

GSAN_DEVICE void max_relaxed(u32* word, u32 value) {
  u32 found;
  asm volatile("atom.relaxed.gpu.global.max.u32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
}

// Memory that the host shares.
GSAN_DEVICE u64 load_acquire_system(const u64* word) {
  u64 value;
  asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

GSAN_DEVICE void store_release_system(u64* word, u64 value) {
  asm volatile("st.release.sys.global.b64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

GSAN_DEVICE u64 add_relaxed_system(u64* word, u64 value) {
  u64 found;
  asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;"
               : "=l"(found)
               : "l"(word), "l"(value)
               : "memory");
  return found;
}

GSAN_DEVICE u64 compare_exchange_relaxed_system(u64* word, u64 expected, u64 desired) {
  u64 found;
  asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(found)
               : "l"(word), "l"(expected), "l"(desired)
               : "memory");
  return found;
}

GSAN_DEVICE u32 load_relaxed_system(const u32* word) {
  u32 value;
  asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

GSAN_DEVICE u64 load_relaxed_system(const u64* word) {
  u64 value;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

GSAN_DEVICE void store_relaxed_system(u32* word, u32 value) {
  asm volatile("st.relaxed.sys.global.b32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

GSAN_DEVICE void store_relaxed_system(u64* word, u64 value) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

// Four words at a multiple of 16 bytes; each is read as a whole, the four together are not.
GSAN_DEVICE void load_relaxed_system_quad(const u32* words, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "l"(words)
               : "memory");
}

GSAN_DEVICE void store_relaxed_system_quad(u32* words, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(words), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

GSAN_DEVICE u32 exchange_relaxed_system(u32* word, u32 value) {
  u32 found;
  asm volatile("atom.relaxed.sys.global.exch.b32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
  return found;
}

GSAN_DEVICE u64 exchange_relaxed_system(u64* word, u64 value) {
  u64 found;
  asm volatile("atom.relaxed.sys.global.exch.b64 %0, [%1], %2;"
               : "=l"(found)
               : "l"(word), "l"(value)
               : "memory");
  return found;
}

GSAN_DEVICE void fence_cta() { asm volatile("fence.acq_rel.cta;" : : : "memory"); }

GSAN_DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" : : : "memory"); }

GSAN_DEVICE void fence() { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }

GSAN_DEVICE u32 active_lanes() {
  u32 lanes;
  asm volatile("activemask.b32 %0;" : "=r"(lanes));
  return lanes;
}

GSAN_DEVICE u32 lane() {
  u32 value;
  asm("mov.u32 %0, %%laneid;" : "=r"(value));
  return value;
}

// The value of lane `lane ^ distance`, which must be one of `lanes`, or the own one.
GSAN_DEVICE u32 exchange(u32 lanes, u32 value, u32 distance) {
  u32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, %3;"
               : "=r"(other)
               : "r"(value), "r"(distance), "r"(lanes));
  return other;
}

// The value of lane `from`, which must be one of `lanes`.
GSAN_DEVICE u32 share(u32 lanes, u32 value, u32 from) {
  u32 shared;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;"
               : "=r"(shared)
               : "r"(value), "r"(from), "r"(lanes));
  return shared;
}

// The lanes for which `condition` holds.
GSAN_DEVICE u32 ballot(u32 lanes, bool condition) {
  u32 result;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }"
               : "=r"(result)
               : "r"(u32(condition)), "r"(lanes));
  return result;
}

// The lanes that have the same value.
GSAN_DEVICE u32 alike(u32 lanes, u64 value) {
  u32 result;
  asm volatile("match.any.sync.b64 %0, %1, %2;" : "=r"(result) : "l"(value), "r"(lanes));
  return result;
}

// The largest value of `lanes`.
GSAN_DEVICE u32 largest(u32 lanes, u32 value) {
  u32 result;
  asm volatile("redux.sync.max.u32 %0, %1, %2;" : "=r"(result) : "r"(value), "r"(lanes));
  return result;
}

// All `lanes` have come here; each sees what the others wrote before.
GSAN_DEVICE void meet(u32 lanes) { asm volatile("bar.warp.sync %0;" : : "r"(lanes) : "memory"); }

// Lets others run: between two looks at a word that another warp will change.
GSAN_DEVICE void pause() { asm volatile("nanosleep.u32 64;"); }

// The sum over `lanes`.
GSAN_DEVICE u32 sum(u32 lanes, u32 value) {
  u32 total;
  asm volatile("redux.sync.add.u32 %0, %1, %2;" : "=r"(total) : "r"(value), "r"(lanes));
  return total;
}

GSAN_DEVICE u32 sm() {
  u32 value;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(value));
  return value;
}

// The CTA's position in the grid: x + y * grid.x + z * grid.x * grid.y.
GSAN_DEVICE u64 cta_index() {
  u32 x, y, z, width, height;
  asm("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  asm("mov.u32 %0, %%ctaid.y;" : "=r"(y));
  asm("mov.u32 %0, %%ctaid.z;" : "=r"(z));
  asm("mov.u32 %0, %%nctaid.x;" : "=r"(width));
  asm("mov.u32 %0, %%nctaid.y;" : "=r"(height));
  return x + (y + u64(z) * height) * width;
}

// The position of the thread in its CTA.
GSAN_DEVICE u32 thread_index() {
  u32 x, y, z, width, height;
  asm("mov.u32 %0, %%tid.x;" : "=r"(x));
  asm("mov.u32 %0, %%tid.y;" : "=r"(y));
  asm("mov.u32 %0, %%tid.z;" : "=r"(z));
  asm("mov.u32 %0, %%ntid.x;" : "=r"(width));
  asm("mov.u32 %0, %%ntid.y;" : "=r"(height));
  return x + (y + z * height) * width;
}

GSAN_DEVICE void barrier(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

GSAN_DEVICE void local_max(u32* word, u32 value) {
  __atomic_fetch_max(word, value, __ATOMIC_RELAXED);
}

GSAN_DEVICE void assertion_failed(const char* message, const char* file, u32 line) {
  __assertfail(message, file, line, "", 1);
}

}  // namespace gsan::ptx

#endif

namespace gsan::ptx {

template <class T>
GSAN_DEVICE T local_load(const T* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

template <class T>
GSAN_DEVICE void local_store(T* word, T value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

GSAN_DEVICE u32 local_add(u32* word, u32 value) {
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

GSAN_DEVICE u32 local_or(u32* word, u32 value) {
  return __atomic_fetch_or(word, value, __ATOMIC_RELAXED);
}

GSAN_DEVICE u32 local_and(u32* word, u32 value) {
  return __atomic_fetch_and(word, value, __ATOMIC_RELAXED);
}

// Whether the word changed from `expected` to `desired`.
GSAN_DEVICE bool local_claim(u32* word, u32 expected, u32 desired) {
  return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}

// Index of the lowest bit set in `bits`, which is not 0.
GSAN_DEVICE u32 lowest(u32 bits) { return __builtin_ctz(bits); }

// How many bits are set.
GSAN_DEVICE u32 count_bits(u32 bits) { return __builtin_popcount(bits); }

}  // namespace gsan::ptx
