/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: see source.h. */
#include "image/source.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT = 64 * 1024, ZSTD_WINDOW_LOG = 27 /* 128 MiB: the most memory an archive can make us use */ };

enum packing { PACKING_UNKNOWN, PACKING_NONE, PACKING_GZIP, PACKING_ZSTD };

struct source {
    int fd;
    enum packing packing;
    bool plain, raw_end, member_open;
    uint64_t limit, raw_bytes, plain_bytes;
    struct sha256 *raw, *unpacked;
    z_stream gzip;
    ZSTD_DCtx *zstd;
    size_t start, end; /* of what is in `in` */
    unsigned char in[INPUT];
};

int source_new(int fd, uint64_t limit, bool plain, struct source **ret, struct error *reterr)
{
    struct source *s = calloc(1, sizeof *s);
    if (!s)
        return error_sys(reterr, ENOMEM, "read an archive");
    s->fd = fd;
    s->limit = limit;
    s->plain = plain;
    int r = sha256_new(&s->raw, reterr);
    if (r == 0)
        r = sha256_new(&s->unpacked, reterr);
    if (r < 0) {
        source_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

void source_free(struct source *s)
{
    if (!s)
        return;
    if (s->packing == PACKING_GZIP)
        (void)inflateEnd(&s->gzip);
    (void)ZSTD_freeDCtx(s->zstd);
    sha256_free(s->raw);
    sha256_free(s->unpacked);
    free(s);
}

/* More input, behind what is there. */
static int fill(struct source *s, struct error *reterr)
{
    if (s->start > 0) {
        memmove(s->in, s->in + s->start, s->end - s->start);
        s->end -= s->start;
        s->start = 0;
    }
    while (!s->raw_end && s->end < sizeof s->in) {
        ssize_t n = read(s->fd, s->in + s->end, sizeof s->in - s->end);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(reterr, errno, "read the archive");
        s->raw_end = n == 0;
        sha256_add(s->raw, s->in + s->end, (size_t)n);
        s->raw_bytes += (uint64_t)n;
        s->end += (size_t)n;
        break;
    }
    return 0;
}

static int begin(struct source *s, struct error *reterr)
{
    static const unsigned char gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    int r = 0;
    while (r == 0 && !s->raw_end && s->end < sizeof zstd)
        r = fill(s, reterr);
    if (r < 0)
        return r;
    if (!s->plain && s->end >= sizeof gzip && memcmp(s->in, gzip, sizeof gzip) == 0) {
        if (inflateInit2(&s->gzip, 15 + 16) != Z_OK)
            return error_sys(reterr, ENOMEM, "unpack gzip");
        s->packing = PACKING_GZIP;
        s->member_open = true;
    } else if (!s->plain && s->end >= sizeof zstd && memcmp(s->in, zstd, sizeof zstd) == 0) {
        s->zstd = ZSTD_createDCtx();
        if (!s->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)))
            return error_sys(reterr, ENOMEM, "unpack zstd");
        s->packing = PACKING_ZSTD;
    } else {
        s->packing = PACKING_NONE;
    }
    return 0;
}

/* One step: *ret_got bytes written to data, which may be 0 though there is more to come. */
static int step_gzip(struct source *s, void *data, size_t n, size_t *ret_got, struct error *reterr)
{
    if (!s->member_open) { /* a gzip file is one or more members, one behind the other */
        if (inflateReset(&s->gzip) != Z_OK)
            return error_set(reterr, EBADMSG, "the gzip data is damaged");
        s->member_open = true;
    }
    s->gzip.next_in = s->in + s->start;
    s->gzip.avail_in = (uInt)(s->end - s->start);
    s->gzip.next_out = data;
    s->gzip.avail_out = (uInt)MIN(n, (size_t)1 << 30);
    uInt room = s->gzip.avail_out;
    int k = inflate(&s->gzip, Z_NO_FLUSH);
    s->start = s->end - s->gzip.avail_in;
    *ret_got = room - s->gzip.avail_out;
    if (k == Z_STREAM_END)
        s->member_open = false;
    else if (k != Z_OK && k != Z_BUF_ERROR)
        return error_set(reterr, EBADMSG, "the gzip data is damaged");
    return 0;
}

static int step_zstd(struct source *s, void *data, size_t n, size_t *ret_got, struct error *reterr)
{
    ZSTD_inBuffer in = {s->in + s->start, s->end - s->start, 0};
    ZSTD_outBuffer out = {data, n, 0};
    size_t k = ZSTD_decompressStream(s->zstd, &out, &in);
    if (ZSTD_isError(k))
        return error_set(reterr, EBADMSG, "the zstd data is damaged");
    s->member_open = k != 0;
    s->start += in.pos;
    *ret_got = out.pos;
    return 0;
}

static int step(struct source *s, void *data, size_t n, size_t *ret_got, struct error *reterr)
{
    switch (s->packing) {
    case PACKING_GZIP:
        return step_gzip(s, data, n, ret_got, reterr);
    case PACKING_ZSTD:
        return step_zstd(s, data, n, ret_got, reterr);
    default:
        *ret_got = MIN(n, s->end - s->start);
        memcpy(data, s->in + s->start, *ret_got);
        s->start += *ret_got;
        return 0;
    }
}

ssize_t source_read(void *arg, void *data, size_t n, struct error *reterr)
{
    struct source *s = arg;
    size_t got = 0;
    int r = s->packing == PACKING_UNKNOWN ? begin(s, reterr) : 0;
    while (r == 0 && got == 0) {
        bool starved = s->start == s->end;
        if (starved && !s->raw_end) {
            r = fill(s, reterr);
            continue;
        }
        /* without input a decompressor may still have output to give */
        if (starved && !s->member_open)
            return 0;
        r = step(s, data, n, &got, reterr);
        if (r == 0 && got == 0 && starved)
            return error_set(reterr, EBADMSG, "the compressed data is cut off");
    }
    if (r < 0)
        return r;
    if (got > s->limit - s->plain_bytes)
        return error_set(reterr, E2BIG, "unpacked, it would have more than %llu bytes",
                         (unsigned long long)s->limit);
    s->plain_bytes += got;
    sha256_add(s->unpacked, data, got);
    return (ssize_t)got;
}

int source_finish(struct source *s, unsigned char ret_raw[SHA256_BYTES],
                  unsigned char ret_plain[SHA256_BYTES], struct error *reterr)
{
    char rest[16384];
    ssize_t n;
    while ((n = source_read(s, rest, sizeof rest, reterr)) > 0)
        ;
    if (n < 0)
        return (int)n;
    sha256_take(s->raw, ret_raw);
    sha256_take(s->unpacked, ret_plain);
    return 0;
}

uint64_t source_raw_bytes(const struct source *s)
{
    return s->raw_bytes;
}

uint64_t source_plain_bytes(const struct source *s)
{
    return s->plain_bytes;
}
