/* SPDX-License-Identifier: Apache-2.0 */
/* test_store.c: rows survive, order is kept, failures are told. */
#include "gateway/store.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static char dir[64], path[80];
static struct loop *loop;

static bool make_dir(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/silica-store-XXXXXX");
    if (!mkdtemp(dir))
        return false;
    (void)snprintf(path, sizeof path, "%s/state.db", dir);
    return true;
}

static void remove_dir(void)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char file[100];
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        (void)snprintf(file, sizeof file, "%s%s", path, ends[i]);
        (void)unlink(file);
    }
    (void)rmdir(dir);
}

struct done {
    int calls, err;
    uint64_t ticket;
};

static void note(void *arg, uint64_t ticket, int err)
{
    struct done *d = arg;
    d->calls++;
    d->err = err;
    d->ticket = ticket;
}

static void wait_for(const struct done *d, int calls)
{
    for (int i = 0; d->calls < calls && i < 1000; i++)
        (void)loop_step(loop, 100);
    CHECK_INT(d->calls, calls);
}

static struct sandbox_row row_of(const char *id)
{
    static char allow[] = "*.example.org\n10.0.0.0/8";
    struct sandbox_row row = {.created_ms = 1000, .last_used_ms = 2000};
    (void)snprintf(row.id, sizeof row.id, "%s", id);
    row.config = (struct sandbox_config){.image = "base",
                                         .instance_type = "basic",
                                         .sleep_after_ms = 5,
                                         .ephemeral = true,
                                         .reach = {.network = KEEPER_NETWORK_ALLOWLIST,
                                                   .allow = allow,
                                                   .bytes_per_second = 1 << 20,
                                                   .connections = 7}};
    row.config.limits = instance_type_find("basic")->limits;
    return row;
}

struct loaded {
    size_t count;
    struct sandbox_row last; /* its texts are gone */
    char env[64];
};

static int load(const struct sandbox_row *row, void *arg)
{
    struct loaded *l = arg;
    l->count++;
    l->last = *row;
    (void)snprintf(l->env, sizeof l->env, "%s", row->config.env);
    return 0;
}

static struct store *open_store(void)
{
    struct store *s = NULL;
    struct error e = {0};
    if (store_open(path, &s, &e) < 0)
        test_fail(__FILE__, __LINE__, e.msg);
    return s;
}

/* In the directory that make_dir made; end_store ends it. NULL: that did not work. */
static struct store *start_store(void)
{
    struct error e = {0};
    struct store *s = loop_new(&loop, &e) == 0 ? open_store() : NULL;
    if (s && store_start(s, loop, &e) < 0) {
        test_fail(__FILE__, __LINE__, e.msg);
        store_free(s);
        return NULL;
    }
    return s;
}

/* Ends the store with what it was given, and removes everything; returns what a new one finds in the file. */
static struct loaded end_store(struct store *s)
{
    struct loaded l = {0};
    struct error e = {0};
    store_free(s);
    s = open_store();
    if (s && store_load(s, load, &l, &e) < 0)
        test_fail(__FILE__, __LINE__, e.msg);
    store_free(s);
    loop_free(loop);
    remove_dir();
    return l;
}

TEST(store_keeps_rows)
{
    struct done d = {0};
    REQUIRE(make_dir());
    struct store *s = start_store();
    REQUIRE(s);

    char env[] = "{\"A\":\"1\"}";
    struct sandbox_row row = row_of("one");
    row.config.env = env;
    uint64_t ticket = store_put(s, &row, note, &d);
    env[0] = 'X'; /* the store has a copy */
    wait_for(&d, 1);
    CHECK_INT(d.err, 0);
    CHECK(d.ticket == ticket && ticket != 0);
    (void)store_touch(s, &(struct store_touch){"one", 7777}, 1, note, &d);
    (void)store_touch(s, &(struct store_touch){"nobody", 7777}, 1, note, &d);
    wait_for(&d, 3);
    CHECK_INT(d.err, 0);
    struct loaded l = end_store(s);
    CHECK_INT(l.count, 1);
    CHECK_STREQ(l.last.id, "one");
    CHECK_STREQ(l.env, "{\"A\":\"1\"}");
    CHECK_STREQ(l.last.config.image, "base");
    CHECK_STREQ(l.last.config.instance_type, "basic");
    CHECK_INT(l.last.config.limits.memory_bytes, row.config.limits.memory_bytes);
    CHECK_INT(l.last.config.limits.cpu_milli, row.config.limits.cpu_milli);
    CHECK_INT(l.last.config.sleep_after_ms, 5);
    CHECK(l.last.config.ephemeral && !l.last.config.keep_alive);
    CHECK(l.last.config.reach.network == KEEPER_NETWORK_ALLOWLIST);
    CHECK(l.last.config.reach.bytes_per_second == 1 << 20 && l.last.config.reach.connections == 7);
    CHECK_INT(l.last.created_ms, 1000);
    CHECK_INT(l.last.last_used_ms, 7777);
}

TEST(store_keeps_the_order)
{
    struct done d = {0};
    REQUIRE(make_dir());
    struct store *s = start_store();
    REQUIRE(s);
    for (int i = 0; i < 200; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "s%d", i);
        struct sandbox_row row = row_of(id);
        (void)store_put(s, &row, note, &d);
        (void)store_delete(s, id, note, &d);
    }
    struct sandbox_row row = row_of("last");
    (void)store_put(s, &row, note, &d);
    (void)store_delete(s, "last", note, &d);
    row.last_used_ms = 42;
    (void)store_put(s, &row, note, &d);
    wait_for(&d, 403);
    struct loaded l = end_store(s);
    CHECK_INT(l.count, 1);
    CHECK_STREQ(l.last.id, "last");
    CHECK_INT(l.last.last_used_ms, 42);
}

TEST(store_writes_what_is_queued_when_it_ends)
{
    struct done d = {0};
    REQUIRE(make_dir());
    struct store *s = start_store();
    REQUIRE(s);
    struct sandbox_row row = row_of("one");
    (void)store_put(s, &row, note, &d);
    struct loaded l = end_store(s); /* without a turn of the loop */
    CHECK_INT(d.calls, 0);
    CHECK_INT(l.count, 1);
}

/* Something another program did to the file. */
static void tamper(const char *sql)
{
    sqlite3 *db = NULL;
    CHECK(sqlite3_open(path, &db) == SQLITE_OK && sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    (void)sqlite3_close(db);
}

TEST(store_tells_which_write_failed)
{
    struct done good = {0}, bad = {0};
    REQUIRE(make_dir());
    store_free(open_store());
    tamper("CREATE TRIGGER t BEFORE INSERT ON sandboxes WHEN NEW.id = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); "
           "END");
    struct store *s = start_store();
    REQUIRE(s);
    struct sandbox_row first = row_of("first"), wrong = row_of("bad"), second = row_of("second");
    (void)store_put(s, &first, note, &good);
    (void)store_put(s, &wrong, note, &bad);
    (void)store_put(s, &second, note, &good);
    wait_for(&good, 2);
    wait_for(&bad, 1);
    CHECK_INT(good.err, 0);
    CHECK(bad.err < 0);
    struct loaded l = end_store(s);
    CHECK_INT(l.count, 2);
}

TEST(store_refuses_a_newer_file)
{
    struct store *s = NULL;
    struct error e = {0};
    REQUIRE(make_dir());
    store_free(open_store());
    tamper("PRAGMA user_version = 1000");
    CHECK_INT(store_open(path, &s, &e), -EPROTO);
    CHECK(strstr(e.msg, "newer") != NULL);
    remove_dir();
}

TEST(store_refuses_what_is_no_database)
{
    struct store *s = NULL;
    struct error e = {0};
    REQUIRE(make_dir());
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 100; i++)
        CHECK(write(fd, "this is not a database, whatever it is\n", 39) == 39);
    (void)close(fd);
    CHECK(store_open(path, &s, &e) < 0);
    CHECK(e.msg[0] != '\0' && !strstr(e.msg, dir));
    remove_dir();
}
