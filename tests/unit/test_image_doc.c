/* SPDX-License-Identifier: Apache-2.0 */
/* test_image_doc.c: what images say about themselves, names in layers, names of images. */
#include "image/doc.h"
#include "image/layer_path.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>

static int parse(struct doc *d, int (*read)(struct doc *, const struct json_value *, struct error *),
                 const char *text)
{
    char *copy = strdup(text);
    struct json_doc *doc = NULL;
    struct error e = {0};
    int r = json_parse(copy, strlen(copy), 0, &doc, &e);
    if (r == 0)
        r = read(d, json_root(doc), &e);
    json_free(doc);
    free(copy);
    return r;
}

static const char *written(const struct doc *d, struct buf *out)
{
    struct json_writer w;
    *out = BUF_INIT(1 << 20);
    json_writer_init(&w, out);
    doc_write(d, &w);
    return buf_cstr(out);
}

TEST(an_oci_configuration_becomes_ours)
{
    struct doc d = {0};
    struct buf out;
    int r = parse(
        &d, doc_read_oci,
        "{\"created\":\"2026-01-01T00:00:00Z\",\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{"
        "\"Env\":[\"A=1\",\"B=2\",\"A=3\",\"noequals\"],"
        "\"WorkingDir\":\"/"
        "w\",\"User\":\"u:g\",\"Entrypoint\":[\"e\"],\"Cmd\":[],\"ExposedPorts\":{\"80\":{},\"53/udp\":{}},"
        "\"Labels\":{\"k\":\"v\"},\"Volumes\":{\"/x\":{}},\"StopSignal\":\"SIGINT\"}}");
    CHECK_INT(r, 0);
    CHECK_STREQ(
        written(&d, &out),
        "{\"createdAt\":\"2026-01-01T00:00:00Z\",\"architecture\":\"amd64\",\"os\":\"linux\",\"layers\":[],"
        "\"config\":{\"env\":[\"B=2\",\"A=3\"],"
        "\"workdir\":\"/w\",\"user\":\"u:g\",\"entrypoint\":[\"e\"],\"cmd\":[],\"exposedPorts\":[\"80/"
        "tcp\",\"53/udp\"],\"stopSignal\":\"SIGINT\","
        "\"labels\":{\"k\":\"v\"}},\"notes\":[\"VOLUME is not acted on: these directories are part of the "
        "sandbox's own files\"]}");
    /* and is read again as the same */
    struct doc again = {0};
    struct buf twice;
    CHECK_INT(parse(&again, doc_read, buf_cstr(&out)), 0);
    CHECK_STREQ(written(&again, &twice), buf_cstr(&out));
    buf_done(&out);
    buf_done(&twice);
    doc_done(&d);
    doc_done(&again);
}

TEST(changes_are_laid_over)
{
    struct doc d = {0};
    struct buf out;
    CHECK_INT(
        parse(&d, doc_read, "{\"env\":[\"PATH=/bin\",\"X=1\"],\"workdir\":\"/workspace\",\"user\":\"root\"}"),
        0); /* a plain image's */
    CHECK_INT(parse(&d, doc_override,
                    "{\"env\":{\"X\":null,\"Y\":\"a=b\"},\"workdir\":null,\"cmd\":[\"x\"],\"exposedPorts\":["
                    "\"3000\"],\"labels\":{\"a\":\"\"}}"),
              0);
    CHECK_STREQ(
        written(&d, &out),
        "{\"layers\":[],\"config\":{\"env\":[\"PATH=/bin\",\"Y=a=b\"],\"user\":\"root\",\"cmd\":[\"x\"],"
        "\"exposedPorts\":[\"3000/tcp\"],\"labels\":{\"a\":\"\"}}}");
    buf_done(&out);
    struct buf run = BUF_INIT(4096);
    CHECK_INT(doc_write_run(&d, &run), 0);
    CHECK(buf_len(&run) == 1 + 5 + 10 + 6 &&
          memcmp(buf_data(&run), "\0root\0PATH=/bin\0Y=a=b", buf_len(&run)) == 0);
    buf_done(&run);
    CHECK_INT(parse(&d, doc_override, "{\"env\":null,\"labels\":null,\"user\":\"\"}"), 0);
    CHECK_INT(d.env.count, 0);
    CHECK(!d.user);
    doc_done(&d);
}

TEST(changes_that_make_no_sense)
{
    static const char *const bad[] = {
        "[]",
        "{\"nonsense\":1}",
        "{\"env\":\"A=1\"}",
        "{\"env\":[1]}",
        "{\"env\":{\"A=B\":\"1\"}}",
        "{\"env\":{\"\":\"1\"}}",
        "{\"env\":{\"A\":1}}",
        "{\"workdir\":\"relative\"}",
        "{\"workdir\":5}",
        "{\"user\":\"a\\nb\"}",
        "{\"cmd\":\"text\"}",
        "{\"cmd\":[1]}",
        "{\"exposedPorts\":[\"0\"]}",
        "{\"exposedPorts\":[\"65536\"]}",
        "{\"exposedPorts\":[\" 80\"]}",
        "{\"exposedPorts\":[\"80/sctp\"]}",
        "{\"exposedPorts\":[\"80-90\"]}",
        "{\"labels\":[]}",
        "{\"labels\":{\"a\":1}}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct doc d = {0};
        int r = parse(&d, doc_override, bad[i]);
        if (r != -EBADMSG)
            printf("%s\n", bad[i]);
        CHECK_INT(r, -EBADMSG);
        doc_done(&d);
    }
}

TEST(names_in_layers)
{
    static const struct {
        const char *name, *clean;
    } cases[] = {
        {"./", ""},   {".", ""},      {"a", "a"},       {"./a//b/./c/", "a/b/c"}, {"..a/b..", "..a/b.."},
        {"/a", NULL}, {"../a", NULL}, {"a/../b", NULL}, {"a/..", NULL},           {"..", NULL},
        {"", ""}};
    char out[TAR_PATH_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int r = layer_path_clean(cases[i].name, out, NULL);
        CHECK_INT(r, cases[i].clean ? 0 : -EBADMSG);
        if (r == 0)
            CHECK_STREQ(out, cases[i].clean ? cases[i].clean : "");
    }
    static const struct {
        const char *name;
        enum layer_mark mark;
        const char *deleted;
    } marks[] = {{"x", LAYER_MARK_NONE, NULL},
                 {".wh.x", LAYER_MARK_WHITEOUT, "x"},
                 {".wh..wh..opq", LAYER_MARK_OPAQUE, NULL},
                 {".wh.", LAYER_MARK_IGNORED, NULL},
                 {".wh...", LAYER_MARK_IGNORED, NULL},
                 {".wh..", LAYER_MARK_IGNORED, NULL},
                 {".wh..wh.plnk", LAYER_MARK_IGNORED, NULL},
                 {".wh....", LAYER_MARK_WHITEOUT, "..."}};
    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        const char *deleted = NULL;
        CHECK_INT(layer_mark_of(marks[i].name, &deleted), marks[i].mark);
        if (marks[i].deleted)
            CHECK_STREQ(deleted, marks[i].deleted);
    }
}

TEST(names_of_images)
{
    static const char *const good[] = {
        "a:1",         "app:latest", "cloudflare-dev/sandbox:1a2b3c4d", "localhost:5000/x/y:T_a.g-1",
        "a.b_c-d/e:1", "0:0"};
    static const char *const bad[] = {
        "",      "a",     "a:",    ":1",         "A:1",       "a/:1",         "/a:1", "a//b:1",
        "a:1:2", "a:b/c", "-a:1",  "a-:1",       "a/-b:1",    "a:.1",         "a:-1", "a b:1",
        "a:1 ",  "a+b:1", "a=b:1", "host:x/a:1", "host:/a:1", "a/host:1/b:2", "..:1", "a/../b:1"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK(keeper_image_reference_ok(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (keeper_image_reference_ok(bad[i]))
            printf("%s\n", bad[i]);
        CHECK(!keeper_image_reference_ok(bad[i]));
    }
    unsigned char sum[SHA256_BYTES];
    CHECK(sha256_parse("sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", sum));
    CHECK(sum[0] == 1 && sum[1] == 0x23 && sum[31] == 0xef);
    CHECK(!sha256_parse("sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef", sum));
    CHECK(!sha256_parse("sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde", sum));
    CHECK(!sha256_parse("sha512:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", sum));
}
