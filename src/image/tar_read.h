/* SPDX-License-Identifier: Apache-2.0 */
/* tar_read.h: a strict, streaming reader of tar archives: ustar, GNU (long names, base-256 numbers, sparse
 * files) and pax (path, linkpath, size, uid, gid, mtime, xattrs, the three sparse formats). No I/O of its
 * own.
 *
 * Everything is bounded: names by TAR_PATH_MAX, extended headers by TAR_EXTENDED_MAX, maps of sparse files by
 * TAR_SPARSE_MAX. What is not understood is an error, never guessed. */
#pragma once

#include "base/error.h"

enum {
    TAR_BLOCK = 512,
    TAR_PATH_MAX = 4096,            /* with the terminating NUL */
    TAR_EXTENDED_MAX = 1024 * 1024, /* one pax header or long name */
    TAR_SPARSE_MAX = 16384,         /* pieces of one file */
    TAR_XATTRS_MAX = 64,
};

enum tar_type {
    TAR_FILE,
    TAR_HARDLINK,
    TAR_SYMLINK,
    TAR_CHAR,
    TAR_BLOCK_DEVICE,
    TAR_DIR,
    TAR_FIFO,
};

struct tar_xattr {
    const char *name; /* without the prefix of the pax key */
    const void *value;
    size_t len;
};

/* Valid until the next call of tar_next. */
struct tar_entry {
    enum tar_type type;
    const char *path, *link; /* as the archive has them */
    uint32_t mode;           /* 07777 at most */
    uint64_t uid, gid;
    int64_t mtime_s;
    uint32_t mtime_ns;
    uint64_t size; /* of the file when unpacked, holes included */
    bool sparse;
    const struct tar_xattr *xattrs;
    size_t xattr_count;
};

struct tar_reader;

/* read: fills up to n bytes; 0 at the end, or -errno with *reterr. */
typedef ssize_t tar_source(void *arg, void *data, size_t n, struct error *reterr);

/* lenient: an archive may end without its two zero blocks (a digest tells whether it is complete). */
int tar_reader_new(tar_source *read, void *arg, bool lenient, struct tar_reader **ret, struct error *reterr);
void tar_reader_free(struct tar_reader *r); /* NULL is fine */

/* 1: an entry; 0: the end of the archive (two zero blocks); -EBADMSG: not a tar archive, or damaged;
 * -E2BIG: a limit of ours. Skips what was not read of the entry before. */
int tar_next(struct tar_reader *r, struct tar_entry *ret, struct error *reterr);
/* The next piece of the entry's content, at most n bytes, and where in the file it belongs. 0: no more. */
ssize_t tar_data(struct tar_reader *r, void *data, size_t n, uint64_t *ret_offset, struct error *reterr);
