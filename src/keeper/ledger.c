/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c: see ledger.h. All SQL runs on one worker thread, so that statements need no lock and commits keep
 * their order. */
#include "keeper/ledger.h"
#include "net/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { BATCH_MAX = 256 };

struct entry {
    struct entry *next;
    struct ledger_row row;
    bool remove;
    void (*done)(void *arg, const struct error *e);
    void *arg;
    struct error error;
};

struct ledger {
    sqlite3 *db;
    sqlite3_stmt *put, *del;
    struct workers *thread;
    struct job flush; /* writes what `batch` holds; at most one is under way */
    bool flushing;
    struct entry *waiting, **waiting_last;
    struct entry *batch;
    bool fresh;
};

static int fail(struct ledger *l, struct error *reterr, const char *what)
{
    int code = sqlite3_errcode(l->db) == SQLITE_FULL ? ENOSPC : EIO;
    return error_set(reterr, code, "%s: %s", what, sqlite3_errmsg(l->db));
}

bool ledger_is_fresh(const struct ledger *l)
{
    return l->fresh;
}

static int is_ok(void *arg, int count, char **values, char **names)
{
    bool *ok = arg;
    (void)names;
    *ok = count == 1 && values[0] && strcmp(values[0], "ok") == 0;
    return 0;
}

/* What is damaged must not be believed: a row that is missing is a disk that would be swept. */
static int check(struct ledger *l, struct error *reterr)
{
    bool ok = false;
    if (sqlite3_exec(l->db, "PRAGMA quick_check(1)", is_ok, &ok, NULL))
        return fail(l, reterr, "check the keeper's ledger");
    return ok ? 0
              : error_set(reterr, EIO, "the keeper's ledger (keeper.db) is damaged; restore it from a copy");
}

int ledger_open(struct loop *loop, const char *path, struct ledger **ret, struct error *reterr)
{
    static const char schema[] =
        /* locked first: then the log's index is in our memory and not in a third file */
        "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "CREATE TABLE IF NOT EXISTS sandboxes("
        " id TEXT PRIMARY KEY, image TEXT NOT NULL, disk INTEGER NOT NULL UNIQUE,"
        " memory_bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL, disk_inodes INTEGER NOT NULL,"
        " io_bps INTEGER NOT NULL, io_iops INTEGER NOT NULL, tasks INTEGER NOT NULL, cpu_milli INTEGER NOT "
        "NULL"
        ") WITHOUT ROWID;"
        "PRAGMA user_version=1;";
    struct ledger *l = calloc(1, sizeof *l);
    if (!l)
        return error_sys(reterr, ENOMEM, "open the keeper's ledger");
    l->waiting_last = &l->waiting;
    struct stat st;
    int r = 0;
    l->fresh = stat(path, &st) < 0 || st.st_size == 0;
    /* what SQLite makes is readable by everybody; its other files take the mode of this one */
    auto_close int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0)
        (void)fchmod(file, 0600);
    if (sqlite3_open_v2(path, &l->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) ||
        sqlite3_exec(l->db, schema, NULL, NULL, NULL) ||
        sqlite3_prepare_v2(l->db, "INSERT INTO sandboxes VALUES(?,?,?,?,?,?,?,?,?,?)", -1, &l->put, NULL) ||
        sqlite3_prepare_v2(l->db, "DELETE FROM sandboxes WHERE id=?", -1, &l->del, NULL))
        r = fail(l, reterr, "open the keeper's ledger");
    if (r == 0)
        r = check(l, reterr);
    if (r == 0)
        r = workers_new(loop, 1, NULL, NULL, &l->thread, reterr);
    if (r < 0) {
        ledger_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    if (l->thread)
        workers_finish(l->thread); /* also what its callbacks submit */
    workers_free(l->thread);
    (void)sqlite3_finalize(l->put);
    (void)sqlite3_finalize(l->del);
    (void)sqlite3_close(l->db);
    free(l);
}

static void copy_text(char *out, size_t cap, const unsigned char *text)
{
    (void)snprintf(out, cap, "%s", text ? (const char *)text : "");
}

int ledger_load(struct ledger *l, void (*found)(const struct ledger_row *row, void *arg), void *arg,
                struct error *reterr)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(l->db, "SELECT * FROM sandboxes", -1, &st, NULL))
        return fail(l, reterr, "read the keeper's ledger");
    int step;
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        struct ledger_row row = {0};
        copy_text(row.id, sizeof row.id, sqlite3_column_text(st, 0));
        copy_text(row.image, sizeof row.image, sqlite3_column_text(st, 1));
        row.disk = (uint64_t)sqlite3_column_int64(st, 2);
        row.limits = (struct limits){.memory_bytes = (uint64_t)sqlite3_column_int64(st, 3),
                                     .disk_bytes = (uint64_t)sqlite3_column_int64(st, 4),
                                     .disk_inodes = (uint64_t)sqlite3_column_int64(st, 5),
                                     .io_bps = (uint64_t)sqlite3_column_int64(st, 6),
                                     .io_iops = (uint64_t)sqlite3_column_int64(st, 7),
                                     .tasks = (uint32_t)sqlite3_column_int64(st, 8),
                                     .cpu_milli = (uint32_t)sqlite3_column_int64(st, 9)};
        found(&row, arg);
    }
    int r = step == SQLITE_DONE ? 0 : fail(l, reterr, "read the keeper's ledger");
    (void)sqlite3_finalize(st);
    return r;
}

static void entry_write(struct ledger *l, struct entry *e)
{
    sqlite3_stmt *st = e->remove ? l->del : l->put;
    const struct ledger_row *row = &e->row;
    (void)sqlite3_bind_text(st, 1, row->id, -1, SQLITE_STATIC);
    if (!e->remove) {
        const uint64_t numbers[] = {
            row->disk,          row->limits.memory_bytes, row->limits.disk_bytes, row->limits.disk_inodes,
            row->limits.io_bps, row->limits.io_iops,      row->limits.tasks,      row->limits.cpu_milli};
        (void)sqlite3_bind_text(st, 2, row->image, -1, SQLITE_STATIC);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
            (void)sqlite3_bind_int64(st, (int)i + 3, (sqlite3_int64)numbers[i]);
    }
    if (sqlite3_step(st) != SQLITE_DONE)
        (void)fail(l, &e->error, "write the keeper's ledger");
    (void)sqlite3_reset(st);
}

static void flush_run(struct job *j)
{
    struct ledger *l = container_of(j, struct ledger, flush);
    struct error e = {0};
    if (sqlite3_exec(l->db, "BEGIN IMMEDIATE", NULL, NULL, NULL))
        (void)fail(l, &e, "write the keeper's ledger");
    for (struct entry *n = l->batch; n && !e.code; n = n->next) {
        entry_write(l, n);                 /* one that fails is undone alone; the others go on */
        if (sqlite3_get_autocommit(l->db)) /* unless it was so bad that all of them are undone */
            e = n->error;
    }
    if (!e.code && sqlite3_exec(l->db, "COMMIT", NULL, NULL, NULL)) {
        (void)fail(l, &e, "write the keeper's ledger");
        (void)sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL); /* fine when there is nothing left to undo */
    }
    for (struct entry *n = l->batch; n && e.code; n = n->next)
        n->error = e;
}

static void flush_done(struct job *j);

static void flush_start(struct ledger *l)
{
    struct entry **end = &l->waiting;
    for (size_t n = 0; *end && n < BATCH_MAX; n++)
        end = &(*end)->next;
    l->batch = l->waiting;
    l->waiting = *end;
    *end = NULL;
    if (!l->waiting)
        l->waiting_last = &l->waiting;
    l->flushing = true;
    l->flush = (struct job){.run = flush_run, .done = flush_done};
    workers_submit(l->thread, &l->flush, false);
}

static void flush_done(struct job *j)
{
    struct ledger *l = container_of(j, struct ledger, flush);
    struct entry *n = l->batch;
    l->batch = NULL;
    l->flushing = false;
    if (l->waiting)
        flush_start(l);
    while (n) {
        struct entry *next = n->next;
        n->done(n->arg, n->error.code ? &n->error : NULL);
        free(n);
        n = next;
    }
}

static void submit(struct ledger *l, const struct ledger_row *row, bool remove,
                   void (*done)(void *, const struct error *), void *arg)
{
    struct entry *e = calloc(1, sizeof *e);
    if (!e) {
        struct error no_memory;
        (void)error_sys(&no_memory, ENOMEM, "write the keeper's ledger");
        done(arg, &no_memory);
        return;
    }
    *e = (struct entry){.row = *row, .remove = remove, .done = done, .arg = arg};
    *l->waiting_last = e;
    l->waiting_last = &e->next;
    if (!l->flushing)
        flush_start(l);
}

void ledger_put(struct ledger *l, const struct ledger_row *row, void (*done)(void *, const struct error *),
                void *arg)
{
    submit(l, row, false, done, arg);
}

void ledger_delete(struct ledger *l, const char *id, void (*done)(void *, const struct error *), void *arg)
{
    struct ledger_row row = {0};
    (void)snprintf(row.id, sizeof row.id, "%s", id);
    submit(l, &row, true, done, arg);
}
