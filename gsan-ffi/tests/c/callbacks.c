/* A callback of gsan_on_race() that calls GSan: from the thread of GSan and from the program's, while the
 * program resets, and to the end of the process. `callbacks exit` ends in the callback, with 7. */
#define _DEFAULT_SOURCE /* usleep, alarm */

#include "gsan.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "line %d: not %s (%s)\n", __LINE__, #condition, gsan_last_error());     \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
#define OK(call) CHECK((call) == GSAN_OK)

enum { FIRST_DEED = 0, DEEDS = 9 };

static uint64_t address;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int entered, left;

static void set(int *what, int value) {
    pthread_mutex_lock(&mutex);
    *what = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void await(const int *what) {
    pthread_mutex_lock(&mutex);
    while (*what == 0) {
        pthread_cond_wait(&changed, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

static void both_write(gsan_cta *cta, const uint32_t *index, void *user) {
    uint32_t value = index[0];
    (void)user;
    OK(gsan_host_write(cta, address, &value, sizeof value, "callbacks.c", 1));
}

static void race(void) {
    gsan_launch_info info = {.size = sizeof info, .kernel = "k", .grid = {2, 1, 1}, .block = {1, 1, 1}};
    OK(gsan_host_launch(0, NULL, &info, both_write, NULL));
}

static void on_race(const gsan_race *found, void *user) {
    int deed = *(const int *)user, frozen;
    size_t bytes = 0;
    uint64_t races = 0;
    CHECK(found->later.line == 1);
    set(&entered, 1);
    /* The program comes to its reset meanwhile. */
    usleep(20000);
    switch (deed) {
    case -1: exit(7);
    case 0: OK(gsan_report("json", NULL, &bytes)); break;
    case 1: OK(gsan_race_count(&races, NULL)); CHECK(races == 1); break;
    case 2: OK(gsan_on_race(NULL, NULL)); break;
    case 3: OK(gsan_is_frozen(&frozen)); break;
    case 4: OK(gsan_drain()); break;
    case 5: OK(gsan_finish()); break;
    case 6: OK(gsan_forget_races()); break;
    case 7: OK(gsan_configuration(NULL, &bytes)); break;
    default: OK(gsan_reset()); break;
    }
    set(&left, 1);
}

/* One race: the callback is called by the program's call, or by GSan's thread while it resets. */
static void one(int deed, int by_the_program) {
    void *memory = gsanMalloc(64, 0, NULL);
    CHECK(memory != NULL);
    address = (uint64_t)(uintptr_t)memory;
    entered = left = 0;
    OK(gsan_forget_races());
    OK(gsan_on_race(on_race, &deed));
    race();
    if (!by_the_program) {
        await(&entered);
    }
    OK(gsan_host_stream_synchronize(0, NULL));
    gsanFree(memory, 64, 0, NULL);
    OK(gsan_reset());
    await(&left);
    OK(gsan_on_race(NULL, NULL));
    OK(gsan_reset());
}

int main(int count, char **arguments) {
    int deed;
    alarm(60);
    if (count > 1 && strcmp(arguments[1], "exit") == 0) {
        one(-1, 0);
    }
    for (deed = FIRST_DEED; deed < DEEDS; ++deed) {
        one(deed, 0);
        one(deed, 1);
    }
    return 0;
}
