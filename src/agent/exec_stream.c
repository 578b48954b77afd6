/* SPDX-License-Identifier: Apache-2.0 */
/* exec_stream.c: see exec_stream.h.
 *
 * Theory of operation
 * Both directions have back pressure: outputs are not read while more than QUEUE_HIGH bytes wait for the
 * connection, and the connection is not read while the process has not taken what was read before (at most
 * one piece). The peer's end of input closes the process's input and nothing else; a terminal has no such
 * end, so there it only means silence. The connection is closed when the process has ended and every output
 * is at its end and sent: never inside a frame. A peer that is gone changes nothing for the process: its
 * outputs go to nobody from then on. */
#include "agent/exec_stream.h"
#include "agent/tap.h"
#include "net/outq.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

enum { QUEUE_HIGH = 256 * 1024, QUEUE_LOW = 64 * 1024, PIECE = 64 * 1024, FRAME_HEAD = 8 };

struct exec_stream {
    struct agent *agent;
    struct source line, input; /* input: the process's, while it does not take all */
    int line_fd, input_fd;     /* -1: closed */
    bool tty, process_ended, line_ended, paused;
    struct buf waiting; /* for the process */
    struct outq out;
    struct tap taps[2]; /* outputs 1 and 2 */
    struct deferred settle;
    void (*over)(void *arg);
    void *arg;
};

static void settle_later(struct exec_stream *s);

void exec_stream_discard(struct agent *a, const int ends[3])
{
    int input = ends[0];
    close_fd(&input);
    for (int i = 1; i < 3; i++) {
        struct tap t;
        tap_init(&t, a, ends[i], NULL, NULL);
        tap_leave(&t, 0);
    }
}

void exec_stream_free(struct exec_stream *s)
{
    if (!s)
        return;
    struct loop *loop = s->agent->loop;
    loop_undefer(loop, &s->settle);
    loop_del(loop, &s->line);
    loop_del(loop, &s->input);
    close_fd(&s->line_fd);
    close_fd(&s->input_fd);
    for (int i = 0; i < 2; i++)
        tap_leave(&s->taps[i], 0);
    buf_done(&s->waiting);
    outq_done(&s->out);
    free(s);
}

static void stream_over(struct exec_stream *s)
{
    void (*over)(void *) = s->over;
    void *arg = s->arg;
    exec_stream_free(s);
    over(arg);
}

/* ------------------------------------------------------------------ outputs */

static void output(struct exec_stream *s, int stream, const char *data, size_t n)
{
    unsigned char head[FRAME_HEAD] = {(unsigned char)stream,
                                      0,
                                      0,
                                      0,
                                      (unsigned char)(n >> 24),
                                      (unsigned char)(n >> 16),
                                      (unsigned char)(n >> 8),
                                      (unsigned char)n};
    struct iovec iov[] = {{head, sizeof head}, {(void *)(uintptr_t)data, n}};
    int skip = s->tty; /* without a frame */
    if (outq_send(&s->out, s->line_fd, iov + skip, 2 - skip) < 0) {
        s->line_ended = true;
        (void)shutdown(s->line_fd, SHUT_RDWR); /* the event that follows ends it */
    }
    if (outq_len(&s->out) > QUEUE_HIGH && !s->paused) {
        s->paused = true;
        tap_pause(&s->taps[0]);
        tap_pause(&s->taps[1]);
    }
    settle_later(s);
}

static void out_data(struct tap *t, const char *data, size_t n)
{
    output(container_of(t, struct exec_stream, taps[0]), 1, data, n);
}

static void err_data(struct tap *t, const char *data, size_t n)
{
    output(container_of(t, struct exec_stream, taps[1]), 2, data, n);
}

static void out_end(struct tap *t)
{
    settle_later(container_of(t, struct exec_stream, taps[0]));
}

static void err_end(struct tap *t)
{
    settle_later(container_of(t, struct exec_stream, taps[1]));
}

/* ------------------------------------------------------------------ input */

static void input_close(struct exec_stream *s)
{
    loop_del(s->agent->loop, &s->input);
    close_fd(&s->input_fd);
    buf_clear(&s->waiting);
}

static void input_flush(struct exec_stream *s)
{
    while (s->input_fd >= 0 && buf_len(&s->waiting)) {
        ssize_t n = write(s->input_fd, buf_data(&s->waiting), buf_len(&s->waiting));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            input_close(s); /* it has closed its end: what else comes is for nobody */
            return;
        }
        buf_consume(&s->waiting, (size_t)n);
    }
}

static void input_ready(struct source *source, uint32_t events)
{
    struct exec_stream *s = container_of(source, struct exec_stream, input);
    (void)events;
    input_flush(s);
    settle_later(s);
}

static void line_read(struct exec_stream *s)
{
    char *room = buf_reserve(&s->waiting, PIECE);
    ssize_t n = room ? recv(s->line_fd, room, PIECE, MSG_DONTWAIT) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        s->line_ended = true;
        return;
    }
    buf_commit(&s->waiting, (size_t)n);
    if (s->input_fd < 0)
        buf_clear(&s->waiting); /* without an input: read, so that the peer's end is noticed */
    input_flush(s);
}

/* ------------------------------------------------------------------ both */

static void line_ready(struct source *source, uint32_t events)
{
    struct exec_stream *s = container_of(source, struct exec_stream, line);
    int r = 0;
    if (events & EPOLLOUT)
        r = outq_flush(&s->out, s->line_fd);
    if (r < 0 || events & EPOLLERR || (events & EPOLLHUP && s->line_ended)) {
        stream_over(s);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP) && !s->line_ended && !buf_len(&s->waiting))
        line_read(s);
    settle_later(s);
}

/* Asks for the events that matter now; ends what is over. */
static void settle(struct deferred *d)
{
    struct exec_stream *s = container_of(d, struct exec_stream, settle);
    struct loop *loop = s->agent->loop;
    if (s->process_ended && s->taps[0].fd < 0 && s->taps[1].fd < 0 && outq_empty(&s->out)) {
        stream_over(s);
        return;
    }
    if (s->line_ended && !buf_len(&s->waiting) && s->input_fd >= 0)
        input_close(s);
    if (s->paused && outq_len(&s->out) < QUEUE_LOW) {
        s->paused = false;
        (void)tap_follow(&s->taps[0]);
        (void)tap_follow(&s->taps[1]);
    }
    bool stuck = s->input_fd >= 0 && buf_len(&s->waiting);
    if (stuck && s->input.fd < 0)
        (void)loop_add(loop, &s->input, s->input_fd, EPOLLOUT, input_ready);
    else if (!stuck)
        loop_del(loop, &s->input);
    loop_mod(loop, &s->line,
             (s->line_ended || buf_len(&s->waiting) ? 0 : EPOLLIN) | (outq_empty(&s->out) ? 0 : EPOLLOUT));
}

static void settle_later(struct exec_stream *s)
{
    loop_defer(s->agent->loop, &s->settle, settle);
}

void exec_stream_process_ended(struct exec_stream *s)
{
    if (!s)
        return;
    s->process_ended = true;
    settle_later(s);
}

void exec_stream_resize(struct exec_stream *s, const struct winsize *size)
{
    if (s && s->tty && s->taps[0].fd >= 0)
        (void)ioctl(s->taps[0].fd, TIOCSWINSZ, size);
}

struct exec_stream *exec_stream_new(const struct exec_stream_config *config)
{
    struct exec_stream *s = calloc(1, sizeof *s);
    int line = config->line;
    if (!s) {
        close_fd(&line);
        exec_stream_discard(config->agent, config->ends);
        return NULL;
    }
    s->agent = config->agent;
    s->tty = config->tty;
    s->line_fd = line;
    s->line.fd = s->input.fd = -1;
    /* a second descriptor, because the loop knows each only once */
    s->input_fd = s->tty ? fcntl(config->ends[1], F_DUPFD_CLOEXEC, 0) : config->ends[0];
    s->over = config->over;
    s->arg = config->arg;
    s->waiting = *config->input;
    s->waiting.limit = MAX(s->waiting.limit, (size_t)2 * PIECE);
    *config->input = BUF_INIT(0);
    outq_init(&s->out);
    tap_init(&s->taps[0], s->agent, config->ends[1], out_data, out_end);
    tap_init(&s->taps[1], s->agent, config->ends[2], err_data, err_end);
    if (loop_add(s->agent->loop, &s->line, line, 0, line_ready) < 0 ||
        outq_send(&s->out, line, &config->first, 1) < 0) {
        exec_stream_free(s);
        return NULL;
    }
    (void)tap_follow(&s->taps[0]);
    (void)tap_follow(&s->taps[1]);
    input_flush(s);
    settle_later(s);
    return s;
}
