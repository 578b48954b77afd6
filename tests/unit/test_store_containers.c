/* SPDX-License-Identifier: Apache-2.0 */
/* test_store_containers.c: containers on disk: written, replaced, deleted. */
#include "gateway/store.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scene {
    char dir[64], path[80];
    struct loop *loop;
    struct store *store;
    int calls, failures, count;
    char ids[4][CONTAINER_ID_CHARS + 1], records[4][64];
};

static void note(void *arg, uint64_t ticket, int err)
{
    struct scene *s = arg;
    (void)ticket;
    s->calls++;
    s->failures += err < 0;
}

static int keep(const struct container_row *row, void *arg)
{
    struct scene *s = arg;
    if (s->count < (int)ARRAY_SIZE(s->ids)) {
        memcpy(s->ids[s->count], row->id, sizeof row->id);
        (void)snprintf(s->records[s->count], sizeof s->records[0], "%s", row->record);
    }
    s->count++;
    return 0;
}

static void scene_open(struct scene *s)
{
    struct error e = {0};
    s->count = 0;
    CHECK_INT(store_open(s->path, &s->store, &e), 0);
    CHECK_INT(store_load_containers(s->store, keep, s, &e), 0);
    CHECK_INT(store_start(s->store, s->loop, &e), 0);
}

static void put(struct scene *s, char fill, const char *record)
{
    struct container_row row = {.record = record};
    memset(row.id, fill, CONTAINER_ID_CHARS);
    (void)store_put_container(s->store, &row, note, s);
}

static void settle(struct scene *s, int calls)
{
    while (s->calls < calls)
        (void)loop_step(s->loop, 1000);
}

TEST(containers_survive)
{
    struct scene s = {.dir = "/tmp/silica-containers-XXXXXX"};
    struct error e;
    char id[CONTAINER_ID_CHARS + 1] = "", path[128];
    REQUIRE(mkdtemp(s.dir) != NULL);
    (void)snprintf(s.path, sizeof s.path, "%s/state.db", s.dir);
    CHECK_INT(loop_new(&s.loop, &e), 0);
    scene_open(&s);
    CHECK_INT(s.count, 0);
    put(&s, 'a', "{\"name\":\"one\"}");
    put(&s, 'b', "{}");
    put(&s, 'a', "{\"name\":\"two\"}");
    memset(id, 'b', CONTAINER_ID_CHARS);
    (void)store_delete_container(s.store, id, note, &s);
    settle(&s, 4);
    CHECK_INT(s.failures, 0);
    store_free(s.store);
    scene_open(&s);
    CHECK_INT(s.count, 1);
    CHECK_STREQ(s.records[0], "{\"name\":\"two\"}");
    CHECK(strlen(s.ids[0]) == CONTAINER_ID_CHARS && s.ids[0][63] == 'a');
    put(&s, 'c', "{}"); /* written before the end, also when nobody waits */
    store_free(s.store);
    scene_open(&s);
    CHECK_INT(s.count, 2);
    store_free(s.store);
    loop_free(s.loop);
    static const char *const files[] = {"state.db", "state.db-wal", "state.db-shm"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", s.dir, files[i]);
        (void)remove(path);
    }
    CHECK(remove(s.dir) == 0);
}
