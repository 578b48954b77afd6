/* SPDX-License-Identifier: Apache-2.0 */
/* tar_internal.h: what the files of the tar reader share. */
#pragma once

#include "base/buf.h"
#include "image/tar_read.h"

/* Where the fields of a header are. */
enum {
    TAR_AT_NAME = 0,
    TAR_AT_MODE = 100,
    TAR_AT_UID = 108,
    TAR_AT_GID = 116,
    TAR_AT_SIZE = 124,
    TAR_AT_MTIME = 136,
    TAR_AT_CHECKSUM = 148,
    TAR_AT_TYPE = 156,
    TAR_AT_LINK = 157,
    TAR_AT_MAGIC = 257,
    TAR_AT_PREFIX = 345,
    TAR_AT_SPARSE = 386, /* GNU: four pieces */
    TAR_AT_MORE_PIECES = 482,
    TAR_AT_REAL_SIZE = 483,
};

struct tar_piece {
    uint64_t offset, len;
};

/* What the pax header in front of an entry says. */
struct tar_pax {
    const char *path, *link; /* point into pax_text */
    uint64_t size, uid, gid;
    int64_t mtime_s;
    uint32_t mtime_ns;
    bool has_size, has_uid, has_gid, has_mtime;
    bool has_sparse; /* formats 0.0 and 0.1: the map is in the header */
    unsigned sparse_major, sparse_minor;
    uint64_t sparse_size; /* of the file */
    bool has_sparse_size, half_piece;
};

struct tar_reader {
    tar_source *read;
    void *arg;
    bool lenient;
    uint64_t left, pad;
    uint64_t content_done;
    struct buf pax_text, global, long_path, long_link;
    struct tar_pax pax;
    struct tar_xattr xattrs[TAR_XATTRS_MAX];
    size_t xattr_count;
    struct tar_piece *sparse;
    size_t sparse_count, sparse_cap;
    size_t piece; /* being read */
    uint64_t piece_done;
    char name[300], link[300];
    char scratch[16384];
};

/* tar_pax.c: the records of one pax header, n bytes with a NUL behind them; changes text. */
int tar_pax_read(struct tar_reader *r, char *text, size_t n, struct error *reterr);

/* tar_sparse.c: each fills r->sparse and e->size. */
int tar_sparse_add(struct tar_reader *r, uint64_t offset, uint64_t len, struct error *reterr);
int tar_sparse_gnu(struct tar_reader *r, const unsigned char *h, struct tar_entry *e, struct error *reterr);
int tar_sparse_in_header(struct tar_reader *r, struct tar_entry *e, struct error *reterr);
int tar_sparse_in_content(struct tar_reader *r, struct tar_entry *e, struct error *reterr);

/* tar_read.c, for tar_sparse.c */
int tar_read_block(struct tar_reader *r, unsigned char block[TAR_BLOCK], struct error *reterr);
bool tar_number(const unsigned char *field, size_t n, uint64_t *ret);
/* Decimal digits up to end; false: none, or more than 63 bits. *p stops behind them. */
bool tar_decimal(const char **p, const char *end, uint64_t *ret);
