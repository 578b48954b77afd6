/* SPDX-License-Identifier: Apache-2.0 */
/* fake_agent.c: see fake_agent.h. One blocking thread per connection; requests are parsed plainly and
 * strictly, because the gateway promises to send nothing else.
 *
 *   /api/count              what was counted so far
 *   /api/slow?ms=N          answers after N milliseconds
 *   /api/hang               never answers; counts when the caller hangs up
 *   /api/stream             sends a chunk every 10 ms; counts when the caller hangs up
 *   /api/die                ends the sandbox without an answer
 *   /api/die-mid            ends the sandbox in the middle of an answer
 *   /api/cut-mid            closes the connection in the middle of a chunked answer
 *   /api/big?n=N            N bytes with a length;   /api/bigchunked?n=N: chunked
 *   /api/slowread?ms=N      waits before it reads the body
 *   /api/early              answers 413 without reading the body
 *   /api/close-after        answers, then closes without having said so
 *   /api/headers            answers with headers that must not pass
 *   /api/raw?kind=K         bytes that are no proper answer, see raw_answers
 *   /api/background?n=N     from now on claims to run N processes
 *   /api/process/list       says so
 *   /api/wedge              answers this, and nothing any more in this life
 *   anything else           a report of the request as JSON */
#include "fake_agent.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 128 * 1024, BODY_KEEP = 4096, PIECE = 65536 };

struct conn {
    struct fake_sandbox *sandbox;
    int fd;
    uint64_t generation;
    unsigned requests;
    char in[HEAD_MAX];
    size_t in_len;
};

struct request {
    char *method, *target, *headers; /* inside head */
    char head[HEAD_MAX];
    long long length; /* -1: chunked */
    unsigned long long got;
    char body[BODY_KEEP];
    size_t kept;
};

static void sleep_ms(long ms)
{
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&ts, NULL);
}

static bool send_all(int fd, const void *data, size_t n)
{
    const char *p = data;
    while (n) {
        ssize_t r = send(fd, p, n, MSG_NOSIGNAL);
        if (r <= 0)
            return false;
        p += r;
        n -= (size_t)r;
    }
    return true;
}

static bool send_text(int fd, const char *s)
{
    return send_all(fd, s, strlen(s));
}

/* More bytes into c->in; false at the end of the connection. */
static bool fill(struct conn *c)
{
    if (c->in_len == sizeof c->in)
        return false;
    ssize_t n = recv(c->fd, c->in + c->in_len, sizeof c->in - c->in_len, 0);
    if (n <= 0)
        return false;
    c->in_len += (size_t)n;
    return true;
}

static void consume(struct conn *c, size_t n)
{
    memmove(c->in, c->in + n, c->in_len - n);
    c->in_len -= n;
}

static const char *header(const struct request *r, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = r->headers; p && *p; p = strstr(p, "\r\n") ? strstr(p, "\r\n") + 2 : NULL)
        if (strncasecmp(p, name, n) == 0 && p[n] == ':')
            return p + n + 2;
    return NULL;
}

/* 1: a request, 0: the end, -1: not what a gateway may send */
static int read_head(struct conn *c, struct request *r)
{
    char *end;
    while (!(end = memmem(c->in, c->in_len, "\r\n\r\n", 4)))
        if (!fill(c))
            return c->in_len ? -1 : 0;
    size_t n = (size_t)(end - c->in) + 4;
    memcpy(r->head, c->in, n);
    r->head[n - 2] = '\0'; /* headers keep one CRLF each */
    consume(c, n);

    char *line_end = strstr(r->head, "\r\n");
    *line_end = '\0';
    r->headers = line_end + 2;
    r->method = r->head;
    char *space = strchr(r->head, ' ');
    if (!space)
        return -1;
    *space = '\0';
    r->target = space + 1;
    char *version = strchr(r->target, ' ');
    if (!version || strcmp(version, " HTTP/1.1") != 0)
        return -1;
    *version = '\0';

    const char *length = header(r, "Content-Length"), *coding = header(r, "Transfer-Encoding");
    if (length && coding)
        return -1;
    if (coding && strncmp(coding, "chunked\r\n", 9) != 0)
        return -1;
    r->length = coding ? -1 : length ? atoll(length) : 0;
    return 1;
}

static void keep(struct request *r, const char *data, size_t n)
{
    size_t room = sizeof r->body - r->kept;
    size_t take = n < room ? n : room;
    memcpy(r->body + r->kept, data, take);
    r->kept += take;
    r->got += n;
}

/* n bytes of body out of the connection. */
static bool read_bytes(struct conn *c, struct request *r, unsigned long long n)
{
    while (n) {
        if (!c->in_len && !fill(c))
            return false;
        size_t take = c->in_len < n ? c->in_len : (size_t)n;
        keep(r, c->in, take);
        consume(c, take);
        n -= take;
    }
    return true;
}

static bool read_line(struct conn *c, char *line, size_t cap)
{
    char *end;
    while (!(end = memmem(c->in, c->in_len, "\r\n", 2)))
        if (!fill(c))
            return false;
    size_t n = (size_t)(end - c->in);
    if (n >= cap)
        return false;
    memcpy(line, c->in, n);
    line[n] = '\0';
    consume(c, n + 2);
    return true;
}

static bool read_body(struct conn *c, struct request *r)
{
    if (r->length >= 0)
        return read_bytes(c, r, (unsigned long long)r->length);
    for (;;) {
        char line[64];
        if (!read_line(c, line, sizeof line))
            return false;
        char *stop;
        unsigned long long n = strtoull(line, &stop, 16);
        if (stop == line || *stop)
            return false; /* extensions are not passed on */
        if (n == 0)
            return read_line(c, line, sizeof line) && line[0] == '\0'; /* nor are trailers */
        if (!read_bytes(c, r, n) || !read_line(c, line, sizeof line) || line[0])
            return false;
    }
}

/* ------------------------------------------------------------------ answers */

struct text {
    char data[HEAD_MAX];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->data + t->len, sizeof t->data - t->len, fmt, ap);
    va_end(ap);
    if (n > 0 && t->len + (size_t)n < sizeof t->data)
        t->len += (size_t)n;
}

static void put_json_bytes(struct text *t, const char *s, size_t n)
{
    put(t, "\"");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\' || c < 0x20 || c >= 0x7f)
            put(t, "\\u%04x", c);
        else
            put(t, "%c", c);
    }
    put(t, "\"");
}

static bool send_head(int fd, int status, const struct text *body)
{
    char head[256];
    (void)snprintf(head, sizeof head,
                   "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nAccess-Control-Allow-Origin: *\r\n"
                   "Content-Length: %zu\r\n\r\n",
                   status, body->len);
    return send_text(fd, head);
}

static bool send_json(int fd, int status, const struct text *body)
{
    return send_head(fd, status, body) && send_all(fd, body->data, body->len);
}

static bool report(struct conn *c, const struct request *r)
{
    static _Thread_local struct text t;
    t.len = 0;
    put(&t, "{\"method\":");
    put_json_bytes(&t, r->method, strlen(r->method));
    put(&t, ",\"target\":");
    put_json_bytes(&t, r->target, strlen(r->target));
    put(&t, ",\"headers\":[");
    const char *sep = "";
    for (const char *p = r->headers; *p;) {
        const char *colon = strchr(p, ':'), *end = strstr(p, "\r\n");
        put(&t, "%s[", sep);
        put_json_bytes(&t, p, (size_t)(colon - p));
        put(&t, ",");
        put_json_bytes(&t, colon + 2, (size_t)(end - colon - 2));
        put(&t, "]");
        sep = ",";
        p = end + 2;
    }
    put(&t, "],\"bodyLength\":%llu,\"body\":", r->got);
    put_json_bytes(&t, r->body, r->kept);
    put(&t, ",\"requestsOnConnection\":%u,\"generation\":%llu}", c->requests,
        (unsigned long long)c->generation);
    return strcmp(r->method, "HEAD") == 0 ? send_head(c->fd, 200, &t) : send_json(c->fd, 200, &t);
}

static bool count(struct conn *c)
{
    static _Thread_local struct text t;
    struct fake_sandbox *s = c->sandbox;
    t.len = 0;
    (void)pthread_mutex_lock(&s->mutex);
    put(&t,
        "{\"starts\":%u,\"connects\":%u,\"requests\":%u,\"malformed\":%u,\"hangups\":%u,\"generation\":%llu,"
        "\"env\":",
        s->starts, s->connects, s->requests, s->malformed, s->hangups, (unsigned long long)c->generation);
    put_json_bytes(&t, s->env, s->env_len);
    put(&t, "}");
    (void)pthread_mutex_unlock(&s->mutex);
    return send_json(c->fd, 200, &t);
}

static bool processes(struct conn *c)
{
    static _Thread_local struct text t;
    t.len = 0;
    put(&t, "{\"success\":true,\"processes\":[],\"count\":%u}", c->sandbox->background);
    return send_json(c->fd, 200, &t);
}

static void count_hangup(struct fake_sandbox *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    s->hangups++;
    (void)pthread_mutex_unlock(&s->mutex);
}

static bool hang(struct conn *c)
{
    char rest[4096];
    while (recv(c->fd, rest, sizeof rest, 0) > 0)
        ;
    count_hangup(c->sandbox);
    return false;
}

static bool stream(struct conn *c)
{
    bool alive = send_text(c->fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n");
    while (alive) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        alive = send_text(c->fd, "c\r\ndata: {\"a\"}\n\r\n");
        if (alive && poll(&p, 1, 10) > 0)
            alive = false; /* the gateway sends nothing now: it hung up */
    }
    count_hangup(c->sandbox);
    return false;
}

static bool big(struct conn *c, unsigned long long n, bool chunked)
{
    static char piece[PIECE];
    char head[128];
    if (chunked)
        (void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    else
        (void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n", n);
    if (!send_text(c->fd, head))
        return false;
    while (n) {
        size_t take = n < PIECE ? (size_t)n : PIECE;
        char size[32];
        (void)snprintf(size, sizeof size, "%zx\r\n", take);
        if ((chunked && !send_text(c->fd, size)) || !send_all(c->fd, piece, take) ||
            (chunked && !send_text(c->fd, "\r\n")))
            return false;
        n -= take;
    }
    return !chunked || send_text(c->fd, "0\r\n\r\n");
}

static bool strange_headers(struct conn *c)
{
    return send_text(c->fd, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n"
                            "Connection: X-Private, keep-alive\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\n"
                            "Set-Cookie: a=b\r\nStrict-Transport-Security: max-age=1\r\nX-Passes: yes\r\n"
                            "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n"
                            "Proxy-Authenticate: Basic\r\nTrailer: X\r\nUpgrade: h2c\r\n\r\nok");
}

static const struct {
    const char *kind, *bytes;
} raw_answers[] = {
    {"garbage", "\x01\x02 this is not HTTP\r\n\r\n"},
    {"empty", ""},
    {"cl-te",
     "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
    {"two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"},
    {"negative-length", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello"},
    {"bad-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n"},
    {"bare-cr", "HTTP/1.1 200 OK\r\nX-A: a\rX-B: b\r\nContent-Length: 2\r\n\r\nok"},
    {"fold", "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 2\r\n\r\nok"},
    {"nul", "HTTP/1.1 200 OK\r\nX-A: a\x01z\r\nContent-Length: 2\r\n\r\nok"},
    {"status-101", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nfree bytes"},
    {"status-999", "HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok"},
    {"short", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"},
    {"extra",
     "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"},
};

static bool raw(struct conn *c, const char *kind)
{
    for (size_t i = 0; i < sizeof raw_answers / sizeof raw_answers[0]; i++)
        if (strcmp(kind, raw_answers[i].kind) == 0) {
            (void)send_text(c->fd, raw_answers[i].bytes);
            return strcmp(kind, "extra") == 0;
        }
    if (strcmp(kind, "huge-head") == 0) {
        if (!send_text(c->fd, "HTTP/1.1 200 OK\r\n"))
            return false;
        for (int i = 0; i < 100000; i++)
            if (!send_text(c->fd, "X-Filler: ................................................\r\n"))
                return false;
    } else if (strcmp(kind, "endless-1xx") == 0) {
        while (send_text(c->fd, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"))
            ;
    } else if (strcmp(kind, "many-headers") == 0) {
        if (!send_text(c->fd, "HTTP/1.1 200 OK\r\n"))
            return false;
        for (int i = 0; i < 500; i++)
            if (!send_text(c->fd, "X-A: b\r\n"))
                return false;
        return send_text(c->fd, "Content-Length: 0\r\n\r\n");
    }
    return false;
}

static void die(struct conn *c)
{
    struct fake_sandbox *s = c->sandbox;
    s->died(s);
}

static unsigned long long parameter(const char *target, const char *name)
{
    const char *query = strchr(target, '?');
    const char *p = query ? strstr(query, name) : NULL;
    return p && p[strlen(name)] == '=' ? strtoull(p + strlen(name) + 1, NULL, 10) : 0;
}

static bool is_path(const struct request *r, const char *path)
{
    size_t n = strlen(path);
    return strncmp(r->target, path, n) == 0 && (r->target[n] == '\0' || r->target[n] == '?');
}

/* False: the connection ends. */
static bool answer(struct conn *c, struct request *r)
{
    if (is_path(r, "/api/early")) {
        static const char refusal[] = "HTTP/1.1 413 X\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge";
        (void)send_text(c->fd, refusal);
        (void)shutdown(c->fd, SHUT_WR);
        char rest[4096];
        while (recv(c->fd, rest, sizeof rest, 0) > 0)
            ;
        return false;
    }
    if (is_path(r, "/api/slowread"))
        sleep_ms((long)parameter(r->target, "ms"));
    if (!read_body(c, r)) {
        (void)pthread_mutex_lock(&c->sandbox->mutex);
        c->sandbox->hangups++;
        (void)pthread_mutex_unlock(&c->sandbox->mutex);
        return false;
    }
    if (c->sandbox->wedged_generation == c->generation)
        return hang(c);
    if (is_path(r, "/api/wedge"))
        c->sandbox->wedged_generation = c->generation;
    if (is_path(r, "/api/background"))
        c->sandbox->background = (unsigned)parameter(r->target, "n");
    if (is_path(r, "/api/process/list"))
        return processes(c);
    if (is_path(r, "/api/count"))
        return count(c);
    if (is_path(r, "/api/slow"))
        sleep_ms((long)parameter(r->target, "ms"));
    if (is_path(r, "/api/hang"))
        return hang(c);
    if (is_path(r, "/api/stream"))
        return stream(c);
    if (is_path(r, "/api/big"))
        return big(c, parameter(r->target, "n"), false);
    if (is_path(r, "/api/bigchunked"))
        return big(c, parameter(r->target, "n"), true);
    if (is_path(r, "/api/headers"))
        return strange_headers(c);
    if (is_path(r, "/api/die")) {
        die(c);
        return false;
    }
    if (is_path(r, "/api/die-mid")) {
        (void)send_text(c->fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nthe first bytes");
        die(c);
        return false;
    }
    if (is_path(r, "/api/cut-mid")) {
        (void)send_text(c->fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        return false;
    }
    if (is_path(r, "/api/raw")) {
        const char *kind = strstr(r->target, "kind=");
        return raw(c, kind ? kind + 5 : "");
    }
    return report(c, r) && !is_path(r, "/api/close-after");
}

static void *serve(void *arg)
{
    struct conn *c = arg;
    struct fake_sandbox *s = c->sandbox;
    struct request *r = malloc(sizeof *r);
    int what = 0;
    while (r && (what = read_head(c, r)) > 0) {
        r->got = r->kept = 0;
        c->requests++;
        (void)pthread_mutex_lock(&s->mutex);
        s->requests++;
        (void)pthread_mutex_unlock(&s->mutex);
        if (!answer(c, r))
            break;
    }
    (void)pthread_mutex_lock(&s->mutex);
    if (what < 0)
        s->malformed++;
    for (unsigned i = 0; i < s->conn_count; i++)
        if (s->conns[i] == c->fd) {
            s->conns[i] = s->conns[--s->conn_count];
            break;
        }
    (void)close(c->fd);
    (void)pthread_mutex_unlock(&s->mutex);
    free(r);
    free(c);
    return NULL;
}

void fake_agent_serve(struct fake_sandbox *s, int fd)
{
    pthread_t thread;
    struct conn *c = calloc(1, sizeof *c);
    if (!c)
        abort();
    c->sandbox = s;
    c->fd = fd;
    (void)pthread_mutex_lock(&s->mutex);
    c->generation = s->generation;
    if (s->conn_count < sizeof s->conns / sizeof s->conns[0])
        s->conns[s->conn_count++] = fd;
    (void)pthread_mutex_unlock(&s->mutex);
    if (pthread_create(&thread, NULL, serve, c) != 0)
        abort();
    (void)pthread_detach(thread);
}

void fake_agent_cut(struct fake_sandbox *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    for (unsigned i = 0; i < s->conn_count; i++)
        (void)shutdown(s->conns[i], SHUT_RDWR);
    (void)pthread_mutex_unlock(&s->mutex);
}
