/* A sum in parts, whose last CTA adds up what the others wrote: once with a counter that orders nothing,
 * once as it should be. Kernels are functions of this program, so no GPU is needed.
 *
 *     cc splitk.c $(pkg-config --cflags --libs gsan) -Wl,-rpath,$HOME/gsan/lib -o splitk
 *     ./splitk relaxed      # finds a race: exit code 1
 *     ./splitk              # finds none: exit code 0
 */
#include <gsan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE = 0, PARTS = 8 };

/* What a kernel is given. Addresses are numbers: memory of a device is read and written by calls. */
struct split_k {
    uint64_t parts;   /* PARTS floats */
    uint64_t arrived; /* how many CTAs have written theirs */
    uint64_t total;   /* a float */
    uint32_t order;   /* of the counter */
};

static void check(gsan_status status) {
    if (status != GSAN_OK) {
        fprintf(stderr, "splitk: %s\n", gsan_last_error());
        exit(2);
    }
}

#define READ(cta, address, to) check(gsan_host_read(cta, address, to, sizeof *(to), __FILE__, __LINE__))
#define WRITE(cta, address, from) check(gsan_host_write(cta, address, from, sizeof *(from), __FILE__, __LINE__))

/* One CTA: called once for each of the grid. */
static void split_k(gsan_cta *cta, const uint32_t *index, void *user) {
    const struct split_k *of = user;
    float part = (float)(index[0] + 1);
    uint64_t before = 0;
    WRITE(cta, of->parts + index[0] * sizeof part, &part);
    check(gsan_host_atomic(cta, GSAN_HOST_ADD, of->arrived, sizeof(uint32_t), 1, 0, &before, of->order,
                           GSAN_MEMORY_SCOPE_GPU, __FILE__, __LINE__));
    if (before == PARTS - 1) {
        float total = 0;
        for (uint32_t other = 0; other < PARTS; ++other) {
            READ(cta, of->parts + other * sizeof part, &part);
            total += part;
        }
        WRITE(cta, of->total, &total);
    }
}

static int show(const gsan_race *race, void *user) {
    (void)user;
    printf("%s:%u: %s here meets the %s of %s:%u, %llu times\n", race->later.file, race->later.line,
           race->later.action == GSAN_ACTION_READ ? "the read" : "the write",
           race->earlier.action == GSAN_ACTION_READ ? "read" : "write", race->earlier.file,
           race->earlier.line, (unsigned long long)race->times);
    return 0;
}

static uint64_t allocate(size_t bytes) {
    void *memory = gsanMalloc((ptrdiff_t)bytes, DEVICE, NULL);
    if (memory == NULL) {
        fprintf(stderr, "splitk: %s\n", gsan_last_error());
        exit(2);
    }
    return (uint64_t)(uintptr_t)memory;
}

static void release(uint64_t address, size_t bytes) {
    gsanFree((void *)(uintptr_t)address, (ptrdiff_t)bytes, DEVICE, NULL);
}

int main(int count, char **arguments) {
    int relaxed = count > 1 && strcmp(arguments[1], "relaxed") == 0;
    gsan_config config = {.size = sizeof config, .backend = GSAN_BACKEND_HOST};
    gsan_launch_info launch = {
        .size = sizeof launch, .kernel = "split_k", .grid = {PARTS, 1, 1}, .block = {1, 1, 1}};
    struct split_k of;
    uint64_t races = 0;
    if (count > 1 && !relaxed) {
        fprintf(stderr, "usage: splitk [relaxed]\n");
        return 2;
    }
    check(gsan_configure(&config));

    of.parts = allocate(PARTS * sizeof(float));
    of.arrived = allocate(sizeof(uint32_t));
    of.total = allocate(sizeof(float));
    of.order = relaxed ? GSAN_MEMORY_ORDER_RELAXED : GSAN_MEMORY_ORDER_ACQ_REL;

    check(gsan_host_launch(DEVICE, NULL, &launch, split_k, &of));
    check(gsan_host_stream_synchronize(DEVICE, NULL));

    check(gsan_races(show, NULL));
    check(gsan_race_count(&races, NULL));
    /* Without a GPU, memory of a device is this process's own. */
    printf("total %g, %llu race%s\n", *(const float *)(uintptr_t)of.total, (unsigned long long)races,
           races == 1 ? "" : "s");

    release(of.parts, PARTS * sizeof(float));
    release(of.arrived, sizeof(uint32_t));
    release(of.total, sizeof(float));
    return races != 0;
}
