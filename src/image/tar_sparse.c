/* SPDX-License-Identifier: Apache-2.0 */
/* tar_sparse.c: the maps of sparse files, in the four shapes GNU tar has written them.
 *
 *   GNU      type 'S': four pieces in the header, more in blocks behind it
 *   pax 0.0  records GNU.sparse.offset and .numbytes by turns
 *   pax 0.1  one record GNU.sparse.map
 *   pax 1.0  decimal lines in front of the content, padded to whole blocks */
#include "image/tar_internal.h"

#include <errno.h>
#include <string.h>

static const char damaged[] = "the archive has a sparse file with a damaged map";

int tar_sparse_add(struct tar_reader *r, uint64_t offset, uint64_t len, struct error *reterr)
{
    if (r->sparse_count == TAR_SPARSE_MAX)
        return error_set(reterr, E2BIG, "the archive has a sparse file of more than %d pieces",
                         TAR_SPARSE_MAX);
    if (r->sparse_count == r->sparse_cap) {
        size_t cap = r->sparse_cap ? r->sparse_cap * 2 : 64;
        struct tar_piece *more = realloc(r->sparse, cap * sizeof *more);
        if (!more)
            return error_sys(reterr, ENOMEM, "read the archive");
        r->sparse = more;
        r->sparse_cap = cap;
    }
    r->sparse[r->sparse_count++] = (struct tar_piece){offset, len};
    return 0;
}

/* count pieces of 24 bytes; one without an offset ends the list. */
static int gnu_pieces(struct tar_reader *r, const unsigned char *at, size_t count, struct error *reterr)
{
    for (size_t i = 0; i < count; i++, at += 24) {
        uint64_t offset, len;
        if (at[0] == '\0')
            return 0;
        if (!tar_number(at, 12, &offset) || !tar_number(at + 12, 12, &len))
            return error_set(reterr, EBADMSG, "%s", damaged);
        int k = tar_sparse_add(r, offset, len, reterr);
        if (k < 0)
            return k;
    }
    return 0;
}

int tar_sparse_gnu(struct tar_reader *r, const unsigned char *h, struct tar_entry *e, struct error *reterr)
{
    enum { PIECES = 4, MORE = 21, AT_FLAG = 504 };
    unsigned char block[TAR_BLOCK];
    if (!tar_number(h + TAR_AT_REAL_SIZE, 12, &e->size))
        return error_set(reterr, EBADMSG, "%s", damaged);
    int k = gnu_pieces(r, h + TAR_AT_SPARSE, PIECES, reterr);
    for (unsigned char more = h[TAR_AT_MORE_PIECES]; k == 0 && more; more = block[AT_FLAG]) {
        k = tar_read_block(r, block, reterr);
        if (k == 0 && block[0] == '\0') /* an endless chain of empty blocks would add nothing and never end */
            return error_set(reterr, EBADMSG, "%s", damaged);
        if (k == 0)
            k = gnu_pieces(r, block, MORE, reterr);
    }
    return k;
}

int tar_sparse_in_header(struct tar_reader *r, struct tar_entry *e, struct error *reterr)
{
    if (!r->pax.has_sparse_size || r->pax.half_piece)
        return error_set(reterr, EBADMSG, "%s", damaged);
    e->size = r->pax.sparse_size;
    return 0;
}

/* One decimal line of the map; block by block. */
struct lines {
    unsigned char block[TAR_BLOCK];
    size_t at;
};

static int next_number(struct tar_reader *r, struct lines *l, uint64_t *ret, struct error *reterr)
{
    uint64_t v = 0;
    for (unsigned digits = 0;; digits++) {
        if (l->at == TAR_BLOCK) {
            if (r->left < TAR_BLOCK)
                return error_set(reterr, EBADMSG, "%s", damaged);
            int k = tar_read_block(r, l->block, reterr);
            if (k < 0)
                return k;
            r->left -= TAR_BLOCK;
            l->at = 0;
        }
        unsigned char c = l->block[l->at++];
        if (c == '\n' && digits > 0)
            break;
        if (c < '0' || c > '9' || digits == 18)
            return error_set(reterr, EBADMSG, "%s", damaged);
        v = v * 10 + (uint64_t)(c - '0');
    }
    *ret = v;
    return 0;
}

int tar_sparse_in_content(struct tar_reader *r, struct tar_entry *e, struct error *reterr)
{
    struct lines l = {.at = TAR_BLOCK};
    uint64_t count, offset, len;
    if (!r->pax.has_sparse_size)
        return error_set(reterr, EBADMSG, "%s", damaged);
    e->size = r->pax.sparse_size;
    r->sparse_count = 0;
    int k = next_number(r, &l, &count, reterr);
    if (k == 0 && count > TAR_SPARSE_MAX)
        return error_set(reterr, E2BIG, "the archive has a sparse file of more than %d pieces",
                         TAR_SPARSE_MAX);
    for (uint64_t i = 0; k == 0 && i < count; i++) {
        k = next_number(r, &l, &offset, reterr);
        if (k == 0)
            k = next_number(r, &l, &len, reterr);
        if (k == 0)
            k = tar_sparse_add(r, offset, len, reterr);
    }
    return k;
}
