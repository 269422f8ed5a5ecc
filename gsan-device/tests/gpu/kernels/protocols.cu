// Synchronisation that kernels are built of, each with the order of one of its edges as an argument:
// relaxed, it orders nothing. `@name` marks the line of an access.
#include "kernel.cuh"

KERNEL spin_lock(u32* lock, u32* counter, u32* gave_up, u32 rounds, u32 acquire, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  for (u32 round = 0; round < rounds; ++round) {
    Patience patience(gave_up);
    while (atomic_compare_exchange(lock, 0, 1, Order(acquire), Scope::kGpu) != 0) {
      if (!patience.more()) return;
    }
    u32 count = load(counter);  // @counter read
    store(counter, count + 1);  // @counter write
    atomic_store(lock, 0, Order::kRelease, Scope::kGpu);
  }
}

KERNEL ticket_lock(u32* next, u32* serving, u32* counter, u32* gave_up, u32 rounds, u32 release,
                   LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  for (u32 round = 0; round < rounds; ++round) {
    u32 ticket = atomic_add(next, 1, Order::kRelaxed, Scope::kGpu);
    Patience patience(gave_up);
    while (atomic_load(serving, Order::kAcquire, Scope::kGpu) != ticket) {
      if (!patience.more()) return;
    }
    u32 count = load(counter);  // @ticket counter read
    store(counter, count + 1);  // @ticket counter write
    atomic_store(serving, ticket + 1, Order(release), Scope::kGpu);
  }
}

// Each CTA writes its elements and reads its neighbour's, with barriers of the grid in between.
KERNEL grid_barrier(u32* data, u32* arrived, u32* gave_up, u32 rounds, u32 acquire, LAUNCH) {
  Kernel kernel(globals, table, index);
  u32 meetings = 0;
  auto meet = [&] {
    barrier();
    if (thread() == 0) {
      u32 all = ++meetings * ctas();
      atomic_add(arrived, 1, Order::kRelease, Scope::kGpu);
      Patience patience(gave_up);
      while (atomic_load(arrived, Order(acquire), Scope::kGpu) < all && patience.more()) {
      }
    }
    barrier();
  };
  u32 neighbour = (cta() + 1) % ctas();
  for (u32 round = 0; round < rounds; ++round) {
    store(data + cta() * threads() + thread(), round);  // @barrier write
    meet();
    load(data + neighbour * threads() + thread());  // @barrier read
    meet();
  }
}

// The inclusive sums of 4 elements a CTA, by looking back at what the CTAs before have so far: 1, the
// sum of their own elements; 2, that of all up to theirs.
KERNEL look_back_scan(const u32* from, u32* to, u32* sums, u32* prefixes, u32* states, u32* tickets,
                      u32* gave_up, u32 acquire, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  u32 tile = atomic_add(tickets, 1, Order::kRelaxed, Scope::kGpu);
  Values<u32, 4> values = load_vector<4>(from + 4 * tile);
  for (u32 i = 1; i < 4; ++i) values[i] += values[i - 1];
  store(sums + tile, values[3]);  // @scan sum write
  atomic_store(states + tile, 1, Order::kRelease, Scope::kGpu);
  u32 before = 0;
  for (u32 other = tile; other-- != 0;) {
    u32 state;
    Patience patience(gave_up);
    while ((state = atomic_load(states + other, Order(acquire), Scope::kGpu)) == 0) {
      if (!patience.more()) return;
    }
    if (state == 2) {
      before += load(prefixes + other);  // @scan prefix read
      break;
    }
    before += load(sums + other);  // @scan sum read
  }
  for (u32 i = 0; i < 4; ++i) values[i] += before;
  store(prefixes + tile, values[3]);  // @scan prefix write
  atomic_store(states + tile, 2, Order::kRelease, Scope::kGpu);
  store_vector<u32>(to + 4 * tile, values);
}

static __attribute__((shared)) u32 is_last;

// `splits` CTAs each have a part of every element of a tile; the last one adds them up, and resets the
// counter for the next launch.
KERNEL split_k(u32* parts, u32* to, u32* arrived, u32 splits, u32 order, LAUNCH) {
  Kernel kernel(globals, table, index);
  u32 tile = cta() / splits;
  store(parts + cta() * threads() + thread(), cta());  // @part write
  barrier();
  if (thread() == 0) {
    is_last = atomic_add(arrived + tile, 1, Order(order), Scope::kGpu) == splits - 1;  // @part count
  }
  barrier();
  if (is_last == 0) return;
  u32 sum = 0;
  for (u32 split = 0; split < splits; ++split) {
    sum += load(parts + (tile * splits + split) * threads() + thread());  // @part read
  }
  store(to + tile * threads() + thread(), sum);
  if (thread() == 0) store(arrived + tile, 0);  // @part reset
}

// One CTA releases `count` times; another waits for the last.
KERNEL releases(u32* data, u32* flag, u32* gave_up, u32 count, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  if (cta() == 0) {
    for (u32 number = 1; number <= count; ++number) {
      store(data, number);  // @released write
      atomic_store(flag, number, Order::kRelease, Scope::kGpu);
    }
  } else {
    Patience patience(gave_up, 1 << 27);
    while (atomic_load(flag, Order::kAcquire, Scope::kGpu) != count && patience.more()) {
    }
    load(data);  // @released read
  }
}
