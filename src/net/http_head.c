/* SPDX-License-Identifier: Apache-2.0 */
/* http_head.c: reading one head with llhttp, then deciding what it means: host, target, framing, connection.
 */
#include "net/http_head.h"

#include <llhttp.h>
#include <string.h>
#include <strings.h>

_Static_assert(LLHTTP_STRICT_MODE, "llhttp must be built and used in its strict mode");

/* What llhttp tells while it reads; everything points into the copy of the head that is going to be kept. */
struct reading {
    char *target;
    size_t target_len;
    struct http_header *headers;
    size_t count, max;
    size_t name_len, last_value_len;
    bool complete;
    bool blank; /* a tab around a value that decides the framing */
};

/* The headers that decide something, as found in the list. */
struct facts {
    const char *host, *length, *coding, *expect;
    size_t hosts, lengths, codings, expects;
    bool close, keep_alive, connection_upgrade, upgrade;
};

static int request_line_check(const char *line, size_t n, const char **ret_reason)
{
    static const char version[] = " HTTP/1.1";
    const size_t version_len = sizeof version - 1;

    *ret_reason = "the request line is malformed";
    if (n < version_len + 3 || memcmp(line + n - version_len, version, 6) != 0)
        return 400;
    const char *v = line + n - 3;
    if (v[0] < '0' || v[0] > '9' || v[1] != '.' || v[2] < '0' || v[2] > '9')
        return 400;

    size_t i = 0, end = n - version_len;
    while (i < end && http_is_token((unsigned char)line[i]))
        i++;
    if (i == 0 || i + 1 >= end || line[i] != ' ')
        return 400;
    for (i++; i < end; i++)
        if ((unsigned char)line[i] <= 0x20 || (unsigned char)line[i] >= 0x7f || line[i] == '#')
            return 400;
    if (v[0] != '1' || v[2] > '1') {
        *ret_reason = "this version of HTTP is not spoken here";
        return 505;
    }
    return 0;
}

static int status_line_check(const char *line, size_t n, const char **ret_reason)
{
    *ret_reason = "the status line is malformed";
    if (n < 12 || memcmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return 400;
    if (line[9] < '1' || line[9] > '9')
        return 400;
    for (size_t i = 10; i < 12; i++)
        if (line[i] < '0' || line[i] > '9')
            return 400;
    return n > 12 && line[12] != ' ' ? 400 : 0;
}

int http_first_line_check(enum http_kind kind, const char *line, size_t n, const char **ret_reason)
{
    return kind == HTTP_KIND_REQUEST ? request_line_check(line, n, ret_reason)
                                     : status_line_check(line, n, ret_reason);
}

/* ------------------------------------------------------------------ llhttp */

static int on_url(llhttp_t *ll, const char *at, size_t n)
{
    struct reading *r = ll->data;
    if (!r->target)
        r->target = (char *)at;
    r->target_len += n;
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Ends the name and the value that were read last; both are followed by at least one byte (':' and CR). */
static void end_strings(struct reading *r)
{
    if (!r->count)
        return;
    struct http_header *h = &r->headers[r->count - 1];
    char *name = (char *)h->name, *value = (char *)h->value;
    size_t n = r->last_value_len;
    name[r->name_len] = '\0';
    if (!n)
        return;
    bool tab = value[-1] == '\t';
    for (; n && is_blank(value[n - 1]); n--)
        tab |= value[n - 1] == '\t';
    value[n] = '\0';
    if (tab && (strcasecmp(name, "transfer-encoding") == 0 || strcasecmp(name, "content-length") == 0))
        r->blank = true;
}

static int on_field(llhttp_t *ll, const char *at, size_t n)
{
    struct reading *r = ll->data;
    if (r->count && r->headers[r->count - 1].name + r->name_len == at) {
        r->name_len += n; /* the same name, told in two pieces */
        return 0;
    }
    end_strings(r);
    if (r->count == r->max || !n)
        return -1; /* llhttp sees more lines than there are line ends, or takes an empty name */
    r->headers[r->count++] = (struct http_header){.name = at, .value = ""};
    r->name_len = n;
    r->last_value_len = 0;
    return 0;
}

static int on_value(llhttp_t *ll, const char *at, size_t n)
{
    struct reading *r = ll->data;
    if (!r->count)
        return -1;
    if (!n)
        return 0;
    struct http_header *h = &r->headers[r->count - 1];
    if (!r->last_value_len)
        h->value = at;
    else if (h->value + r->last_value_len != at)
        return -1; /* only a folded line has a value in two places */
    r->last_value_len += n;
    return 0;
}

static int on_headers_complete(llhttp_t *ll)
{
    struct reading *r = ll->data;
    end_strings(r);
    r->complete = true;
    return HPE_PAUSED; /* the body is not llhttp's business */
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers_complete,
};

/* ------------------------------------------------------------------ what it means */

static void collect_facts(const struct http_header *headers, size_t count, struct facts *f)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name, *value = headers[i].value;
        switch (strlen(name)) {
        case 4:
            if (strcasecmp(name, "host") == 0) {
                f->host = value;
                f->hosts++;
            }
            break;
        case 6:
            if (strcasecmp(name, "expect") == 0) {
                f->expect = value;
                f->expects++;
            }
            break;
        case 7:
            if (strcasecmp(name, "upgrade") == 0)
                f->upgrade = true;
            break;
        case 10:
            if (strcasecmp(name, "connection") == 0) {
                f->close |= http_list_has(value, "close");
                f->keep_alive |= http_list_has(value, "keep-alive");
                f->connection_upgrade |= http_list_has(value, "upgrade");
            }
            break;
        case 14:
            if (strcasecmp(name, "content-length") == 0) {
                f->length = value;
                f->lengths++;
            }
            break;
        case 17:
            if (strcasecmp(name, "transfer-encoding") == 0) {
                f->coding = value;
                f->codings++;
            }
            break;
        }
    }
}

/* Digits only, at most 2^63 - 1; else -1. */
static int64_t parse_length(const char *s)
{
    int64_t v = 0;
    if (!*s)
        return -1;
    for (; *s; s++)
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, *s - '0', &v))
            return -1;
    return v;
}

static int read_framing(struct http_head *h, const struct facts *f, enum http_kind kind,
                        const char **ret_reason)
{
    h->content_length = -1;
    if (f->codings) {
        *ret_reason =
            "Transfer-Encoding must be exactly 'chunked', once, on HTTP/1.1 and without Content-Length";
        if (f->codings > 1 || f->lengths || h->minor == 0 || strcasecmp(f->coding, "chunked") != 0)
            return 400;
        h->framing = HTTP_FRAMING_CHUNKED;
        return 0;
    }
    if (f->lengths) {
        *ret_reason = "Content-Length must be one decimal number";
        if (f->lengths > 1 || (h->content_length = parse_length(f->length)) < 0)
            return 400;
        h->framing = h->content_length ? HTTP_FRAMING_LENGTH : HTTP_FRAMING_NONE;
        return 0;
    }
    h->framing = kind == HTTP_KIND_REQUEST ? HTTP_FRAMING_NONE : HTTP_FRAMING_CLOSE;
    return 0;
}

static bool host_valid(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++) {
        bool alnum = (*s >= '0' && *s <= '9') || ((*s | 0x20) >= 'a' && (*s | 0x20) <= 'z');
        if (!alnum && !strchr("-._~:[]%", *s))
            return false;
    }
    return true;
}

/* Finds path and query in a target of any form. split is writable memory of the target's length + 1. */
static bool read_target(struct http_head *h, const char *host, char *split)
{
    const char *t = h->target, *rest = t;

    h->query = "";
    if (h->is_connect) {
        h->path = t;
        return host_valid(t) && strchr(t, ':') != NULL;
    }
    if (strcmp(t, "*") == 0) {
        h->path = t;
        return strcmp(h->method, "OPTIONS") == 0;
    }
    if (*t != '/') { /* absolute form: it must name the host that Host names, so that there is one truth */
        size_t scheme = strncasecmp(t, "http://", 7) == 0 ? 7 : strncasecmp(t, "https://", 8) == 0 ? 8 : 0;
        size_t host_len = strlen(host);
        if (!scheme || strncasecmp(t + scheme, host, host_len) != 0)
            return false;
        rest = t + scheme + host_len;
        if (*rest && *rest != '/' && *rest != '?')
            return false;
    }
    const char *mark = strchr(rest, '?');
    size_t path_len = mark ? (size_t)(mark - rest) : strlen(rest);
    if (mark)
        h->query = mark + 1;
    h->path = split;
    if (!path_len) {
        memcpy(split, "/", 2);
        return true;
    }
    memcpy(split, rest, path_len);
    split[path_len] = '\0';
    return true;
}

static int read_request(struct http_head *h, const struct facts *f, char *split, const char **ret_reason)
{
    h->is_head = strcmp(h->method, "HEAD") == 0;
    h->is_connect = strcmp(h->method, "CONNECT") == 0;
    *ret_reason = "a request needs exactly one valid Host";
    if (f->hosts > 1 || (f->hosts == 0 && !h->is_connect) || (f->hosts && !host_valid(f->host)))
        return 400;
    *ret_reason = "the request target is malformed";
    if (!read_target(h, f->host, split))
        return 400;
    if (f->expects && h->minor) {
        *ret_reason = "only 'Expect: 100-continue' can be met";
        if (f->expects > 1 || strcasecmp(f->expect, "100-continue") != 0)
            return 417;
        h->expect_continue = true;
    }
    h->upgrade = h->is_connect || (h->minor && f->connection_upgrade && f->upgrade);
    return 0;
}

static void read_response(struct http_head *h, const struct http_parser *p)
{
    bool tunnel = p->to_connect && h->status / 100 == 2;
    h->upgrade = h->status == 101 || tunnel;
    if (p->to_head || tunnel || h->status / 100 == 1 || h->status == 204 || h->status == 304)
        h->framing = HTTP_FRAMING_NONE;
    if (h->framing == HTTP_FRAMING_CLOSE)
        h->keep_alive = false;
}

static const char *llhttp_sentence(llhttp_errno_t err)
{
    switch (err) {
    case HPE_INVALID_METHOD:
        return "the method is not known";
    case HPE_INVALID_URL:
        return "the request target is malformed";
    case HPE_INVALID_CONTENT_LENGTH:
    case HPE_UNEXPECTED_CONTENT_LENGTH:
        return "Content-Length must be one decimal number, without Transfer-Encoding";
    case HPE_INVALID_TRANSFER_ENCODING:
        return "Transfer-Encoding must be exactly 'chunked'";
    default:
        return "the header is malformed";
    }
}

int http_head_read(const struct http_parser *p, const char *data, size_t n, size_t lines,
                   struct http_head **ret, const char **ret_reason)
{
    /* one block: the struct, the list, the bytes (strings are ended in place), and the path, which is never
     * longer than the first line. Not calloc: glibc's passes by the blocks that were just given back */
    const char *eol = memchr(data, '\r', n);
    size_t line = eol ? (size_t)(eol - data) : n;
    auto_free struct http_head *h = malloc(sizeof *h + lines * sizeof *h->headers + n + 1 + line + 1);
    if (!h) {
        *ret_reason = "out of memory";
        return 503;
    }
    *h = (struct http_head){0};
    h->headers = (struct http_header *)(h + 1);
    char *copy = (char *)(h->headers + lines);
    memcpy(copy, data, n);
    copy[n] = '\0';

    struct reading r = {.headers = h->headers, .max = lines};
    llhttp_t ll;
    bool request = p->kind == HTTP_KIND_REQUEST;
    llhttp_init(&ll, request ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
    ll.data = &r;
    llhttp_errno_t err = llhttp_execute(&ll, copy, n);
    if (err != HPE_PAUSED || !r.complete || r.count != lines || llhttp_get_error_pos(&ll) != copy + n) {
        *ret_reason = llhttp_sentence(err);
        return 400;
    }
    if (r.blank) { /* legal, but some parsers take the tab for a part of the value */
        *ret_reason = "a tab stands around Content-Length or Transfer-Encoding";
        return 400;
    }

    struct facts f = {0};
    collect_facts(h->headers, lines, &f);
    h->header_count = lines;
    h->minor = ll.http_minor;
    h->keep_alive = !f.close && (h->minor || f.keep_alive);
    int status = read_framing(h, &f, (enum http_kind)p->kind, ret_reason);
    if (status)
        return status;
    if (request) {
        if (!r.target || r.target == copy) {
            *ret_reason = "the request target is malformed";
            return 400;
        }
        r.target[-1] = r.target[r.target_len] = '\0';
        h->method = copy;
        h->target = r.target;
        status = read_request(h, &f, copy + n + 1, ret_reason);
        if (status)
            return status;
    } else {
        h->status = ll.status_code;
        read_response(h, p);
    }
    *ret = take_ptr(h);
    return 0;
}
