/* SPDX-License-Identifier: Apache-2.0 */
/* spool.h: append-only bytes that any number of readers read by offset: in memory while small, then in an
 * unlinked file, of which the newest bytes are kept.
 *
 * One spool holds one output stream of one command. Appending never fails: beyond the cap, or what the disk
 * has room for, the oldest bytes give way to the newest. Offsets count from the first byte ever appended, so
 * that a reader who comes too late sees how much he has missed. */
#pragma once

#include "base/util.h"

enum { SPOOL_MEMORY_MAX = 256 * 1024 };

/* What all spools of a program share. */
struct spool_pool {
    uint64_t cap_bytes;      /* kept per spool */
    size_t memory_bytes;     /* held by all spools now */
    size_t memory_max_bytes; /* above this, spools go to a file at once */
    const char *const
        *dirs; /* where unlinked files may be made, NULL-terminated; the first that works is taken */
};

struct spool;

struct spool *spool_new(
    struct spool_pool *pool); /* NULL when memory is short; one reference is the caller's */
struct spool *spool_ref(struct spool *s);
void spool_unref(struct spool *s); /* NULL is fine */

void spool_append(struct spool *s, const void *data, size_t n);
uint64_t spool_begin(
    const struct spool *s); /* the oldest byte that is still there; what is before it is lost */
uint64_t spool_end(const struct spool *s);
uint64_t spool_line_end(const struct spool *s); /* one past the last newline */
uint64_t spool_capacity(const struct spool *s); /* how many bytes it keeps at most */
/* At most n bytes from offset; 0 at the end, -ESTALE before the beginning, -errno when the file cannot be
 * read. */
ssize_t spool_read(const struct spool *s, uint64_t offset, void *data, size_t n);
/* The end without NUL bytes behind the last other byte and without one final newline. */
uint64_t spool_trimmed_end(const struct spool *s);
