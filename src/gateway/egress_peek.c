/* SPDX-License-Identifier: Apache-2.0 */
/* egress_peek.c: see egress_peek.h.
 *
 * A ClientHello (RFC 8446, 4.1.2) may be spread over several TLS records; it is put together first, and then
 * read to its end: lengths that do not fit into each other make it no ClientHello. */
#include "gateway/egress_peek.h"
#include "net/http_parse.h"

#include <string.h>

enum {
    RECORD_HEAD = 5,
    RECORD_HANDSHAKE = 22,
    RECORD_MAX = 16 * 1024,
    HANDSHAKE_HEAD = 4,
    CLIENT_HELLO = 1,
    RANDOM_BYTES = 32,
    EXTENSION_SERVER_NAME = 0,
    NAME_TYPE_HOST = 0,
};

/* ------------------------------------------------------------------ bytes within bytes */

struct span {
    const unsigned char *p;
    size_t n;
};

/* The next bytes of a span; false when there are not so many. */
static bool take(struct span *s, size_t n, struct span *ret)
{
    if (n > s->n)
        return false;
    *ret = (struct span){s->p, n};
    s->p += n;
    s->n -= n;
    return true;
}

/* A number of some bytes, the first the highest. */
static bool take_number(struct span *s, size_t bytes, size_t *ret)
{
    struct span b;
    if (!take(s, bytes, &b))
        return false;
    *ret = 0;
    for (size_t i = 0; i < bytes; i++)
        *ret = *ret << 8 | b.p[i];
    return true;
}

/* What a number in front of it says the length of. */
static bool take_counted(struct span *s, size_t bytes, struct span *ret)
{
    size_t n;
    return take_number(s, bytes, &n) && take(s, n, ret);
}

/* A host name in lower case; false for what is none. */
static bool copy_name(const unsigned char *p, size_t n, char name[DNS_NAME_MAX + 1])
{
    if (n == 0 || n > DNS_NAME_MAX || p[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = p[i];
        if (c >= 'A' && c <= 'Z')
            c = (unsigned char)(c - 'A' + 'a');
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.'))
            return false;
        name[i] = (char)c;
    }
    name[n] = '\0';
    return true;
}

/* ------------------------------------------------------------------ TLS */

static bool server_name(struct span data, char name[DNS_NAME_MAX + 1])
{
    struct span list, host;
    size_t type;
    if (!take_counted(&data, 2, &list) || data.n || !list.n)
        return false;
    while (list.n) {
        if (!take_number(&list, 1, &type) || !take_counted(&list, 2, &host))
            return false;
        if (type == NAME_TYPE_HOST && (name[0] || !copy_name(host.p, host.n, name)))
            return false; /* two names, or one that is none */
    }
    return true;
}

static bool hello_read(struct span hello, char name[DNS_NAME_MAX + 1])
{
    struct span ignored, extensions, data;
    size_t type;
    if (!take(&hello, 2 + RANDOM_BYTES, &ignored) || !take_counted(&hello, 1, &ignored) ||
        !take_counted(&hello, 2, &ignored) || !ignored.n || ignored.n % 2 ||
        !take_counted(&hello, 1, &ignored) || !ignored.n)
        return false;
    if (!hello.n)
        return true; /* without extensions, as long ago */
    if (!take_counted(&hello, 2, &extensions) || hello.n)
        return false;
    while (extensions.n) {
        if (!take_number(&extensions, 2, &type) || !take_counted(&extensions, 2, &data))
            return false;
        if (type == EXTENSION_SERVER_NAME && !server_name(data, name))
            return false;
    }
    return true;
}

static enum peek peek_tls(struct span in, char name[DNS_NAME_MAX + 1])
{
    unsigned char hello[PEEK_MAX];
    size_t len = 0, want = HANDSHAKE_HEAD;
    bool full = in.n >= PEEK_MAX; /* no more will be shown */
    while (len < want) {
        struct span fragment;
        size_t type, version, n;
        if (!in.n)
            return full ? PEEK_OTHER : PEEK_MORE;
        if (in.p[0] != RECORD_HANDSHAKE || (in.n > 1 && in.p[1] != 3))
            return PEEK_OTHER;
        if (!take_number(&in, 1, &type) || !take_number(&in, 2, &version) || !take_number(&in, 2, &n))
            return full ? PEEK_OTHER : PEEK_MORE;
        if (n == 0 || n > RECORD_MAX)
            return PEEK_OTHER;
        bool whole = take(&in, n, &fragment);
        if (!whole)
            (void)take(&in, in.n, &fragment);
        if (fragment.n > sizeof hello - len)
            return PEEK_OTHER;
        memcpy(hello + len, fragment.p, fragment.n);
        len += fragment.n;
        if (len && hello[0] != CLIENT_HELLO)
            return PEEK_OTHER;
        if (len >= HANDSHAKE_HEAD)
            want = HANDSHAKE_HEAD + ((size_t)hello[1] << 16 | (size_t)hello[2] << 8 | hello[3]);
        if (want > sizeof hello)
            return PEEK_OTHER;
        if (!whole && len < want)
            return full ? PEEK_OTHER : PEEK_MORE;
    }
    if (!hello_read((struct span){hello + HANDSHAKE_HEAD, want - HANDSHAKE_HEAD}, name)) {
        name[0] = '\0';
        return PEEK_OTHER;
    }
    return PEEK_TLS;
}

/* ------------------------------------------------------------------ HTTP */

static enum peek peek_http(const char *data, size_t n, char name[DNS_NAME_MAX + 1])
{
    struct http_parser p;
    size_t used = 0;
    http_parser_init(&p, HTTP_KIND_REQUEST, &http_limits_default);
    enum http_event event = http_parser_next(&p, data, n, &used);
    if (event == HTTP_EVENT_MORE) {
        http_parser_reset(&p);
        return n >= PEEK_MAX ? PEEK_OTHER : PEEK_MORE;
    }
    if (event != HTTP_EVENT_HEAD) {
        http_parser_reset(&p);
        return PEEK_OTHER;
    }
    auto_free struct http_head *head = take_ptr(p.head);
    http_parser_reset(&p);
    const char *host = http_header_find(head->headers, head->header_count, "Host");
    if (!host || !copy_name((const unsigned char *)host, strcspn(host, ":"), name))
        name[0] = '\0';
    return PEEK_HTTP;
}

enum peek egress_peek(const void *data, size_t n, bool http, char name[DNS_NAME_MAX + 1])
{
    struct span in = {data, n};
    name[0] = '\0';
    if (!n)
        return PEEK_MORE;
    if (in.p[0] == RECORD_HANDSHAKE)
        return peek_tls(in, name);
    return http && http_is_token(in.p[0]) ? peek_http(data, n, name) : PEEK_OTHER;
}
