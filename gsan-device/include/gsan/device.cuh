// GSan for CUDA C++: a kernel that checks its own accesses.
//
//     #include "gsan/device.cuh"
//
//     // Adds up blocks of `from`; the last CTA adds up the sums.
//     extern "C" __attribute__((global)) void sum(const float* from, float* sums, unsigned* arrived,
//                                                 float* total, gsan_global_state* globals,
//                                                 const void* table, uint64_t index) {
//       gsan::Kernel kernel(globals, table, index);
//       unsigned cta = kernel.cta(), ctas = kernel.ctas();
//       if (kernel.thread() != 0) return;
//       float sum = 0;
//       for (unsigned i = 0; i < 64; i += 4) {
//         auto four = gsan::load_vector<4>(from + 64 * cta + i);
//         sum += four[0] + four[1] + four[2] + four[3];
//       }
//       gsan::store(sums + cta, sum);
//       // Without the acquire and release here, the loads below race with the stores of other CTAs.
//       unsigned before = gsan::atomic_add(arrived, 1u, gsan::Order::kAcquireRelease,
//                                          gsan::Scope::kGpu);
//       if (before != ctas - 1) return;
//       float all = 0;
//       for (unsigned i = 0; i < ctas; ++i) all += gsan::load(sums + i);
//       gsan::store(total, all);
//     }
//
// The three last parameters are what gsan_launch_begin of gsan.h hands out; a null table means that nothing
// is checked. (In CUDA, `__global__` is the attribute.)
//
// What there is:
//
// - `Kernel`: made first of all by every thread of the CTA, and let go at its end; its
//   `grid_dependency_synchronize` waits for the launches before, in a programmatic dependent launch;
// - `load`, `store`, `load_vector`, `store_vector`, `load_each`, `store_each`: ordinary accesses;
// - `atomic_load`, `_store`, `_exchange`, `_compare_exchange`, `_add`, `_sub`, `_and`, `_or`, `_xor`, `_min`,
//   `_max`, `_increment`, `_decrement`: strong accesses, with an order and a scope, of 4 or 8 bytes. There
//   are none of 1 or 2 bytes, nor of packed halves: an atomic of CUDA's own is not seen;
// - `cluster_barrier`: a barrier of a cluster;
// - `fence`: makes a fence, and gives up checking what it may order.
//
// Each function checks an access and makes it: the instruction is the one that was checked. Addresses
// are in global memory; what lies outside the reservation is accessed unchecked. A pointer to shared or
// local memory must not be passed: the instructions are those for global memory, and fault or go
// elsewhere. Access such memory as usual; it needs no checks. All lanes that make an access call together,
// and may name the same address. A race is told with the file and line of the call. Atomics take pointers
// to volatile as well.
//
// The functions belong into kernels that made a `Kernel`, and into functions that these call, also of other
// translation units (`-rdc=true`, `-fgpu-rdc`). A kernel makes one only, and is left by `return`: a
// thread that has left waits in `~Kernel` for the others. So none may leave before a `__syncthreads` that
// others still come to; let it pass over the work between instead.
//
// A kernel that makes no `Kernel` must not call these functions: they would look for the state of the CTA
// where nobody has put it. Nothing of it is checked. Nor may the host tell GSan of its launch
// (gsan_launch_begin): it would hand no order on, and what comes after it on its stream would seem to
// race with what came before.
//
// Threads of a CTA are not told apart: their accesses never race with each other, and barriers of the CTA
// (`__syncthreads`) need no wrapper. What the kernel does past these functions is not seen: an access is
// not checked, and a fence, an atomic or a `griddepcontrol.wait` that orders something must be one of these,
// or what it orders is reported as a race. mbarriers and asynchronous copies (`cp.async`, TMA) have no
// wrappers: such a copy is not checked, and within a CTA an mbarrier needs none. Between the CTAs of a
// cluster use `cluster_barrier`.
//
// GSAN_RECORDS is the number of words in a cell, 4 unless it is defined, and must be that of the
// reservation. GSAN_STATE_BY_SM puts the state of a CTA into the state region, for kernels that need
// all shared memory; one CTA must run on an SM at a time then. For sm_80 or later, C++17, with gsan's
// include folder on the include path: nvcc 12 or later, or clang 19, which without the CUDA toolkit takes
// -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib.
#pragma once

#ifndef GSAN_RECORDS
#define GSAN_RECORDS 4
#endif

#include "gsan/access.cuh"
#include "gsan/meetings.cuh"
#include "gsan/residence.cuh"
#include "gsan/strong.cuh"

namespace gsan {

#if GSAN_STATE_IN_REGION
GSAN_VARIABLE __attribute__((device)) gsan_global_state* running_globals;
#else
constexpr u32 kGlobalsOffset = kCtaMemoryBytes - sizeof(u64);
static_assert(offsetof(CtaMemory, fixed) + sizeof(Fixed) <= kGlobalsOffset, "behind the state of a CTA is room");
#endif

// Where the CTA finds the state region it was started with.
GSAN_DEVICE gsan_global_state** globals_of_kernel() {
#if GSAN_STATE_IN_REGION
  return &running_globals;
#else
  return reinterpret_cast<gsan_global_state**>(cta_memory + kGlobalsOffset);
#endif
}

GSAN_DEVICE gsan_global_state* current_globals() { return ptx::local_load(globals_of_kernel()); }

// The time from the start of a CTA to its exit. Every thread of the CTA makes one, first of all, and
// lets it go at the end; both are barriers of the CTA. With a null table, nothing is checked.
class Kernel {
 public:
  // What the host hands every kernel: the state region, the launch table, the launch's index.
  GSAN_DEVICE Kernel(gsan_global_state* globals, const void* table, u64 index)
      : group_{ptx::thread_index(), ptx::cta_threads(), 0} {
    if (group_.leads()) ptx::local_store(globals_of_kernel(), globals);
    gsan::start(Cta::current(globals), group_.thread, group_.threads, GSAN_RECORDS, table, index);
    group_.wait();
  }

  GSAN_DEVICE ~Kernel() { exit(Cta::current(current_globals()), group_); }

  // `griddepcontrol.wait` (cudaGridDependencySynchronize), in a kernel that is launched with the programmatic
  // attribute: what the launches before did comes before what the CTA does from here on. By all threads of
  // the CTA; it is a barrier of the CTA. For sm_90 and later.
  GSAN_DEVICE void grid_dependency_synchronize() const {
    ptx::grid_dependency_wait();
    grid_dependency_wait(Cta::current(current_globals()), group_);
  }

  // The position of the thread in its CTA, and of the CTA in the grid; how many threads a CTA has, and how
  // many CTAs the grid. Dimensions count from x to z.
  GSAN_DEVICE u32 thread() const { return group_.thread; }
  GSAN_DEVICE u32 threads() const { return group_.threads; }
  GSAN_DEVICE u64 cta() const { return ptx::cta_index(); }
  GSAN_DEVICE u64 ctas() const { return ptx::grid_ctas(); }

  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

 private:
  Group group_;
};

// `Count` values side by side, which one instruction moves.
template <class T, unsigned Count>
struct alignas(sizeof(T) * Count) Values {
  static_assert(Count != 0 && (Count & (Count - 1)) == 0 && sizeof(T) * Count <= 16,
                "gsan: a vector has 2, 4, 8 or 16 bytes, and a power of two of elements");
  T of[Count];

  GSAN_DEVICE T& operator[](u32 index) { return of[index]; }
  GSAN_DEVICE const T& operator[](u32 index) const { return of[index]; }
};

template <class To, class From>
GSAN_DEVICE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  // A type need not have a value to begin with.
  union Room {
    To to;
    GSAN_DEVICE Room() {}
  } room;
  __builtin_memcpy(&room, &from, sizeof room);
  return room.to;
}

// The addresses of a call, as the checks take them: each is accessed.
template <unsigned Count>
struct Addresses {
  u64 addresses[Count];
  u8 masks[Count];

  template <class T>
  GSAN_DEVICE explicit Addresses(T* const (&pointers)[Count]) {
#pragma unroll
    for (u32 i = 0; i < Count; ++i) {
      addresses[i] = reinterpret_cast<u64>(pointers[i]);
      masks[i] = 1;
    }
  }
};

template <class T>
constexpr bool kIsVolatile = false;
template <class T>
constexpr bool kIsVolatile<volatile T> = true;
template <class T>
constexpr bool kIsVolatile<const volatile T> = true;

// What one ordinary instruction moves.
template <class T>
GSAN_DEVICE constexpr void require_value() {
  static_assert(!kIsVolatile<T>,
                "gsan: an access to what is volatile is no ordinary one; use atomic_load or "
                "atomic_store, relaxed");
  constexpr unsigned kBytes = sizeof(T);
  static_assert(kBytes == 1 || kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16,
                "gsan: a value has 1, 2, 4, 8 or 16 bytes; load or store others in parts");
  static_assert(__is_trivially_copyable(T), "gsan: a value is trivially copyable");
}

// Checks accesses that are about to be made.
template <u32 Action, class T, unsigned Count>
GSAN_DEVICE void check_each(T* const (&pointers)[Count], Position position) {
  require_value<T>();
  Addresses<Count> addresses(pointers);
  access_tensor<GSAN_RECORDS, Action>(current_globals(), &addresses, Count, sizeof(T), position);
}

// Loads `to[i]` from `from[i]`, all checked before the first is made: cheaper than one by one.
// A value has 1, 2, 4, 8 or 16 bytes, and lies at a multiple of that.
template <class T, unsigned Count>
GSAN_DEVICE void load_each(const T* const (&from)[Count], T (&to)[Count],
                           const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  gsan::check_each<GSAN_RACE_READ>(from, {file, line});
#pragma unroll
  for (u32 i = 0; i < Count; ++i) to[i] = gsan::bits_as<T>(ptx::Bits<sizeof(T)>::load(from[i]));
}

template <class T, unsigned Count>
GSAN_DEVICE void load_each(T* const (&from)[Count], T (&to)[Count],
                           const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  const T* constants[Count];
#pragma unroll
  for (u32 i = 0; i < Count; ++i) constants[i] = from[i];
  gsan::load_each(constants, to, file, line);
}

// Stores `from[i]` to `to[i]`, all checked before the first is made. Sizes as for load_each.
template <class T, unsigned Count>
GSAN_DEVICE void store_each(T* const (&to)[Count], const T (&from)[Count],
                            const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  gsan::check_each<GSAN_RACE_WRITE>(to, {file, line});
#pragma unroll
  for (u32 i = 0; i < Count; ++i) gsan::bits_as<ptx::Bits<sizeof(T)>>(from[i]).store(to[i]);
}

// The value at `from`, loaded by one ordinary instruction. It has 1, 2, 4, 8 or 16 bytes, and lies
// at a multiple of that; vectors of CUDA (float4) or of this header may be such values.
template <class T>
GSAN_DEVICE T load(const T* from, const char* file = __builtin_FILE(),
                   u32 line = __builtin_LINE()) {
  const T* const one[] = {from};
  gsan::check_each<GSAN_RACE_READ>(one, {file, line});
  return gsan::bits_as<T>(ptx::Bits<sizeof(T)>::load(from));
}

// A type that does not take part in finding out what T is.
template <class T>
struct Exactly {
  using Type = T;
};
template <class T>
using exactly = typename Exactly<T>::Type;

// Stores `value` at `to` by one ordinary instruction. Sizes as for load.
template <class T>
GSAN_DEVICE void store(T* to, exactly<T> value, const char* file = __builtin_FILE(),
                       u32 line = __builtin_LINE()) {
  T* const one[] = {to};
  const T values[] = {value};
  gsan::store_each(one, values, file, line);
}

// The `Count` values at `from`, loaded by one instruction: together they have 2, 4, 8 or 16 bytes, and
// lie at a multiple of that.
template <unsigned Count, class T>
GSAN_DEVICE Values<T, Count> load_vector(const T* from, const char* file = __builtin_FILE(),
                                         u32 line = __builtin_LINE()) {
  return gsan::load(reinterpret_cast<const Values<T, Count>*>(from), file, line);
}

// Stores values side by side from `to` on, by one instruction. Sizes as for load_vector.
template <class T, unsigned Count>
GSAN_DEVICE void store_vector(exactly<T>* to, Values<T, Count> values,
                              const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  gsan::store(reinterpret_cast<Values<T, Count>*>(to), values, file, line);
}

// Whether the CTA has made a fence. What it writes by atomics after it may carry what was before it.
GSAN_DEVICE bool fenced() {
  return Cta::current(current_globals()).flags() & GSAN_THREAD_FENCED;
}

// `fence.acq_rel` at `scope`. Which accesses it orders is not followed: from now on everything that
// happened so far counts as ordered before the CTA, until it exits, and whatever it writes by atomics
// releases. Races are lost by that, which is counted; use acquire and release where you can.
GSAN_DEVICE void fence(Scope scope) {
  if (scope == Scope::kCta) {
    ptx::fence_cta();
    return;
  }
  Cta cta = Cta::current(current_globals());
  if (cta.is_known() && !fenced()) {
    cta.learn_everything(GSAN_LOSS_NOT_INSTRUMENTED);
    ptx::local_or(&cta.state->flags, GSAN_THREAD_FENCED | GSAN_THREAD_CHANGED);
    cta.touch();
  }
  scope == Scope::kGpu ? ptx::fence() : ptx::fence_system();
}

// A strong access that is being made: the constructor begins it, `end` comes after the instruction.
template <class T>
class Atomic {
 public:
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "gsan: an atomic has 4 or 8 bytes");
  static_assert(__is_trivially_copyable(T), "gsan: an atomic is trivially copyable");
  using Bits = ptx::Bits<sizeof(T)>;

  // A load has no release and a store no acquire: any order but relaxed is what it can have.
  GSAN_DEVICE Atomic(const volatile T* at, bool reads, bool may_write, Order order, Scope scope)
      : strong_{reads && (order == Order::kAcquire || order == Order::kAcquireRelease ||
                          (!may_write && order != Order::kRelaxed)),
                may_write && (order == Order::kRelease || order == Order::kAcquireRelease ||
                              (!reads && order != Order::kRelaxed) || fenced()),
                scope == Scope::kCta   ? GSAN_SCOPE_CTA
                : scope == Scope::kGpu ? GSAN_SCOPE_GPU
                                       : GSAN_SCOPE_SYS,
                !fenced()},
        is_rmw_(reads && may_write) {
    begin_strong<GSAN_RECORDS>(Cta::current(current_globals()), Warp::current(), true, &event_,
                               reinterpret_cast<u64>(at), sizeof(T), reads, may_write, strong_);
  }

  GSAN_DEVICE void end(bool wrote, const char* file, u32 line) const {
    end_strong<GSAN_RECORDS>(Warp::current(), true, &event_, wrote, is_rmw_, strong_, {file, line});
  }

 private:
  Strong strong_;
  bool is_rmw_;
  gsan_atomic_event event_;
};

template <class T>
GSAN_DEVICE ptx::Bits<sizeof(T)>* words_of(volatile T* at) {
  return reinterpret_cast<ptx::Bits<sizeof(T)>*>(const_cast<T*>(at));
}

// The value at `from`, of 4 or 8 bytes. `order`: relaxed or acquire.
template <class T>
GSAN_DEVICE T atomic_load(const volatile T* from, Order order, Scope scope,
                          const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  Atomic<T> access(from, true, false, order, scope);
  auto words = reinterpret_cast<const ptx::Bits<sizeof(T)>*>(const_cast<const T*>(from));
  T value = gsan::bits_as<T>(ptx::strong_load(words, order, scope));
  access.end(false, file, line);
  return value;
}

// Stores `value`, of 4 or 8 bytes, at `to`. `order`: relaxed or release.
template <class T>
GSAN_DEVICE void atomic_store(volatile T* to, exactly<T> value, Order order, Scope scope,
                              const char* file = __builtin_FILE(),
                              u32 line = __builtin_LINE()) {
  Atomic<T> access(to, false, true, order, scope);
  ptx::strong_store(gsan::words_of(to), gsan::bits_as<ptx::Bits<sizeof(T)>>(value), order, scope);
  access.end(true, file, line);
}

// Replaces the value at `at`, of 4 or 8 bytes, and returns what was there.
template <class T>
GSAN_DEVICE T atomic_exchange(volatile T* at, exactly<T> value, Order order, Scope scope,
                              const char* file = __builtin_FILE(),
                              u32 line = __builtin_LINE()) {
  Atomic<T> access(at, true, true, order, scope);
  auto bits = gsan::bits_as<ptx::Bits<sizeof(T)>>(value);
  T found = gsan::bits_as<T>(ptx::strong_exchange(gsan::words_of(at), bits, order, scope));
  access.end(true, file, line);
  return found;
}

// Replaces the value at `at`, of 4 or 8 bytes, if its bits are those of `expected`; returns what was
// there.
template <class T>
GSAN_DEVICE T atomic_compare_exchange(volatile T* at, exactly<T> expected, exactly<T> desired,
                                      Order order, Scope scope, const char* file = __builtin_FILE(),
                                      u32 line = __builtin_LINE()) {
  using Bits = ptx::Bits<sizeof(T)>;
  Atomic<T> access(at, true, true, order, scope);
  Bits wanted = gsan::bits_as<Bits>(expected);
  Bits found = ptx::strong_compare_exchange(gsan::words_of(at), wanted,
                                            gsan::bits_as<Bits>(desired), order, scope);
  access.end(found.word == wanted.word, file, line);
  return gsan::bits_as<T>(found);
}

// The type of the instruction for an integer of T's size: unsigned, or as signed as T is.
template <unsigned Bytes, bool Signed>
struct Word;
template <>
struct Word<4, false> {
  using Type = u32;
};
template <>
struct Word<8, false> {
  using Type = u64;
};
template <>
struct Word<4, true> {
  using Type = int32_t;
};
template <>
struct Word<8, true> {
  using Type = int64_t;
};

// The types that atomics calculate with.
enum class Arithmetic { kNone, kSigned, kUnsigned, kFloating };
template <class T>
constexpr Arithmetic kArithmetic = Arithmetic::kNone;
template <>
inline constexpr Arithmetic kArithmetic<int> = Arithmetic::kSigned;
template <>
inline constexpr Arithmetic kArithmetic<long> = Arithmetic::kSigned;
template <>
inline constexpr Arithmetic kArithmetic<long long> = Arithmetic::kSigned;
template <>
inline constexpr Arithmetic kArithmetic<unsigned> = Arithmetic::kUnsigned;
template <>
inline constexpr Arithmetic kArithmetic<unsigned long> = Arithmetic::kUnsigned;
template <>
inline constexpr Arithmetic kArithmetic<unsigned long long> = Arithmetic::kUnsigned;
template <>
inline constexpr Arithmetic kArithmetic<float> = Arithmetic::kFloating;
template <>
inline constexpr Arithmetic kArithmetic<double> = Arithmetic::kFloating;

template <class T>
constexpr bool kIsInteger =
    kArithmetic<T> == Arithmetic::kSigned || kArithmetic<T> == Arithmetic::kUnsigned;

// The type in which `atom.add` adds values of type T: signed and unsigned are alike.
template <class T, bool Integer = kIsInteger<T>>
struct Addend {
  using Type = T;
};
template <class T>
struct Addend<T, true> {
  using Type = typename Word<sizeof(T), false>::Type;
};

#define GSAN_ATOMIC(name, instruction, condition, message, type)                                   \
  template <class T>                                                                               \
  GSAN_DEVICE T name(volatile T* at, exactly<T> value, Order order, Scope scope,                   \
                     const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {           \
    static_assert(condition, message);                                                             \
    using Type = typename type::Type;                                                              \
    Atomic<T> access(at, true, true, order, scope);                                                \
    Type* word = reinterpret_cast<Type*>(const_cast<T*>(at));                                      \
    T found = T(ptx::instruction(word, Type(value), order, scope));                                \
    access.end(true, file, line);                                                                  \
    return found;                                                                                  \
  }
#define GSAN_UNSIGNED Word<sizeof(T), false>
#define GSAN_AS_SIGNED Word<sizeof(T), kArithmetic<T> == Arithmetic::kSigned>
#define GSAN_INTEGERS "gsan: an integer of 4 or 8 bytes is needed"

// Each changes the value at `at` and returns what was there.
//
// Adds to an integer of 4 or 8 bytes, a float or a double.
GSAN_ATOMIC(atomic_add, strong_add, kArithmetic<T> != Arithmetic::kNone,
            "gsan: an integer of 4 or 8 bytes, a float or a double is needed", Addend<T>)
// Bit by bit, with an integer of 4 or 8 bytes.
GSAN_ATOMIC(atomic_and, strong_and, kIsInteger<T>, GSAN_INTEGERS, GSAN_UNSIGNED)
GSAN_ATOMIC(atomic_or, strong_or, kIsInteger<T>, GSAN_INTEGERS, GSAN_UNSIGNED)
GSAN_ATOMIC(atomic_xor, strong_xor, kIsInteger<T>, GSAN_INTEGERS, GSAN_UNSIGNED)
// Leaves the smaller, or the larger, of the two, as signed as T is.
GSAN_ATOMIC(atomic_min, strong_min, kIsInteger<T>, GSAN_INTEGERS, GSAN_AS_SIGNED)
GSAN_ATOMIC(atomic_max, strong_max, kIsInteger<T>, GSAN_INTEGERS, GSAN_AS_SIGNED)
// Counts up to `value` and then from 0 again, or down to 0 and then from `value` again (`atom.inc`,
// `atom.dec`), with an unsigned integer of 4 bytes.
#define GSAN_IS_WORD (kArithmetic<T> == Arithmetic::kUnsigned && sizeof(T) == 4)
GSAN_ATOMIC(atomic_increment, strong_increment, GSAN_IS_WORD,
            "gsan: an unsigned integer of 4 bytes is needed", GSAN_UNSIGNED)
GSAN_ATOMIC(atomic_decrement, strong_decrement, GSAN_IS_WORD,
            "gsan: an unsigned integer of 4 bytes is needed", GSAN_UNSIGNED)
#undef GSAN_IS_WORD
#undef GSAN_INTEGERS
#undef GSAN_AS_SIGNED
#undef GSAN_UNSIGNED
#undef GSAN_ATOMIC

// Subtracts from an integer of 4 or 8 bytes, a float or a double, by an addition.
template <class T>
GSAN_DEVICE T atomic_sub(volatile T* at, exactly<T> value, Order order, Scope scope,
                         const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  // The smallest integer has no negative one: unsigned.
  using Type = typename Addend<T>::Type;
  return gsan::atomic_add(at, T(Type(0) - Type(value)), order, scope, file, line);
}

// The barrier of a cluster, for all threads of its CTAs. `scratch` is memory of the cluster, zero at
// launch. For sm_90 and later.
GSAN_DEVICE void cluster_barrier(gsan_cluster_scratch* scratch) {
  ptx::cluster_barrier();
  if (ptx::thread_index() < kWarpSize) {
    cluster_barrier_sync(Cta::current(current_globals()), Warp::current(), scratch,
                         ptx::cluster_ctas());
  }
  ptx::cluster_barrier();
}

}  // namespace gsan
