/* SPDX-License-Identifier: Apache-2.0 */
/* tar_put.c: see tar_put.h. */
#include "image/tar_put.h"
#include "image/tar_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What the fields of a ustar header can hold. */
static const uint64_t id_max = 07777777, number_max = 077777777777;

static const char type_flag[] = {
    [TAR_FILE] = '0',         [TAR_HARDLINK] = '1', [TAR_SYMLINK] = '2', [TAR_CHAR] = '3',
    [TAR_BLOCK_DEVICE] = '4', [TAR_DIR] = '5',      [TAR_FIFO] = '6',
};

/* "LENGTH KEY=VALUE\n": the length counts its own digits. */
static int pax_record(struct buf *out, const char *prefix, const char *key, const void *value, size_t n)
{
    char digits[24];
    size_t rest = 1 + strlen(prefix) + strlen(key) + 1 + n + 1, total = rest + 1;
    while (total != rest + (size_t)snprintf(digits, sizeof digits, "%zu", total))
        total = rest + strlen(digits);
    int r = buf_printf(out, "%s %s%s=", digits, prefix, key);
    if (r == 0)
        r = buf_append(out, value, n);
    return r < 0 ? r : buf_putc(out, '\n');
}

static int pax_number(struct buf *out, const char *key, int64_t v)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)v);
    return pax_record(out, "", key, text, (size_t)n);
}

static int pax_records(struct buf *out, const struct tar_entry *e)
{
    int r = 0;
    if (strlen(e->path) > 100)
        r = pax_record(out, "", "path", e->path, strlen(e->path));
    if (r == 0 && e->link && strlen(e->link) > 100)
        r = pax_record(out, "", "linkpath", e->link, strlen(e->link));
    if (r == 0 && e->size > number_max)
        r = pax_number(out, "size", (int64_t)e->size);
    if (r == 0 && e->uid > id_max)
        r = pax_number(out, "uid", (int64_t)e->uid);
    if (r == 0 && e->gid > id_max)
        r = pax_number(out, "gid", (int64_t)e->gid);
    if (r == 0 && (e->mtime_s < 0 || (uint64_t)e->mtime_s > number_max))
        r = pax_number(out, "mtime", e->mtime_s);
    for (size_t i = 0; r == 0 && i < e->xattr_count; i++)
        r = pax_record(out, "SCHILY.xattr.", e->xattrs[i].name, e->xattrs[i].value, e->xattrs[i].len);
    return r;
}

static void field(unsigned char *at, size_t n, uint64_t v)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%0*llo", (int)n - 1, (unsigned long long)v);
    memcpy(at, text, n); /* with its NUL */
}

static int write_block(const struct tar_entry *e, char flag, const char *path, uint64_t size, tar_sink *sink,
                       void *arg, struct error *reterr)
{
    unsigned char h[TAR_BLOCK] = {0};
    uint32_t sum = 0;
    memcpy(h + TAR_AT_NAME, path, strnlen(path, 100));
    field(h + TAR_AT_MODE, 8, e->mode & 07777);
    field(h + TAR_AT_UID, 8, e->uid > id_max ? 0 : e->uid);
    field(h + TAR_AT_GID, 8, e->gid > id_max ? 0 : e->gid);
    field(h + TAR_AT_SIZE, 12, size > number_max ? 0 : size);
    field(h + TAR_AT_MTIME, 12,
          e->mtime_s < 0 || (uint64_t)e->mtime_s > number_max ? 0 : (uint64_t)e->mtime_s);
    h[TAR_AT_TYPE] = (unsigned char)flag;
    if (e->link && flag != 'x')
        memcpy(h + TAR_AT_LINK, e->link, strnlen(e->link, 100));
    memcpy(h + TAR_AT_MAGIC,
           "ustar\0"
           "00",
           8);
    memset(h + TAR_AT_CHECKSUM, ' ', 8);
    for (size_t i = 0; i < sizeof h; i++)
        sum += h[i];
    field(h + TAR_AT_CHECKSUM, 7, sum);
    return sink(arg, h, sizeof h, reterr);
}

int tar_put_header(const struct tar_entry *e, tar_sink *sink, void *arg, struct error *reterr)
{
    struct buf pax = BUF_INIT(TAR_EXTENDED_MAX);
    int r = pax_records(&pax, e);
    if (r < 0)
        r = error_sys(reterr, -r, "write an archive");
    if (r == 0 && buf_len(&pax)) {
        r = write_block(e, 'x', "pax", buf_len(&pax), sink, arg, reterr);
        if (r == 0)
            r = sink(arg, buf_data(&pax), buf_len(&pax), reterr);
        if (r == 0)
            r = tar_put_pad(buf_len(&pax), sink, arg, reterr);
    }
    buf_done(&pax);
    return r < 0 ? r
                 : write_block(e, type_flag[e->type], e->path, e->type == TAR_FILE ? e->size : 0, sink, arg,
                               reterr);
}

int tar_put_pad(uint64_t size, tar_sink *sink, void *arg, struct error *reterr)
{
    static const unsigned char zeros[TAR_BLOCK];
    size_t n = (size_t)(-size & (TAR_BLOCK - 1));
    return n ? sink(arg, zeros, n, reterr) : 0;
}

int tar_put_end(tar_sink *sink, void *arg, struct error *reterr)
{
    static const unsigned char zeros[2 * TAR_BLOCK];
    return sink(arg, zeros, sizeof zeros, reterr);
}
