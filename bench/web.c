/* SPDX-License-Identifier: Apache-2.0 */
/* web.c: both ends of the preview benchmark: a small web service, and the load on it.
 *
 * serve PORT                       answers every request with 1 KiB; an upgrade is answered with 101 and an
 * echo load PORT HOST CONNECTIONS MS    requests over so many connections for so long; prints how many, and
 * the times echo PORT HOST BYTES ROUNDS      messages of this size over one upgraded connection, one at a
 * time; prints the times
 *
 * One thread and one epoll each. Output of load and echo: "COUNT ELAPSED_NS P50_NS P99_NS". */
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <netinet/tcp.h>
#include <time.h>

enum { BUFFER = 64 * 1024, CONNECTIONS_MAX = 1024, SAMPLES_MAX = 4 << 20, BODY = 1024, EVENTS = 64 };

struct peer {
    int fd;
    bool echo;
    size_t len;
    int64_t sent_ns;
    char in[BUFFER];
};

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "web: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void send_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent < 0)
            return; /* the reader sees the end */
        data += sent;
        n -= (size_t)sent;
    }
}

/* ------------------------------------------------------------------ the service */

static char answer[BODY + 256];
static size_t answer_len;
static const char switching[] =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/* False when the connection is over. */
static bool serve_ready(struct peer *p)
{
    ssize_t n = recv(p->fd, p->in + p->len, sizeof p->in - 1 - p->len, 0);
    if (n <= 0)
        return false;
    p->len += (size_t)n;
    if (p->echo) {
        send_all(p->fd, p->in, p->len);
        p->len = 0;
        return true;
    }
    p->in[p->len] = '\0';
    char *end;
    while ((end = strstr(p->in, "\r\n\r\n"))) {
        *end = '\0';
        p->echo = strcasestr(p->in, "\r\nupgrade: websocket") != NULL;
        if (p->echo)
            send_all(p->fd, switching, sizeof switching - 1);
        else
            send_all(p->fd, answer, answer_len);
        p->len -= (size_t)(end + 4 - p->in);
        memmove(p->in, end + 4, p->len + 1);
    }
    return true;
}

static int serve(int port)
{
    struct sockaddr_in at = loopback(port);
    struct epoll_event events[EVENTS];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), loop = epoll_create1(EPOLL_CLOEXEC);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (loop < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) < 0 || listen(listener, 1024) < 0)
        die("listen");
    answer_len =
        (size_t)snprintf(answer, sizeof answer,
                         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", BODY);
    memset(answer + answer_len, 'x', BODY);
    answer_len += BODY;
    (void)epoll_ctl(loop, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN});
    for (;;) {
        int n = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct peer *p = events[i].data.ptr;
            if (p) {
                if (!serve_ready(p)) {
                    (void)close(p->fd);
                    free(p);
                }
                continue;
            }
            p = calloc(1, sizeof *p);
            if (!p || (p->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
                die("accept");
            (void)setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            (void)epoll_ctl(loop, EPOLL_CTL_ADD, p->fd,
                            &(struct epoll_event){.events = EPOLLIN, .data.ptr = p});
        }
    }
}

/* ------------------------------------------------------------------ the load */

static int64_t *samples;
static size_t sample_count;

static void sample(int64_t ns)
{
    if (sample_count < SAMPLES_MAX)
        samples[sample_count++] = ns;
}

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void report(size_t count, int64_t elapsed_ns)
{
    qsort(samples, sample_count, sizeof *samples, by_size);
    if (!sample_count)
        die("no answers");
    printf("%zu %lld %lld %lld\n", count, (long long)elapsed_ns, (long long)samples[sample_count / 2],
           (long long)samples[sample_count * 99 / 100]);
}

static int connect_to(int port)
{
    struct sockaddr_in to = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return fd;
}

/* The length of the whole answer at the beginning of the buffer; 0: not there yet. */
static size_t answer_size(struct peer *p)
{
    p->in[p->len] = '\0';
    const char *end = strstr(p->in, "\r\n\r\n");
    if (!end)
        return 0;
    if (strncmp(p->in, "HTTP/1.1 200", 12) != 0) {
        (void)fprintf(stderr, "web: %.200s\n", p->in);
        _exit(1);
    }
    const char *length = strcasestr(p->in, "\r\ncontent-length:");
    if (!length || length > end)
        die("an answer without a length");
    size_t total = (size_t)(end + 4 - p->in) + strtoul(length + 17, NULL, 10);
    return p->len >= total ? total : 0;
}

static int load(int port, const char *host, int connections, int ms)
{
    char request[1024];
    struct epoll_event events[EVENTS];
    int loop = epoll_create1(EPOLL_CLOEXEC);
    struct peer *peers = calloc((size_t)connections, sizeof *peers);
    size_t n = (size_t)snprintf(request, sizeof request,
                                "GET /index.html HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: "
                                "*/*\r\nAccept-Encoding: gzip\r\n\r\n",
                                host);
    size_t count = 0;
    if (loop < 0 || !peers)
        die("start");
    int64_t begin = now_ns(), until = begin + (int64_t)ms * 1000000;
    for (int i = 0; i < connections; i++) {
        peers[i].fd = connect_to(port);
        (void)epoll_ctl(loop, EPOLL_CTL_ADD, peers[i].fd,
                        &(struct epoll_event){.events = EPOLLIN, .data.ptr = &peers[i]});
        peers[i].sent_ns = now_ns();
        send_all(peers[i].fd, request, n);
    }
    while (now_ns() < until) {
        int ready = epoll_wait(loop, events, EVENTS, 1000);
        for (int i = 0; i < ready; i++) {
            struct peer *p = events[i].data.ptr;
            ssize_t got = recv(p->fd, p->in + p->len, sizeof p->in - 1 - p->len, 0);
            if (got <= 0)
                die("cut off");
            p->len += (size_t)got;
            size_t size = answer_size(p);
            if (!size)
                continue;
            p->len -= size;
            int64_t now = now_ns();
            sample(now - p->sent_ns);
            count++;
            p->sent_ns = now;
            send_all(p->fd, request, n);
        }
    }
    report(count, now_ns() - begin);
    return 0;
}

static int echo(int port, const char *host, size_t bytes, int rounds)
{
    char request[1024], *message = malloc(bytes), *back = malloc(bytes + BUFFER);
    int fd = connect_to(port);
    size_t n = (size_t)snprintf(
        request, sizeof request,
        "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", host);
    if (!message || !back)
        die("memory");
    memset(message, 'm', bytes);
    send_all(fd, request, n);
    ssize_t got = recv(fd, back, BUFFER - 1, 0);
    if (got < 12 || memcmp(back, "HTTP/1.1 101", 12) != 0)
        die("no upgrade");
    int64_t begin = now_ns();
    for (int i = 0; i < rounds; i++) {
        int64_t sent = now_ns();
        send_all(fd, message, bytes);
        for (size_t have = 0; have < bytes; have += (size_t)got)
            if ((got = recv(fd, back, bytes - have, 0)) <= 0)
                die("cut off");
        sample(now_ns() - sent);
    }
    report((size_t)rounds, now_ns() - begin);
    return 0;
}

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_IGN);
    samples = malloc(SAMPLES_MAX * sizeof *samples);
    if (!samples)
        die("memory");
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(atoi(argv[2]));
    if (argc == 6 && strcmp(argv[1], "load") == 0)
        return load(atoi(argv[2]), argv[3], MIN(atoi(argv[4]), (int)CONNECTIONS_MAX), atoi(argv[5]));
    if (argc == 6 && strcmp(argv[1], "echo") == 0)
        return echo(atoi(argv[2]), argv[3], strtoul(argv[4], NULL, 10), atoi(argv[5]));
    (void)fprintf(stderr,
                  "usage: web serve PORT | load PORT HOST CONNECTIONS MS | echo PORT HOST BYTES ROUNDS\n");
    return 2;
}
