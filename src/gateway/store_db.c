/* SPDX-License-Identifier: Apache-2.0 */
/* store_db.c: the SQLite file: schema, migrations, statements; see store_internal.h.
 *
 * WAL with synchronous=FULL: a commit is on disk when it returns. The file is locked exclusively, because one
 * process owns it; SQLite then keeps the WAL index in memory instead of a third file. */
#include "gateway/store_internal.h"
#include "base/log.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

/* The order of the columns in PUT, LOAD and COLUMNS below. */
enum {
    COL_ID = 1,
    COL_IMAGE,
    COL_INSTANCE_TYPE,
    COL_MEMORY,
    COL_DISK,
    COL_INODES,
    COL_IO_BPS,
    COL_IO_IOPS,
    COL_TASKS,
    COL_CPU,
    COL_ENV,
    COL_LABELS,
    COL_SLEEP,
    COL_KEEP_ALIVE,
    COL_EPHEMERAL,
    COL_CREATED,
    COL_LAST_USED,
    COL_OWNER,
    COL_NETWORK,
    COL_USER,
    COL_WORKDIR,
    COL_HOSTNAME,
    COL_VOLUMES,
    COL_ALLOW,
    COL_NET_BPS,
    COL_NET_CONNECTIONS,
};

#define COLUMNS                                                                                            \
    "id, image, instance_type, memory_bytes, disk_bytes, disk_inodes, io_bps, io_iops, tasks, cpu_milli, " \
    "env, labels, sleep_after_ms, keep_alive, ephemeral, created_ms, last_used_ms, owner, network, "       \
    "run_as, workdir, hostname, volumes, allow, net_bps, net_connections"

#define TOKEN_COLUMNS "id, hash, scope, sandbox, name, created_ms, expires_ms"

/* Forward only: a step is never changed once released, only followed by another. */
static const char *const migrations[] = {
    "CREATE TABLE sandboxes ("
    " id TEXT PRIMARY KEY NOT NULL, image TEXT NOT NULL, instance_type TEXT NOT NULL,"
    " memory_bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL, disk_inodes INTEGER NOT NULL,"
    " io_bps INTEGER NOT NULL, io_iops INTEGER NOT NULL, tasks INTEGER NOT NULL, cpu_milli INTEGER NOT NULL,"
    " env TEXT NOT NULL, labels TEXT NOT NULL, sleep_after_ms INTEGER NOT NULL,"
    " keep_alive INTEGER NOT NULL, ephemeral INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE tokens ("
    " id TEXT PRIMARY KEY NOT NULL, hash BLOB NOT NULL UNIQUE, scope TEXT NOT NULL, sandbox TEXT NOT NULL,"
    " name TEXT NOT NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "ALTER TABLE sandboxes ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE ports ("
    " sandbox TEXT NOT NULL, port INTEGER NOT NULL, token TEXT NOT NULL, name TEXT NOT NULL,"
    " exposed_ms INTEGER NOT NULL, PRIMARY KEY (sandbox, port), UNIQUE (sandbox, token)) STRICT, WITHOUT "
    "ROWID",
    "ALTER TABLE sandboxes ADD COLUMN network INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sandboxes ADD COLUMN run_as TEXT;"
    "ALTER TABLE sandboxes ADD COLUMN workdir TEXT;"
    "ALTER TABLE sandboxes ADD COLUMN hostname TEXT;"
    "ALTER TABLE sandboxes ADD COLUMN volumes TEXT",
    "CREATE TABLE containers (id TEXT PRIMARY KEY NOT NULL, record TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "ALTER TABLE sandboxes ADD COLUMN allow TEXT;"
    "ALTER TABLE sandboxes ADD COLUMN net_bps INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN net_connections INTEGER NOT NULL DEFAULT 0",
};

struct store_db {
    sqlite3 *sql;
    sqlite3_stmt *begin, *commit, *put, *delete, *touch, *put_token, *delete_token;
    sqlite3_stmt *put_port, *delete_port, *delete_ports;
    sqlite3_stmt *put_container, *delete_container;
};

static int code_to_errno(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_READONLY:
        return -EROFS;
    default:
        return -EIO;
    }
}

static int fail(struct store_db *db, const char *what, struct error *reterr)
{
    int r = code_to_errno(sqlite3_errcode(db->sql));
    return error_set(reterr, r ? -r : EIO, "state database: %s: %s", what, sqlite3_errmsg(db->sql));
}

static int exec(struct store_db *db, const char *sql, const char *what, struct error *reterr)
{
    return sqlite3_exec(db->sql, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(db, what, reterr);
}

static int read_version(struct store_db *db, int *ret, struct error *reterr)
{
    sqlite3_stmt *stmt;
    if (sqlite3_prepare_v2(db->sql, "PRAGMA user_version", -1, &stmt, NULL) != SQLITE_OK)
        return fail(db, "read its version", reterr);
    int r = sqlite3_step(stmt) == SQLITE_ROW ? 0 : fail(db, "read its version", reterr);
    *ret = sqlite3_column_int(stmt, 0);
    (void)sqlite3_finalize(stmt);
    return r;
}

static int migrate(struct store_db *db, struct error *reterr)
{
    int version = 0;
    int r = read_version(db, &version, reterr);
    if (r < 0)
        return r;
    if (version < 0 || version > (int)ARRAY_SIZE(migrations))
        return error_set(reterr, EPROTO,
                         "state database: version %d was written by a newer release; this one knows %zu",
                         version, ARRAY_SIZE(migrations));
    if (version == (int)ARRAY_SIZE(migrations))
        return 0;

    r = exec(db, "BEGIN IMMEDIATE", "begin the migration", reterr);
    for (int i = version; r == 0 && i < (int)ARRAY_SIZE(migrations); i++)
        r = exec(db, migrations[i], "migrate", reterr);
    char pragma[64];
    (void)snprintf(pragma, sizeof pragma, "PRAGMA user_version = %zu", ARRAY_SIZE(migrations));
    r = r < 0 ? r : exec(db, pragma, "set its version", reterr);
    r = r < 0 ? r : exec(db, "COMMIT", "commit the migration", reterr);
    if (r < 0)
        store_db_rollback(db);
    return r;
}

static int is_ok(void *arg, int count, char **values, char **names)
{
    bool *ok = arg;
    (void)names;
    *ok = count == 1 && values[0] && strcmp(values[0], "ok") == 0;
    return 0;
}

/* What is damaged is not believed, and not written to. */
static int check(struct store_db *db, struct error *reterr)
{
    bool ok = false;
    if (sqlite3_exec(db->sql, "PRAGMA quick_check(1)", is_ok, &ok, NULL) != SQLITE_OK)
        return fail(db, "check it", reterr);
    return ok ? 0 : error_set(reterr, EIO, "state database: it is damaged; restore state.db from a copy");
}

static int prepare(struct store_db *db, const char *sql, sqlite3_stmt **ret, struct error *reterr)
{
    if (sqlite3_prepare_v3(db->sql, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL) != SQLITE_OK)
        return fail(db, "prepare", reterr);
    return 0;
}

static int set_up(struct store_db *db, struct error *reterr)
{
    int r;
    if ((r = exec(db, "PRAGMA locking_mode = EXCLUSIVE", "lock it", reterr)) < 0 ||
        (r = exec(db, "PRAGMA journal_mode = WAL", "switch to WAL", reterr)) < 0 ||
        (r = exec(db, "PRAGMA synchronous = FULL", "set synchronous", reterr)) < 0 ||
        (r = exec(db, "PRAGMA temp_store = MEMORY", "set temp_store", reterr)) < 0 ||
        (r = check(db, reterr)) < 0 || (r = migrate(db, reterr)) < 0)
        return r;
    if ((r = prepare(db, "BEGIN IMMEDIATE", &db->begin, reterr)) < 0 ||
        (r = prepare(db, "COMMIT", &db->commit, reterr)) < 0 ||
        (r = prepare(db,
                     "INSERT OR REPLACE INTO sandboxes (" COLUMNS ") "
                     "VALUES "
                     "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?"
                     "24,?25,?26)",
                     &db->put, reterr)) < 0 ||
        (r = prepare(db, "DELETE FROM sandboxes WHERE id = ?1", &db->delete, reterr)) < 0 ||
        (r = prepare(db, "UPDATE sandboxes SET last_used_ms = ?2 WHERE id = ?1", &db->touch, reterr)) < 0 ||
        (r = prepare(db, "INSERT OR REPLACE INTO tokens (" TOKEN_COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7)",
                     &db->put_token, reterr)) < 0 ||
        (r = prepare(db, "DELETE FROM tokens WHERE id = ?1", &db->delete_token, reterr)) < 0 ||
        (r = prepare(db, "INSERT OR REPLACE INTO ports VALUES (?1,?2,?3,?4,?5)", &db->put_port, reterr)) <
            0 ||
        (r = prepare(db, "DELETE FROM ports WHERE sandbox = ?1 AND port = ?2", &db->delete_port, reterr)) <
            0 ||
        (r = prepare(db, "DELETE FROM ports WHERE sandbox = ?1", &db->delete_ports, reterr)) < 0 ||
        (r = prepare(db, "INSERT OR REPLACE INTO containers VALUES (?1,?2)", &db->put_container, reterr)) <
            0 ||
        (r = prepare(db, "DELETE FROM containers WHERE id = ?1", &db->delete_container, reterr)) < 0)
        return r;
    return 0;
}

int store_db_open(const char *path, struct store_db **ret, struct error *reterr)
{
    struct store_db *db = calloc(1, sizeof *db);
    if (!db)
        return error_sys(reterr, ENOMEM, "open the state database");
    /* NOMUTEX: one thread at a time uses the connection, store.c sees to it */
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    int r;
    if (sqlite3_open_v2(path, &db->sql, flags, NULL) != SQLITE_OK)
        r = fail(db, "open it", reterr);
    else
        r = set_up(db, reterr);
    if (r < 0) {
        store_db_close(db);
        return r;
    }
    *ret = db;
    return 0;
}

void store_db_close(struct store_db *db)
{
    if (!db)
        return;
    (void)sqlite3_finalize(db->begin);
    (void)sqlite3_finalize(db->commit);
    (void)sqlite3_finalize(db->put);
    (void)sqlite3_finalize(db->delete);
    (void)sqlite3_finalize(db->touch);
    (void)sqlite3_finalize(db->put_token);
    (void)sqlite3_finalize(db->delete_token);
    (void)sqlite3_finalize(db->put_port);
    (void)sqlite3_finalize(db->delete_port);
    (void)sqlite3_finalize(db->delete_ports);
    (void)sqlite3_finalize(db->put_container);
    (void)sqlite3_finalize(db->delete_container);
    (void)sqlite3_close(db->sql);
    free(db);
}

static void copy_text(sqlite3_stmt *stmt, int col, char *out, size_t cap)
{
    const unsigned char *s = sqlite3_column_text(stmt, col - 1);
    (void)snprintf(out, cap, "%s", s ? (const char *)s : "");
}

static uint64_t column_u64(sqlite3_stmt *stmt, int col)
{
    sqlite3_int64 v = sqlite3_column_int64(stmt, col - 1);
    return v < 0 ? 0 : (uint64_t)v;
}

/* The statement's own copy: valid until its next step. NULL stays NULL. */
static char *column_text(sqlite3_stmt *stmt, int col)
{
    return (char *)(uintptr_t)sqlite3_column_text(stmt, col - 1);
}

/* The texts in *row belong to the statement: valid until its next step. */
static void read_row(sqlite3_stmt *stmt, struct sandbox_row *row)
{
    struct sandbox_config *c = &row->config;
    copy_text(stmt, COL_ID, row->id, sizeof row->id);
    copy_text(stmt, COL_IMAGE, c->image, sizeof c->image);
    copy_text(stmt, COL_INSTANCE_TYPE, c->instance_type, sizeof c->instance_type);
    c->limits = (struct limits){
        .memory_bytes = column_u64(stmt, COL_MEMORY),
        .disk_bytes = column_u64(stmt, COL_DISK),
        .disk_inodes = column_u64(stmt, COL_INODES),
        .io_bps = column_u64(stmt, COL_IO_BPS),
        .io_iops = column_u64(stmt, COL_IO_IOPS),
        .tasks = (uint32_t)MIN(column_u64(stmt, COL_TASKS), (uint64_t)UINT32_MAX),
        .cpu_milli = (uint32_t)MIN(column_u64(stmt, COL_CPU), (uint64_t)UINT32_MAX),
    };
    c->env = column_text(stmt, COL_ENV);
    c->labels = column_text(stmt, COL_LABELS);
    c->settings = (struct sandbox_settings){.user = column_text(stmt, COL_USER),
                                            .workdir = column_text(stmt, COL_WORKDIR),
                                            .hostname = column_text(stmt, COL_HOSTNAME),
                                            .volumes = column_text(stmt, COL_VOLUMES)};
    c->sleep_after_ms = sqlite3_column_int64(stmt, COL_SLEEP - 1);
    c->keep_alive = sqlite3_column_int(stmt, COL_KEEP_ALIVE - 1) != 0;
    c->ephemeral = sqlite3_column_int(stmt, COL_EPHEMERAL - 1) != 0;
    row->created_ms = sqlite3_column_int64(stmt, COL_CREATED - 1);
    row->last_used_ms = sqlite3_column_int64(stmt, COL_LAST_USED - 1);
    copy_text(stmt, COL_OWNER, row->owner, sizeof row->owner);
    /* a value this release does not know is taken for the strictest */
    uint64_t network = column_u64(stmt, COL_NETWORK);
    c->reach.network = network < KEEPER_NETWORK_COUNT ? (enum keeper_network)network : KEEPER_NETWORK_NONE;
    c->reach.allow = column_text(stmt, COL_ALLOW);
    c->reach.bytes_per_second = column_u64(stmt, COL_NET_BPS);
    c->reach.connections =
        (uint32_t)MIN(column_u64(stmt, COL_NET_CONNECTIONS), (uint64_t)KEEPER_CONNECTIONS_MAX);
}

int store_db_load(struct store_db *db, int (*each)(const struct sandbox_row *row, void *arg), void *arg,
                  struct error *reterr)
{
    sqlite3_stmt *stmt;
    int r = prepare(db, "SELECT " COLUMNS " FROM sandboxes", &stmt, reterr);
    if (r < 0)
        return r;
    int rc = SQLITE_DONE;
    while (r >= 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct sandbox_row row = {0};
        read_row(stmt, &row);
        r = each(&row, arg);
        if (r < 0)
            (void)error_set(reterr, -r, "state database: sandbox '%s' cannot be loaded", row.id);
    }
    if (r >= 0)
        r = rc == SQLITE_DONE ? 0 : fail(db, "read it", reterr);
    (void)sqlite3_finalize(stmt);
    return r;
}

int store_db_load_ports(struct store_db *db, int (*each)(const struct port_row *row, void *arg), void *arg,
                        struct error *reterr)
{
    sqlite3_stmt *stmt;
    int r = prepare(db,
                    "SELECT sandbox, port, token, name, exposed_ms FROM ports WHERE sandbox IN (SELECT id "
                    "FROM sandboxes)",
                    &stmt, reterr);
    if (r < 0)
        return r;
    int rc = SQLITE_DONE;
    while (r >= 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct port_row row = {.port = sqlite3_column_int(stmt, 1),
                               .exposed_ms = sqlite3_column_int64(stmt, 4)};
        copy_text(stmt, 1, row.sandbox, sizeof row.sandbox);
        copy_text(stmt, 3, row.token, sizeof row.token);
        copy_text(stmt, 4, row.name, sizeof row.name);
        r = each(&row, arg);
        if (r < 0)
            (void)error_set(reterr, -r, "state database: the ports of '%s' cannot be loaded", row.sandbox);
    }
    if (r >= 0)
        r = rc == SQLITE_DONE ? 0 : fail(db, "read it", reterr);
    (void)sqlite3_finalize(stmt);
    return r;
}

int store_db_load_tokens(struct store_db *db, int (*each)(const struct token_row *row, void *arg), void *arg,
                         struct error *reterr)
{
    sqlite3_stmt *stmt;
    int r = prepare(db, "SELECT " TOKEN_COLUMNS " FROM tokens", &stmt, reterr);
    if (r < 0)
        return r;
    int rc = SQLITE_DONE;
    while (r >= 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct token_row row = {.created_ms = sqlite3_column_int64(stmt, 5),
                                .expires_ms = sqlite3_column_int64(stmt, 6)};
        copy_text(stmt, 1, row.id, sizeof row.id);
        copy_text(stmt, 3, row.scope, sizeof row.scope);
        copy_text(stmt, 4, row.sandbox, sizeof row.sandbox);
        copy_text(stmt, 5, row.name, sizeof row.name);
        const void *hash = sqlite3_column_blob(stmt, 1);
        if (!hash || sqlite3_column_bytes(stmt, 1) != TOKEN_HASH_SIZE)
            continue; /* nothing that is presented could equal it */
        memcpy(row.hash, hash, sizeof row.hash);
        r = each(&row, arg);
        if (r < 0)
            (void)error_set(reterr, -r, "state database: token '%s' cannot be loaded", row.id);
    }
    if (r >= 0)
        r = rc == SQLITE_DONE ? 0 : fail(db, "read it", reterr);
    (void)sqlite3_finalize(stmt);
    return r;
}

int store_db_load_containers(struct store_db *db, int (*each)(const struct container_row *row, void *arg),
                             void *arg, struct error *reterr)
{
    sqlite3_stmt *stmt;
    int r = prepare(db, "SELECT id, record FROM containers", &stmt, reterr);
    if (r < 0)
        return r;
    int rc = SQLITE_DONE;
    while (r >= 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct container_row row = {.record = (const char *)sqlite3_column_text(stmt, 1)};
        copy_text(stmt, 1, row.id, sizeof row.id);
        r = row.record ? each(&row, arg) : -ENOMEM;
        if (r < 0)
            (void)error_set(reterr, -r, "state database: container '%s' cannot be loaded", row.id);
    }
    if (r >= 0)
        r = rc == SQLITE_DONE ? 0 : fail(db, "read it", reterr);
    (void)sqlite3_finalize(stmt);
    return r;
}

/* Runs a statement without results and makes it ready for the next time. */
static int run(struct store_db *db, sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    if (rc != SQLITE_DONE)
        log_error("state database: %s", sqlite3_errmsg(db->sql));
    (void)sqlite3_reset(stmt); /* repeats the error of step */
    (void)sqlite3_clear_bindings(stmt);
    return rc == SQLITE_DONE ? 0 : code_to_errno(rc) ?: -EIO;
}

int store_db_begin(struct store_db *db)
{
    return run(db, db->begin);
}

int store_db_commit(struct store_db *db)
{
    return run(db, db->commit);
}

void store_db_rollback(struct store_db *db)
{
    if (!sqlite3_get_autocommit(db->sql)) /* some errors have rolled back already */
        (void)sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
}

static void bind_text(sqlite3_stmt *stmt, int col, const char *s)
{
    (void)sqlite3_bind_text(stmt, col, s, -1,
                            SQLITE_STATIC); /* a failed bind is NULL, which the schema refuses */
}

static void bind_int(sqlite3_stmt *stmt, int col, int64_t v)
{
    (void)sqlite3_bind_int64(stmt, col, v);
}

int store_db_put(struct store_db *db, const struct sandbox_row *row)
{
    const struct sandbox_config *c = &row->config;
    sqlite3_stmt *s = db->put;
    bind_text(s, COL_ID, row->id);
    bind_text(s, COL_IMAGE, c->image);
    bind_text(s, COL_INSTANCE_TYPE, c->instance_type);
    bind_int(s, COL_MEMORY, (int64_t)c->limits.memory_bytes);
    bind_int(s, COL_DISK, (int64_t)c->limits.disk_bytes);
    bind_int(s, COL_INODES, (int64_t)c->limits.disk_inodes);
    bind_int(s, COL_IO_BPS, (int64_t)c->limits.io_bps);
    bind_int(s, COL_IO_IOPS, (int64_t)c->limits.io_iops);
    bind_int(s, COL_TASKS, c->limits.tasks);
    bind_int(s, COL_CPU, c->limits.cpu_milli);
    bind_text(s, COL_ENV, c->env ? c->env : "{}");
    bind_text(s, COL_LABELS, c->labels ? c->labels : "{}");
    bind_int(s, COL_SLEEP, c->sleep_after_ms);
    bind_int(s, COL_KEEP_ALIVE, c->keep_alive);
    bind_int(s, COL_EPHEMERAL, c->ephemeral);
    bind_int(s, COL_CREATED, row->created_ms);
    bind_int(s, COL_LAST_USED, row->last_used_ms);
    bind_text(s, COL_OWNER, row->owner);
    bind_int(s, COL_NETWORK, c->reach.network);
    bind_text(s, COL_USER, c->settings.user);
    bind_text(s, COL_WORKDIR, c->settings.workdir);
    bind_text(s, COL_HOSTNAME, c->settings.hostname);
    bind_text(s, COL_VOLUMES, c->settings.volumes);
    bind_text(s, COL_ALLOW, c->reach.allow);
    bind_int(s, COL_NET_BPS, (int64_t)c->reach.bytes_per_second);
    bind_int(s, COL_NET_CONNECTIONS, c->reach.connections);
    return run(db, s);
}

int store_db_put_port(struct store_db *db, const struct port_row *row)
{
    sqlite3_stmt *s = db->put_port;
    bind_text(s, 1, row->sandbox);
    bind_int(s, 2, row->port);
    bind_text(s, 3, row->token);
    bind_text(s, 4, row->name);
    bind_int(s, 5, row->exposed_ms);
    return run(db, s);
}

int store_db_delete_port(struct store_db *db, const struct port_row *row)
{
    bind_text(db->delete_port, 1, row->sandbox);
    bind_int(db->delete_port, 2, row->port);
    return run(db, db->delete_port);
}

int store_db_put_token(struct store_db *db, const struct token_row *row)
{
    sqlite3_stmt *s = db->put_token;
    bind_text(s, 1, row->id);
    (void)sqlite3_bind_blob(s, 2, row->hash, sizeof row->hash, SQLITE_STATIC);
    bind_text(s, 3, row->scope);
    bind_text(s, 4, row->sandbox);
    bind_text(s, 5, row->name);
    bind_int(s, 6, row->created_ms);
    bind_int(s, 7, row->expires_ms);
    return run(db, s);
}

int store_db_delete_token(struct store_db *db, const char *id)
{
    bind_text(db->delete_token, 1, id);
    return run(db, db->delete_token);
}

int store_db_put_container(struct store_db *db, const struct container_row *row)
{
    bind_text(db->put_container, 1, row->id);
    bind_text(db->put_container, 2, row->record);
    return run(db, db->put_container);
}

int store_db_delete_container(struct store_db *db, const char *id)
{
    bind_text(db->delete_container, 1, id);
    return run(db, db->delete_container);
}

int store_db_delete(struct store_db *db, const char *id)
{
    bind_text(db->delete_ports, 1, id);
    int r = run(db, db->delete_ports);
    if (r < 0)
        return r;
    bind_text(db->delete, 1, id);
    return run(db, db->delete);
}

int store_db_touch(struct store_db *db, const char *id, int64_t last_used_ms)
{
    bind_text(db->touch, 1, id);
    bind_int(db->touch, 2, last_used_ms);
    return run(db, db->touch);
}
