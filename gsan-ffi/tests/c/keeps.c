/* Threads that keep streams from each other: whoever would wait for ever is told so. */
#define _POSIX_C_SOURCE 200809L

#include "gsan.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "line %d: not %s (%s)\n", __LINE__, #condition, gsan_last_error()); \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
#define OK(call) CHECK((call) == GSAN_OK)

static void *streams[2];
static pthread_barrier_t both_began;
static gsan_status came_of[2];

static gsan_status begin(void *stream, gsan_launch **launch) {
    gsan_launch_info info;
    uint64_t table, index;
    int axis;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    info.kernel = "kernel";
    for (axis = 0; axis < 3; ++axis) {
        info.grid[axis] = info.block[axis] = 1;
    }
    return gsan_launch_begin(0, stream, &info, launch, &table, &index);
}

static void *crosswise(void *number) {
    size_t this = (size_t)number;
    gsan_launch *first, *second;
    OK(begin(streams[this], &first));
    pthread_barrier_wait(&both_began);
    came_of[this] = begin(streams[1 - this], &second);
    if (came_of[this] == GSAN_OK) {
        OK(gsan_launch_end(second, 0));
    } else {
        CHECK(strstr(gsan_last_error(), "both would wait for ever"));
    }
    OK(gsan_launch_end(first, 0));
    return NULL;
}

static void *leaves(void *launch) {
    OK(begin(streams[0], (gsan_launch **)launch));
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    gsan_launch *left, *next;
    size_t this;
    OK(gsan_host_stream_create(0, 0, &streams[0]));
    OK(gsan_host_stream_create(0, 0, &streams[1]));
    CHECK(pthread_barrier_init(&both_began, NULL, 2) == 0);
    for (this = 0; this < 2; ++this) {
        CHECK(pthread_create(&threads[this], NULL, crosswise, (void *)this) == 0);
    }
    for (this = 0; this < 2; ++this) {
        CHECK(pthread_join(threads[this], NULL) == 0);
    }
    CHECK((came_of[0] == GSAN_OK) != (came_of[1] == GSAN_OK));
    CHECK(came_of[0] == GSAN_WRONG_ORDER || came_of[1] == GSAN_WRONG_ORDER);

    CHECK(pthread_create(&threads[0], NULL, leaves, &left) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    CHECK(begin(streams[0], &next) == GSAN_WRONG_ORDER);
    CHECK(strstr(gsan_last_error(), "has ended without finishing it"));
    CHECK(gsan_host_stream_destroy(0, streams[0]) == GSAN_WRONG_ORDER);
    OK(gsan_launch_end(left, 0));
    OK(begin(streams[0], &next));
    CHECK(gsan_stream_forgotten(0, streams[0]) == GSAN_WRONG_ORDER);
    CHECK(gsan_host_stream_destroy(0, streams[0]) == GSAN_WRONG_ORDER);
    CHECK(gsan_reset() == GSAN_WRONG_ORDER);
    OK(gsan_launch_end(next, 0));
    OK(gsan_host_stream_destroy(0, streams[0]));
    OK(gsan_host_stream_destroy(0, streams[1]));
    OK(gsan_reset());
    return 0;
}
