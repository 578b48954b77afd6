/* SPDX-License-Identifier: Apache-2.0 */
/* fault_vfs.c: see fault_vfs.h. Not for two threads at a time: one connection, used by one thread at a time.
 */
#include "fault_vfs.h"
#include "base/util.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { FILES_MAX = 8, FILE_BYTES_MAX = 512 << 10 };

struct image {
    unsigned char bytes[FILE_BYTES_MAX];
    sqlite3_int64 size;
};

struct disk_file {
    char name[512];
    bool exists;
    struct image now, durable;
    unsigned char dirty[FILE_BYTES_MAX];
};

struct handle { /* begins with SQLite's own part */
    sqlite3_file base;
    struct disk_file *file;
};

static struct disk_file *files[FILES_MAX];
static struct {
    atomic_int changes, fail_at, code, mallocs, fail_malloc_at;
    atomic_bool forever, hit;
} plan;
static sqlite3_mem_methods real_malloc;

static int change_allowed(void)
{
    int n = ++plan.changes, at = plan.fail_at;
    if (at == 0 || (plan.forever ? n < at : n != at))
        return SQLITE_OK;
    plan.hit = true;
    return plan.code;
}

static struct disk_file *file_find(const char *name, bool create)
{
    struct disk_file **slot = NULL;
    for (size_t i = 0; i < FILES_MAX; i++) {
        if (files[i] && files[i]->exists && strcmp(files[i]->name, name) == 0)
            return files[i];
        if (!slot && (!files[i] || !files[i]->exists))
            slot = &files[i];
    }
    if (!create || !slot)
        return NULL;
    free(*slot);
    *slot = calloc(1, sizeof **slot);
    if (!*slot)
        abort();
    (*slot)->exists = true;
    (void)snprintf((*slot)->name, sizeof(*slot)->name, "%s", name);
    return *slot;
}

/* ---- one file */

static struct disk_file *file_of(sqlite3_file *f)
{
    return ((struct handle *)f)->file;
}

static int vfs_close(sqlite3_file *f)
{
    (void)f;
    return SQLITE_OK;
}

static int vfs_read(sqlite3_file *f, void *out, int n, sqlite3_int64 at)
{
    const struct image *now = &file_of(f)->now;
    sqlite3_int64 there = MIN(MAX(now->size - at, (sqlite3_int64)0), (sqlite3_int64)n);
    memset(out, 0, (size_t)n);
    memcpy(out, now->bytes + at, (size_t)there);
    return there == n ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int vfs_write(sqlite3_file *f, const void *data, int n, sqlite3_int64 at)
{
    struct disk_file *file = file_of(f);
    int code = change_allowed();
    if (code)
        return code;
    if (at + n > FILE_BYTES_MAX)
        return SQLITE_FULL;
    memcpy(file->now.bytes + at, data, (size_t)n);
    memset(file->dirty + at, 1, (size_t)n);
    file->now.size = MAX(file->now.size, at + n);
    return SQLITE_OK;
}

static int vfs_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    struct disk_file *file = file_of(f);
    int code = change_allowed();
    if (code)
        return code;
    if (size < file->now.size) {
        memset(file->now.bytes + size, 0, (size_t)(file->now.size - size));
        file->now.size = size;
    }
    return SQLITE_OK;
}

static int vfs_sync(sqlite3_file *f, int flags)
{
    struct disk_file *file = file_of(f);
    int code = change_allowed();
    (void)flags;
    size_t size = (size_t)file->now.size, old = (size_t)file->durable.size;
    for (size_t i = 0; i < size && !code; i++)
        if (file->dirty[i])
            file->durable.bytes[i] = file->now.bytes[i];
    if (!code && size < old)
        memset(file->durable.bytes + size, 0, old - size);
    if (!code)
        file->durable.size = file->now.size;
    memset(file->dirty, 0, size); /* also of what has just failed: nobody tries it again */
    return code;
}

static int vfs_size(sqlite3_file *f, sqlite3_int64 *ret)
{
    *ret = file_of(f)->now.size;
    return SQLITE_OK;
}

static int vfs_lock(sqlite3_file *f, int level)
{
    (void)f;
    (void)level;
    return SQLITE_OK;
}

static int vfs_reserved(sqlite3_file *f, int *ret)
{
    (void)f;
    *ret = 0;
    return SQLITE_OK;
}

static int vfs_control(sqlite3_file *f, int op, void *arg)
{
    (void)f;
    (void)op;
    (void)arg;
    return SQLITE_NOTFOUND;
}

static int vfs_sector(sqlite3_file *f)
{
    (void)f;
    return 4096;
}

static int vfs_traits(sqlite3_file *f)
{
    (void)f;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE; /* as the real one says */
}

/* ---- the directory */

static int vfs_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
    static const sqlite3_io_methods methods = {
        .iVersion = 1, /* no shared memory: the databases are locked exclusively */
        .xClose = vfs_close,
        .xRead = vfs_read,
        .xWrite = vfs_write,
        .xTruncate = vfs_truncate,
        .xSync = vfs_sync,
        .xFileSize = vfs_size,
        .xLock = vfs_lock,
        .xUnlock = vfs_lock,
        .xCheckReservedLock = vfs_reserved,
        .xFileControl = vfs_control,
        .xSectorSize = vfs_sector,
        .xDeviceCharacteristics = vfs_traits,
    };
    struct handle *h = (struct handle *)f;
    (void)v;
    *h = (struct handle){.file = name ? file_find(name, true) : NULL};
    if (!h->file)
        return SQLITE_CANTOPEN;
    h->base.pMethods = &methods;
    if (ret_flags)
        *ret_flags = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *v, const char *name, int sync_dir)
{
    struct disk_file *file = file_find(name, false);
    (void)v;
    (void)sync_dir;
    if (!file)
        return SQLITE_IOERR_DELETE_NOENT;
    file->exists = false;
    return SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *v, const char *name, int flags, int *ret)
{
    (void)v;
    (void)flags;
    struct disk_file *file = file_find(name, false);
    *ret = file && file->now.size > 0;
    return SQLITE_OK;
}

/* ---- SQLite's memory */

static bool malloc_fails(void)
{
    if (plan.fail_malloc_at == 0 || ++plan.mallocs != plan.fail_malloc_at)
        return false;
    plan.hit = true;
    return true;
}

static void *fault_malloc(int n)
{
    return malloc_fails() ? NULL : real_malloc.xMalloc(n);
}

static void *fault_realloc(void *p, int n)
{
    return malloc_fails() ? NULL : real_malloc.xRealloc(p, n);
}

/* ---- what tests call */

void fault_vfs_install(void)
{
    static sqlite3_vfs vfs;
    if (vfs.zName)
        return;
    sqlite3_mem_methods failing;
    (void)sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_malloc);
    failing = real_malloc;
    failing.xMalloc = fault_malloc;
    failing.xRealloc = fault_realloc;
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &failing) != SQLITE_OK || sqlite3_initialize() != SQLITE_OK)
        abort();
    vfs = *sqlite3_vfs_find(NULL); /* for time and chance; the rest is ours */
    vfs.iVersion = 1;
    vfs.zName = "fault";
    vfs.szOsFile = sizeof(struct handle);
    vfs.xOpen = vfs_open;
    vfs.xDelete = vfs_delete;
    vfs.xAccess = vfs_access;
    if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK)
        abort();
}

void fault_vfs_fail(int nth, int code, bool and_all_that_follow)
{
    plan.changes = 0;
    plan.hit = false;
    plan.code = code;
    plan.forever = and_all_that_follow;
    plan.fail_at = nth;
}

void fault_vfs_fail_malloc(int nth)
{
    plan.mallocs = 0;
    plan.hit = false;
    plan.fail_malloc_at = nth;
}

bool fault_vfs_hit(void)
{
    return plan.hit;
}

void fault_vfs_reset(void)
{
    for (size_t i = 0; i < FILES_MAX; i++) {
        free(files[i]);
        files[i] = NULL;
    }
    fault_vfs_fail(0, 0, false);
    fault_vfs_fail_malloc(0);
}

void fault_vfs_power_loss(void)
{
    for (size_t i = 0; i < FILES_MAX; i++) {
        if (!files[i])
            continue;
        memset(files[i]->dirty, 0, sizeof files[i]->dirty);
        files[i]->now = files[i]->durable;
    }
    plan.fail_at = plan.fail_malloc_at = 0;
}
