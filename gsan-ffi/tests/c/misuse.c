/* Everything that a program can hand over wrongly, in the wrong order, or twice: each call must return a
 * status with a text, and change nothing. */
#include "gsan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void expect(gsan_status wanted, gsan_status got, const char *text, const char *call, int line) {
    const char *said = gsan_last_error();
    if (got == wanted && (wanted == GSAN_OK ? *said == 0 : strstr(said, text) != NULL && *said != 0)) {
        return;
    }
    fprintf(stderr, "line %d: %s is %d \"%s\", not %d \"%s\"\n", line, call, (int)got, said, (int)wanted, text);
    failures += 1;
}

#define OK(call) expect(GSAN_OK, call, "", #call, __LINE__)
#define REFUSED(status, call, text) expect(status, call, text, #call, __LINE__)
#define INVALID(call, text) REFUSED(GSAN_INVALID_ARGUMENT, call, text)
#define TRUE(condition)                                                       \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "line %d: not %s (%s)\n", __LINE__, #condition, gsan_last_error()); \
            failures += 1;                                                    \
        }                                                                     \
    } while (0)

/* Handles that are none. */
static void *garbage(int which) {
    static int local;
    switch (which) {
    case 0: return NULL;
    case 1: return (void *)1;
    case 2: return &local;
    case 3: return (void *)~(uintptr_t)0;
    case 4: return (void *)0x100000001;
    default: return malloc(0);
    }
}

static void null_and_misaligned(void) {
    char room[256];
    size_t bytes = sizeof room;
    uint64_t number = 0;
    gsan_config config = {0};
    config.size = sizeof config;
    _Alignas(16) char bytes_of_a_config[sizeof(gsan_config) + 8] = {0};

    INVALID(gsan_configure(NULL), "config is null");
    INVALID(gsan_configure((const gsan_config *)16), "config is 0x10, which is no address");
    INVALID(gsan_configure((const gsan_config *)(bytes_of_a_config + 1)), "no multiple of 8");
    INVALID(gsan_configure_toml(NULL), "toml is null");
    INVALID(gsan_configure_toml("[shadow]\nrecords = 3"), "records");
    INVALID(gsan_configure_toml("\xff\xfe"), "UTF-8");
    INVALID(gsan_configure_toml("records"), "gsan_configure_toml");
    INVALID(gsan_configuration(room, NULL), "bytes is null");
    INVALID(gsan_is_frozen(NULL), "frozen is null");
    bytes = 4;
    INVALID(gsan_configuration(room, &bytes), "there is room for 4");
    TRUE(bytes > 4);
    OK(gsan_configuration(NULL, &bytes));

    INVALID(gsan_reserve(NULL, &number), "base is null");
    INVALID(gsan_reserve(&number, NULL), "bytes is null");
    INVALID(gsan_reserve(&number, (uint64_t *)(bytes_of_a_config + 4)), "no multiple of 8");
    INVALID(gsan_state_pointer(NULL), "base is null");
    INVALID(gsan_device_rank(0, NULL), "rank is null");
    INVALID(gsan_live_allocations(NULL, NULL), "count is null");
    INVALID(gsan_find_allocation(0, NULL), "out is null");
    INVALID(gsan_layout(room, NULL), "bytes is null");
    INVALID(gsan_usage(room, NULL), "bytes is null");
    INVALID(gsan_doctor(room, NULL), "bytes is null");
    INVALID(gsan_supports_fabric(0, NULL), "yes is null");
    INVALID(gsan_device_library(4, 0, NULL, &bytes), "bitcode is null");

    INVALID(gsan_export_allocation(0, NULL), "out is null");
    INVALID(gsan_import_allocation(NULL, 0, &number), "shared is null");
    INVALID(gsan_export_state(0, NULL), "out is null");
    INVALID(gsan_import_state(NULL, 0), "shared is null");
    INVALID(gsan_rendezvous_join(NULL, 0, 1, 1, NULL), "name is null");
    INVALID(gsan_rendezvous_join("x", 0, 1, 1, NULL), "out is null");

    INVALID(gsan_launch_begin(0, NULL, NULL, NULL, &number, &number), "info is null");
    INVALID(gsan_kernel_is_opaque(NULL, NULL, NULL, NULL), "ir is null");
    INVALID(gsan_kernel_is_opaque(".version 8.0", &(int){0}, NULL, NULL), "no tt.func");
    INVALID(gsan_capture_id(0, NULL, NULL), "id is null");
    INVALID(gsan_capture_ended(0, 0, NULL), "graph is null");
    INVALID(gsan_replay_begin(NULL, 0, NULL, NULL), "replay is null");
    INVALID(gsan_graph_begin(0, NULL), "builder is null");
    INVALID(gsan_graph_finish(NULL, NULL), "graph is null");
    INVALID(gsan_group_open(0, NULL, 2, NULL), "ranks is null");
    INVALID(gsan_report(NULL, room, &bytes), "format is null");
    INVALID(gsan_write_report("json", NULL), "path is null");
    INVALID(gsan_cell_at(0, NULL), "out is null");
    INVALID(gsan_thread_state_at(0, 0, NULL, NULL, NULL), "out is null");
    INVALID(gsan_global_state_of(0, NULL), "out is null");
    INVALID(gsan_host_stream_create(0, 0, NULL), "stream is null");
    INVALID(gsan_host_event_create(NULL), "event is null");
    INVALID(gsan_host_launch(0, NULL, NULL, NULL, NULL), "info is null");
    INVALID(gsan_races(NULL, NULL), "callback is null");
}

static void wrong_sizes(void) {
    struct {
        gsan_config known;
        uint64_t newer;
    } config = {{0}, 0};
    gsan_allocation allocation = {0};
    gsan_launch_info info = {0};
    gsan_launch *launch;
    uint64_t table, index;

    INVALID(gsan_configure(&config.known), "config->size is 0: set it to sizeof(gsan_config), which is 56");
    config.known.size = 8;
    INVALID(gsan_configure(&config.known), "config->size is 8");
    config.known.size = ~(size_t)0;
    INVALID(gsan_configure(&config.known), "config->size is");
    /* A newer program, which uses nothing of what is new; and one that does. */
    config.known.size = sizeof config;
    OK(gsan_configure(&config.known));
    config.newer = 1;
    INVALID(gsan_configure(&config.known), "newer GSan");
    config.known.size = sizeof config.known;
    config.known.backend = 77;
    INVALID(gsan_configure(&config.known), "config->backend is 77");
    config.known.backend = 0;
    config.known.records = 3;
    INVALID(gsan_configure(&config.known), "records");
    config.known.records = 0;
    config.known.num_local = 3;
    INVALID(gsan_configure(&config.known), "device_ranks is null");
    INVALID(gsan_find_allocation(1, &allocation), "out->size is 0");
    INVALID(gsan_launch_begin(0, NULL, &info, &launch, &table, &index), "info->size is 0");
    info.size = sizeof info;
    info.kernel = "\x80";
    INVALID(gsan_launch_begin(0, NULL, &info, &launch, &table, &index), "info->kernel is no UTF-8");
    info.kernel = (const char *)3;
    INVALID(gsan_launch_begin(0, NULL, &info, &launch, &table, &index), "info->kernel is 0x3");
}

static void nothing(gsan_cta *cta, const uint32_t *index, void *user) {
    (void)cta;
    (void)index;
    (void)user;
}

static void stale_and_foreign_handles(void) {
    gsan_launch_info info = {0};
    gsan_launch *launch = NULL;
    gsan_graph_builder *builder = NULL, *child = NULL;
    gsan_graph *graph = NULL, *whole = NULL;
    gsan_replay *replay = NULL, *none = NULL;
    uint64_t table = 0, index = 0;
    uint32_t node = 0, missing = 7;
    int which;
    info.size = sizeof info;
    info.kernel = "kernel";
    for (which = 0; which < 3; ++which) {
        info.grid[which] = info.block[which] = 1;
    }
    for (which = 0; which < 6; ++which) {
        void *none = garbage(which);
        const char *text = none == NULL ? "the handle is null" : "is no ";
        INVALID(gsan_launch_end(none, 1), text);
        INVALID(gsan_replay_begin(none, 0, NULL, &replay), text);
        INVALID(gsan_replay_end(none, 1), text);
        INVALID(gsan_graph_close(none), text);
        INVALID(gsan_graph_kernel(none, NULL, 0, NULL, 0, &info, &node, &table, &index), text);
        INVALID(gsan_graph_other(none, NULL, 0, &node), text);
        INVALID(gsan_graph_record(none, NULL, 0, 1, &node), text);
        INVALID(gsan_graph_wait(none, NULL, 0, 1, &node), text);
        INVALID(gsan_graph_finish(none, &graph), text);
        INVALID(gsan_group_barrier(none, NULL, 1), text);
        INVALID(gsan_group_before_collective(none, NULL), text);
        INVALID(gsan_group_after_collective(none, NULL), text);
        INVALID(gsan_rendezvous_share(none, 0, 0, &table), text);
        INVALID(gsan_rendezvous_exchange(none, &table, sizeof table, &index), text);
        INVALID(gsan_host_read(none, 0, &table, sizeof table, NULL, 0), text);
        INVALID(gsan_host_write(none, 0, &table, sizeof table, NULL, 0), text);
        INVALID(gsan_host_atomic(none, GSAN_HOST_ADD, 0, 4, 1, 0, NULL, GSAN_MEMORY_ORDER_RELAXED,
                                 GSAN_MEMORY_SCOPE_GPU, NULL, 0), text);
        gsan_group_close(none);
        TRUE(strstr(gsan_last_error(), text) != NULL);
        gsan_rendezvous_close(none);
        TRUE(strstr(gsan_last_error(), text) != NULL);
        if (which == 5) {
            free(none);
        }
    }

    for (which = 0; which < 3; ++which) {
        uint32_t most[3] = {1024, 1024, 64}, ctas[3] = {INT32_MAX, 65535, 65535};
        info.block[which] = 0;
        INVALID(gsan_launch_begin(0, NULL, &info, &launch, &table, &index), "a CTA has 1 to 1024");
        INVALID(gsan_host_launch(0, NULL, &info, nothing, NULL), "a CTA has 1 to 1024");
        info.block[which] = most[which] + 1;
        INVALID(gsan_launch_begin(0, NULL, &info, &launch, &table, &index), "a CTA has 1 to 1024");
        info.block[which] = most[which];
        info.grid[which] = ctas[which];
        OK(gsan_launch_begin(0, NULL, &info, &launch, &table, &index));
        OK(gsan_launch_end(launch, 0));
        info.block[which] = 1;
        info.grid[which] = ctas[which] + 1;
        INVALID(gsan_launch_begin(0, NULL, &info, &launch, &table, &index), "a grid of ");
        /* Without CTAs it is no launch, and refused by CUDA. */
        info.grid[which] = 0;
        OK(gsan_launch_begin(0, NULL, &info, &launch, &table, &index));
        OK(gsan_launch_end(launch, 0));
        info.grid[which] = 1;
    }
    info.block[0] = 32;
    info.block[1] = 33;
    INVALID(gsan_launch_begin(0, NULL, &info, &launch, &table, &index), "a block of 32 x 33 x 1 threads");
    info.block[0] = info.block[1] = 1;

    OK(gsan_launch_begin(0, NULL, &info, &launch, &table, &index));
    INVALID(gsan_graph_close((gsan_graph *)launch), "is a launch, not a graph");
    REFUSED(GSAN_WRONG_ORDER, gsan_stream_synchronized(0, NULL), "not finished");
    REFUSED(GSAN_WRONG_ORDER, gsan_reset(), "a launch on stream 0x0");
    OK(gsan_launch_end(launch, 0));
    INVALID(gsan_launch_end(launch, 0), "ended already");

    OK(gsan_graph_begin(0, &builder));
    INVALID(gsan_graph_other(builder, &missing, 1, &node), "depends on node 7");
    INVALID(gsan_graph_other(builder, NULL, 1, &node), "dependencies is null");
    INVALID(gsan_graph_other(builder, &missing, ~(size_t)0 / 2, &node), "more than any graph has");
    INVALID(gsan_graph_other(builder, &missing, (size_t)1 << 40, &node), "more than any graph has");
    INVALID(gsan_graph_child(builder, NULL, 0, builder, &node), "its own child");
    OK(gsan_graph_begin(0, &child));
    OK(gsan_graph_kernel(child, NULL, 0, NULL, 0, &info, &node, &table, &index));
    INVALID(gsan_graph_kernel(child, &node, 1, &node, 1, &info, &node, &table, &index), "node 1 depends on node 0 twice");
    info.grid[1] = 0;
    INVALID(gsan_graph_kernel(child, NULL, 0, NULL, 0, &info, &node, &table, &index), "a grid of 1 x 0 x 1 CTAs");
    info.grid[1] = 1;
    OK(gsan_graph_child(builder, NULL, 0, child, &node));
    INVALID(gsan_graph_child(builder, NULL, 0, child, &node), "ended already");
    INVALID(gsan_graph_other(child, NULL, 0, &node), "ended already");
    OK(gsan_graph_finish(builder, &graph));
    INVALID(gsan_graph_finish(builder, &graph), "ended already");
    INVALID(gsan_graph_other(builder, NULL, 0, &node), "ended already");

    REFUSED(GSAN_LIVE, gsan_reset(), "1 graph is not closed: close it before a reset");
    OK(gsan_graph_begin(0, &builder));
    REFUSED(GSAN_LIVE, gsan_reset(), "1 graph is not closed: close it, and 1 graph is being built: finish it");
    INVALID(gsan_graph_finish(builder, NULL), "graph is null");
    INVALID(gsan_graph_other(builder, NULL, 0, &node), "ended already");
    OK(gsan_replay_begin(graph, 0, NULL, &replay));
    REFUSED(GSAN_LIVE, gsan_graph_close(graph), "was begun and not finished. Finish it before closing the graph");
    REFUSED(GSAN_LIVE, gsan_replay_begin(graph, 0, NULL, &none), "Finish it before the next one");
    REFUSED(GSAN_WRONG_ORDER, gsan_stream_synchronized(0, NULL), "a replay on stream 0x0");
    INVALID(gsan_host_replay(replay, NULL, 0, NULL, NULL), "kernel is null");
    OK(gsan_host_replay(replay, NULL, 0, nothing, NULL));
    REFUSED(GSAN_WRONG_ORDER, gsan_host_replay(replay, NULL, 0, nothing, NULL), "launched already by this replay");
    OK(gsan_replay_end(replay, 1));
    OK(gsan_replay_begin(graph, 0, NULL, &replay));
    OK(gsan_host_replay(replay, NULL, 0, nothing, NULL));
    OK(gsan_replay_end(replay, 1));
    OK(gsan_stream_synchronized(0, NULL));
    OK(gsan_replay_begin(graph, 0, NULL, &replay));
    OK(gsan_replay_end(replay, 0));
    INVALID(gsan_host_replay(replay, NULL, 0, nothing, NULL), "ended already");
    INVALID(gsan_replay_end(replay, 0), "ended already");

    OK(gsan_graph_begin(0, &builder));
    INVALID(gsan_graph_copy(builder, NULL, 0, NULL, &node), "the handle is null");
    INVALID(gsan_graph_copy(builder, &missing, 1, graph, &node), "node");
    INVALID(gsan_graph_copy(builder, NULL, 0, (gsan_graph *)builder, &node), "is a graph builder, not a graph");
    OK(gsan_graph_copy(builder, NULL, 0, graph, &node));
    OK(gsan_graph_finish(builder, &whole));
    OK(gsan_replay_begin(whole, 0, NULL, &replay));
    REFUSED(GSAN_LIVE, gsan_replay_begin(graph, 0, NULL, &replay), "in flight");
    OK(gsan_replay_end(replay, 0));

    OK(gsan_graph_close(graph));
    INVALID(gsan_graph_close(graph), "ended already");
    INVALID(gsan_replay_begin(graph, 0, NULL, &replay), "ended already");
    OK(gsan_replay_begin(whole, 0, NULL, &replay));
    OK(gsan_replay_end(replay, 0));
    OK(gsan_graph_close(whole));
}

static void memory(void) {
    const char *said;
    uint64_t address;
    gsan_allocation found = {0};
    char *block;
    found.size = sizeof found;

    TRUE(gsanMalloc(0, 0, NULL) == NULL && *gsan_last_error() == 0);
    TRUE(gsanMalloc(-1, 0, NULL) == NULL && strstr(gsan_last_error(), "no size"));
    TRUE(gsanMalloc(4096, 99, NULL) == NULL && strstr(gsan_last_error(), "device 99"));
    TRUE(gsanMalloc(4096, -1, NULL) == NULL && strstr(gsan_last_error(), "device -1"));
    TRUE(gsanMalloc(PTRDIFF_MAX, 0, NULL) == NULL && *gsan_last_error());
    TRUE(gsanMallocWriteOnce(-1, 0, NULL) == NULL && strstr(gsan_last_error(), "no size"));

    block = gsanMalloc(4096, 0, NULL);
    TRUE(block != NULL);
    address = (uintptr_t)block;
    OK(gsan_find_allocation(address + 5, &found));
    TRUE(found.address == address && found.bytes == 4096 && found.size == sizeof found);
    REFUSED(GSAN_LIVE, gsan_reset(), "1 allocation is live");
    gsanFree(block + 8, 4096, 0, NULL);
    TRUE(strstr(gsan_last_error(), "only its start"));
    gsanFree(block, 4097, 0, NULL);
    TRUE(strstr(gsan_last_error(), "4097"));
    gsanFree(block, -1, 0, NULL);
    TRUE(strstr(gsan_last_error(), "no size"));
    gsanFree(block, 4096, 5, NULL);
    TRUE(strstr(gsan_last_error(), "device 5"));
    OK(gsan_find_allocation(address, &found));
    gsanFree(NULL, 4096, 0, NULL);
    TRUE(*gsan_last_error() == 0);
    gsanFree(block, 4096, 0, NULL);
    TRUE(*gsan_last_error() == 0);
    gsanFree(block, 4096, 0, NULL);
    said = gsan_last_error();
    TRUE(strstr(said, "freed already") || strstr(said, "not the address"));
    gsanFree(&found, 4096, 0, NULL);
    TRUE(*gsan_last_error());
    REFUSED(GSAN_NOT_FOUND, gsan_find_allocation(address, &found), "");
    REFUSED(GSAN_NOT_FOUND, gsan_find_allocation((uintptr_t)&found, &found), "");
    {
        gsan_cell_info cell = {0};
        cell.size = sizeof cell;
        REFUSED(GSAN_NOT_FOUND, gsan_cell_at((uintptr_t)&cell, &cell), "");
    }
}

static void foreign_memory_and_streams(void) {
    gsan_shared_allocation shared = {0};
    gsan_shared_state state = {0};
    gsan_rendezvous *rendezvous = NULL;
    gsan_group *group = NULL;
    uint32_t ranks[2] = {0, 700000};
    uint64_t address = 0;
    uint32_t rank = 0;
    shared.size = sizeof shared;
    state.size = sizeof state;

    shared.records = 3;
    INVALID(gsan_import_allocation(&shared, 0, &address), "shared->records is 3");
    shared.records = 4;
    shared.bytes = 4096;
    INVALID(gsan_import_allocation(&shared, 0, &address), "shared->kind is 0");
    shared.kind = GSAN_HANDLE_TYPE_POSIX_FD;
    shared.real_fd = -5;
    INVALID(gsan_import_allocation(&shared, 0, &address), "shared->real_fd is -5");
    shared.real_fd = 1000;
    INVALID(gsan_import_allocation(&shared, 0, &address), "shared->real_fd is 1000");
    shared.real_fd = 0;
    shared.bytes = ~(uint64_t)0;
    INVALID(gsan_import_allocation(&shared, 0, &address), "which is no size");
    shared.bytes = 4096;
    shared.offset = 5000;
    INVALID(gsan_import_allocation(&shared, 0, &address), "shared->offset is 5000");
    state.kind = GSAN_HANDLE_TYPE_POSIX_FD;
    state.fd = -1;
    INVALID(gsan_import_state(&state, 0), "shared->fd is -1");
    state.rank = 1u << 20;
    INVALID(gsan_import_state(&state, 0), "shared->rank");
    REFUSED(GSAN_NOT_FOUND, gsan_export_allocation(4, &shared), "");
    INVALID(gsan_export_state(7, &state), "device 7");
    INVALID(gsan_rendezvous_join("misuse", 5, 2, 50, &rendezvous), "5");
    INVALID(gsan_rendezvous_join("misuse", 0, 100000, 50, &rendezvous), "size is above 65535");
    INVALID(gsan_group_open(0, ranks, 2, &group), "65535");
    ranks[1] = 1;
    REFUSED(GSAN_WRONG_ORDER, gsan_group_open(0, ranks, 2, &group), "rank 1");
    ranks[1] = 0;
    INVALID(gsan_group_open(0, ranks, 2, &group), "rank 0 is named twice");
    OK(gsan_group_open(0, ranks, 1, &group));
    REFUSED(GSAN_LIVE, gsan_reset(), "device 0 is in a group: leave it before a reset");
    gsan_group_close(group);

    REFUSED(GSAN_NOT_FOUND, gsan_event_recorded(1, 0, (void *)0x1234560), "stream");
    INVALID(gsan_event_recorded(1, 3, NULL), "device 3");
    REFUSED(GSAN_NOT_FOUND, gsan_stream_waited(0, (void *)0x1234560, NULL), "stream");
    REFUSED(GSAN_NOT_FOUND, gsan_stream_synchronized(0, (void *)0x1234560), "stream");
    REFUSED(GSAN_NOT_FOUND, gsan_host_stream_destroy(0, (void *)0x1234560), "stream");
    INVALID(gsan_device_synchronized(-3), "device -3");
    INVALID(gsan_device_rank(12, &rank), "device 12");
    OK(gsan_event_waited(999, 0, NULL));
    OK(gsan_event_forgotten(999));
    OK(gsan_event_synchronized(999));
    OK(gsan_memory_freed(4));
}

static void reports(void) {
    char text[64];
    size_t bytes = sizeof text;
    const void *library = NULL;
    INVALID(gsan_report("html", text, &bytes), "html");
    INVALID(gsan_write_report("html", "x"), "html");
    REFUSED(GSAN_IO, gsan_write_report("json", "/nowhere/at/all"), "/nowhere/at/all");
    INVALID(gsan_device_library(3, 0, &library, &bytes), "records is 3");
    OK(gsan_race_count(NULL, NULL));
    OK(gsan_on_race(NULL, NULL));
    OK(gsan_drain());
    OK(gsan_forget_races());
}

static void order_of_calls(void) {
    gsan_config config = {0};
    int frozen = 7;
    config.size = sizeof config;
    config.records = 2;
    OK(gsan_is_frozen(&frozen));
    TRUE(frozen == 0);
    REFUSED(GSAN_NOT_FOUND, gsan_export_allocation(1 << 20, &(gsan_shared_allocation){.size = sizeof(gsan_shared_allocation)}), "no session yet");
    OK(gsan_configure(&config));
    OK(gsan_freeze());
    OK(gsan_freeze());
    OK(gsan_is_frozen(&frozen));
    TRUE(frozen == 1);
    REFUSED(GSAN_FROZEN, gsan_configure(&config), "gsan_freeze");
    REFUSED(GSAN_FROZEN, gsan_configure_toml(""), "fixed");
}

int main(void) {
    TRUE(gsan_abi_version() == GSAN_ABI_VERSION);
    TRUE(strchr(gsan_version(), '.') != NULL);
    TRUE(*gsan_last_error() == 0);
    null_and_misaligned();
    wrong_sizes();
    OK(gsan_reset());
    order_of_calls();
    stale_and_foreign_handles();
    memory();
    foreign_memory_and_streams();
    reports();
    OK(gsan_reset());
    OK(gsan_reset());
    OK(gsan_configure_toml("[shadow]\nrecords = 4\n"));
    OK(gsan_finish());
    if (failures != 0) {
        fprintf(stderr, "%d failures\n", failures);
    }
    return failures != 0;
}
