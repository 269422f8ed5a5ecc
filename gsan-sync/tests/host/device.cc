// The device library as functions of this process. Each call says which SM it runs on: an SM runs one
// CTA, of one thread, at a time.

#include "../../../gsan-device/device/triton.cu"

extern "C" {

void gsan_test_start(gsan_global_state* globals, u32 sm, const void* table, u64 index, u64 cta) {
  host::sm = sm;
  host::cta_index = cta;
  __triton_gsan_init(globals, table, index, 0, 1, 0, "", 0);
}

void gsan_test_exit(gsan_global_state* globals, u32 sm) {
  host::sm = sm;
  __triton_gsan_kernel_exit(globals, nullptr, 0, 0, 1, 0, "", 0);
}

void gsan_test_wait(gsan_global_state* globals, u32 sm) {
  host::sm = sm;
  __triton_gsan_grid_dependency_wait(globals, nullptr, 0, 0, 1, 0);
}

void gsan_test_access(gsan_global_state* globals, u32 sm, u32 write, u64 address, u32 bytes,
                      u32 line) {
  host::sm = sm;
  struct {
    u64 pointer;
    u64 mask;
  } args = {address, 1};
  auto function = write ? __triton_gsan_store_tensor : __triton_gsan_load_tensor;
  function(globals, &args, 1, bytes, "kernel.py", line);
}

// An atomic add: `sem` and `scope` are Triton's numbers.
void gsan_test_add(gsan_global_state* globals, u32 sm, u64 address, u32 sem, u32 scope, u32 line) {
  host::sm = sm;
  gsan_atomic_event event;
  __triton_gsan_atomic_begin_scalar(globals, &event, 1, address, 4, 1, sem, scope, "", 0);
  __triton_gsan_atomic_end_scalar(&event, 1, 1, 1, sem, scope, "kernel.py", line);
}

}  // extern "C"
