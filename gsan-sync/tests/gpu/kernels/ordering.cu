// One kernel that does what the host has listed. `@name` marks the line of an access.
#include "../../../../gsan-device/tests/gpu/kernels/kernel.cuh"

// Its numbers are those of `Do` in machine.rs.
enum class Kind : u32 {
  kWrite,
  kRead,
  kDependencyWait,
  kLaunchDependents,
  kAdd,
  kAwait,
  kHiddenSignal,
  kHiddenWait,
};

struct Operation {
  Kind kind;
  // The granule, or the word of `hidden`.
  u32 at;
  u32 order;
  u32 scope;
};

// `data` has granules of 8 bytes; `hidden` has words that order in time what the checks know nothing
// of. The first thread does it; each wait is bounded, and who gives up says so in the last word of
// `hidden`.
KERNEL perform(const Operation* operations, u32 count, u64* data, u32* hidden, LAUNCH) {
  Kernel kernel(globals, table, index);
  u32* gave_up = hidden + 63;
  for (u32 number = 0; number < count; ++number) {
    Operation operation = operations[number];
    u64* at = data + operation.at;
    u32* word = hidden + operation.at;
    Order order = Order(operation.order);
    Scope scope = Scope(operation.scope);
    if (operation.kind == Kind::kDependencyWait) {
      asm volatile("griddepcontrol.wait;" ::: "memory");
      grid_dependency_wait(Cta::current(globals), {thread(), threads(), 0});
    } else if (operation.kind == Kind::kLaunchDependents) {
      asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    } else if (thread() == 0) {
      switch (operation.kind) {
        case Kind::kWrite:
          store(at, u64(1));  // @write
          break;
        case Kind::kRead:
          load(at);  // @read
          break;
        case Kind::kAdd:
          atomic_add(reinterpret_cast<u32*>(at), 1u, order, scope);
          break;
        case Kind::kAwait:
          for (Patience patience(gave_up);
               atomic_load(reinterpret_cast<u32*>(at), order, scope) == 0 && patience.more();) {
          }
          break;
        case Kind::kHiddenSignal:
          ptx::fence_system();
          ptx::store_relaxed_system(word, 1u);
          break;
        case Kind::kHiddenWait:
          for (Patience patience(gave_up); ptx::load_relaxed_system(word) == 0 && patience.more();) {
          }
          ptx::fence_system();
          break;
        default:
          break;
      }
    }
    barrier();
  }
}
