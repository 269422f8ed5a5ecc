/* A forked child has the handles of its parent: each call with one is refused, at once, and the parent goes on as
 * if there had been no child. */
#define _POSIX_C_SOURCE 200809L

#include "gsan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "line %d: not %s (%s)\n", __LINE__, #condition, gsan_last_error()); \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)
#define OK(call) CHECK((call) == GSAN_OK)
#define REFUSED(call)                                                                 \
    do {                                                                              \
        CHECK((call) == GSAN_UNSUPPORTED);                                            \
        CHECK(strstr(gsan_last_error(), "forked") != NULL);                           \
    } while (0)

static uint64_t memory;
static gsan_launch_info info;

static void write_it(gsan_cta *cta, const uint32_t *index, void *user) {
    uint64_t value = 1;
    (void)index;
    (void)user;
    OK(gsan_host_write(cta, memory, &value, sizeof value, "forks.c", 1));
}

/* A kernel is code of the program, which may fork. */
static void forks(gsan_cta *cta, const uint32_t *index, void *user) {
    uint64_t value = 77, old = 0;
    int ended = 0;
    pid_t child = fork();
    (void)index;
    (void)user;
    if (child == 0) {
        alarm(20);
        REFUSED(gsan_host_write(cta, memory + 8, &value, sizeof value, "forks.c", 2));
        REFUSED(gsan_host_read(cta, memory + 8, &old, sizeof old, "forks.c", 3));
        REFUSED(gsan_host_atomic(cta, GSAN_HOST_ADD, memory + 8, 8, 1, 0, NULL, GSAN_MEMORY_ORDER_RELAXED,
                                 GSAN_MEMORY_SCOPE_GPU, NULL, 0));
        _exit(0);
    }
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);
    OK(gsan_host_read(cta, memory + 8, &old, sizeof old, "forks.c", 4));
    CHECK(old == 0);
}

int main(void) {
    gsan_launch *launch, *other;
    gsan_graph_builder *builder, *second;
    gsan_graph *graph, *made;
    gsan_replay *replay, *again;
    gsan_group *group;
    gsan_rendezvous *rendezvous;
    void *stream, *beside, *created;
    uint64_t event, table, index, number = 0, count = 0, possible = 0;
    uint32_t node, rank = 0;
    int ended = 0;
    pid_t child;
    info.size = sizeof info;
    info.kernel = "kernel";
    info.grid[0] = info.grid[1] = info.grid[2] = 1;
    info.block[0] = info.block[1] = info.block[2] = 1;

    /* Before anything else: there is no session yet, and already something to share. */
    OK(gsan_rendezvous_join("gsan-ffi-forks", 0, 1, 1000, &rendezvous));
    child = fork();
    if (child == 0) {
        alarm(20);
        REFUSED(gsan_rendezvous_exchange(rendezvous, &number, sizeof number, &count));
        gsan_rendezvous_close(rendezvous);
        CHECK(strstr(gsan_last_error(), "forked") != NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);

    memory = (uint64_t)(uintptr_t)gsanMalloc(64, 0, NULL);
    CHECK(memory != 0);
    OK(gsan_host_stream_create(0, 0, &stream));
    OK(gsan_host_stream_create(0, 0, &beside));
    OK(gsan_host_event_create(&event));
    OK(gsan_group_open(0, &rank, 1, &group));
    OK(gsan_graph_begin(0, &builder));
    OK(gsan_graph_kernel(builder, NULL, 0, NULL, 0, &info, &node, &table, &index));
    OK(gsan_graph_finish(builder, &graph));
    OK(gsan_graph_begin(0, &builder));
    OK(gsan_graph_begin(0, &second));
    OK(gsan_launch_begin(0, stream, &info, &launch, &table, &index));
    OK(gsan_replay_begin(graph, 0, beside, &replay));
    child = fork();
    if (child == 0) {
        alarm(20);
        REFUSED(gsan_launch_end(launch, 1));
        REFUSED(gsan_launch_begin(0, stream, &info, &other, &table, &index));
        REFUSED(gsan_host_launch(0, stream, &info, write_it, NULL));
        REFUSED(gsan_host_replay(replay, beside, node, write_it, NULL));
        REFUSED(gsan_replay_end(replay, 1));
        REFUSED(gsan_replay_begin(graph, 0, beside, &again));
        REFUSED(gsan_graph_close(graph));
        REFUSED(gsan_graph_kernel(builder, NULL, 0, NULL, 0, &info, &node, &table, &index));
        REFUSED(gsan_graph_other(builder, NULL, 0, &node));
        REFUSED(gsan_graph_copy(builder, NULL, 0, graph, &node));
        REFUSED(gsan_graph_child(builder, NULL, 0, second, &node));
        REFUSED(gsan_graph_finish(builder, &made));
        REFUSED(gsan_graph_begin(0, &second));
        REFUSED(gsan_group_barrier(group, beside, 100));
        REFUSED(gsan_group_before_collective(group, beside));
        REFUSED(gsan_group_after_collective(group, beside));
        REFUSED(gsan_group_open(0, &rank, 1, &group));
        gsan_group_close(group);
        CHECK(strstr(gsan_last_error(), "forked") != NULL);
        REFUSED(gsan_rendezvous_exchange(rendezvous, &number, sizeof number, &count));
        REFUSED(gsan_rendezvous_share(rendezvous, memory, 0, &number));
        REFUSED(gsan_event_recorded(event, 0, beside));
        REFUSED(gsan_event_waited(event, 0, beside));
        REFUSED(gsan_event_synchronized(event));
        REFUSED(gsan_stream_waited(0, beside, stream));
        REFUSED(gsan_stream_synchronized(0, stream));
        REFUSED(gsan_device_synchronized(0));
        REFUSED(gsan_host_stream_synchronize(0, stream));
        REFUSED(gsan_host_stream_destroy(0, beside));
        REFUSED(gsan_host_stream_create(0, 0, &created));
        REFUSED(gsan_memory_used(memory, 64, 0, stream));
        REFUSED(gsan_race_count(&count, &possible));
        REFUSED(gsan_reset());
        REFUSED(gsan_find_allocation(memory, &(gsan_allocation){.size = sizeof(gsan_allocation)}));
        CHECK(gsanMalloc(64, 0, NULL) == NULL && strstr(gsan_last_error(), "forked") != NULL);
        gsanFree((void *)(uintptr_t)memory, 64, 0, NULL);
        CHECK(strstr(gsan_last_error(), "forked") != NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);

    OK(gsan_launch_end(launch, 0));
    OK(gsan_host_replay(replay, beside, 0, write_it, NULL));
    OK(gsan_replay_end(replay, 1));
    OK(gsan_stream_waited(0, stream, beside));
    OK(gsan_host_launch(0, stream, &info, write_it, NULL));
    OK(gsan_host_launch(0, stream, &info, forks, NULL));
    OK(gsan_group_barrier(group, stream, 1000));
    gsan_group_close(group);
    OK(gsan_rendezvous_exchange(rendezvous, &number, sizeof number, &count));
    gsan_rendezvous_close(rendezvous);
    OK(gsan_graph_child(builder, NULL, 0, second, &node));
    OK(gsan_graph_finish(builder, &made));
    OK(gsan_device_synchronized(0));
    OK(gsan_graph_close(made));
    OK(gsan_graph_close(graph));
    OK(gsan_race_count(&count, &possible));
    CHECK(count == 0 && possible == 0);
    OK(gsan_host_stream_destroy(0, stream));
    OK(gsan_host_stream_destroy(0, beside));
    gsanFree((void *)(uintptr_t)memory, 64, 0, NULL);
    OK(gsan_reset());
    return 0;
}
