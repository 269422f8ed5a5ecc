// Runs the device sources on the host: reads commands from standard input and writes answers to
// standard output, both as 64-bit words. Addresses are those of this process; `map` chooses them.

#include <sys/mman.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "../../device/triton.cu"

namespace {

// What atomics under way keep.
std::map<u64, gsan_atomic_event> events;

u64 word() {
  u64 value;
  if (fread(&value, sizeof value, 1, stdin) != 1) exit(0);
  return value;
}

void answer(u64 value) { fwrite(&value, sizeof value, 1, stdout); }

template <class T>
T* pointer() {
  return reinterpret_cast<T*>(word());
}

std::vector<u64> words(u64 count) {
  std::vector<u64> all(count);
  for (u64& value : all) value = word();
  return all;
}

// What is known of the past, said entry by entry. Thread ids below 100 are of one device.
struct Known {
  u32 own;
  const std::vector<u64>* pairs;

  bool is_ordered(u32 thread, u32 epoch) const {
    for (size_t i = 0; i < pairs->size(); i += 2) {
      if ((*pairs)[i] == thread && covers(u32((*pairs)[i + 1]), epoch)) return true;
    }
    return false;
  }

  bool is_same_device(u32 thread) const { return (thread < 100) == (own < 100); }
};

// One access to one cell: answers which words it races with, the limit met, and the cell.
void cell() {
  constexpr unsigned S = GSAN_RECORDS;
  u32 seed = u32(word());
  u64 granule = word();
  CellAccess access = {};
  access.record = word();
  access.action = u32(word());
  access.scope = record_scope(access.record);
  std::vector<u64> pairs = words(2 * word());
  alignas(16) u64 memory[kNextCell<S>] = {};
  for (u32 i = 0; i < S; ++i) *word_of(memory, i) = word();
  Known past = {record_thread(access.record), &pairs};
  Cell<S> read = Cell<S>::load(memory);
  Survey found = survey(read, access, past);
  u32 loss = update(memory, read, found, access, past, Sampler{seed, granule});
  answer(found.racing);
  answer(loss);
  for (u32 i = 0; i < S; ++i) answer(*word_of(memory, i));
}

void tensor() {
  bool write = word() != 0;
  auto globals = pointer<gsan_global_state>();
  auto file = pointer<const char>();
  u32 line = u32(word());
  u32 bytes = u32(word());
  u32 count = u32(word());
  std::vector<u64> args = words(count);
  std::vector<u64> masks = words((count + 7) / 8);
  args.insert(args.end(), masks.begin(), masks.end());
  auto function = write ? __triton_gsan_store_tensor : __triton_gsan_load_tensor;
  function(globals, args.data(), count, bytes, file, line);
}

#if GSAN_LANES > 1
// The next word for each lane of `lanes`.
std::vector<u64> lane_words(u32 lanes) {
  std::vector<u64> values(32);
  for (u32 lane = 0; lane < 32; ++lane) {
    if (lanes >> lane & 1) values[lane] = word();
  }
  return values;
}

void warp_begin() {
  auto globals = pointer<gsan_global_state>();
  u32 bytes = u32(word());
  bool reads = word() != 0;
  u32 sem = u32(word());
  u32 scope = u32(word());
  auto file = pointer<const char>();
  u32 line = u32(word());
  u32 lanes = u32(word());
  std::vector<u64> addresses = lane_words(lanes);
  u64 first = word();
  for (u32 lane = 0; lane < 32; ++lane) events[first + lane];
  // The other lanes call as well, without an access.
  host::Fibres::instance().run(~0u, [&](u32 lane) {
    __triton_gsan_atomic_begin_scalar(globals, &events[first + lane], lanes >> lane & 1,
                                      addresses[lane], bytes, reads, sem, scope, file, line);
  });
}

void warp_end() {
  bool is_rmw = word() != 0;
  u32 sem = u32(word());
  u32 scope = u32(word());
  auto file = pointer<const char>();
  u32 line = u32(word());
  u32 lanes = u32(word());
  u32 wrote = u32(word());
  u64 first = word();
  host::Fibres::instance().run(~0u, [&](u32 lane) {
    __triton_gsan_atomic_end_scalar(&events[first + lane], lanes >> lane & 1, wrote >> lane & 1,
                                    is_rmw, sem, scope, file, line);
  });
}

// One element for each lane of `lanes`.
void warp_tensor() {
  bool write = word() != 0;
  auto globals = pointer<gsan_global_state>();
  auto file = pointer<const char>();
  u32 line = u32(word());
  u32 bytes = u32(word());
  u32 lanes = u32(word());
  std::vector<u64> addresses = lane_words(~0u);
  auto function = write ? __triton_gsan_store_tensor : __triton_gsan_load_tensor;
  host::Fibres::instance().run(~0u, [&](u32 lane) {
    u64 args[2] = {addresses[lane], lanes >> lane & 1};
    function(globals, args, 1, bytes, file, line);
  });
}

// A partition that may wait for the predecessor of its launch, and the default group.
void partition() {
  auto globals = pointer<gsan_global_state>();
  u64 data = word();
  auto file = pointer<const char>();
  bool waits = word() != 0;
  u32 warps = u32(word());
  u32 seed = u32(word());
  auto store = [=](u64 address) {
    u64 args[2] = {address, 1};
    __triton_gsan_store_tensor(globals, args, 1, 4, file, 2);
  };
  std::vector<host::WarpTask> tasks;
  tasks.push_back({host::sm, host::cta_index, 0, ~0u, [=](u32 lane) {
                     for (u32 time = 0; time < 3; ++time) {
                       ptx::barrier(0, 32);
                       store(data - 128 + 4 * lane);
                     }
                   }});
  for (u32 index = 0; index < warps; ++index) {
    tasks.push_back({host::sm, host::cta_index, 32 * (index + 1), ~0u, [=](u32 lane) {
                       u32 thread = 32 * index + lane;
                       if (waits) {
                         __triton_gsan_grid_dependency_wait(globals, nullptr, 0, thread, 32 * warps,
                                                            2);
                       }
                       store(data + 4 * thread);
                     }});
  }
  host::Fibres& fibres = host::Fibres::instance();
  fibres.mixes = true;
  fibres.random = seed;
  fibres.run(std::move(tasks));
  fibres.mixes = false;
}

// CTAs of a grid of so many, which were started, store next to each other's elements or to the same ones, each
// from a line of its own: round after round, in other memory and another order. Answers in how many rounds a
// race was told.
void stores_at_once() {
  auto globals = pointer<gsan_global_state>();
  auto file = pointer<const char>();
  host::grid_ctas = word();
  u32 rounds = u32(word());
  u32 bytes = u32(word());
  u32 lanes = u32(word());
  std::vector<u64> first = words(word());
  auto ring = reinterpret_cast<gsan_race_ring*>(globals->constants.race_ring);
  host::Fibres& fibres = host::Fibres::instance();
  fibres.mixes = true;
  u64 told = 0;
  for (u32 round = 0; round < rounds; ++round) {
    u32 ctas = u32(first.size());
    std::vector<host::WarpTask> tasks;
    for (u32 cta = 0; cta < ctas; ++cta) {
      u64 start = first[cta] + u64(round) * host::kLanes * 2 * kGranule;
      u32 line = round * ctas + cta + 1;
      tasks.push_back({cta, cta, 0, lanes, [=](u32 lane) {
                         u64 args[2] = {start + u64(lane) * bytes, 1};
                         __triton_gsan_store_tensor(globals, args, 1, bytes, file, line);
                       }});
    }
    fibres.random = (round + 1) * 2654435761u;
    fibres.run(std::move(tasks));
    told += ring->head != ring->tail;
    ring->tail = ring->head;
  }
  fibres.mixes = false;
  host::grid_ctas = ~u64(0);
  answer(told);
}

void split_warps() {
  host::Fibres::instance().splits = true;
  host::Fibres::instance().random = u32(word());
}
#endif

// Host threads that are CTAs, at the same time.
struct Threads {
  gsan_global_state* globals;
  const void* table;
  u64 index;
  const char* file;
  // A word that is a lock, words for atomics, and granules of data.
  u64 lock;
  u64 words;
  u64 data;
  // Triton's order of the unlocking store.
  u32 unlocks;

  static constexpr u32 kScope = 1;

  void start(u32 sm) const {
    host::sm = sm;
    host::cta_index = sm;
    __triton_gsan_init(globals, table, index, 0, 1, 0, "", 0);
  }

  void exit() const { __triton_gsan_kernel_exit(globals, table, index, 0, 1, 0, "", 0); }

  void access(bool write, u32 line, u64 address) const {
    u64 args[2] = {address, 1};
    auto function = write ? __triton_gsan_store_tensor : __triton_gsan_load_tensor;
    function(globals, args, 1, 8, file, line);
  }

  // Adds 1 to every word of the data, holding the lock. Returns what the first one was.
  void critical_section() const {
    auto word = reinterpret_cast<u32*>(lock);
    while (true) {
      gsan_atomic_event event;
      __triton_gsan_atomic_begin_scalar(globals, &event, 1, lock, 4, 1, 2, kScope, file, 1);
      u32 expected = 0;
      bool taken = __atomic_compare_exchange_n(word, &expected, 1, false, __ATOMIC_ACQUIRE,
                                               __ATOMIC_RELAXED);
      __triton_gsan_atomic_end_scalar(&event, 1, taken, 1, 2, kScope, file, 1);
      if (taken) break;
      std::this_thread::yield();
    }
    for (u64 granule = 0; granule < 4; ++granule) {
      u64 address = data + granule * kGranule;
      access(false, 2, address);
      u64 value = *reinterpret_cast<u64*>(address);
      access(true, 3, address);
      *reinterpret_cast<u64*>(address) = value + 1;
    }
    gsan_atomic_event event;
    __triton_gsan_atomic_begin_scalar(globals, &event, 1, lock, 4, 0, unlocks, kScope, file, 4);
    __atomic_store_n(word, 0u, __ATOMIC_RELEASE);
    __triton_gsan_atomic_end_scalar(&event, 1, 1, 0, unlocks, kScope, file, 4);
  }

  // Anything, on words of its own.
  void anything(u32& random) const {
    auto next = [&](u32 bound) {
      random = random * 1664525 + 1013904223;
      return (random >> 8) % bound;
    };
    u64 address = words + 4 * next(8);
    u32 sem = 1 + next(4), scope = 1 + next(3);
    if (next(4) == 0) {
      access(next(2), 10 + next(4), address & ~u64(7));
      return;
    }
    gsan_atomic_event event;
    __triton_gsan_atomic_begin_scalar(globals, &event, 1, address, 4, 1, sem, scope, file, 20);
    __atomic_fetch_add(reinterpret_cast<u32*>(address), 1u, __ATOMIC_ACQ_REL);
    __triton_gsan_atomic_end_scalar(&event, 1, 1, 1, sem, scope, file, 20);
  }

  // The CTA on SM `sm`: takes the lock `rounds` times, with something else in between if `mixed`, and
  // exits and starts again at times.
  void run(u32 sm, u32 rounds, bool mixed) const {
    u32 random = sm + 1;
    for (u32 round = 0; round < rounds; ++round) {
      if (round != 0 && round % 16 == 0) {
        exit();
        start(sm);
      }
      critical_section();
      for (u32 step = 0; mixed && step < 8; ++step) anything(random);
    }
    exit();
  }
};

void threads() {
  Threads threads = {};
  threads.globals = pointer<gsan_global_state>();
  threads.table = pointer<const void>();
  threads.index = word();
  threads.file = pointer<const char>();
  threads.lock = word();
  threads.words = word();
  threads.data = word();
  threads.unlocks = u32(word());
  u32 count = u32(word());
  u32 rounds = u32(word());
  bool mixed = word() != 0;
  std::vector<std::thread> running;
  std::atomic<u32> ready = 0;
  for (u32 sm = 0; sm < count; ++sm) {
    running.emplace_back([=, &ready] {
      // All start at once, which orders nothing.
      ready.fetch_add(1, std::memory_order_relaxed);
      while (ready.load(std::memory_order_relaxed) < count) std::this_thread::yield();
      threads.start(sm);
      threads.run(sm, rounds, mixed);
    });
  }
  for (std::thread& thread : running) thread.join();
}

// A CTA of a cluster.
struct Seat {
  u32 sm;
  u64 cta_index;
};

std::vector<Seat> places() {
  std::vector<Seat> all(word());
  for (Seat& place : all) {
    place.sm = u32(word());
    place.cta_index = word();
  }
  return all;
}

// All CTAs of a cluster meet `times` times, at the same time.
void cluster_sync() {
  auto globals = pointer<gsan_global_state>();
  auto scratch = pointer<void>();
  u64 times = word();
  u32 seed = u32(word());
  std::vector<Seat> ctas = places();
  u32 count = u32(ctas.size());
  auto sync = [=](u32 rank, u32 lane) {
    for (u64 time = 0; time < times; ++time) {
      __triton_gsan_cluster_barrier_sync(globals, scratch, lane == 0, count, rank, "", 0);
    }
  };
#if GSAN_LANES > 1
  std::vector<host::WarpTask> warps;
  for (u32 rank = 0; rank < count; ++rank) {
    Seat place = ctas[rank];
    // Whole warps take long.
    u32 lanes = times == 1 ? ~0u : 1;
    warps.push_back({place.sm, place.cta_index, 0, lanes, [=](u32 lane) { sync(rank, lane); }});
  }
  host::Fibres& fibres = host::Fibres::instance();
  fibres.mixes = seed != 0;
  fibres.random = seed;
  fibres.run(std::move(warps));
  fibres.mixes = false;
#else
  (void)seed;
  std::vector<std::thread> running;
  for (u32 rank = 0; rank < count; ++rank) {
    running.emplace_back([=] {
      host::sm = ctas[rank].sm;
      host::cta_index = ctas[rank].cta_index;
      sync(rank, 0);
    });
  }
  for (std::thread& thread : running) thread.join();
#endif
}

// Runs `warp(cta, index)` for all warps of some CTAs at once, or, where a CTA has one thread, one after the
// other. The CTAs are a cluster if there are several.
template <class F>
void run_warps(const std::vector<Seat>& ctas, u32 warps, F warp) {
  host::cluster_ctas = u32(ctas.size());
#if GSAN_LANES > 1
  std::vector<host::WarpTask> tasks;
#endif
  for (u32 rank = 0; rank < ctas.size(); ++rank) {
    for (u32 index = 0; index < warps; ++index) {
#if GSAN_LANES > 1
      tasks.push_back({ctas[rank].sm, ctas[rank].cta_index, 32 * index, ~0u,
                       [=](u32) { warp(rank, index); }});
#else
      host::sm = ctas[rank].sm;
      host::cta_index = ctas[rank].cta_index;
      warp(rank, index);
#endif
    }
  }
#if GSAN_LANES > 1
  host::Fibres::instance().run(std::move(tasks));
#endif
  host::cluster_ctas = 1;
}

// A copy of a box: a load, a store or a reduction.
void box() {
  u64 kind = word();
  auto globals = pointer<gsan_global_state>();
  auto map = pointer<const void>();
  auto file = pointer<const char>();
  u32 line = u32(word());
  u32 bytes = u32(word());
  u32 warps = u32(word());
  u32 rank = u32(word());
  std::vector<int32_t> coordinates;
  std::vector<int16_t> shape;
  for (u32 d = 0; d < rank; ++d) coordinates.push_back(int32_t(word()));
  for (u32 d = 0; d < rank; ++d) shape.push_back(int16_t(word()));
  std::vector<Seat> ctas = places();
  u32 count = u32(ctas.size());
  run_warps(ctas, warps, [&](u32 cta, u32 index) {
    u32 id = index * count + cta, all = warps * count;
    if (kind == 0) {
      __triton_gsan_load_tensor_desc(globals, map, coordinates.data(), rank, shape.data(), bytes, 1,
                                     id, all, file, line);
    } else if (kind == 1) {
      __triton_gsan_store_tensor_desc(globals, map, coordinates.data(), rank, shape.data(), bytes,
                                      1, id, all, file, line);
    } else {
      __triton_gsan_atomic_tensor_desc(globals, map, coordinates.data(), rank, shape.data(), bytes,
                                       1, 1, id, all, file, line);
    }
  });
}

// A gather or a scatter of one warp.
void indexed() {
  bool stores = word() != 0;
  auto globals = pointer<gsan_global_state>();
  auto map = pointer<const void>();
  auto file = pointer<const char>();
  u32 line = u32(word());
  u32 bytes = u32(word());
  u32 column = u32(word());
  u32 columns = u32(word());
  std::vector<int32_t> indices;
  for (u64 left = word(); left > 0; --left) indices.push_back(int32_t(word()));
  auto function =
      stores ? __triton_gsan_store_indexed_tensor_desc : __triton_gsan_load_indexed_tensor_desc;
  run_warps({{host::sm, host::cta_index}}, 1, [&](u32, u32) {
    function(globals, map, indices.data(), u32(indices.size()), column, columns, bytes, 1, file,
             line);
  });
}

// CTAs hand a granule around through an mbarrier of each, round after round, and meet now and then.
void ring_of_mbarriers() {
  auto globals = pointer<gsan_global_state>();
  auto table = pointer<void>();
  u64 data = word();
  auto file = pointer<const char>();
  u64 rounds = word();
  std::vector<Seat> ctas = places();
  u32 count = u32(ctas.size());
  for (u32 rank = 0; rank < count; ++rank) {
    __triton_gsan_mbarrier_init(table, 1024, 1, rank, 1, "", 0);
  }
  for (u64 round = 0; round < rounds; ++round) {
    for (u32 rank = 0; rank < count; ++rank) {
      host::sm = ctas[rank].sm;
      host::cta_index = ctas[rank].cta_index;
      if (round + rank != 0) {
        u32 phase = u32(rank == 0 ? round - 1 : round) & 1;
        __triton_gsan_mbarrier_wait(globals, table, 1024, 1, rank, phase, "", 0);
      }
      u64 args[2] = {data, 1};
      __triton_gsan_store_tensor(globals, args, 1, 8, file, 1);
      u32 next = (rank + 1) % count;
      __triton_gsan_mbarrier_arrive(globals, table, 1024, 1, 1u << next, 1, rank, 1, "", 0);
    }
  }
}

// Adds the completion of a launch to a frontier, as the host does.
void add_completion() {
  Region region = {pointer<gsan_global_state>()};
  u32 bank = u32(word());
  u64 own = word();
  Rows target = {bank, own, word()};
  u64 foreign = word();
  for_each_place(region, 0, 1, [&](Place place, u32 thread) {
    target.add(place, thread, ptx::load_relaxed(entries(foreign) + thread));
  });
}

// Adds a row of one bank to another one.
void add_row() {
  auto target = pointer<u32>();
  auto source = pointer<const u32>();
  for (u64 left = word(); left > 0; --left) merge_word(target++, *source++);
}

void map() {
  auto address = pointer<void>();
  u64 bytes = word();
  void* mapped = mmap(address, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped != address) {
    perror("mmap");
    exit(1);
  }
}

}  // namespace

int main() {
  while (true) {
    switch (word()) {
      case 0:
        map();
        break;
      case 1: {
        auto target = pointer<u64>();
        for (u64 value : words(word())) *target++ = value;
        break;
      }
      case 2: {
        auto source = pointer<const u64>();
        for (u64 left = word(); left > 0; --left) answer(*source++);
        break;
      }
      case 3: {
        u32 entry = u32(word());
        answer(covers(entry, u32(word())));
        break;
      }
      case 4: {
        u32 a = u32(word());
        answer(hull(a, u32(word())));
        break;
      }
      case 5: {
        u32 seed = u32(word());
        u64 granule = word();
        answer((Sampler{seed, granule}.number(word())));
        break;
      }
      case 6:
        cell();
        break;
      case 7:
        tensor();
        break;
      case 8:
        host::sm = u32(word());
        host::cta_index = word();
        break;
      case 33:
        host::warp_of_sm = u32(word());
        break;
      case 9: {
        auto globals = pointer<gsan_global_state>();
        auto table = pointer<const void>();
        u64 index = word();
        __triton_gsan_init(globals, table, index, 0, 1, 0, "", 0);
        break;
      }
      case 10:
        __triton_gsan_kernel_exit(pointer<gsan_global_state>(), nullptr, 0, 0, 1, 0, "", 0);
        break;
      case 11:
        __triton_gsan_grid_dependency_wait(pointer<gsan_global_state>(), nullptr, 0, 0, 1, 0);
        break;
      case 12: {
        gsan_atomic_event& event = events[word()];
        auto globals = pointer<gsan_global_state>();
        u64 address = word();
        u32 bytes = u32(word());
        bool reads = word() != 0;
        u32 sem = u32(word());
        u32 scope = u32(word());
        auto file = pointer<const char>();
        __triton_gsan_atomic_begin_scalar(globals, &event, 1, address, bytes, reads, sem, scope,
                                          file, u32(word()));
        break;
      }
      case 13: {
        gsan_atomic_event& event = events[word()];
        bool wrote = word() != 0;
        bool is_rmw = word() != 0;
        u32 sem = u32(word());
        u32 scope = u32(word());
        auto file = pointer<const char>();
        __triton_gsan_atomic_end_scalar(&event, 1, wrote, is_rmw, sem, scope, file, u32(word()));
        break;
      }
      case 14:
        host::thread_index = u32(word());
        break;
      case 15:
        add_completion();
        break;
      case 16:
        add_row();
        break;
      case 21:
        threads();
        break;
      case 22:
        answer(host::costs.fences);
        answer(host::costs.answers);
        host::costs = {};
        break;
      case 23:
        cluster_sync();
        break;
      case 24: {
        auto scratch = pointer<void>();
        __triton_gsan_mbarrier_table_init(scratch, 1, u32(word()));
        break;
      }
      case 25: {
        auto scratch = pointer<void>();
        u32 offset = u32(word());
        u32 owner = u32(word());
        __triton_gsan_mbarrier_init(scratch, offset, 1, owner, u32(word()), "", 0);
        break;
      }
      case 26: {
        auto globals = pointer<gsan_global_state>();
        auto scratch = pointer<void>();
        u32 offset = u32(word());
        u32 recipients = u32(word());
        u32 count = u32(word());
        bool publishes = word() != 0;
        __triton_gsan_mbarrier_arrive(globals, scratch, offset, 1, recipients, count, 0, publishes,
                                      "", 0);
        break;
      }
      case 27: {
        auto globals = pointer<gsan_global_state>();
        auto scratch = pointer<void>();
        u32 offset = u32(word());
        u32 owner = u32(word());
        __triton_gsan_mbarrier_wait(globals, scratch, offset, 1, owner, u32(word()), "", 0);
        break;
      }
      case 28:
        ring_of_mbarriers();
        break;
      case 29:
        box();
        break;
      case 30:
        indexed();
        break;
#if GSAN_LANES > 1
      case 17:
        warp_begin();
        break;
      case 18:
        warp_end();
        break;
      case 19:
        warp_tensor();
        break;
      case 20:
        split_warps();
        break;
      case 31:
        partition();
        break;
      case 32:
        stores_at_once();
        break;
#endif
      default:
        fputs("unknown command\n", stderr);
        return 1;
    }
  }
}
