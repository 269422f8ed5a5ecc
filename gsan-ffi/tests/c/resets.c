/* Finds a race, cleans up after itself, and ends without a question: the race is shown all the same.
 * `resets exit`: ends with 7 within a kernel that comes after the race. */
#include "gsan.h"

#include <stdio.h>
#include <stdlib.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != GSAN_OK) {                                                                   \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, gsan_last_error());              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t address;

static void both_write(gsan_cta *cta, const uint32_t *index, void *user) {
    uint32_t value = index[0];
    (void)user;
    OK(gsan_host_write(cta, address, &value, sizeof value, "resets.c", 1));
}

static void ends(gsan_cta *cta, const uint32_t *index, void *user) {
    (void)cta, (void)index, (void)user;
    exit(7);
}

int main(int count, char **arguments) {
    gsan_launch_info info = {.size = sizeof info, .kernel = "k", .grid = {2, 1, 1}, .block = {1, 1, 1}};
    void *memory = gsanMalloc(64, 0, NULL);
    address = (uint64_t)(uintptr_t)memory;
    OK(gsan_host_launch(0, NULL, &info, both_write, NULL));
    OK(gsan_host_stream_synchronize(0, NULL));
    if (count > 1 && arguments[1][0] == 'e') {
        OK(gsan_host_launch(0, NULL, &info, ends, NULL));
        OK(gsan_host_stream_synchronize(0, NULL));
    }
    gsanFree(memory, 64, 0, NULL);
    OK(gsan_reset());
    return 0;
}
