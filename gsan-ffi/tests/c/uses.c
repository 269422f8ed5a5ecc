/* What a correct program does with most of the interface, on the host backend, and what it must see. */
#include "gsan.h"

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

static uint64_t memory;

static gsan_launch_info launch_info(const char *kernel, uint32_t ctas) {
    gsan_launch_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    info.kernel = kernel;
    info.grid[0] = ctas;
    info.grid[1] = info.grid[2] = 1;
    info.block[0] = info.block[1] = info.block[2] = 1;
    return info;
}

static void writer(gsan_cta *cta, const uint32_t *index, void *user) {
    uint64_t value = 7 + index[0];
    (void)user;
    OK(gsan_host_write(cta, memory + 8 * index[0], &value, sizeof value, "writer.c", 10));
}

static void reader(gsan_cta *cta, const uint32_t *index, void *user) {
    uint64_t value = 0;
    (void)user;
    OK(gsan_host_read(cta, memory + 8 * index[0], &value, sizeof value, "reader.c", 20));
    CHECK(value == 7 + index[0]);
}

/* A handle that is kept is no CTA any more, and never one of another thread. */
static gsan_cta *kept;

static void keeper(gsan_cta *cta, const uint32_t *index, void *user) {
    uint64_t value = 0;
    (void)index;
    (void)user;
    kept = cta;
    CHECK(gsan_host_read(cta, 8, &value, sizeof value, NULL, 0) == GSAN_INVALID_ARGUMENT);
    CHECK(strstr(gsan_last_error(), "no allocation is there"));
    CHECK(gsan_host_atomic(cta, 77, memory, 4, 0, 0, NULL, 1, 2, NULL, 0) == GSAN_INVALID_ARGUMENT);
    CHECK(gsan_host_atomic(cta, 1, memory, 4, 0, 0, NULL, 77, 2, NULL, 0) == GSAN_INVALID_ARGUMENT);
    CHECK(gsan_host_atomic(cta, 1, memory, 4, 0, 0, NULL, 1, 77, NULL, 0) == GSAN_INVALID_ARGUMENT);
    CHECK(gsan_host_atomic(cta, 1, memory + 1, 4, 0, 0, NULL, 1, 2, NULL, 0) == GSAN_INVALID_ARGUMENT);
    CHECK(gsan_host_read(cta, memory, NULL, 8, NULL, 0) == GSAN_INVALID_ARGUMENT);
    CHECK(gsan_host_read(cta, memory, &value, ~(size_t)0, NULL, 0) == GSAN_INVALID_ARGUMENT);
}

static void launch(void *stream, const char *name, gsan_host_kernel kernel) {
    gsan_launch_info info = launch_info(name, 4);
    OK(gsan_host_launch(0, stream, &info, kernel, NULL));
}

static uint64_t races(void) {
    uint64_t count = 0, possible = 0;
    OK(gsan_race_count(&count, &possible));
    CHECK(possible == 0);
    return count;
}

struct seen {
    int races;
    int stop;
};

static int visit(const gsan_race *race, void *user) {
    struct seen *seen = (struct seen *)user;
    const gsan_side *sides[2];
    int side;
    sides[0] = &race->earlier;
    sides[1] = &race->later;
    seen->races += 1;
    CHECK(race->size == sizeof *race && race->bytes == 8 && race->times > 0);
    CHECK(race->allocation == memory && race->allocation_bytes == 64);
    for (side = 0; side < 2; ++side) {
        int writes = sides[side]->action == GSAN_ACTION_WRITE;
        CHECK(sides[side]->known && !sides[side]->atomic);
        CHECK(strcmp(sides[side]->file, writes ? "writer.c" : "reader.c") == 0);
        CHECK(strcmp(sides[side]->kernel, writes ? "write" : "read") == 0);
        CHECK(sides[side]->line == (writes ? 10u : 20u));
    }
    return seen->stop;
}

static int called;

static void on_race(const gsan_race *race, void *user) {
    CHECK(user == &called && race->size == sizeof *race);
    called += 1;
}

static void streams_and_events(void) {
    void *first, *second;
    uint64_t event;
    struct seen seen = {0, 0};
    size_t bytes = 0;
    char *text;
    OK(gsan_host_stream_create(0, 0, &first));
    OK(gsan_host_stream_create(0, 0, &second));
    OK(gsan_host_event_create(&event));

    launch(first, "write", writer);
    OK(gsan_event_recorded(event, 0, first));
    OK(gsan_event_waited(event, 0, second));
    launch(second, "read", reader);
    OK(gsan_stream_waited(0, first, second));
    launch(first, "write", writer);
    OK(gsan_host_stream_synchronize(0, first));
    launch(second, "read", reader);
    OK(gsan_device_synchronized(0));
    CHECK(races() == 0);

    OK(gsan_on_race(on_race, &called));
    launch(first, "write", writer);
    OK(gsan_drain());
    launch(second, "read", reader);
    CHECK(races() == 1);
    CHECK(called == 1);
    OK(gsan_on_race(NULL, NULL));
    OK(gsan_races(visit, &seen));
    CHECK(seen.races == 1);
    seen.stop = 1;
    OK(gsan_races(visit, &seen));
    CHECK(seen.races == 2);

    OK(gsan_report("json", NULL, &bytes));
    text = (char *)malloc(bytes);
    OK(gsan_report("json", text, &bytes));
    CHECK(strlen(text) + 1 == bytes && strstr(text, "\"read-after-write\"") && strstr(text, "writer.c"));
    free(text);
    OK(gsan_write_report("sarif", "report.sarif"));
    OK(gsan_device_synchronized(0));
    OK(gsan_forget_races());
    CHECK(races() == 0);
    OK(gsan_event_forgotten(event));
    OK(gsan_host_stream_destroy(0, first));
    OK(gsan_host_stream_destroy(0, second));
}

static void looking(void) {
    gsan_allocation live[2];
    gsan_cell_info cell;
    gsan_thread_info thread;
    gsan_device_info device;
    size_t count = 2, entries = 0, bytes = 0;
    uint64_t base, reserve, state;
    uint32_t rank = 9, *clock;
    const void *library;
    int yes = 7;
    memset(live, 0, sizeof live);
    live[0].size = sizeof live[0];
    OK(gsan_live_allocations(live, &count));
    CHECK(count == 1 && live[0].address == memory && live[0].bytes == 64 && live[0].managed);
    OK(gsan_reserve(&base, &reserve));
    CHECK(memory >= base + reserve / 2 && memory < base + reserve);
    OK(gsan_state_pointer(&state));
    CHECK(state != 0 && gsan_state_stride() == (uint64_t)1 << 30);
    OK(gsan_device_rank(0, &rank));
    CHECK(rank == 0);
    OK(gsan_supports_fabric(0, &yes));
    CHECK(yes == 0);

    memset(&cell, 0, sizeof cell);
    cell.size = sizeof cell;
    OK(gsan_cell_at(memory + 3, &cell));
    CHECK(cell.size == sizeof cell && cell.write_clock.epoch > 0);
    CHECK(cell.write_clock.scope == GSAN_MEMORY_SCOPE_NONE && !cell.write_clock.is_release);
    CHECK(cell.num_reads == 1 && cell.read_count == 1 && cell.read_clocks[0].epoch > 0);

    memset(&thread, 0, sizeof thread);
    thread.size = sizeof thread;
    OK(gsan_thread_state_at(0, cell.write_clock.thread_id, &thread, NULL, &entries));
    CHECK(thread.thread_id == cell.write_clock.thread_id && entries == thread.num_threads);
    clock = (uint32_t *)malloc(entries * sizeof *clock);
    OK(gsan_thread_state_at(0, cell.write_clock.thread_id, &thread, clock, &entries));
    CHECK(clock[thread.thread_id] >= cell.write_clock.epoch);
    free(clock);
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    OK(gsan_global_state_of(0, &device));
    CHECK(device.num_devices == 1 && device.rng_seed == 42 && device.num_threads == thread.num_threads);

    OK(gsan_layout(NULL, &bytes));
    CHECK(bytes > 100);
    OK(gsan_usage(NULL, &bytes));
    CHECK(bytes > 100);
    OK(gsan_doctor(NULL, &bytes));
    CHECK(bytes > 10);
    OK(gsan_device_library(4, 1, &library, &bytes));
    CHECK(memcmp(library, "BC", 2) == 0 && bytes > 1000);
}

static void graphs(void) {
    gsan_launch_info info = launch_info("node", 1);
    gsan_graph_builder *builder;
    gsan_graph *graph, *beside;
    gsan_replay *replay;
    uint64_t table, index, id = 5;
    uint32_t first, second;
    uint64_t before;
    OK(gsan_capture_id(0, NULL, &id));
    CHECK(id == 0);
    CHECK(gsan_capture_ended(0, 12345, &graph) == GSAN_NOT_FOUND);
    OK(gsan_graph_begin(0, &builder));
    OK(gsan_graph_kernel(builder, NULL, 0, NULL, 0, &info, &first, &table, &index));
    CHECK(first == 0 && table != 0);
    OK(gsan_graph_kernel(builder, &first, 1, NULL, 0, &info, &second, &table, &index));
    OK(gsan_graph_other(builder, &second, 1, &second));
    CHECK(second == 2);
    OK(gsan_graph_finish(builder, &graph));
    OK(gsan_replay_begin(graph, 0, NULL, &replay));
    OK(gsan_replay_end(replay, 0));

    /* The kernels of a graph, and of a copy of it, are functions, too. */
    before = races();
    OK(gsan_replay_begin(graph, 0, NULL, &replay));
    OK(gsan_host_replay(replay, NULL, 0, writer, NULL));
    OK(gsan_host_replay(replay, NULL, 1, reader, NULL));
    CHECK(gsan_host_replay(replay, NULL, 2, reader, NULL) == GSAN_NOT_FOUND);
    CHECK(strstr(gsan_last_error(), "node 2 is no kernel"));
    OK(gsan_replay_end(replay, 1));
    OK(gsan_graph_begin(0, &builder));
    OK(gsan_graph_kernel(builder, NULL, 0, NULL, 0, &info, &first, &table, &index));
    OK(gsan_graph_copy(builder, NULL, 0, graph, &second));
    CHECK(first == 0 && second == 4);
    OK(gsan_graph_finish(builder, &beside));
    CHECK(races() == before);
    OK(gsan_replay_begin(beside, 0, NULL, &replay));
    OK(gsan_host_replay(replay, NULL, 0, writer, NULL));
    OK(gsan_host_replay(replay, NULL, 2, reader, NULL));
    OK(gsan_replay_end(replay, 1));
    CHECK(races() == before + 1);
    OK(gsan_forget_races());
    OK(gsan_graph_close(beside));
    OK(gsan_graph_close(graph));
}

static void waiting_reader(gsan_cta *cta, const uint32_t *index, void *user) {
    OK(gsan_host_grid_dependency_wait(cta));
    reader(cta, index, user);
}

/* A dependent launch is ordered after the one before it once it has waited. */
static void dependent_launches(void) {
    gsan_launch_info info = launch_info("read", 4);
    info.programmatic = 1;
    CHECK(gsan_host_grid_dependency_wait(NULL) == GSAN_INVALID_ARGUMENT);
    launch(NULL, "write", writer);
    OK(gsan_host_launch(0, NULL, &info, waiting_reader, NULL));
    CHECK(races() == 0);
    launch(NULL, "write", writer);
    OK(gsan_host_launch(0, NULL, &info, reader, NULL));
    CHECK(races() == 1);
    OK(gsan_forget_races());
}

/* Processes of one run, here one alone. */
static void alone(void) {
    gsan_rendezvous *rendezvous;
    gsan_group *group;
    uint32_t rank = 0;
    uint64_t mine = 0x1234, all = 0, address = 0;
    gsan_shared_allocation shared;
    OK(gsan_rendezvous_join("gsan-ffi-uses", 0, 1, 1000, &rendezvous));
    OK(gsan_rendezvous_exchange(rendezvous, &mine, sizeof mine, &all));
    CHECK(all == mine);
    OK(gsan_rendezvous_share(rendezvous, memory + 8, 0, &address));
    CHECK(address == memory + 8);
    gsan_rendezvous_close(rendezvous);
    CHECK(gsan_rendezvous_exchange(rendezvous, &mine, sizeof mine, &all) == GSAN_INVALID_ARGUMENT);
    CHECK(strstr(gsan_last_error(), "ended already"));
    gsan_rendezvous_close(rendezvous);
    CHECK(strstr(gsan_last_error(), "ended already"));
    OK(gsan_group_open(0, &rank, 1, &group));
    OK(gsan_group_barrier(group, NULL, 1000));
    OK(gsan_group_before_collective(group, NULL));
    OK(gsan_group_after_collective(group, NULL));
    gsan_group_close(group);
    CHECK(gsan_group_barrier(group, NULL, 1000) == GSAN_INVALID_ARGUMENT);
    CHECK(strstr(gsan_last_error(), "ended already"));

    memset(&shared, 0, sizeof shared);
    shared.size = sizeof shared;
    OK(gsan_export_allocation(memory + 8, &shared));
    CHECK(shared.offset == 8 && shared.bytes == 64 && shared.real_fd >= 0 && shared.shadow_fd >= 0);
    OK(gsan_import_allocation(&shared, 0, &address));
    CHECK(address != memory + 8 && *(uint64_t *)(uintptr_t)address == 8);
    gsanFree((void *)(uintptr_t)(address - 8), 0, 0, NULL);
    CHECK(*gsan_last_error() == 0);
}

int main(void) {
    uint64_t value = 0;
    OK(gsan_configure_toml("[sampling]\nseed = 42\n[topology]\nbackend = \"host\"\n"));
    memory = (uint64_t)(uintptr_t)gsanMalloc(64, 0, NULL);
    CHECK(memory != 0);
    streams_and_events();
    looking();
    graphs();
    dependent_launches();
    launch(NULL, "keep", keeper);
    OK(gsan_host_stream_synchronize(0, NULL));
    CHECK(kept != NULL);
    CHECK(gsan_host_read(kept, memory, &value, sizeof value, NULL, 0) == GSAN_INVALID_ARGUMENT);
    alone();
    OK(gsan_device_synchronized(0));
    gsanFree((void *)(uintptr_t)memory, 64, 0, NULL);
    CHECK(races() == 0);
    OK(gsan_reset());
    return 0;
}
