/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tar.c (FUZ-05): whatever the bytes, the tar reader keeps its promises: names and maps within bounds,
 * pieces inside the file and in order, the same entries however the input is cut; and what the writer makes
 * of an entry is read as the same entry. The first byte chooses the pieces. */
#include "base/buf.h"
#include "image/layer_path.h"
#include "image/tar_put.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
    const uint8_t *data;
    size_t len, at, piece;
};

static void require(bool ok)
{
    if (!ok)
        abort();
}

static ssize_t bytes_read(void *arg, void *out, size_t n, struct error *reterr)
{
    struct bytes *b = arg;
    (void)reterr;
    size_t k = MIN(n, b->len - b->at);
    k = MIN(k, b->piece);
    memcpy(out, b->data + b->at, k);
    b->at += k;
    return (ssize_t)k;
}

static int buf_sink(void *arg, const void *data, size_t n, struct error *reterr)
{
    (void)reterr;
    return buf_append(arg, data, n);
}

static void check_entry(const struct tar_entry *e)
{
    char clean[TAR_PATH_MAX];
    require(e->path && e->link && strlen(e->path) < TAR_PATH_MAX && strlen(e->link) < TAR_PATH_MAX);
    require(e->mode <= 07777 && e->xattr_count <= TAR_XATTRS_MAX && e->mtime_ns < 1000000000);
    require(e->type == TAR_FILE || (e->size == 0 && !e->sparse));
    if (layer_path_clean(e->path, clean, NULL) == 0)
        require(clean[0] != '/' && !strstr(clean, "//") && strcmp(clean, "..") != 0 &&
                strncmp(clean, "../", 3) != 0 && !strstr(clean, "/../"));
}

/* Header only: sizes may be anything. */
static void check_written(const struct tar_entry *e)
{
    struct buf out = BUF_INIT(4 << 20);
    struct tar_entry copy = *e, back;
    struct tar_reader *r = NULL;
    copy.size = 0;
    copy.sparse = false;
    require(tar_put_header(&copy, buf_sink, &out, NULL) == 0);
    struct bytes b = {(const uint8_t *)buf_data(&out), buf_len(&out), 0, SIZE_MAX};
    require(tar_reader_new(bytes_read, &b, true, &r, NULL) == 0);
    bool slash = copy.type == TAR_FILE && copy.path[0] && copy.path[strlen(copy.path) - 1] == '/';
    int k = tar_next(r, &back, NULL);
    require(k == 1 && strcmp(back.path, copy.path) == 0 && (slash || back.type == copy.type));
    require(strcmp(back.link, copy.link) == 0 && back.mode == copy.mode && back.mtime_s == copy.mtime_s);
    require(back.xattr_count == copy.xattr_count);
    tar_reader_free(r);
    buf_done(&out);
}

/* Appends what was found, in a form that can be compared. */
static void parse(const uint8_t *data, size_t size, size_t piece, bool lenient, bool deep, struct buf *found)
{
    struct bytes b = {data, size, 0, piece};
    struct tar_reader *r = NULL;
    struct tar_entry e;
    struct error err = {0};
    int k;
    buf_clear(found);
    require(tar_reader_new(bytes_read, &b, lenient, &r, NULL) == 0);
    while ((k = tar_next(r, &e, &err)) > 0) {
        uint64_t offset, last = 0, sum = 0;
        uint8_t content[600];
        ssize_t n;
        check_entry(&e);
        if (deep)
            check_written(&e);
        while ((n = tar_data(r, content, sizeof content, &offset, &err)) > 0) {
            require(offset >= last && offset + (size_t)n <= e.size);
            last = offset + (size_t)n;
            for (ssize_t i = 0; i < n; i++)
                sum = sum * 31 + content[i];
        }
        (void)buf_printf(found, "%d %s %s %o %llu %llx\n", (int)e.type, e.path, e.link, e.mode,
                         (unsigned long long)e.size, n < 0 ? 0 : (unsigned long long)sum);
        if (n < 0)
            break;
    }
    require(k >= 0 || err.code > 0);
    tar_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf one = BUF_INIT(16 << 20), two = BUF_INIT(16 << 20);
    if (size == 0)
        return 0;
    parse(data + 1, size - 1, SIZE_MAX, data[0] & 1, true, &one);
    parse(data + 1, size - 1, 1 + data[0] % 97, data[0] & 1, false, &two);
    require(buf_len(&one) == buf_len(&two) &&
            (buf_len(&one) == 0 || memcmp(buf_data(&one), buf_data(&two), buf_len(&one)) == 0));
    buf_done(&one);
    buf_done(&two);
    return 0;
}
