/* SPDX-License-Identifier: Apache-2.0 */
/* tar_read.c: see tar_read.h.
 *
 * Theory of operation
 * Headers come in order: any number of extended headers (pax 'x' and 'g', GNU 'L' and 'K'), then the header
 * they are about, then its content, padded to whole blocks. `left` counts the content bytes still in the
 * stream, `pad` what follows them. A sparse file's content is its pieces one behind the other; the map says
 * where each belongs. Values of a pax header override the header's own, whatever order they came in. */
#include "image/tar_read.h"
#include "image/tar_internal.h"

#include <errno.h>
#include <string.h>

/* ---- the stream */

/* Exactly n bytes; -EBADMSG when the stream ends earlier, except at_end: then 0 is fine, too. */
static int read_full(struct tar_reader *r, void *data, size_t n, bool at_end, struct error *reterr)
{
    size_t got = 0;
    while (got < n) {
        ssize_t k = r->read(r->arg, (char *)data + got, n - got, reterr);
        if (k < 0)
            return (int)k;
        if (k == 0)
            return got == 0 && at_end ? 0 : error_set(reterr, EBADMSG, "the archive is cut off");
        got += (size_t)k;
    }
    return 1;
}

int tar_read_block(struct tar_reader *r, unsigned char block[TAR_BLOCK], struct error *reterr)
{
    int k = read_full(r, block, TAR_BLOCK, false, reterr);
    return k < 0 ? k : 0;
}

static int skip(struct tar_reader *r, uint64_t n, struct error *reterr)
{
    while (n > 0) {
        size_t step = (size_t)MIN(n, (uint64_t)sizeof r->scratch);
        int k = read_full(r, r->scratch, step, false, reterr);
        if (k < 0)
            return k;
        n -= step;
    }
    return 0;
}

static int skip_content(struct tar_reader *r, struct error *reterr)
{
    int k = skip(r, r->left, reterr);
    if (k == 0)
        k = skip(r, r->pad, reterr);
    r->left = r->pad = 0;
    return k;
}

/* ---- fields of a header block */

/* Octal, or base-256 when the first bit is set. False: neither, or larger than 63 bits. */
bool tar_number(const unsigned char *field, size_t n, uint64_t *ret)
{
    uint64_t v = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        if (field[0] != 0x80)
            return false; /* negative, or far too large */
        for (i = 1; i < n; i++) {
            if (v >> 55)
                return false;
            v = v << 8 | field[i];
        }
        *ret = v;
        return true;
    }
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++) {
        if (v >> 60)
            return false;
        v = v << 3 | (uint64_t)(field[i] - '0');
    }
    for (; i < n; i++)
        if (field[i] != ' ' && field[i] != '\0')
            return false;
    *ret = v;
    return true;
}

static bool checksum_fits(const unsigned char *h)
{
    uint64_t want;
    uint32_t sum = 0;
    if (!tar_number(h + TAR_AT_CHECKSUM, 8, &want))
        return false;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= TAR_AT_CHECKSUM && i < TAR_AT_CHECKSUM + 8 ? ' ' : h[i];
    return sum == want;
}

static bool is_zero(const unsigned char *h)
{
    return h[0] == 0 && memcmp(h, h + 1, TAR_BLOCK - 1) == 0;
}

/* ---- extended headers */

static int read_extended(struct tar_reader *r, uint64_t size, struct buf *out, struct error *reterr)
{
    if (size > TAR_EXTENDED_MAX)
        return error_set(reterr, E2BIG, "an extended header of the archive has more than %d bytes",
                         TAR_EXTENDED_MAX);
    buf_clear(out);
    char *p = buf_reserve(out, (size_t)size + 1);
    if (!p)
        return error_sys(reterr, ENOMEM, "read the archive");
    int k = size ? read_full(r, p, (size_t)size, false, reterr) : 1;
    if (k < 0)
        return k;
    p[size] = '\0';
    buf_commit(out, (size_t)size + 1); /* with the NUL: what it holds are strings */
    return skip(r, -size & (TAR_BLOCK - 1), reterr);
}

static int long_name(struct tar_reader *r, uint64_t size, struct buf *out, struct error *reterr)
{
    int k = read_extended(r, size, out, reterr);
    if (k == 0 && strlen(buf_data(out)) >= TAR_PATH_MAX)
        return error_set(reterr, E2BIG, "a name in the archive has more than %d bytes", TAR_PATH_MAX - 1);
    return k;
}

/* ---- one entry */

static const char *header_name(const unsigned char *h, size_t at, size_t n, char *out)
{
    /* ustar puts the beginning of a long path into a field of its own; GNU has other things there */
    bool ustar = memcmp(h + TAR_AT_MAGIC, "ustar\0", 6) == 0;
    size_t len = 0;
    if (at == TAR_AT_NAME && ustar && h[TAR_AT_PREFIX]) {
        len = strnlen((const char *)h + TAR_AT_PREFIX, 155);
        memcpy(out, h + TAR_AT_PREFIX, len);
        out[len++] = '/';
    }
    size_t name = strnlen((const char *)h + at, n);
    memcpy(out + len, h + at, name);
    out[len + name] = '\0';
    return out;
}

static int entry_type(unsigned char flag, const char *path, struct tar_entry *e, struct error *reterr)
{
    size_t n = strlen(path);
    switch (flag) {
    case '\0':
    case '0':
    case '7':
        /* archives from before 1988 have no other way to say "directory" */
        e->type = n && path[n - 1] == '/' && flag != '7' ? TAR_DIR : TAR_FILE;
        return 0;
    case 'S':
        e->type = TAR_FILE;
        return 0;
    case '1':
        e->type = TAR_HARDLINK;
        return 0;
    case '2':
        e->type = TAR_SYMLINK;
        return 0;
    case '3':
        e->type = TAR_CHAR;
        return 0;
    case '4':
        e->type = TAR_BLOCK_DEVICE;
        return 0;
    case '5':
        e->type = TAR_DIR;
        return 0;
    case '6':
        e->type = TAR_FIFO;
        return 0;
    default:
        return error_set(reterr, EBADMSG, "the archive has an entry of the unknown type %d", flag);
    }
}

static int entry_sparse(struct tar_reader *r, const unsigned char *h, struct tar_entry *e,
                        struct error *reterr)
{
    int k;
    if (h[TAR_AT_TYPE] == 'S')
        k = tar_sparse_gnu(r, h, e, reterr);
    else if (r->pax.sparse_major == 1 && r->pax.sparse_minor == 0)
        k = tar_sparse_in_content(r, e, reterr);
    else if (r->pax.has_sparse)
        k = tar_sparse_in_header(r, e, reterr);
    else
        return 0;
    if (k < 0)
        return k;
    e->sparse = true;
    uint64_t end = 0, sum = 0;
    for (size_t i = 0; i < r->sparse_count; i++) {
        const struct tar_piece *p = &r->sparse[i];
        if (p->offset < end || p->offset > e->size || p->len > e->size - p->offset)
            return error_set(reterr, EBADMSG,
                             "the archive has a sparse file whose pieces overlap or lie outside");
        end = p->offset + p->len;
        sum += p->len;
    }
    if (sum != r->left)
        return error_set(reterr, EBADMSG, "the archive has a sparse file whose pieces do not add up");
    return 0;
}

static int entry_read(struct tar_reader *r, const unsigned char *h, struct tar_entry *e, struct error *reterr)
{
    const struct tar_pax *pax = &r->pax;
    uint64_t mode, uid, gid, mtime;
    *e = (struct tar_entry){0};
    if (!tar_number(h + TAR_AT_MODE, 8, &mode) || !tar_number(h + TAR_AT_UID, 8, &uid) ||
        !tar_number(h + TAR_AT_GID, 8, &gid) || !tar_number(h + TAR_AT_MTIME, 12, &mtime))
        return error_set(reterr, EBADMSG, "a header of the archive has a number that is none");
    e->path = pax->path                ? pax->path
              : buf_len(&r->long_path) ? buf_data(&r->long_path)
                                       : header_name(h, TAR_AT_NAME, 100, r->name);
    e->link = pax->link                ? pax->link
              : buf_len(&r->long_link) ? buf_data(&r->long_link)
                                       : header_name(h, TAR_AT_LINK, 100, r->link);
    e->mode = (uint32_t)(mode & 07777);
    e->uid = pax->has_uid ? pax->uid : uid;
    e->gid = pax->has_gid ? pax->gid : gid;
    e->mtime_s = pax->has_mtime ? pax->mtime_s : (int64_t)mtime;
    e->mtime_ns = pax->has_mtime ? pax->mtime_ns : 0;
    e->xattrs = r->xattrs;
    e->xattr_count = r->xattr_count;
    int k = entry_type(h[TAR_AT_TYPE], e->path, e, reterr);
    if (k < 0)
        return k;
    if (e->type !=
        TAR_FILE) { /* some give the size of a hard link's target, or of a directory: no content follows */
        r->left = r->pad = 0;
        return 0;
    }
    e->size = r->left;
    return entry_sparse(r, h, e, reterr);
}

/* One header block: 1: an entry; 2: an extended header, more must come; 0: the end. */
static int header(struct tar_reader *r, struct tar_entry *e, struct error *reterr)
{
    unsigned char h[TAR_BLOCK];
    uint64_t size;
    int k = read_full(r, h, sizeof h, true, reterr);
    if (k < 0)
        return k;
    if (k == 0) /* some writers leave out the zero blocks, and a cut between two entries looks the same */
        return r->lenient ? 0 : error_set(reterr, EBADMSG, "the archive is cut off");
    if (is_zero(h))
        return 0;
    if (!checksum_fits(h) || !tar_number(h + TAR_AT_SIZE, 12, &size))
        return error_set(reterr, EBADMSG, "this is not a tar archive, or it is damaged");
    switch (h[TAR_AT_TYPE]) {
    case 'x':
    case 'X': /* what an earlier one said is gone with its text */
        r->pax = (struct tar_pax){0};
        r->xattr_count = r->sparse_count = 0;
        k = read_extended(r, size, &r->pax_text, reterr);
        if (k == 0)
            k = tar_pax_read(r, buf_data(&r->pax_text), buf_len(&r->pax_text) - 1, reterr);
        return k < 0 ? k : 2;
    case 'g': /* remarks about the whole archive; what they say about entries is not for us */
        k = read_extended(r, size, &r->global, reterr);
        return k < 0 ? k : 2;
    case 'L':
        k = long_name(r, size, &r->long_path, reterr);
        return k < 0 ? k : 2;
    case 'K':
        k = long_name(r, size, &r->long_link, reterr);
        return k < 0 ? k : 2;
    default:
        break;
    }
    r->left = r->pax.has_size ? r->pax.size : size;
    if (r->left > INT64_MAX - TAR_BLOCK)
        return error_set(reterr, EBADMSG, "the archive has an entry of an impossible size");
    r->pad = -r->left & (TAR_BLOCK - 1);
    k = entry_read(r, h, e, reterr);
    return k < 0 ? k : 1;
}

int tar_next(struct tar_reader *r, struct tar_entry *ret, struct error *reterr)
{
    enum { EXTENDED_IN_A_ROW = 16 };
    int k = skip_content(r, reterr);
    if (k < 0)
        return k;
    r->pax = (struct tar_pax){0};
    r->xattr_count = r->sparse_count = r->piece = 0;
    r->piece_done = r->content_done = 0;
    buf_clear(&r->long_path);
    buf_clear(&r->long_link);
    for (int i = 0; i < EXTENDED_IN_A_ROW; i++) {
        k = header(r, ret, reterr);
        if (k == 0 && i > 0)
            return error_set(reterr, EBADMSG, "the archive ends behind an extended header");
        if (k != 2)
            return k;
    }
    return error_set(reterr, EBADMSG, "the archive has too many extended headers for one entry");
}

ssize_t tar_data(struct tar_reader *r, void *data, size_t n, uint64_t *ret_offset, struct error *reterr)
{
    uint64_t room = r->left;
    if (r->left == 0)
        return 0;
    if (r->sparse_count) {
        while (r->piece < r->sparse_count && r->piece_done == r->sparse[r->piece].len) {
            r->piece++;
            r->piece_done = 0;
        }
        if (r->piece == r->sparse_count)
            return 0; /* cannot be: the pieces add up */
        *ret_offset = r->sparse[r->piece].offset + r->piece_done;
        room = r->sparse[r->piece].len - r->piece_done;
    } else {
        *ret_offset = r->content_done;
    }
    size_t want = (size_t)MIN(room, (uint64_t)n);
    ssize_t k = r->read(r->arg, data, want, reterr);
    if (k == 0)
        return error_set(reterr, EBADMSG, "the archive is cut off");
    if (k < 0)
        return k;
    r->left -= (uint64_t)k;
    r->piece_done += (uint64_t)k;
    r->content_done += (uint64_t)k;
    return k;
}

int tar_reader_new(tar_source *read, void *arg, bool lenient, struct tar_reader **ret, struct error *reterr)
{
    struct tar_reader *r = calloc(1, sizeof *r);
    if (!r)
        return error_sys(reterr, ENOMEM, "read an archive");
    r->read = read;
    r->arg = arg;
    r->lenient = lenient;
    r->pax_text.limit = r->global.limit = r->long_path.limit = r->long_link.limit = TAR_EXTENDED_MAX + 1;
    *ret = r;
    return 0;
}

void tar_reader_free(struct tar_reader *r)
{
    if (!r)
        return;
    buf_done(&r->pax_text);
    buf_done(&r->global);
    buf_done(&r->long_path);
    buf_done(&r->long_link);
    free(r->sparse);
    free(r);
}
