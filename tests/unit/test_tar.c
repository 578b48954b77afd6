/* SPDX-License-Identifier: Apache-2.0 */
/* test_tar.c: the tar reader and writer against each other and against archives bent by hand. */
#include "image/tar_internal.h"
#include "image/tar_put.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>

struct bytes {
    const char *data;
    size_t len, at, piece; /* piece: at most so many a read */
};

static ssize_t bytes_read(void *arg, void *data, size_t n, struct error *reterr)
{
    struct bytes *b = arg;
    (void)reterr;
    size_t k = MIN(n, b->len - b->at);
    k = MIN(k, b->piece);
    memcpy(data, b->data + b->at, k);
    b->at += k;
    return (ssize_t)k;
}

static int buf_sink(void *arg, const void *data, size_t n, struct error *reterr)
{
    return buf_append(arg, data, n) < 0 ? error_sys(reterr, ENOMEM, "no memory") : 0;
}

/* An archive being read, entry by entry. */
struct reading {
    struct bytes bytes;
    struct tar_reader *tar;
    struct tar_entry e;
    struct error error;
};

static void reading_begin(struct reading *r, const struct buf *b, size_t piece, bool lenient)
{
    *r = (struct reading){.bytes = {buf_data(b), buf_len(b), 0, piece}};
    if (tar_reader_new(bytes_read, &r->bytes, lenient, &r->tar, &r->error) < 0)
        abort();
}

static int next(struct reading *r)
{
    return tar_next(r->tar, &r->e, &r->error);
}

static size_t content(struct reading *r, char *out, size_t cap)
{
    uint64_t offset;
    size_t total = 0;
    ssize_t n;
    memset(out, '.', cap);
    while ((n = tar_data(r->tar, out + total, MIN(cap - total, (size_t)7), &offset, &r->error)) > 0) {
        if (offset + (size_t)n <= cap)
            memmove(out + offset, out + total, (size_t)n);
        total = offset + (size_t)n;
    }
    return n < 0 ? SIZE_MAX : total;
}

static void put_file(struct buf *b, const struct tar_entry *e, const char *text)
{
    CHECK_INT(tar_put_header(e, buf_sink, b, NULL), 0);
    CHECK_INT(buf_append(b, text, (size_t)e->size), 0);
    CHECK_INT(tar_put_pad(e->size, buf_sink, b, NULL), 0);
}

/* A header made by the writer and then bent: its checksum is mended. */
static void mend(char *h)
{
    unsigned sum = 0;
    memset(h + TAR_AT_CHECKSUM, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)h[i];
    (void)snprintf(h + TAR_AT_CHECKSUM, 7, "%06o", sum);
}

TEST(what_is_written_is_read_whatever_the_pieces)
{
    static char long_path[1000], long_link[500];
    struct buf b = BUF_INIT(1 << 20);
    const struct tar_xattr xattr = {"user.x", "a\0b\n", 4};
    memset(long_path, 'p', sizeof long_path - 1);
    memset(long_link, 'l', sizeof long_link - 1);
    struct tar_entry file = {.type = TAR_FILE,
                             .path = "a/b",
                             .link = "",
                             .mode = 04755,
                             .uid = 7,
                             .gid = 8,
                             .mtime_s = 1234567890,
                             .size = 5,
                             .xattrs = &xattr,
                             .xattr_count = 1};
    struct tar_entry longer = {.type = TAR_FILE,
                               .path = long_path,
                               .link = "",
                               .mode = 0644,
                               .uid = 3000000,
                               .gid = 1,
                               .mtime_s = -5,
                               .size = 0};
    struct tar_entry link = {.type = TAR_SYMLINK, .path = "link", .link = long_link, .mode = 0777};
    struct tar_entry dir = {.type = TAR_DIR, .path = "dir/", .link = "", .mode = 01777};
    put_file(&b, &file, "hello");
    put_file(&b, &longer, "");
    put_file(&b, &link, "");
    put_file(&b, &dir, "");
    CHECK_INT(tar_put_end(buf_sink, &b, NULL), 0);
    for (size_t piece = 1; piece < 2000; piece = piece * 3 + 1) {
        struct reading r;
        char text[16];
        reading_begin(&r, &b, piece, false);
        CHECK_INT(next(&r), 1);
        CHECK_STREQ(r.e.path, "a/b");
        CHECK_INT(r.e.mode, 04755);
        CHECK_INT(r.e.uid, 7);
        CHECK_INT(r.e.gid, 8);
        CHECK_INT(r.e.mtime_s, 1234567890);
        CHECK_INT(r.e.xattr_count, 1);
        CHECK_STREQ(r.e.xattrs[0].name, "user.x");
        CHECK(r.e.xattrs[0].len == 4 && memcmp(r.e.xattrs[0].value, "a\0b\n", 4) == 0);
        CHECK_INT(content(&r, text, sizeof text), 5);
        CHECK(memcmp(text, "hello", 5) == 0);
        CHECK_INT(next(&r), 1);
        CHECK_STREQ(r.e.path, long_path);
        CHECK_INT(r.e.uid, 3000000);
        CHECK_INT(r.e.mtime_s, -5);
        CHECK_INT(r.e.xattr_count, 0);
        CHECK_INT(next(&r), 1);
        CHECK(r.e.type == TAR_SYMLINK);
        CHECK_STREQ(r.e.link, long_link);
        CHECK_INT(next(&r), 1);
        CHECK(r.e.type == TAR_DIR);
        CHECK_INT(next(&r), 0);
        tar_reader_free(r.tar);
    }
    buf_done(&b);
}

TEST(content_that_nobody_reads_is_skipped)
{
    struct buf b = BUF_INIT(1 << 20);
    struct reading r;
    struct tar_entry a = {.type = TAR_FILE, .path = "a", .link = "", .size = 700},
                     z = {.type = TAR_FILE, .path = "z", .link = ""};
    char text[700] = "x";
    put_file(&b, &a, text);
    put_file(&b, &z, "");
    reading_begin(&r, &b, 100, true);
    CHECK_INT(next(&r), 1);
    CHECK_INT(next(&r), 1);
    CHECK_STREQ(r.e.path, "z");
    CHECK_INT(next(&r), 0); /* lenient: no zero blocks */
    tar_reader_free(r.tar);
    buf_done(&b);
}

TEST(every_cut_is_an_error)
{
    struct buf b = BUF_INIT(1 << 20);
    static char path[200];
    memset(path, 'n', sizeof path - 1);
    struct tar_entry e = {.type = TAR_FILE, .path = path, .link = "", .size = 600};
    char text[600] = "y";
    put_file(&b, &e, text);
    CHECK_INT(tar_put_end(buf_sink, &b, NULL), 0);
    size_t whole = buf_len(&b) - 2 * TAR_BLOCK;
    for (size_t cut = 0; cut <= whole; cut++) {
        struct reading r;
        struct buf part = b;
        part.end = part.start + cut;
        reading_begin(&r, &part, 4096, false);
        int k;
        while ((k = next(&r)) > 0)
            ;
        CHECK_INT(k, -EBADMSG);
        tar_reader_free(r.tar);
    }
    buf_done(&b);
}

/* One file "s" of 20 bytes: "abc" at 2, "de" at 10. */
static void check_sparse(struct buf *b)
{
    struct reading r;
    char text[32];
    reading_begin(&r, b, 4096, true);
    CHECK_INT(next(&r), 1);
    CHECK_STREQ(r.e.path, "s");
    CHECK(r.e.sparse);
    CHECK_INT(r.e.size, 20);
    CHECK_INT(content(&r, text, sizeof text), 12);
    CHECK(memcmp(text + 2, "abc", 3) == 0 && memcmp(text + 10, "de", 2) == 0);
    CHECK_INT(next(&r), 0);
    tar_reader_free(r.tar);
    buf_done(b);
}

/* "key=value\nkey=value\n" with the lengths in front that make records of them. */
static const char *records_of(const char *pairs)
{
    static char out[4096];
    size_t n = 0;
    for (const char *p = pairs, *end; (end = strchr(p, '\n')); p = end + 1) {
        int len = (int)(end - p), digits = len + 3 < 10 ? 1 : len + 4 < 100 ? 2 : 3;
        n += (size_t)snprintf(out + n, sizeof out - n, "%d %.*s\n", digits + 1 + len + 1, len, p);
    }
    return out;
}

static void put_pax(struct buf *b, const char *records)
{
    struct tar_entry e = {.type = TAR_FILE, .path = "pax", .link = "", .size = strlen(records)};
    size_t at = buf_len(b);
    put_file(b, &e, records);
    buf_data(b)[at + TAR_AT_TYPE] = 'x';
    mend(buf_data(b) + at);
}

TEST(sparse_files_in_four_shapes)
{
    struct tar_entry e = {.type = TAR_FILE, .path = "GNUSparseFile.0/s", .link = "", .size = 5};
    struct buf b = BUF_INIT(1 << 20);
    put_pax(&b, records_of(
                    "GNU.sparse.size=20\nGNU.sparse.numblocks=2\nGNU.sparse.offset=2\nGNU.sparse.numbytes=3\n"
                    "GNU.sparse.offset=10\nGNU.sparse.numbytes=2\nGNU.sparse.name=s\n"));
    put_file(&b, &e, "abcde");
    check_sparse(&b);
    b = BUF_INIT(1 << 20);
    put_pax(&b, records_of("GNU.sparse.size=20\nGNU.sparse.map=2,3,10,2\nGNU.sparse.name=s\n"));
    put_file(&b, &e, "abcde");
    check_sparse(&b);
    b = BUF_INIT(1 << 20);
    put_pax(&b, records_of(
                    "GNU.sparse.major=1\nGNU.sparse.minor=0\nGNU.sparse.name=s\nGNU.sparse.realsize=20\n"));
    char body[TAR_BLOCK + 5] = "2\n2\n3\n10\n2\n";
    memcpy(body + TAR_BLOCK, "abcde", 5);
    e.size = sizeof body;
    put_file(&b, &e, body);
    check_sparse(&b);
    b = BUF_INIT(1 << 20);
    struct tar_entry old = {.type = TAR_FILE, .path = "s", .link = "", .size = 5};
    put_file(&b, &old, "abcde");
    char *h = buf_data(&b);
    h[TAR_AT_TYPE] = 'S';
    memcpy(h + TAR_AT_MAGIC, "ustar  ", 8);
    memcpy(h + TAR_AT_SPARSE, "00000000002\00000000000003\00000000000012\00000000000002", 48);
    memcpy(h + TAR_AT_REAL_SIZE, "00000000024", 12);
    mend(h);
    check_sparse(&b);
}

static int first_of(const char *records, size_t size)
{
    struct buf b = BUF_INIT(8 << 20);
    struct reading r;
    static char text[4096];
    struct tar_entry e = {.type = TAR_FILE, .path = "f", .link = "", .size = size};
    put_pax(&b, records);
    put_file(&b, &e, text);
    reading_begin(&r, &b, 4096, true);
    int k = next(&r);
    tar_reader_free(r.tar);
    buf_done(&b);
    return k;
}

TEST(maps_that_lie)
{
    CHECK_INT(first_of(records_of("GNU.sparse.size=20\nGNU.sparse.map=2,3,10,2\n"), 6),
              -EBADMSG); /* do not add up */
    CHECK_INT(first_of(records_of("GNU.sparse.size=20\nGNU.sparse.map=2,3,30,2\n"), 5),
              -EBADMSG); /* outside */
    CHECK_INT(first_of(records_of("GNU.sparse.size=20\nGNU.sparse.map=5,3,6,2\n"), 5),
              -EBADMSG); /* overlap */
    CHECK_INT(first_of(records_of("GNU.sparse.size=20\nGNU.sparse.map=8,3,1,2\n"), 5),
              -EBADMSG); /* backwards */
    CHECK_INT(first_of(records_of("GNU.sparse.map=2,3,10\n"), 5), -EBADMSG);
    CHECK_INT(first_of(records_of("GNU.sparse.map=2,3\n"), 3), -EBADMSG); /* without a size */
    CHECK_INT(first_of(records_of("GNU.sparse.numbytes=3\n"), 3), -EBADMSG);
    CHECK_INT(first_of(records_of("GNU.sparse.major=1\nGNU.sparse.minor=0\nGNU.sparse.realsize=20\n"), 100),
              -EBADMSG);
}

TEST(pax_records_that_lie)
{
    static const char *const bad[] = {
        "x\n",     "5 a=b",  "6 a=b\n\n",   "7 a=b\n",      "0 a=b\n",    "99999999999999999999 a=b\n",
        "6 =ab\n", "5 ab\n", "10 size=x\n", "11 size=-1\n", "9 uid=1x\n", "11 mtime=a\n",
        "9 a\n"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(first_of(bad[i], 0), -EBADMSG);
    CHECK_INT(first_of("6 a=b\n", 0), 1);
    CHECK_INT(first_of(records_of("mtime=12.3456789\nuid=70000\n"), 0), 1);
    CHECK_INT(first_of("18 mtime=12.3456789\n", 0), -EBADMSG); /* one too short */
}

TEST(headers_that_lie)
{
    struct buf b = BUF_INIT(1 << 20);
    struct tar_entry e = {.type = TAR_FILE, .path = "f", .link = ""};
    put_file(&b, &e, "");
    char good[TAR_BLOCK], *h = buf_data(&b);
    memcpy(good, h, sizeof good);
    struct {
        size_t at;
        const char *text;
        size_t n;
        bool mended;
        int expect;
    } cases[] = {
        {0, "g", 1, false, -EBADMSG}, /* the sum */
        {TAR_AT_SIZE, "99999999999", 11, true, -EBADMSG},
        {TAR_AT_SIZE, "\377\377\377\377\377\377\377\377\377\377\377\377", 12, true, -EBADMSG},
        {TAR_AT_SIZE, "\200\0\0\0\377\377\377\377\377\377\377\377", 12, true, -EBADMSG},
        {TAR_AT_MODE, "0x", 2, true, -EBADMSG},
        {TAR_AT_TYPE, "Q", 1, true, -EBADMSG},
        {TAR_AT_TYPE, "5", 1, true, 1},
        {TAR_AT_UID, "\200\0\0\0\0\0\1\0", 8, true, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct reading r;
        memcpy(h, good, sizeof good);
        memcpy(h + cases[i].at, cases[i].text, cases[i].n);
        if (cases[i].mended)
            mend(h);
        reading_begin(&r, &b, 4096, true);
        CHECK_INT(next(&r), cases[i].expect);
        tar_reader_free(r.tar);
    }
    buf_done(&b);
}

TEST(gnu_long_names)
{
    struct buf b = BUF_INIT(1 << 20);
    struct reading r;
    static char name[300];
    memset(name, 'g', sizeof name - 1);
    struct tar_entry l = {.type = TAR_FILE, .path = "././@LongLink", .link = "", .size = sizeof name},
                     e = {.type = TAR_FILE, .path = "short", .link = ""};
    put_file(&b, &l, name);
    buf_data(&b)[TAR_AT_TYPE] = 'L';
    mend(buf_data(&b));
    put_file(&b, &e, "");
    put_file(&b, &e, "");
    reading_begin(&r, &b, 4096, true);
    CHECK_INT(next(&r), 1);
    CHECK_STREQ(r.e.path, name);
    CHECK_INT(next(&r), 1);
    CHECK_STREQ(r.e.path, "short"); /* it is for one entry */
    tar_reader_free(r.tar);
    buf_done(&b);
}
