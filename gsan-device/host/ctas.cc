// The device library as functions of this process: each CTA has one thread. A call says which SM it
// runs on, where one CTA is at a time; the state of a CTA lies in the state region, by SM.
//
// Compiled once for cells of 2 records and once for cells of 4, with namespace and functions named
// after that.

#define GSAN_API static
#define GSAN_INLINE_API static
#define GSAN_TENSOR_API [[maybe_unused]] static
#include "../device/triton.cu"

#define GSAN_JOIN_(a, b, c) a##b##c
#define GSAN_JOIN(a, b, c) GSAN_JOIN_(a, b, c)
#define GSAN_HOST_CTA(name) GSAN_JOIN(name, _, GSAN_RECORDS)

extern "C" {

void GSAN_HOST_CTA(gsan_host_cta_start)(gsan_global_state* globals, u32 sm, const void* table,
                                        u64 index, u64 cta) {
  host::sm = sm;
  host::cta_index = cta;
  __triton_gsan_init(globals, table, index, 0, 1, 0, "", 0);
}

void GSAN_HOST_CTA(gsan_host_cta_exit)(gsan_global_state* globals, u32 sm) {
  host::sm = sm;
  __triton_gsan_kernel_exit(globals, nullptr, 0, 0, 1, 0, "", 0);
}

void GSAN_HOST_CTA(gsan_host_cta_wait)(gsan_global_state* globals, u32 sm) {
  host::sm = sm;
  __triton_gsan_grid_dependency_wait(globals, nullptr, 0, 0, 1, 0);
}

void GSAN_HOST_CTA(gsan_host_cta_access)(gsan_global_state* globals, u32 sm, u32 writes, u64 address,
                                         u32 bytes, const char* file, u32 line) {
  host::sm = sm;
  struct {
    u64 address;
    u64 mask;
  } args = {address, 1};
  auto function = writes ? __triton_gsan_store_tensor : __triton_gsan_load_tensor;
  function(globals, &args, 1, bytes, file, line);
}

void GSAN_HOST_CTA(gsan_host_cta_atomic_begin)(gsan_global_state* globals, u32 sm,
                                               gsan_atomic_event* event, u64 address, u32 bytes,
                                               u32 reads, u32 sem, u32 scope) {
  host::sm = sm;
  __triton_gsan_atomic_begin_scalar(globals, event, 1, address, bytes, reads, sem, scope, "", 0);
}

void GSAN_HOST_CTA(gsan_host_cta_atomic_end)(u32 sm, const gsan_atomic_event* event, u32 wrote,
                                             u32 is_rmw, u32 sem, u32 scope, const char* file,
                                             u32 line) {
  host::sm = sm;
  __triton_gsan_atomic_end_scalar(event, 1, wrote, is_rmw, sem, scope, file, line);
}

}  // extern "C"
