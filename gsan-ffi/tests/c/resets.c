/* Finds a race, cleans up after itself, and ends without a question: the race is shown all the same. */
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

int main(void) {
    gsan_launch_info info = {.size = sizeof info, .kernel = "k", .grid = {2, 1, 1}, .block = {1, 1, 1}};
    void *memory = gsanMalloc(64, 0, NULL);
    address = (uint64_t)(uintptr_t)memory;
    OK(gsan_host_launch(0, NULL, &info, both_write, NULL));
    OK(gsan_host_stream_synchronize(0, NULL));
    gsanFree(memory, 64, 0, NULL);
    OK(gsan_reset());
    return 0;
}
