// The functions that Triton's instrumentation pass calls.
//
// All return nothing; flags are 32-bit integers. Accesses are checked before they are made, an atomic
// at its end. Whole warps call what is not for the start or the end of a CTA: Warp::current() brings their lanes
// together, also where its answer is not needed.
//
// GSAN_RECORDS is the number of words in a cell: 2 or 4.

#define GSAN_WHOLE_WARPS 1

#include "gsan/access.cuh"
#include "gsan/meetings.cuh"
#include "gsan/residence.cuh"
#include "gsan/strong.cuh"
#include "gsan/tensor_maps.cuh"

using namespace gsan;

namespace {

// Triton's numbers of memory orders.
constexpr u32 kAcquire = 2;
constexpr u32 kRelease = 3;
constexpr u32 kAcquireRelease = 4;

// Triton's numbers of scopes.
constexpr u32 kScopeGpu = 1;
constexpr u32 kScopeCta = 2;

GSAN_DEVICE Strong strong(u32 sem, u32 scope) {
  return {sem == kAcquire || sem == kAcquireRelease, sem == kRelease || sem == kAcquireRelease,
          scope == kScopeGpu ? GSAN_SCOPE_GPU : scope == kScopeCta ? GSAN_SCOPE_CTA : GSAN_SCOPE_SYS,
          true};
}

}  // namespace

GSAN_API void __triton_gsan_init(gsan_global_state* globals, const void* launch_table,
                               u64 launch_index, u32 thread, u32 threads, u32, const char*,
                               u32) {
  // A barrier of the group follows.
  start(Cta::current(globals), thread, threads, GSAN_RECORDS, launch_table, launch_index);
}

GSAN_API void __triton_gsan_kernel_exit(gsan_global_state* globals, const void*, u64, u32 thread,
                                      u32 threads, u32 barrier_id, const char*, u32) {
  gsan::exit(Cta::current(globals), {thread, threads, barrier_id});
}

GSAN_API void __triton_gsan_grid_dependency_wait(gsan_global_state* globals, const void*, u64,
                                               u32 thread, u32 threads, u32 barrier_id) {
  grid_dependency_wait(Cta::current(globals), {thread, threads, barrier_id});
}

GSAN_API void __triton_gsan_load_tensor(gsan_global_state* globals, const void* args, u32 count,
                                      u32 bytes, const char* file, u32 line) {
  access_tensor_of_warp<GSAN_RECORDS, GSAN_RACE_READ>(Warp::current(), globals, args, count, bytes,
                                                    {file, line});
}

GSAN_API void __triton_gsan_store_tensor(gsan_global_state* globals, const void* args, u32 count,
                                       u32 bytes, const char* file, u32 line) {
  access_tensor_of_warp<GSAN_RECORDS, GSAN_RACE_WRITE>(Warp::current(), globals, args, count, bytes,
                                                    {file, line});
}

GSAN_API void __triton_gsan_load_tensor_desc(gsan_global_state* globals, const void* map,
                                                  const int32_t* coordinates, u32 rank,
                                                  const int16_t* shape, u32 bytes, u32 pred,
                                                  u32 warp, u32 warps, const char* file,
                                                  u32 line) {
  Warp::current();
  if (!pred) return;
  access_box<GSAN_RECORDS, GSAN_RACE_READ | kAsynchronous>(globals, map, coordinates, rank, shape,
                                                           bytes, warp, warps, file, line);
}

GSAN_API void __triton_gsan_store_tensor_desc(gsan_global_state* globals, const void* map,
                                                   const int32_t* coordinates, u32 rank,
                                                   const int16_t* shape, u32 bytes, u32 pred,
                                                   u32 warp, u32 warps, const char* file,
                                                   u32 line) {
  Warp::current();
  if (!pred) return;
  access_box<GSAN_RECORDS, GSAN_RACE_WRITE | kAsynchronous>(globals, map, coordinates, rank, shape,
                                                            bytes, warp, warps, file, line);
}

GSAN_API void __triton_gsan_load_indexed_tensor_desc(
    gsan_global_state* globals, const void* map, const int32_t* indices, u32 count, u32 column,
    u32 columns, u32 bytes, u32 pred, const char* file, u32 line) {
  Warp::current();
  if (!pred) return;
  access_indexed<GSAN_RECORDS, GSAN_RACE_READ | kAsynchronous>(
      globals, map, indices, count, int32_t(column), columns, bytes, file, line);
}

GSAN_API void __triton_gsan_store_indexed_tensor_desc(
    gsan_global_state* globals, const void* map, const int32_t* indices, u32 count, u32 column,
    u32 columns, u32 bytes, u32 pred, const char* file, u32 line) {
  Warp::current();
  if (!pred) return;
  access_indexed<GSAN_RECORDS, GSAN_RACE_WRITE | kAsynchronous>(
      globals, map, indices, count, int32_t(column), columns, bytes, file, line);
}

// A reduction is relaxed, at `gpu` scope.
GSAN_API void __triton_gsan_atomic_tensor_desc(gsan_global_state* globals, const void* map,
                                                    const int32_t* coordinates, u32 rank,
                                                    const int16_t* shape, u32 bytes, u32, u32,
                                                    u32 warp, u32 warps, const char* file,
                                                    u32 line) {
  Warp::current();
  access_box<GSAN_RECORDS, GSAN_RACE_READ | GSAN_RACE_WRITE | kAsynchronous>(
      globals, map, coordinates, rank, shape, bytes, warp, warps, file, line);
}

GSAN_API void __triton_gsan_atomic_begin_scalar(gsan_global_state* globals, gsan_atomic_event* event,
                                              u32 pred, u64 address, u32 bytes, u32 reads, u32 sem,
                                              u32 scope, const char* file, u32 line) {
  Warp warp = Warp::current();
  if (!warp.any(pred)) return;
  Cta cta = Cta::current(globals);
  Strong access = strong(sem, scope);
  bool quiet = expects_load(cta, {file, line}) || was_in_vain(cta, address, {file, line});
  bool may_write = !reads || access.releases || !quiet;
  begin_strong<GSAN_RECORDS>(cta, warp, pred, event, address, bytes, reads, may_write, access);
}

GSAN_API void __triton_gsan_atomic_end_scalar(const gsan_atomic_event* event, u32 pred, u32 wrote,
                                            u32 is_rmw, u32 sem, u32 scope, const char* file,
                                            u32 line) {
  Warp warp = Warp::current();
  if (!warp.any(pred)) return;
  end_strong<GSAN_RECORDS>(warp, pred, event, wrote, is_rmw, strong(sem, scope), {file, line});
}

// The scratch memory of clusters is zero at launch, and their CTAs meet at hardware barriers between
// its initialisation and its use.
GSAN_API void __triton_gsan_cluster_barrier_init(void*, u32) {}

GSAN_API void __triton_gsan_cluster_barrier_sync(gsan_global_state* globals, void* scratch, u32 pred,
                                               u32 ctas, u32, const char*, u32) {
  Warp warp = Warp::current();
  if (!warp.any(pred)) return;
  cluster_barrier_sync(Cta::current(globals), warp, static_cast<gsan_cluster_scratch*>(scratch),
                       ctas);
}

GSAN_API void __triton_gsan_mbarrier_table_init(void* scratch, u32 pred, u32 capacity) {
  if (pred) Mbarriers{static_cast<gsan_mbarrier_table*>(scratch)}.init(capacity);
}

GSAN_API void __triton_gsan_mbarrier_init(void* scratch, u32 offset, u32 pred, u32 owner,
                                        u32 expected, const char*, u32) {
  if (pred) {
    mbarrier_init(static_cast<gsan_mbarrier_table*>(scratch), offset, owner, expected);
  }
}

GSAN_API void __triton_gsan_mbarrier_arrive(gsan_global_state* globals, void* scratch, u32 offset,
                                          u32 pred, u32 recipients, u32 count, u32, u32 publishes,
                                          const char*, u32) {
  Warp warp = Warp::current();
  if (!warp.any(pred)) return;
  mbarrier_arrive(Cta::current(globals), warp, static_cast<gsan_mbarrier_table*>(scratch), pred,
                  offset, recipients, count, publishes);
}

GSAN_API void __triton_gsan_mbarrier_wait(gsan_global_state* globals, void* scratch, u32 offset,
                                        u32 pred, u32 owner, u32 phase, const char*, u32) {
  Warp warp = Warp::current();
  if (!warp.any(pred)) return;
  mbarrier_wait(Cta::current(globals), warp, static_cast<gsan_mbarrier_table*>(scratch), pred,
                offset, owner, phase);
}
