/* C11 and C++17: what the header says of structures is what they are, and it goes with the header of
 * device code. */
#include "gsan.h"

#include "gsan/layout.h"

#ifdef __cplusplus
#define CHECK(condition) static_assert(condition, #condition)
#else
#define CHECK(condition) _Static_assert(condition, #condition)
#endif

CHECK(sizeof(gsan_config) == 56);
CHECK(offsetof(gsan_config, device_ranks) == 16);
CHECK(sizeof(gsan_allocation) == 40);
CHECK(sizeof(gsan_shared_allocation) == 208);
CHECK(offsetof(gsan_shared_allocation, fabric) == 80);
CHECK(sizeof(gsan_shared_state) == 112);
CHECK(offsetof(gsan_shared_state, bytes) == 24);
CHECK(sizeof(gsan_launch_info) == 48);
CHECK(sizeof(gsan_side) == 80);
CHECK(offsetof(gsan_side, stream) == 56);
CHECK(sizeof(gsan_race) == 216);
CHECK(offsetof(gsan_race, later) == 136);
CHECK(sizeof(gsan_clock_info) == 16);
CHECK(sizeof(gsan_cell_info) == 96);
CHECK(sizeof(gsan_thread_info) == 32);
CHECK(sizeof(gsan_device_info) == 32);
CHECK(sizeof(gsan_status) == 4);
CHECK(GSAN_RACE_KIND_WRITE_ONCE_ATOMIC == GSAN_RACE_WRITE_ONCE_ATOMIC);
CHECK(GSAN_MEMORY_SCOPE_SYSTEM == GSAN_SCOPE_SYS);

int main(void) {
    void *(*allocate)(ptrdiff_t, int, void *) = gsanMalloc;
    void (*release)(void *, ptrdiff_t, int, void *) = gsanFree;
    return allocate == 0 || release == 0 || gsan_abi_version() != GSAN_ABI_VERSION;
}
