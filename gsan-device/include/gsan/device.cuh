// GSan for CUDA C++: a kernel that checks its own accesses.
//
//     extern "C" __global__ void sum(const float* from, float* to, u32* arrived,
//                                    gsan_global_state* globals, const void* table, uint64_t index) {
//       gsan::Kernel kernel(globals, table, index);
//       float value = gsan::load(from + threadIdx.x);
//       ...
//       gsan::atomic_add(arrived, 1u, gsan::Order::kAcquireRelease, gsan::Scope::kGpu);
//     }
//
// Each function checks an access and makes it: the instruction is the one that was checked. Addresses
// are in global memory; what lies outside the reservation is accessed unchecked. All lanes that make
// an access call together, and may name the same address. A race is told with the file and line of
// the call.
//
// GSAN_RECORDS is the number of words in a cell, 4 unless it is defined, and must be that of the
// reservation. GSAN_STATE_BY_SM puts the state of a CTA into the state region, for kernels that need
// all shared memory; one CTA must run on an SM at a time then. For clang 19 and nvcc 12 or later,
// sm_80 or later.
#pragma once

#ifndef GSAN_RECORDS
#define GSAN_RECORDS 4
#endif

#include "gsan/access.cuh"
#include "gsan/residence.cuh"
#include "gsan/strong.cuh"

namespace gsan {

#if GSAN_STATE_IN_REGION
static __attribute__((device)) gsan_global_state* running_globals;
#else
constexpr u32 kGlobalsOffset = kCtaMemoryBytes - sizeof(u64);
static_assert(sizeof(CtaMemory) <= kGlobalsOffset, "behind the state of a CTA is room");
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
    start(Cta::current(globals), group_.thread, group_.threads, GSAN_RECORDS, table, index);
    group_.wait();
  }

  GSAN_DEVICE ~Kernel() { exit(Cta::current(current_globals()), group_); }

  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

 private:
  Group group_;
};

// `Count` values side by side, which one instruction moves.
template <class T, unsigned Count>
struct alignas(sizeof(T) * Count) Values {
  T of[Count];

  GSAN_DEVICE T& operator[](u32 index) { return of[index]; }
  GSAN_DEVICE const T& operator[](u32 index) const { return of[index]; }
};

template <class To, class From>
GSAN_DEVICE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
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

// Loads `to[i]` from `from[i]`, all checked before the first is made: cheaper than one by one.
// A value has 1, 2, 4, 8 or 16 bytes, and lies at a multiple of that.
template <class T, unsigned Count>
GSAN_DEVICE void load_each(const T* const (&from)[Count], T (&to)[Count],
                           const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  Addresses<Count> addresses(from);
  access_tensor<GSAN_RECORDS, GSAN_RACE_READ>(current_globals(), &addresses, Count, sizeof(T),
                                              {file, line});
#pragma unroll
  for (u32 i = 0; i < Count; ++i) to[i] = bits_as<T>(ptx::Bits<sizeof(T)>::load(from[i]));
}

// Stores `from[i]` to `to[i]`, all checked before the first is made. Sizes as for load_each.
template <class T, unsigned Count>
GSAN_DEVICE void store_each(T* const (&to)[Count], const T (&from)[Count],
                            const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  Addresses<Count> addresses(to);
  access_tensor<GSAN_RECORDS, GSAN_RACE_WRITE>(current_globals(), &addresses, Count, sizeof(T),
                                               {file, line});
#pragma unroll
  for (u32 i = 0; i < Count; ++i) bits_as<ptx::Bits<sizeof(T)>>(from[i]).store(to[i]);
}

// The value at `from`, loaded by one ordinary instruction. It has 1, 2, 4, 8 or 16 bytes, and lies
// at a multiple of that; vectors of CUDA (float4) or of this header may be such values.
template <class T>
GSAN_DEVICE T load(const T* from, const char* file = __builtin_FILE(),
                   u32 line = __builtin_LINE()) {
  const T* const one[] = {from};
  T value[1];
  load_each(one, value, file, line);
  return value[0];
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
  store_each(one, values, file, line);
}

// The `Count` values at `from`, loaded by one instruction: together they have 2, 4, 8 or 16 bytes, and
// lie at a multiple of that.
template <unsigned Count, class T>
GSAN_DEVICE Values<T, Count> load_vector(const T* from, const char* file = __builtin_FILE(),
                                         u32 line = __builtin_LINE()) {
  return load(reinterpret_cast<const Values<T, Count>*>(from), file, line);
}

// Stores values side by side from `to` on, by one instruction. Sizes as for load_vector.
template <class T, unsigned Count>
GSAN_DEVICE void store_vector(exactly<T>* to, Values<T, Count> values,
                              const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  store(reinterpret_cast<Values<T, Count>*>(to), values, file, line);
}

// A strong access that is being made: the constructor begins it, `end` comes after the instruction.
template <class T>
class Atomic {
 public:
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics have 4 or 8 bytes");
  using Bits = ptx::Bits<sizeof(T)>;

  GSAN_DEVICE Atomic(const T* at, bool reads, bool may_write, Order order, Scope scope)
      : strong_{reads && (order == Order::kAcquire || order == Order::kAcquireRelease),
                may_write && (order == Order::kRelease || order == Order::kAcquireRelease),
                scope == Scope::kCta   ? GSAN_SCOPE_CTA
                : scope == Scope::kGpu ? GSAN_SCOPE_GPU
                                       : GSAN_SCOPE_SYS},
        is_rmw_(reads && may_write) {
    begin_strong<GSAN_RECORDS>(Cta::current(current_globals()), &event_,
                               reinterpret_cast<u64>(at), sizeof(T), reads, strong_);
  }

  GSAN_DEVICE void end(bool wrote, const char* file, u32 line) const {
    end_strong<GSAN_RECORDS>(&event_, wrote, is_rmw_, strong_, {file, line});
  }

 private:
  Strong strong_;
  bool is_rmw_;
  gsan_atomic_event event_;
};

template <class T>
GSAN_DEVICE ptx::Bits<sizeof(T)>* words_of(T* at) {
  return reinterpret_cast<ptx::Bits<sizeof(T)>*>(at);
}

// The value at `from`, of 4 or 8 bytes. `order`: relaxed or acquire.
template <class T>
GSAN_DEVICE T atomic_load(const T* from, Order order, Scope scope,
                          const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  Atomic<T> access(from, true, false, order, scope);
  auto words = reinterpret_cast<const ptx::Bits<sizeof(T)>*>(from);
  T value = bits_as<T>(ptx::strong_load(words, order, scope));
  access.end(false, file, line);
  return value;
}

// Stores `value`, of 4 or 8 bytes, at `to`. `order`: relaxed or release.
template <class T>
GSAN_DEVICE void atomic_store(T* to, exactly<T> value, Order order, Scope scope,
                              const char* file = __builtin_FILE(),
                              u32 line = __builtin_LINE()) {
  Atomic<T> access(to, false, true, order, scope);
  ptx::strong_store(words_of(to), bits_as<ptx::Bits<sizeof(T)>>(value), order, scope);
  access.end(true, file, line);
}

// Replaces the value at `at`, of 4 or 8 bytes, and returns what was there.
template <class T>
GSAN_DEVICE T atomic_exchange(T* at, exactly<T> value, Order order, Scope scope,
                              const char* file = __builtin_FILE(),
                              u32 line = __builtin_LINE()) {
  Atomic<T> access(at, true, true, order, scope);
  auto bits = bits_as<ptx::Bits<sizeof(T)>>(value);
  T found = bits_as<T>(ptx::strong_exchange(words_of(at), bits, order, scope));
  access.end(true, file, line);
  return found;
}

// Replaces the value at `at`, of 4 or 8 bytes, if its bits are those of `expected`; returns what was
// there.
template <class T>
GSAN_DEVICE T atomic_compare_exchange(T* at, exactly<T> expected, exactly<T> desired, Order order,
                                      Scope scope, const char* file = __builtin_FILE(),
                                      u32 line = __builtin_LINE()) {
  using Bits = ptx::Bits<sizeof(T)>;
  Atomic<T> access(at, true, true, order, scope);
  Bits wanted = bits_as<Bits>(expected);
  Bits found = ptx::strong_compare_exchange(words_of(at), wanted, bits_as<Bits>(desired), order,
                                            scope);
  access.end(found.word == wanted.word, file, line);
  return bits_as<T>(found);
}

// The type in which `atom.add` adds values of type T: signed and unsigned are alike.
template <class T, unsigned Bytes = sizeof(T)>
struct Addend {
  using Type = u32;
};
template <class T>
struct Addend<T, 8> {
  using Type = u64;
};
template <>
struct Addend<float, 4> {
  using Type = float;
};
template <>
struct Addend<double, 8> {
  using Type = double;
};

// Adds to the value at `at`, an integer of 4 or 8 bytes, a float or a double; returns what was there.
template <class T>
GSAN_DEVICE T atomic_add(T* at, exactly<T> value, Order order, Scope scope,
                         const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
  using Type = typename Addend<T>::Type;
  Atomic<T> access(at, true, true, order, scope);
  T found = T(ptx::strong_add(reinterpret_cast<Type*>(at), Type(value), order, scope));
  access.end(true, file, line);
  return found;
}

}  // namespace gsan
