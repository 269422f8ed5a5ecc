// What a stranger may do with the header: blocks of any size, lanes that part, calls that recurse, memory
// that is not managed, launches that are not checked, fences, and every atomic.
#include "kernel.cuh"

namespace {

// Not in the reservation.
__attribute__((device)) u32 outside[64];

// Calls itself as often as the lane's number says, on two ways.
__attribute__((device, noinline)) void descend(u32* at, u32 depth) {
  if (depth == 0) {
    store(at, depth);  // @at the bottom
  } else if (depth % 3 == 0) {
    descend(at, depth - 3);
  } else {
    descend(at, depth - 1);
  }
}

GSAN_DEVICE void send(u32* data, u32* flag, u32 fenced) {
  store(data, 1);  // @sent
  if (fenced != 0) fence(Scope::kGpu);
  atomic_store(flag, 1, fenced != 0 ? Order::kRelaxed : Order::kRelease, Scope::kGpu);
}

GSAN_DEVICE void receive(const u32* data, const u32* flag, u32 fenced) {
  atomic_load(flag, fenced != 0 ? Order::kRelaxed : Order::kAcquire, Scope::kGpu);
  if (fenced != 0) fence(Scope::kGpu);
  load(data);
}

}  // namespace

// Threads of every CTA write to the same words, or those of each to its own. A bound, as checks want more
// registers than a thread of so many has.
extern "C" __attribute__((global, launch_bounds(1024))) void collide(u32* words, u32 own, LAUNCH) {
  Kernel kernel(globals, table, index);
  store(words + thread() + (own != 0 ? cta() * threads() : 0), cta());  // @collide
}

// Each lane goes another way to its word, which it shares with those of other CTAs or not.
KERNEL divergent(u32* words, u32 own, LAUNCH) {
  Kernel kernel(globals, table, index);
  descend(words + thread() + (own != 0 ? cta() * threads() : 0), thread() % 8);
}

// The same without a launch table, or where nothing is managed.
KERNEL unchecked(u32* words, u32 managed, LAUNCH) {
  Kernel kernel(globals, managed != 0 ? nullptr : table, index);
  u32* at = managed != 0 ? words : outside;
  store(at + thread(), cta());
  load(at + thread());
  atomic_add(at + 32, 1, Order::kAcquireRelease, Scope::kCta);
  fence(Scope::kSystem);
}

// A message by fences and relaxed accesses, on either side or on both.
KERNEL fences(u32* data, u32* flag, u32* hidden, u32* gave_up, u32 sender, u32 receiver, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  if (cta() == 0) {
    send(data, flag, sender);
    hidden_signal(hidden);
  } else {
    hidden_wait(hidden, 1, gave_up);
    receive(data, flag, receiver);
  }
}

// Every atomic once, on words that are 1.
KERNEL atomics(u32* words, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  constexpr Order order = Order::kAcquireRelease;
  constexpr Scope scope = Scope::kGpu;
  auto wide = reinterpret_cast<u64*>(words);
  auto negative = reinterpret_cast<int*>(words);
  u32 found = atomic_add(words, 2, order, scope);
  found += atomic_sub(words + 1, 3, order, scope);
  found += atomic_and(words + 2, 6, order, scope);
  found += atomic_or(words + 3, 6, order, scope);
  found += atomic_xor(words + 4, 7, order, scope);
  found += u32(atomic_min(negative + 5, -1, order, scope));
  found += u32(atomic_max(negative + 6, -1, order, scope));
  found += atomic_min(words + 7, ~0u, order, scope);
  found += atomic_max(words + 8, ~0u, order, scope);
  found += atomic_increment(words + 9, 1, order, scope);
  found += atomic_decrement(words + 10, 5, order, scope);
  found += atomic_exchange(words + 11, 9, order, scope);
  found += atomic_compare_exchange(words + 12, 1, 7, order, scope);
  found += atomic_compare_exchange(words + 13, 2, 7, order, scope);
  store(words + 14, found);
  // A word of 64 bits is 1 and 1.
  atomic_add(wide + 8, u64(1) << 33, order, scope);
  atomic_or(wide + 9, u64(1) << 33, order, scope);
  atomic_max(reinterpret_cast<int64_t*>(wide) + 10, int64_t(-1), order, scope);
  atomic_store(reinterpret_cast<float*>(words) + 22, 1.5f, Order::kRelease, scope);
  atomic_add(reinterpret_cast<float*>(words) + 22, 0.5f, order, scope);
  atomic_store(reinterpret_cast<double*>(wide) + 12, 1.5, Order::kRelease, scope);
  atomic_sub(reinterpret_cast<double*>(wide) + 12, 0.5, order, scope);
}

// Values of every size, one after the other, each thread its own. Those of a size begin at 96 times
// the size.
KERNEL sizes(u32* words, LAUNCH) {
  Kernel kernel(globals, table, index);
  auto bytes = reinterpret_cast<u8*>(words);
  u32 at = u32(cta()) * threads() + thread();
  auto put = [&](auto value) {
    auto values = reinterpret_cast<decltype(value)*>(bytes + 96 * sizeof value);
    store(values + at, value);
  };
  put(Values<u32, 4>{{1, 2, 3, 4}});
  put(u64(5));
  put(u16(6));
  put(u8(7));
  put(u32(8));
}
