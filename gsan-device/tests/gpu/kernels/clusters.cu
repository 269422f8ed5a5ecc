// CTAs of clusters that meet, mbarriers that are handed round, and copies of tensors as they are told. For
// sm_90 and later.
#include "kernel.cuh"

#include "gsan/meetings.cuh"
#include "gsan/tensor_maps.cuh"

// Each CTA of a cluster writes a word, the cluster meets, and each reads its neighbour's. `told`: the
// checks are told of the barriers.
KERNEL cluster_rounds(u32* data, gsan_cluster_scratch* scratch, u32*, u32 rounds, u32 told,
                      LAUNCH) {
  Kernel kernel(globals, table, index);
  u32 size = ptx::cluster_ctas();
  u32 first = cta() / size * size;
  u32 neighbour = first + (cta() + 1) % size;
  auto meet = [&] {
    if (told != 0) {
      cluster_barrier(scratch + first / size);
    } else {
      ptx::cluster_barrier();
    }
  };
  for (u32 round = 0; round < rounds; ++round) {
    if (thread() == 0) store(data + cta(), round);   // @cluster write
    meet();
    if (thread() == 0) load(data + neighbour);       // @cluster read
    meet();
  }
}

// CTAs write to a word in turns, and hand it on through an mbarrier of each, as far as the checks are
// told: what really orders them is hidden. `publishes`: the arrivals do.
KERNEL mbarrier_ring(u32* data, gsan_mbarrier_table* mbarriers, u32* turns, u32* gave_up, u32 rounds,
                     u32 publishes, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  constexpr u32 kOffset = 1024;
  u32 next = (cta() + 1) % ctas();
  if (cta() == 0) {
    Mbarriers{mbarriers}.init(ctas());
    for (u32 owner = 0; owner < ctas(); ++owner) mbarrier_init(mbarriers, kOffset, owner, 1);
  }
  Cta self = Cta::current(globals);
  for (u32 round = 0; round < rounds; ++round) {
    u32 turn = round * ctas() + cta();
    hidden_wait(turns, turn, gave_up);
    if (turn != 0) {
      u32 phase = cta() == 0 ? round - 1 : round;
      mbarrier_wait(self, Warp::current(), mbarriers, true, kOffset, cta(), phase);
    }
    store(data, turn);  // @handed write
    mbarrier_arrive(self, Warp::current(), mbarriers, true, kOffset, 1u << next, 1, publishes != 0);
    hidden_signal(turns);
  }
}

// A tensor of 16 rows of 16 words. One CTA copies a box of 8 rows of 8 words, as `kind` says: a load, a
// store, a reduction. Then another writes the word at `at`.
KERNEL box(u32* data, u32* map, u32* hidden, u32* gave_up, u32 kind, u32 at, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (cta() == 0) {
    if (thread() == 0) {
      map[0] = u32(reinterpret_cast<u64>(data));
      map[1] = u32(reinterpret_cast<u64>(data) >> 32);
      // Rows are 64 bytes apart.
      map[3] = 4;
      map[8] = 15;
      map[9] = 15;
    }
    ptx::fence();
    barrier();
    const int32_t first[] = {4, 4};
    const int16_t shape[] = {8, 8};
    u32 warp = thread() / kWarpSize, warps = threads() / kWarpSize;
    constexpr u32 kLoad = GSAN_RACE_READ | kAsynchronous;
    constexpr u32 kStore = GSAN_RACE_WRITE | kAsynchronous;
    constexpr u32 kReduction = kLoad | kStore;
    Position position = {__builtin_FILE(), __builtin_LINE()};  // @box
    if (kind == 0) {
      access_box<GSAN_RECORDS, kLoad>(globals, map, first, 2, shape, 4, warp, warps, position.file, position.line);
    } else if (kind == 1) {
      access_box<GSAN_RECORDS, kStore>(globals, map, first, 2, shape, 4, warp, warps, position.file, position.line);
    } else {
      access_box<GSAN_RECORDS, kReduction>(globals, map, first, 2, shape, 4, warp, warps, position.file, position.line);
    }
    barrier();
    if (thread() == 0) hidden_signal(hidden);
  } else if (thread() == 0) {
    hidden_wait(hidden, 1, gave_up);
    store(data + at, 1);  // @word
  }
}
