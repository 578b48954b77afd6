/* SPDX-License-Identifier: Apache-2.0 */
/* spool.c: see spool.h.
 *
 * Theory of operation
 * The store (memory, later a file) grows until it may not grow any more: the cap is reached, the disk is
 * full, or there is neither a place for a file nor more memory. From then on it is a ring of that size: byte
 * number n is at n modulo `ring`, which is where it has been all the time. */
#include "agent/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* a smaller ring is not worth having: everything is lost then */
enum { RING_MIN = 4096 };

struct spool {
    struct spool_pool *pool;
    unsigned refs;
    int fd;       /* -1: everything is in memory */
    bool no_file; /* no directory took a file: memory only */
    char *memory;
    size_t memory_cap;
    uint64_t ring; /* 0: still growing */
    uint64_t begin, end, line_end;
};

struct spool *spool_new(struct spool_pool *pool)
{
    struct spool *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->pool = pool;
    s->refs = 1;
    s->fd = -1;
    return s;
}

struct spool *spool_ref(struct spool *s)
{
    s->refs++;
    return s;
}

static void free_memory(struct spool *s)
{
    free(s->memory);
    s->memory = NULL;
    s->pool->memory_bytes -= s->memory_cap;
    s->memory_cap = 0;
}

void spool_unref(struct spool *s)
{
    if (!s || --s->refs)
        return;
    free_memory(s);
    close_fd(&s->fd);
    free(s);
}

static int write_all(int fd, const char *data, size_t n, uint64_t offset, size_t *ret_done)
{
    *ret_done = 0;
    while (*ret_done < n) {
        ssize_t w = pwrite(fd, data + *ret_done, n - *ret_done, (off_t)(offset + *ret_done));
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return w < 0 ? -errno : -EIO;
        *ret_done += (size_t)w;
    }
    return 0;
}

static int open_file(const struct spool *s)
{
    for (const char *const *dir = s->pool->dirs; *dir; dir++) {
        int fd = open(*dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0)
            return fd;
    }
    return -ENOENT;
}

/* Moves what is in memory to a file. */
static void spill(struct spool *s)
{
    auto_close int fd = open_file(s);
    size_t done = 0;
    if (fd < 0 || write_all(fd, s->memory, (size_t)s->end, 0, &done) < 0) {
        s->no_file = true;
        return;
    }
    s->fd = take_fd(fd);
    free_memory(s);
}

/* Room for n more bytes in memory; false when there is none. */
static bool reserve(struct spool *s, size_t n)
{
    size_t need = (size_t)s->end + n;
    if (need <= s->memory_cap)
        return true;
    size_t cap = s->memory_cap ? s->memory_cap : 1024;
    while (cap < need)
        cap *= 2;
    size_t more = cap - s->memory_cap;
    if (cap > SPOOL_MEMORY_MAX || s->pool->memory_bytes + more > s->pool->memory_max_bytes)
        return false;
    char *p = realloc(s->memory, cap);
    if (!p)
        return false;
    s->memory = p;
    s->memory_cap = cap;
    s->pool->memory_bytes += more;
    return true;
}

/* The store will not grow beyond `size` bytes. */
static void close_ring(struct spool *s, uint64_t size)
{
    s->ring = size >= RING_MIN || size == s->pool->cap_bytes ? size : 0;
}

static size_t put_memory(struct spool *s, const char *data, size_t n)
{
    if (!s->ring && s->end + n <= s->pool->cap_bytes && reserve(s, n)) {
        memcpy(s->memory + s->end, data, n);
        return n;
    }
    if (!s->ring && !s->no_file)
        spill(s);
    if (s->fd >= 0)
        return 0;
    if (!s->ring) {
        if (s->end < SPOOL_MEMORY_MAX)
            (void)reserve(s, (size_t)(SPOOL_MEMORY_MAX - s->end)); /* otherwise as it is */
        close_ring(s, MIN((uint64_t)s->memory_cap, s->pool->cap_bytes));
    }
    if (!s->ring)
        return 0;
    size_t at = (size_t)(s->end % s->ring);
    n = MIN(n, (size_t)s->ring - at);
    memcpy(s->memory + at, data, n);
    return n;
}

static size_t put_file(struct spool *s, const char *data, size_t n)
{
    size_t done;
    if (!s->ring && s->end >= s->pool->cap_bytes)
        close_ring(s, s->pool->cap_bytes);
    uint64_t at = s->ring ? s->end % s->ring : s->end;
    n = (size_t)MIN((uint64_t)n, (s->ring ? s->ring : s->pool->cap_bytes) - at);
    (void)write_all(s->fd, data, n, at, &done); /* a full disk shows as a short count */
    if (!done && !s->ring && s->begin == 0) {
        close_ring(s, s->end);
        if (s->ring)
            (void)write_all(s->fd, data, n = (size_t)MIN((uint64_t)n, s->ring), 0, &done);
    }
    return done;
}

void spool_append(struct spool *s, const void *data, size_t n)
{
    const char *p = data, *nl = n ? memrchr(data, '\n', n) : NULL;
    if (nl)
        s->line_end = s->end + (uint64_t)(nl - p) + 1;
    while (n) {
        size_t done = s->fd < 0 ? put_memory(s, p, n) : 0;
        if (!done && s->fd >= 0)
            done = put_file(s, p, n);
        if (!done) { /* nothing can be kept, not even what there was */
            s->begin = s->end += n;
            return;
        }
        p += done;
        n -= done;
        s->end += done;
        if (s->ring && s->end - s->begin > s->ring)
            s->begin = s->end - s->ring;
    }
}

uint64_t spool_begin(const struct spool *s)
{
    return s->begin;
}

uint64_t spool_end(const struct spool *s)
{
    return s->end;
}

uint64_t spool_line_end(const struct spool *s)
{
    return s->line_end;
}

uint64_t spool_capacity(const struct spool *s)
{
    return s->ring ? s->ring : s->pool->cap_bytes;
}

/* From one place of the store, not across the seam of a ring. */
static ssize_t read_at(const struct spool *s, uint64_t at, char *data, size_t n)
{
    if (s->fd < 0) {
        memcpy(data, s->memory + at, n);
        return (ssize_t)n;
    }
    ssize_t r;
    do
        r = pread(s->fd, data, n, (off_t)at);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

ssize_t spool_read(const struct spool *s, uint64_t offset, void *data, size_t n)
{
    if (offset >= s->end)
        return 0;
    if (offset < s->begin)
        return -ESTALE;
    n = (size_t)MIN((uint64_t)n, s->end - offset);
    if (!s->ring)
        return read_at(s, offset, data, n);
    uint64_t at = offset % s->ring;
    size_t first = (size_t)MIN((uint64_t)n, s->ring - at);
    ssize_t r = read_at(s, at, data, first);
    if (r != (ssize_t)first || first == n)
        return r;
    ssize_t more = read_at(s, 0, (char *)data + first, n - first);
    return more < 0 ? more : r + more;
}

uint64_t spool_trimmed_end(const struct spool *s)
{
    char tail[256];
    uint64_t end = s->end;
    while (end > s->begin) {
        size_t n = (size_t)MIN(end - s->begin, (uint64_t)sizeof tail);
        if (spool_read(s, end - n, tail, n) != (ssize_t)n)
            return s->end;
        while (n && tail[n - 1] == '\0') {
            n--;
            end--;
        }
        if (n)
            return tail[n - 1] == '\n' ? end - 1 : end;
    }
    return s->begin;
}
