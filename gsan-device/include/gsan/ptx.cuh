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

// The order of a strong access. A load has no release, a store no acquire.
enum class Order : u32 { kRelaxed, kAcquire, kRelease, kAcquireRelease };

// Between which threads a strong access is one: those of its CTA, of its device, or all.
enum class Scope : u32 { kCta, kGpu, kSystem };

}  // namespace gsan

#ifdef GSAN_HOST
#include "gsan/host.h"
#else

// `convergent`: lanes that call together stay together, whatever the caller's compiler does.
// GSAN_DEVICE is for what belongs into the caller, and GSAN_HERE, behind the parameters of a lambda, for its body.
// GSAN_CALLED is for what is kept out of line and compiled with each kernel. Two kinds of functions are compiled
// once for all kernels: those of GSAN_ONCE for speed (their mark is `hot`), the rare ones of GSAN_COLD for size
// (`minsize`). What these and kernels pass to each other often goes in words: structures go through memory.
// GSAN_API is for what kernels call by name.
#define GSAN_API extern "C" __attribute__((device, always_inline, convergent))
#ifdef __CUDACC__
#define GSAN_DEVICE __device__ __forceinline__
#define GSAN_COLD __device__ __noinline__
#define GSAN_CALLED __device__ __noinline__
#define GSAN_ONCE __device__ __noinline__
#define GSAN_HERE
#else
#define GSAN_DEVICE __attribute__((device, always_inline, convergent)) inline
#define GSAN_CALLED __attribute__((device, noinline, convergent)) inline
#define GSAN_ONCE __attribute__((device, noinline, convergent, hot)) inline
#define GSAN_COLD __attribute__((device, noinline, convergent, minsize)) inline
#define GSAN_HERE __attribute__((always_inline))
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

// `accumulated`, with the bits set in which `a` and `b` differ as well. An instruction: the compiler
// would make comparisons of it, which come to twice as many.
GSAN_DEVICE u32 add_difference(u32 accumulated, u32 a, u32 b) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0xbe;" : "=r"(result) : "r"(a), "r"(b), "r"(accumulated));
  return result;
}

// What does not change while the kernel runs: through the first-level cache.
GSAN_DEVICE u32 load_constant(const u32* word) {
  u32 value;
  asm("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(word));
  return value;
}

GSAN_DEVICE u64 load_constant(const u64* word) {
  u64 value;
  asm("ld.global.b64 %0, [%1];" : "=l"(value) : "l"(word));
  return value;
}

// An instruction: of numbers that it knows to be small, the compiler makes a call.
GSAN_DEVICE u32 divide(u32 a, u32 b) {
  u32 quotient;
  asm("div.u32 %0, %1, %2;" : "=r"(quotient) : "r"(a), "r"(b));
  return quotient;
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

GSAN_DEVICE void and_relaxed(u32* word, u32 value) {
  [[maybe_unused]] u32 found;
  asm volatile("atom.relaxed.gpu.global.and.b32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
}

GSAN_DEVICE void and_release(u32* word, u32 value) {
  [[maybe_unused]] u32 found;
  asm volatile("atom.release.gpu.global.and.b32 %0, [%1], %2;"
               : "=r"(found)
               : "l"(word), "r"(value)
               : "memory");
}

GSAN_DEVICE void max_relaxed_system(u32* word, u32 value) {
  [[maybe_unused]] u32 found;
  asm volatile("atom.relaxed.sys.global.max.u32 %0, [%1], %2;"
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

GSAN_DEVICE void store_release_system(u32* word, u32 value) {
  asm volatile("st.release.sys.global.b32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
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

// Two words at a multiple of 16 bytes; each is read as a whole, the two together are not.
GSAN_DEVICE void load_relaxed_system_pair(const u64* words, u64& first, u64& second) {
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(words)
               : "memory");
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

// Half a fence: what comes before goes ahead of later writes, or earlier reads go ahead of what comes behind. From
// sm_90 and PTX 8.6 on there are such instructions (PTX ISA, `fence`). One that releases leaves the first-level cache
// as it is, where the registers lie that functions put away; one that acquires waits for no write. This
// code is compiled for any GPU: the comment tells whoever assembles it for a newer one what is meant.
GSAN_DEVICE void fence_release() { asm volatile("fence.acq_rel.gpu; // gsan: release" : : : "memory"); }

GSAN_DEVICE void fence_acquire() { asm volatile("fence.acq_rel.gpu; // gsan: acquire" : : : "memory"); }

GSAN_DEVICE void fence_release_system() {
  asm volatile("fence.acq_rel.sys; // gsan: release" : : : "memory");
}

GSAN_DEVICE void fence_acquire_system() {
  asm volatile("fence.acq_rel.sys; // gsan: acquire" : : : "memory");
}

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

GSAN_DEVICE u32 lowest(u32 bits);

// What `body` returns, which one of the lanes calls for all that come together.
template <class F>
GSAN_DEVICE u32 by_one_lane(F body) {
  u32 lanes = active_lanes();
  u32 result = lane() == lowest(lanes) ? body() : 0;
  return share(lanes, result, lowest(lanes));
}

// All lanes of the warp come here. They wait for each other; machine code says that lanes which were apart may be so
// again.
GSAN_DEVICE void meet_all() { asm volatile("bar.warp.sync 0xffffffff;" : : : "memory"); }

// All `lanes` go on from here, as they came.
GSAN_DEVICE void leave_together(u32 lanes) {
  if (lanes == ~0u) {
    meet_all();
  } else {
    meet(lanes);
  }
}

// All lanes of the warp come here, to go on as one. `.aligned` says of an instruction that they are one: where the
// assembler does not know it, it puts WARPSYNC.ALL before. Of the instruction itself nothing is left, since nobody
// looks at what it gives.
GSAN_DEVICE void become_one() {
  meet_all();
  u32 matrix;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(matrix) : "r"(0) : "memory");
}

// Lets others run: between two looks at a word that another warp will change.
GSAN_DEVICE void pause() { asm volatile("nanosleep.u32 64;"); }

// The same for about so many nanoseconds, at most a million: between two looks at a word that another CTA
// will change.
GSAN_DEVICE void pause_for(u32 nanoseconds) {
  asm volatile("nanosleep.u32 %0;" : : "r"(nanoseconds));
}

GSAN_DEVICE u64 nanoseconds() {
  u64 value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

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

// Which warp of its SM the calling one is. Not promised: on the GPUs that there are it is so.
GSAN_DEVICE u32 warp_of_sm() {
  u32 value;
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(value));
  return value;
}

// How many warps the CTA has.
GSAN_DEVICE u32 cta_warps() {
  u32 x, y, z;
  asm("mov.u32 %0, %%ntid.x; mov.u32 %1, %%ntid.y; mov.u32 %2, %%ntid.z;" : "=r"(x), "=r"(y), "=r"(z));
  return (x * y * z + 31) / 32;
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

// How many threads the CTA has.
GSAN_DEVICE u32 cta_threads() {
  u32 width, height, depth;
  asm("mov.u32 %0, %%ntid.x;" : "=r"(width));
  asm("mov.u32 %0, %%ntid.y;" : "=r"(height));
  asm("mov.u32 %0, %%ntid.z;" : "=r"(depth));
  return width * height * depth;
}

// How many CTAs the grid has.
GSAN_DEVICE u64 grid_ctas() {
  u32 width, height, depth;
  asm("mov.u32 %0, %%nctaid.x;" : "=r"(width));
  asm("mov.u32 %0, %%nctaid.y;" : "=r"(height));
  asm("mov.u32 %0, %%nctaid.z;" : "=r"(depth));
  return u64(width) * height * depth;
}

// How many CTAs the cluster has, and how many of them lie one after the other in the grid. For sm_90
// and later.
GSAN_DEVICE u32 cluster_ctas() {
  u32 value;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(value));
  return value;
}

GSAN_DEVICE u32 cluster_width() {
  u32 value;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(value));
  return value;
}

// The launches that this one depends on have finished, and what they wrote is seen.
GSAN_DEVICE void grid_dependency_wait() {
  asm volatile("griddepcontrol.wait;" : : : "memory");
}

// All threads of all CTAs of the cluster have come here; each sees what the others wrote before.
GSAN_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" : : : "memory");
}

// Whether `pointer` points to global memory.
GSAN_DEVICE bool is_global(const void* pointer) {
  u32 value;
  asm("{ .reg .pred p; isspacep.global p, %1; selp.b32 %0, 1, 0, p; }" : "=r"(value) : "l"(pointer));
  return value != 0;
}

// A word of a tensor map, which lies in global memory, where it may have changed, or among the
// parameters of the kernel.
GSAN_DEVICE u32 load_tensor_map(const u32* word, bool global) {
  u32 value;
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %2, 0;"
      " @p ld.relaxed.gpu.b32 %0, [%1]; @!p ld.b32 %0, [%1]; }"
      : "=r"(value)
      : "l"(word), "r"(u32(global))
      : "memory");
  return value;
}

GSAN_DEVICE void barrier(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

#ifndef __CUDACC__
GSAN_DEVICE void local_max(u32* word, u32 value) {
  __atomic_fetch_max(word, value, __ATOMIC_RELAXED);
}
#endif

GSAN_DEVICE void assertion_failed(const char* message, const char* file, u32 line) {
  __assertfail(message, file, line, "", 1);
}

// The program's own accesses.

// The bits of a value of so many bytes, and the ordinary instructions that move them.
template <unsigned Bytes>
struct Bits;

template <>
struct Bits<1> {
  u8 word;

  GSAN_DEVICE static Bits load(const void* from) {
    u16 wide;
    asm volatile("ld.global.u8 %0, [%1];" : "=h"(wide) : "l"(from) : "memory");
    return {u8(wide)};
  }
  GSAN_DEVICE void store(void* to) const {
    asm volatile("st.global.u8 [%0], %1;" : : "l"(to), "h"(u16(word)) : "memory");
  }
};

template <>
struct Bits<2> {
  u16 word;

  GSAN_DEVICE static Bits load(const void* from) {
    u16 word;
    asm volatile("ld.global.b16 %0, [%1];" : "=h"(word) : "l"(from) : "memory");
    return {word};
  }
  GSAN_DEVICE void store(void* to) const {
    asm volatile("st.global.b16 [%0], %1;" : : "l"(to), "h"(word) : "memory");
  }
};

template <>
struct Bits<4> {
  u32 word;

  GSAN_DEVICE static Bits load(const void* from) {
    u32 word;
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return {word};
  }
  GSAN_DEVICE void store(void* to) const {
    asm volatile("st.global.b32 [%0], %1;" : : "l"(to), "r"(word) : "memory");
  }
};

template <>
struct Bits<8> {
  u64 word;

  GSAN_DEVICE static Bits load(const void* from) {
    u64 word;
    asm volatile("ld.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return {word};
  }
  GSAN_DEVICE void store(void* to) const {
    asm volatile("st.global.b64 [%0], %1;" : : "l"(to), "l"(word) : "memory");
  }
};

template <>
struct Bits<16> {
  u64 low, high;

  GSAN_DEVICE static Bits load(const void* from) {
    u64 low, high;
    asm volatile("ld.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high)
                 : "l"(from)
                 : "memory");
    return {low, high};
  }
  GSAN_DEVICE void store(void* to) const {
    asm volatile("st.global.v2.b64 [%0], {%1, %2};" : : "l"(to), "l"(low), "l"(high) : "memory");
  }
};

// A strong instruction at `order` and `scope`, which are constants where the program calls, so that
// one instruction is left there. Operands follow as in an asm statement.
#define GSAN_AT(before, order_name, scope_name, after, ...) \
  asm volatile(before "." order_name "." scope_name after : __VA_ARGS__ : "memory")
#define GSAN_AT_SCOPE(before, order_name, after, ...)           \
  do {                                                          \
    if (scope == Scope::kCta) {                                 \
      GSAN_AT(before, order_name, "cta", after, __VA_ARGS__);   \
    } else if (scope == Scope::kGpu) {                          \
      GSAN_AT(before, order_name, "gpu", after, __VA_ARGS__);   \
    } else {                                                    \
      GSAN_AT(before, order_name, "sys", after, __VA_ARGS__);   \
    }                                                           \
  } while (false)
#define GSAN_LOAD(after, ...)                                \
  do {                                                       \
    if (order == Order::kRelaxed) {                          \
      GSAN_AT_SCOPE("ld", "relaxed", after, __VA_ARGS__);    \
    } else {                                                 \
      GSAN_AT_SCOPE("ld", "acquire", after, __VA_ARGS__);    \
    }                                                        \
  } while (false)
#define GSAN_STORE(after, ...)                               \
  do {                                                       \
    if (order == Order::kRelaxed) {                          \
      GSAN_AT_SCOPE("st", "relaxed", after, __VA_ARGS__);    \
    } else {                                                 \
      GSAN_AT_SCOPE("st", "release", after, __VA_ARGS__);    \
    }                                                        \
  } while (false)
#define GSAN_ATOM(after, ...)                                \
  do {                                                       \
    if (order == Order::kRelaxed) {                          \
      GSAN_AT_SCOPE("atom", "relaxed", after, __VA_ARGS__);  \
    } else if (order == Order::kAcquire) {                   \
      GSAN_AT_SCOPE("atom", "acquire", after, __VA_ARGS__);  \
    } else if (order == Order::kRelease) {                   \
      GSAN_AT_SCOPE("atom", "release", after, __VA_ARGS__);  \
    } else {                                                 \
      GSAN_AT_SCOPE("atom", "acq_rel", after, __VA_ARGS__);  \
    }                                                        \
  } while (false)

GSAN_DEVICE Bits<4> strong_load(const Bits<4>* from, Order order, Scope scope) {
  u32 word;
  GSAN_LOAD(".global.b32 %0, [%1];", "=r"(word) : "l"(from));
  return {word};
}

GSAN_DEVICE Bits<8> strong_load(const Bits<8>* from, Order order, Scope scope) {
  u64 word;
  GSAN_LOAD(".global.b64 %0, [%1];", "=l"(word) : "l"(from));
  return {word};
}

GSAN_DEVICE void strong_store(Bits<4>* to, Bits<4> value, Order order, Scope scope) {
  GSAN_STORE(".global.b32 [%0], %1;", : "l"(to), "r"(value.word));
}

GSAN_DEVICE void strong_store(Bits<8>* to, Bits<8> value, Order order, Scope scope) {
  GSAN_STORE(".global.b64 [%0], %1;", : "l"(to), "l"(value.word));
}

// These return what was found.
GSAN_DEVICE Bits<4> strong_exchange(Bits<4>* at, Bits<4> value, Order order, Scope scope) {
  u32 found;
  GSAN_ATOM(".global.exch.b32 %0, [%1], %2;", "=r"(found) : "l"(at), "r"(value.word));
  return {found};
}

GSAN_DEVICE Bits<8> strong_exchange(Bits<8>* at, Bits<8> value, Order order, Scope scope) {
  u64 found;
  GSAN_ATOM(".global.exch.b64 %0, [%1], %2;", "=l"(found) : "l"(at), "l"(value.word));
  return {found};
}

GSAN_DEVICE Bits<4> strong_compare_exchange(Bits<4>* at, Bits<4> expected, Bits<4> desired,
                                            Order order, Scope scope) {
  u32 found;
  GSAN_ATOM(".global.cas.b32 %0, [%1], %2, %3;", "=r"(found)
            : "l"(at), "r"(expected.word), "r"(desired.word));
  return {found};
}

GSAN_DEVICE Bits<8> strong_compare_exchange(Bits<8>* at, Bits<8> expected, Bits<8> desired,
                                            Order order, Scope scope) {
  u64 found;
  GSAN_ATOM(".global.cas.b64 %0, [%1], %2, %3;", "=l"(found)
            : "l"(at), "l"(expected.word), "l"(desired.word));
  return {found};
}

#define GSAN_MODIFY(name, type, operation, letter)                                              \
  GSAN_DEVICE type name(type* at, type value, Order order, Scope scope) {                       \
    type found;                                                                                 \
    GSAN_ATOM(".global." operation " %0, [%1], %2;", "=" letter(found) : "l"(at), letter(value)); \
    return found;                                                                               \
  }
GSAN_MODIFY(strong_add, u32, "add.u32", "r")
GSAN_MODIFY(strong_add, u64, "add.u64", "l")
GSAN_MODIFY(strong_add, float, "add.f32", "f")
GSAN_MODIFY(strong_add, double, "add.f64", "d")
GSAN_MODIFY(strong_and, u32, "and.b32", "r")
GSAN_MODIFY(strong_and, u64, "and.b64", "l")
GSAN_MODIFY(strong_or, u32, "or.b32", "r")
GSAN_MODIFY(strong_or, u64, "or.b64", "l")
GSAN_MODIFY(strong_xor, u32, "xor.b32", "r")
GSAN_MODIFY(strong_xor, u64, "xor.b64", "l")
GSAN_MODIFY(strong_min, u32, "min.u32", "r")
GSAN_MODIFY(strong_min, u64, "min.u64", "l")
GSAN_MODIFY(strong_min, int32_t, "min.s32", "r")
GSAN_MODIFY(strong_min, int64_t, "min.s64", "l")
GSAN_MODIFY(strong_max, u32, "max.u32", "r")
GSAN_MODIFY(strong_max, u64, "max.u64", "l")
GSAN_MODIFY(strong_max, int32_t, "max.s32", "r")
GSAN_MODIFY(strong_max, int64_t, "max.s64", "l")
GSAN_MODIFY(strong_increment, u32, "inc.u32", "r")
GSAN_MODIFY(strong_decrement, u32, "dec.u32", "r")
#undef GSAN_MODIFY

#undef GSAN_ATOM
#undef GSAN_STORE
#undef GSAN_LOAD
#undef GSAN_AT_SCOPE
#undef GSAN_AT

}  // namespace gsan::ptx

#endif

namespace gsan::ptx {

#ifdef __CUDACC__
// nvcc has the builtins of GCC since 12.8 only.
template <class T>
GSAN_DEVICE T local_load(const T* word) {
  return *const_cast<const volatile T*>(word);
}

template <class T>
GSAN_DEVICE void local_store(T* word, T value) {
  *const_cast<volatile T*>(word) = value;
}

GSAN_DEVICE u32 local_add(u32* word, u32 value) { return atomicAdd(word, value); }

GSAN_DEVICE u32 local_or(u32* word, u32 value) { return atomicOr(word, value); }

GSAN_DEVICE u32 local_and(u32* word, u32 value) { return atomicAnd(word, value); }

GSAN_DEVICE void local_max(u32* word, u32 value) { atomicMax(word, value); }

GSAN_DEVICE bool local_claim(u32* word, u32 expected, u32 desired) {
  return atomicCAS(word, expected, desired) == expected;
}

GSAN_DEVICE u32 lowest(u32 bits) { return __ffs(bits) - 1; }

GSAN_DEVICE u32 count_bits(u32 bits) { return __popc(bits); }
#else
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
#endif

}  // namespace gsan::ptx
