/* SPDX-License-Identifier: Apache-2.0 */
/* test_store_ports.c: exposed ports on disk: kept, closed, and gone with their sandbox. */
#include "gateway/store.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

struct scene {
    char dir[64], path[80];
    struct loop *loop;
    struct store *store;
    int calls, failures;
    struct port_row rows[8];
    int count;
};

static void note(void *arg, uint64_t ticket, int err)
{
    struct scene *s = arg;
    (void)ticket;
    s->calls++;
    s->failures += err < 0;
}

static int keep(const struct port_row *row, void *arg)
{
    struct scene *s = arg;
    if (s->count < (int)ARRAY_SIZE(s->rows))
        s->rows[s->count] = *row;
    s->count++;
    return 0;
}

static void scene_open(struct scene *s)
{
    struct error e = {0};
    s->count = 0;
    CHECK_INT(store_open(s->path, &s->store, &e), 0);
    CHECK_STREQ(e.msg, "");
    CHECK_INT(store_load_ports(s->store, keep, s, &e), 0);
    CHECK_INT(store_start(s->store, s->loop, &e), 0);
}

static void scene_begin(struct scene *s)
{
    struct error e;
    *s = (struct scene){.dir = "/tmp/silica-ports-XXXXXX"};
    CHECK(mkdtemp(s->dir) != NULL);
    (void)snprintf(s->path, sizeof s->path, "%s/state.db", s->dir);
    CHECK_INT(loop_new(&s->loop, &e), 0);
    scene_open(s);
}

static void scene_reopen(struct scene *s)
{
    store_free(s->store);
    scene_open(s);
}

static void scene_end(struct scene *s)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char file[100];
    store_free(s->store);
    loop_free(s->loop);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        (void)snprintf(file, sizeof file, "%s%s", s->path, ends[i]);
        (void)unlink(file);
    }
    (void)rmdir(s->dir);
}

static void wait_for(struct scene *s, int calls)
{
    for (int i = 0; s->calls < calls && i < 1000; i++)
        (void)loop_step(s->loop, 100);
    CHECK_INT(s->calls, calls);
    CHECK_INT(s->failures, 0);
}

static void put_sandbox(struct scene *s, const char *id)
{
    struct sandbox_row row = {.config = {.image = "base", .instance_type = "basic"}};
    (void)snprintf(row.id, sizeof row.id, "%s", id);
    (void)store_put(s->store, &row, note, s);
}

static void put_port(struct scene *s, const char *id, int port, const char *token, const char *name)
{
    struct port_row row = {.port = port, .exposed_ms = 77};
    (void)snprintf(row.sandbox, sizeof row.sandbox, "%s", id);
    (void)snprintf(row.token, sizeof row.token, "%s", token);
    (void)snprintf(row.name, sizeof row.name, "%s", name);
    (void)store_put_port(s->store, &row, note, s);
}

TEST(store_ports_are_kept_and_closed)
{
    struct scene s;
    scene_begin(&s);
    put_sandbox(&s, "a");
    put_port(&s, "a", 8080, "tok", "web");
    put_port(&s, "a", 8081, "tok2", "");
    put_port(&s, "a", 8081, "tok2", "renamed");
    wait_for(&s, 4);
    scene_reopen(&s);
    REQUIRE(s.count == 2);
    CHECK_STREQ(s.rows[0].sandbox, "a");
    CHECK_INT(s.rows[0].port, 8080);
    CHECK_STREQ(s.rows[0].token, "tok");
    CHECK_STREQ(s.rows[0].name, "web");
    CHECK_INT(s.rows[0].exposed_ms, 77);
    CHECK_STREQ(s.rows[1].name, "renamed");
    (void)store_delete_port(s.store, "a", 8080, note, &s);
    wait_for(&s, 5);
    scene_reopen(&s);
    CHECK_INT(s.count, 1);
    scene_end(&s);
}

TEST(store_ports_go_with_their_sandbox)
{
    struct scene s;
    scene_begin(&s);
    put_sandbox(&s, "a");
    put_sandbox(&s, "b");
    put_port(&s, "a", 8080, "tok", "");
    put_port(&s, "b", 8080, "tok", "");
    put_port(&s, "orphan", 8080, "tok", "");
    (void)store_delete(s.store, "a", note, &s);
    wait_for(&s, 6);
    scene_reopen(&s);
    REQUIRE(s.count == 1);
    CHECK_STREQ(s.rows[0].sandbox, "b");
    scene_end(&s);
}
