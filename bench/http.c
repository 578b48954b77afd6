/* SPDX-License-Identifier: Apache-2.0 */
/* http.c: the measuring client's HTTP: as little work as possible between two looks at the clock.
 *
 * It trusts the server it measures: an answer it cannot read is an error of the run, nothing to recover from.
 * Only a kept connection which the server closed meanwhile is opened again, once per request. */
#include "http.h"

#include "base/util.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

enum { HEAD_MAX = 1024, FILL_PIECE = 256 * 1024, ANSWER_S = 60 };

int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int http_init(struct http *h, const char *address)
{
    *h = (struct http){.fd = -1};
    if (strlen(address) >= sizeof h->address)
        return -ENAMETOOLONG;
    (void)snprintf(h->address, sizeof h->address, "%s", address);
    h->in = malloc(HTTP_BUFFER);
    return h->in ? 0 : -ENOMEM;
}

void http_done(struct http *h)
{
    close_fd(&h->fd);
    free(h->in);
    h->in = NULL;
}

static int connect_unix(const char *path, int *ret_fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return -ENAMETOOLONG;
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return -errno;
    *ret_fd = take_fd(fd);
    return 0;
}

static int connect_tcp(const char *where, int *ret_fd)
{
    char host[HTTP_ADDRESS_MAX];
    (void)snprintf(host, sizeof host, "%s", where);
    char *colon = strrchr(host, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list;
    if (!colon)
        return -EINVAL;
    *colon = '\0';
    if (getaddrinfo(host, colon + 1, &hints, &list) != 0)
        return -EINVAL;
    auto_close int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 || connect(fd, list->ai_addr, list->ai_addrlen) < 0 ? -errno : 0;
    freeaddrinfo(list);
    if (r < 0)
        return r;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    *ret_fd = take_fd(fd);
    return 0;
}

static int http_connect(struct http *h)
{
    const char *where = strchr(h->address, ':');
    h->pos = h->len = 0;
    h->connects++;
    if (!where)
        return -EINVAL;
    int r = h->address[0] == 'u' ? connect_unix(where + 1, &h->fd) : connect_tcp(where + 1, &h->fd);
    if (r == 0) /* a server that never answers is a failure of the run, not its end */
        (void)setsockopt(h->fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = ANSWER_S},
                         sizeof(struct timeval));
    return r;
}

static int send_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, data, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        data += k;
        n -= (size_t)k;
    }
    return 0;
}

static int send_request(struct http *h, const struct http_call *c)
{
    static const char filler[FILL_PIECE];
    char head[HEAD_MAX + 16 * 1024];
    const char *token = getenv("BENCH_TOKEN");
    uint64_t length = c->body ? c->body_len : c->fill;
    int n = snprintf(head, HEAD_MAX, "%s %s HTTP/1.1\r\nHost: localhost\r\n", c->method, c->path);
    if (n < 0 || n >= HEAD_MAX / 2)
        return -ENAMETOOLONG;
    size_t len = (size_t)n;
    if (h->address[0] == 'g' && token)
        len += (size_t)snprintf(head + len, HEAD_MAX - len, "Authorization: Bearer %s\r\n", token);
    if (len < HEAD_MAX && (length || strcmp(c->method, "GET") != 0))
        len += (size_t)snprintf(head + len, HEAD_MAX - len, "Content-Type: %s\r\nContent-Length: %llu\r\n",
                                c->body ? "application/json" : "application/octet-stream",
                                (unsigned long long)length);
    if (len + 2 >= HEAD_MAX)
        return -ENAMETOOLONG;
    memcpy(head + len, "\r\n", 2);
    len += 2;
    if (c->body && c->body_len <= sizeof head - len) { /* one segment, as any client would send it */
        memcpy(head + len, c->body, c->body_len);
        return send_all(h->fd, head, len + c->body_len);
    }
    int r = send_all(h->fd, head, len);
    if (r == 0 && c->body)
        return send_all(h->fd, c->body, c->body_len);
    for (uint64_t left = c->body ? 0 : c->fill; r == 0 && left > 0;) {
        size_t k = (size_t)MIN(left, (uint64_t)FILL_PIECE);
        r = send_all(h->fd, filler, k);
        left -= k;
    }
    return r;
}

/* Receives more behind what is there; 0 at the end of the stream. */
static ssize_t receive(struct http *h)
{
    if (h->pos == h->len)
        h->pos = h->len = 0;
    if (h->pos > 0 && h->len == HTTP_BUFFER) {
        memmove(h->in, h->in + h->pos, h->len - h->pos);
        h->len -= h->pos;
        h->pos = 0;
    }
    if (h->len == HTTP_BUFFER)
        return -EMSGSIZE;
    for (;;) {
        ssize_t n = recv(h->fd, h->in + h->len, HTTP_BUFFER - h->len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n > 0)
            h->len += (size_t)n;
        if (n < 0 && errno == EAGAIN)
            return -ETIMEDOUT; /* after ANSWER_S */
        return n < 0 ? -errno : n;
    }
}

/* Waits for a terminator; returns how many bytes there are up to and with it. */
static ssize_t receive_until(struct http *h, const char *end)
{
    for (;;) {
        const char *at = h->pos < h->len ? memmem(h->in + h->pos, h->len - h->pos, end, strlen(end)) : NULL;
        if (at)
            return at + strlen(end) - (h->in + h->pos);
        ssize_t n = receive(h);
        if (n <= 0)
            return n < 0 ? n : -ECONNRESET;
    }
}

static void sink(const struct http_call *c, struct http_answer *a, const char *data, size_t n)
{
    int64_t now = a->first_ns && !c->mark ? 0 : now_ns();
    if (!a->first_ns)
        a->first_ns = now;
    a->bytes += n;
    size_t keep = MIN(n, HTTP_CAPTURE - a->text_len);
    memcpy(a->text + a->text_len, data, keep);
    a->text_len += keep;
    a->text[a->text_len] = '\0';
    if (c->mark && !a->mark_ns && memmem(a->text, a->text_len, c->mark, strlen(c->mark)))
        a->mark_ns = now;
    if (c->piece)
        c->piece(c->arg, data, n);
}

/* Hands on n bytes of body as they come. */
static int body_bytes(struct http *h, const struct http_call *c, struct http_answer *a, uint64_t n)
{
    while (n > 0) {
        if (h->pos == h->len) {
            ssize_t k = receive(h);
            if (k <= 0)
                return k < 0 ? (int)k : -ECONNRESET;
        }
        size_t k = (size_t)MIN(n, (uint64_t)(h->len - h->pos));
        sink(c, a, h->in + h->pos, k);
        h->pos += k;
        n -= k;
    }
    return 0;
}

static int body_chunked(struct http *h, const struct http_call *c, struct http_answer *a)
{
    for (;;) {
        ssize_t line = receive_until(h, "\r\n");
        if (line < 0)
            return (int)line;
        char *end;
        uint64_t size = strtoull(h->in + h->pos, &end, 16);
        if (end == h->in + h->pos)
            return -EBADMSG;
        h->pos += (size_t)line;
        int r = body_bytes(h, c, a, size);
        if (r < 0)
            return r;
        line = receive_until(h, "\r\n"); /* behind a chunk, and behind the last one: no trailers here */
        if (line != 2)
            return -EBADMSG;
        h->pos += 2;
        if (size == 0)
            return 0;
    }
}

static const char *head_field(const char *head, const char *name)
{
    for (const char *p = strstr(head, "\r\n"); p; p = strstr(p, "\r\n")) {
        p += 2;
        if (strncasecmp(p, name, strlen(name)) == 0 && p[strlen(name)] == ':')
            return p + strlen(name) + 1 + strspn(p + strlen(name) + 1, " ");
    }
    return NULL;
}

static int read_answer(struct http *h, const struct http_call *c, struct http_answer *a)
{
    ssize_t n = receive_until(h, "\r\n\r\n");
    if (n < 0)
        return (int)n;
    char head[HEAD_MAX * 4];
    if ((size_t)n >= sizeof head)
        return -EMSGSIZE;
    memcpy(head, h->in + h->pos, (size_t)n);
    head[n] = '\0';
    h->pos += (size_t)n;
    if (sscanf(head, "HTTP/1.1 %d", &a->status) != 1)
        return -EBADMSG;
    const char *length = head_field(head, "content-length"), *coding = head_field(head, "transfer-encoding");
    const char *connection = head_field(head, "connection");
    int r = 0;
    if (coding && strncasecmp(coding, "chunked", 7) == 0) {
        r = body_chunked(h, c, a);
    } else if (length) {
        r = body_bytes(h, c, a, strtoull(length, NULL, 10));
    } else if (a->status != 204) {
        while ((r = body_bytes(h, c, a, 1)) == 0)
            ;
        r = r == -ECONNRESET ? 0 : r; /* the end of such a body is the end of the connection */
        connection = "close";
    }
    a->end_ns = now_ns();
    if (r < 0 || (connection && strncasecmp(connection, "close", 5) == 0))
        close_fd(&h->fd);
    return r;
}

int http_do(struct http *h, const struct http_call *call, struct http_answer *ret)
{
    bool kept = h->fd >= 0;
    ret->start_ns = now_ns();
    for (;;) {
        int r = h->fd >= 0 ? 0 : http_connect(h);
        ret->status = 0;
        ret->bytes = ret->text_len = 0;
        ret->text[0] = '\0';
        ret->first_ns = ret->mark_ns = ret->end_ns = 0;
        if (r < 0)
            return r;
        int sent = send_request(h, call);
        r = read_answer(h, call, ret); /* a server may refuse a body before it has all of it */
        if (r == 0) {
            if (sent < 0)
                close_fd(&h->fd);
            return 0;
        }
        close_fd(&h->fd);
        if (!kept || ret->status || (r != -ECONNRESET && sent != -EPIPE))
            return sent < 0 ? sent : r;
        kept = false;
    }
}
