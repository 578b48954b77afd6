/* SPDX-License-Identifier: Apache-2.0 */
/* test_db_faults.c: the keeper's ledger and the gateway's store on a disk that fails or loses its power at
 * any step (catalogue area 13).
 *
 * A story of puts and deletes is told once for every step that can fail. Afterwards the power goes, the
 * database is opened again, and it holds exactly what was acknowledged: REC-10 (no space), REC-11 (EIO, also
 * of a sync), REC-08 (from that step on nothing reaches the disk), REC-15 (no memory). */
#include "fault_vfs.h"
#include "base/log.h"
#include "gateway/store.h"
#include "keeper/ledger.h"
#include "test.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NAMES = 8, STEPS_FEWEST = 20, STEPS_MOST = 2000 };

/* What the caller was told about one name; the story's last word about it counts. */
enum fate { NEVER, THERE, GONE };

static char directory[64], path[80];
static enum fate fates[NAMES];
static bool found[NAMES];
static int pending;

struct op {
    int name;
    bool remove;
};

/* Whoever is told of a failure may believe that nothing has changed. */
static void settle(const struct op *op, bool ok)
{
    pending--;
    if (ok)
        fates[op->name] = op->remove ? GONE : THERE;
}

static void name_of(int i, char out[static 8])
{
    (void)snprintf(out, 8, "box-%d", i);
}

static void note_found(const char *id)
{
    int i = 0;
    if (sscanf(id, "box-%d", &i) == 1 && i >= 0 && i < NAMES)
        found[i] = true;
}

/* ---- the two databases behind one face */

struct database {
    int (*open)(struct loop *loop, struct error *e);
    void (*submit)(struct op *op);
    int (*load)(struct error *e);
    void (*close)(void);
};

static struct ledger *ledger;
static struct store *store;

static int open_ledger(struct loop *loop, struct error *e)
{
    ledger = NULL;
    return ledger_open(loop, path, &ledger, e);
}

static void ledger_told(void *arg, const struct error *e)
{
    settle(arg, e == NULL);
}

static void submit_ledger(struct op *op)
{
    struct ledger_row row = {.disk = (uint64_t)op->name + 1, .image = "base"};
    name_of(op->name, row.id);
    if (op->remove)
        ledger_delete(ledger, row.id, ledger_told, op);
    else
        ledger_put(ledger, &row, ledger_told, op);
}

static void ledger_row_found(const struct ledger_row *row, void *arg)
{
    (void)arg;
    note_found(row->id);
}

static int load_ledger(struct error *e)
{
    return ledger_load(ledger, ledger_row_found, NULL, e);
}

static void close_ledger(void)
{
    ledger_free(ledger);
}

static int open_store(struct loop *loop, struct error *e)
{
    store = NULL;
    int r = store_open(path, &store, e);
    return r < 0 ? r : store_start(store, loop, e);
}

static void store_told(void *arg, uint64_t ticket, int err)
{
    (void)ticket;
    settle(arg, err == 0);
}

static void submit_store(struct op *op)
{
    struct sandbox_row row = {.created_ms = 1, .last_used_ms = 1};
    name_of(op->name, row.id);
    row.config = (struct sandbox_config){.image = "base", .instance_type = "basic"};
    if (op->remove)
        (void)store_delete(store, row.id, store_told, op);
    else
        (void)store_put(store, &row, store_told, op);
}

static int store_row_found(const struct sandbox_row *row, void *arg)
{
    (void)arg;
    note_found(row->id);
    return 0;
}

static int load_store(struct error *e)
{
    store_free(store); /* its writer owns the connection: look with another */
    store = NULL;
    int r = store_open(path, &store, e);
    return r < 0 ? r : store_load(store, store_row_found, NULL, e);
}

static void close_store(void)
{
    store_free(store);
}

static const struct database the_ledger = {open_ledger, submit_ledger, load_ledger, close_ledger};
static const struct database the_store = {open_store, submit_store, load_store, close_store};

/* ---- the story */

static void wait_all(struct loop *loop)
{
    for (int i = 0; pending && i < 1000; i++)
        (void)loop_step(loop, 100);
    CHECK_INT(pending, 0);
}

/* One after the other and several at once, so that both single writes and batches are among them. */
static void tell(const struct database *db, struct loop *loop)
{
    static struct op alone[] = {{0, false}, {1, false}, {0, true}};
    static struct op together[] = {{2, false}, {3, false}, {1, true}, {4, false},
                                   {5, false}, {3, true},  {6, false}};
    for (size_t i = 0; i < ARRAY_SIZE(alone); i++) {
        pending++;
        db->submit(&alone[i]);
        wait_all(loop);
    }
    pending += (int)ARRAY_SIZE(together);
    for (size_t i = 0; i < ARRAY_SIZE(together); i++)
        db->submit(&together[i]);
    wait_all(loop);
}

static void compare(int step)
{
    for (int i = 0; i < NAMES; i++) {
        char what[100];
        (void)snprintf(what, sizeof what, "step %d: box-%d was told to be %s and is %s", step, i,
                       fates[i] == THERE ? "there" : "gone", found[i] ? "there" : "gone");
        if (found[i] != (fates[i] == THERE))
            test_fail(__FILE__, __LINE__, what);
    }
}

/* The story with the fault that is set; then the power goes, and what was acknowledged must be there. */
static void once(const struct database *db, int step)
{
    struct loop *loop;
    struct error e = {0};
    REQUIRE(loop_new(&loop, &e) == 0);
    memset(fates, 0, sizeof fates);
    memset(found, 0, sizeof found);
    if (db->open(loop, &e) == 0)
        tell(db, loop);
    else
        CHECK(e.code && e.msg[0]);
    db->close(); /* writes back what is in the log, or fails to */
    fault_vfs_power_loss();
    REQUIRE(db->open(loop, &e) == 0);
    CHECK_INT(db->load(&e), 0);
    compare(step);
    db->close();
    loop_free(loop);
}

static void set_up(void)
{
    fault_vfs_install();
    log_init("test", (enum log_level)(LOG_ERROR + 1),
             LOG_TEXT); /* every fault is told, and there are thousands */
    (void)snprintf(directory, sizeof directory, "/tmp/silica-faults-XXXXXX");
    if (!mkdtemp(directory))
        abort();
    (void)snprintf(path, sizeof path, "%s/db", directory);
}

static void tear_down(void)
{
    fault_vfs_reset();
    (void)unlink(path);
    (void)rmdir(directory);
}

/* For every step until none is hit any more. */
static void every_change(const struct database *db, int code, bool forever)
{
    int step = 1;
    bool hit = true;
    set_up();
    for (; hit && step < STEPS_MOST && !test_failed; step++) {
        fault_vfs_reset();
        fault_vfs_fail(step, code, forever);
        once(db, step);
        hit = fault_vfs_hit();
    }
    CHECK(step > STEPS_FEWEST);
    tear_down();
}

static void every_malloc(const struct database *db)
{
    bool hit = true;
    int step = 1;
    set_up();
    for (; hit && !test_failed; step += 1 + step / 60) { /* the first ones all, later ones by chance */
        fault_vfs_reset();
        fault_vfs_fail_malloc(step);
        once(db, step);
        hit = fault_vfs_hit();
    }
    CHECK(step > STEPS_FEWEST);
    tear_down();
}

TEST(REC_10_ledger_without_space)
{
    every_change(&the_ledger, SQLITE_FULL, false);
}

TEST(REC_10_store_without_space)
{
    every_change(&the_store, SQLITE_FULL, false);
}

TEST(REC_11_ledger_on_a_failing_disk)
{
    every_change(&the_ledger, SQLITE_IOERR, false);
}

TEST(REC_11_store_on_a_failing_disk)
{
    every_change(&the_store, SQLITE_IOERR, false);
}

TEST(REC_08_ledger_when_the_power_goes)
{
    every_change(&the_ledger, SQLITE_IOERR, true);
}

TEST(REC_08_store_when_the_power_goes)
{
    every_change(&the_store, SQLITE_IOERR, true);
}

TEST(REC_15_ledger_without_memory)
{
    every_malloc(&the_ledger);
}

TEST(REC_15_store_without_memory)
{
    every_malloc(&the_store);
}
