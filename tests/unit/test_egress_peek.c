/* SPDX-License-Identifier: Apache-2.0 */
/* test_egress_peek.c: the first bytes of connections: TLS, HTTP, and what only looks like them. */
#include "gateway/egress_peek.h"
#include "test.h"

#include <stdlib.h>

/* A ClientHello in the making; lengths are filled in at the end. */
struct hello {
    unsigned char data[2048];
    size_t len;
};

static void add(struct hello *h, const void *p, size_t n)
{
    memcpy(h->data + h->len, p, n);
    h->len += n;
}

static void add16(struct hello *h, size_t v)
{
    unsigned char b[2] = {(unsigned char)(v >> 8), (unsigned char)v};
    add(h, b, 2);
}

static void add_server_name(struct hello *h, const char *name)
{
    size_t n = strlen(name);
    add16(h, 0);
    add16(h, n + 5);
    add16(h, n + 3);
    add(h, "\0", 1);
    add16(h, n);
    add(h, name, n);
}

/* With these extensions, as one record. */
static struct hello hello_make(const void *extensions, size_t n)
{
    static const unsigned char random[32] = {1};
    struct hello body = {0}, h = {0};
    add(&body, "\3\3", 2);
    add(&body, random, sizeof random);
    add(&body, "\0", 1);
    add(&body, "\0\2\x13\1\1\0", 6); /* one cipher, no compression */
    if (extensions) {
        add16(&body, n);
        add(&body, extensions, n);
    }
    add(&h, "\x16\3\1", 3);
    add16(&h, body.len + 4);
    add(&h, "\1\0", 2);
    add16(&h, body.len);
    add(&h, body.data, body.len);
    return h;
}

static struct hello hello_for(const char *name)
{
    struct hello e = {0};
    add(&e, "\0\x2b\0\3\2\3\4", 7); /* supported_versions */
    add_server_name(&e, name);
    add(&e, "\0\x10\0\5\0\3\2h2", 9); /* ALPN */
    return hello_make(e.data, e.len);
}

static enum peek look(const struct hello *h, char name[DNS_NAME_MAX + 1])
{
    return egress_peek(h->data, h->len, false, name);
}

TEST(a_hello_with_a_name)
{
    char name[DNS_NAME_MAX + 1];
    struct hello h = hello_for("WWW.Example-1.org");
    CHECK_INT(look(&h, name), PEEK_TLS);
    CHECK_STREQ(name, "www.example-1.org");
}

TEST(every_prefix_wants_more)
{
    char name[DNS_NAME_MAX + 1];
    struct hello h = hello_for("example.org");
    for (size_t n = 0; n < h.len; n++) {
        unsigned char *copy = malloc(n + 1); /* so that a read behind its end is seen */
        memcpy(copy, h.data, n);
        CHECK_INT(egress_peek(copy, n, true, name), PEEK_MORE);
        CHECK_STREQ(name, "");
        free(copy);
    }
    add(&h, "\x14\3\3\0\1\1", 6); /* what follows does not matter */
    CHECK_INT(look(&h, name), PEEK_TLS);
}

TEST(a_hello_in_several_records)
{
    char name[DNS_NAME_MAX + 1];
    struct hello whole = hello_for("example.org"), h = {0};
    for (size_t at = 5; at < whole.len; at += 3) {
        size_t n = MIN((size_t)3, whole.len - at);
        CHECK_INT(look(&h, name), PEEK_MORE);
        add(&h, "\x16\3\1", 3);
        add16(&h, n);
        add(&h, whole.data + at, n);
    }
    CHECK_INT(look(&h, name), PEEK_TLS);
    CHECK_STREQ(name, "example.org");
}

TEST(a_hello_without_a_name)
{
    char name[DNS_NAME_MAX + 1];
    struct hello h = hello_make(NULL, 0);
    CHECK_INT(look(&h, name), PEEK_TLS);
    CHECK_STREQ(name, "");
    h = hello_make("", 0);
    CHECK_INT(look(&h, name), PEEK_TLS);
    h = hello_make("\0\x2b\0\3\2\3\4", 7);
    CHECK_INT(look(&h, name), PEEK_TLS);
    CHECK_STREQ(name, "");
}

TEST(names_that_are_none)
{
    char name[DNS_NAME_MAX + 1], big[300];
    static const char *const bad[] = {"", ".x", "a b", "a\r\nX: y", "a/b", "a\"b", "[::1]", "ex\xc3\xa4mple"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct hello h = hello_for(bad[i]);
        CHECK_INT(look(&h, name), PEEK_OTHER);
        CHECK_STREQ(name, "");
    }
    for (size_t n = 252; n <= 255; n++) {
        memset(big, 'a', n);
        big[n] = '\0';
        struct hello h = hello_for(big);
        CHECK_INT(look(&h, name), n <= DNS_NAME_MAX ? PEEK_TLS : PEEK_OTHER);
    }
    struct hello twice = {0};
    add_server_name(&twice, "a.test");
    add_server_name(&twice, "b.test");
    struct hello h = hello_make(twice.data, twice.len);
    CHECK_INT(look(&h, name), PEEK_OTHER);
    CHECK_STREQ(name, "");
}

TEST(lengths_that_do_not_fit)
{
    char name[DNS_NAME_MAX + 1];
    struct hello good = hello_for("example.org");
    /* every byte of the structure, one too many and one too few: never a name that is not there */
    for (size_t i = 5; i < good.len; i++)
        for (int d = -1; d <= 1; d += 2) {
            struct hello h = good;
            h.data[i] = (unsigned char)(h.data[i] + d);
            enum peek k = look(&h, name);
            CHECK(k == PEEK_TLS || k == PEEK_OTHER || k == PEEK_MORE);
            CHECK(k == PEEK_TLS || !name[0]);
        }
    struct hello h = hello_make("\0\0\0\2\0", 5); /* an extension longer than its list */
    CHECK_INT(look(&h, name), PEEK_OTHER);
    h = hello_make("\0\0\0\2\0\1", 6); /* a list of names longer than its extension */
    CHECK_INT(look(&h, name), PEEK_OTHER);
}

TEST(what_is_not_tls)
{
    char name[DNS_NAME_MAX + 1];
#define IS(text, kind) CHECK_INT(egress_peek(text, sizeof(text) - 1, false, name), kind)
    IS("\x16\2\1", PEEK_OTHER);             /* SSL 2 */
    IS("\x16\3\1\0\0", PEEK_OTHER);         /* an empty record */
    IS("\x16\3\1\x40\1", PEEK_OTHER);       /* one that is too long */
    IS("\x16\3\1\0\4\2\0\0\0", PEEK_OTHER); /* a ServerHello */
    IS("\x16\3\1\0\4\1\1\0\0", PEEK_OTHER); /* a hello of 64 KiB */
    IS("\x17\3\1", PEEK_OTHER);
    IS("SSH-2.0-x\r\n", PEEK_OTHER);
    IS("GET / HTTP/1.1\r\n", PEEK_OTHER); /* not on this port */
    IS("", PEEK_MORE);
#undef IS
}

TEST(more_than_is_ever_shown)
{
    static unsigned char data[PEEK_MAX];
    char name[DNS_NAME_MAX + 1];
    memcpy(data, "\x16\3\1\x40\0\1\0\x3f\xfc", 9); /* a record that just does not fit with its head */
    CHECK_INT(egress_peek(data, sizeof data - 1, false, name), PEEK_MORE);
    CHECK_INT(egress_peek(data, sizeof data, false, name), PEEK_OTHER);
    memset(data, 'A', sizeof data); /* a method without an end */
    CHECK_INT(egress_peek(data, sizeof data, true, name), PEEK_OTHER);
}

TEST(hosts_of_requests)
{
    char name[DNS_NAME_MAX + 1];
    static const struct {
        const char *text;
        enum peek kind;
        const char *name;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: Example.org\r\n\r\n", PEEK_HTTP, "example.org"},
        {"GET / HTTP/1.1\r\nA: b\r\nhost:  example.org:80 \r\n\r\nbody", PEEK_HTTP, "example.org"},
        {"POST /x HTTP/1.1\r\nHost: 1.2.3.4\r\nContent-Length: 5\r\n\r\n", PEEK_HTTP, "1.2.3.4"},
        {"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", PEEK_HTTP, ""},
        {"GET / HTTP/1.0\r\n\r\n", PEEK_OTHER, ""}, /* no better than no HTTP */
        {"GET / HTTP/1.1\r\nHost: examp", PEEK_MORE, ""},
        {"G", PEEK_MORE, ""},
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", PEEK_OTHER, ""},
        {"\0\0\0", PEEK_OTHER, ""},
        {"GET\n\n", PEEK_OTHER, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t n = rows[i].text[0] ? strlen(rows[i].text) : 3;
        CHECK_INT(egress_peek(rows[i].text, n, true, name), rows[i].kind);
        CHECK_STREQ(name, rows[i].name);
    }
}
