/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.c: a shell on a pseudo terminal, shared by any number of clients.
 *
 * Theory of operation
 * Output goes into a ring of TERMINAL_REPLAY bytes, from which each client is served at its own speed. The
 * pty is read while there is no client, or one that keeps up: a program is slowed down by the fastest of its
 * readers, as on a real terminal, and a client that falls behind the ring while another reads on is sent away
 * (it gets the replay when it comes back). So a reader that stops costs the ring and its socket's queue, and
 * a dead one is found by the WebSocket's pings.
 *
 * The end is the shell's: what it wrote before is read until the kernel says that nobody holds the terminal
 * any more, or TERMINAL_DRAIN_MS long when a child of the shell still does. */
#include "agent/terminal.h"
#include "agent/websockets.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

static void on_ready(struct source *s, uint32_t events);

struct terminal *terminal_find(struct agent *a, const char *session)
{
    list_for_each(i, &a->terminals)
    {
        struct terminal *t = list_entry(i, struct terminal, link);
        if (t->state != TERMINAL_ENDED && strcmp(t->session, session) == 0)
            return t;
    }
    return NULL;
}

pid_t terminal_pid(struct agent *a, const char *session)
{
    const struct terminal *t = terminal_find(a, session);
    return t ? t->pid : 0;
}

struct process_tag terminal_tag(struct agent *a, const char *session)
{
    const struct terminal *t = terminal_find(a, session);
    return t ? t->tag : (struct process_tag){0};
}

size_t terminal_pids(struct agent *a, pid_t *out, size_t max)
{
    size_t n = 0;
    list_for_each(i, &a->terminals)
    {
        const struct terminal *t = list_entry(i, struct terminal, link);
        if (t->pid && n < max)
            out[n++] = t->pid;
    }
    return n;
}

void terminal_hang_up(struct agent *a, const char *session)
{
    pid_t pid = terminal_pid(a, session);
    if (pid)
        (void)kill(pid, SIGHUP); /* an interactive shell ignores SIGTERM */
}

/* ------------------------------------------------------------------ life */

struct terminal *terminal_new(struct agent *a, const char *session)
{
    struct terminal *t = a->terminal_count < TERMINALS_MAX ? calloc(1, sizeof *t) : NULL;
    if (!t)
        return NULL;
    t->session = strdup(session);
    t->ring = malloc(TERMINAL_REPLAY);
    if (!t->session || !t->ring) {
        free(t->session);
        free(t->ring);
        free(t);
        return NULL;
    }
    t->agent = a;
    t->master = t->source.fd = -1;
    t->input = BUF_INIT(TERMINAL_INPUT_MAX);
    t->tag = process_tag_new(a);
    list_init(&t->clients);
    list_append(&a->terminals, &t->link);
    a->terminal_count++;
    return t;
}

static void terminal_free(struct terminal *t)
{
    struct agent *a = t->agent;
    list_for_each(i, &t->clients) client_free(list_entry(i, struct terminal_client, link));
    terminal_start_cancel(t);
    reaper_forget(a->reaper, &t->child);
    loop_timer_stop(a->loop, &t->timer);
    loop_del(a->loop, &t->source);
    close_fd(&t->master);
    list_remove(&t->link);
    a->terminal_count--;
    buf_done(&t->input);
    free(t->session);
    free(t->ring);
    free(t);
}

void terminals_free(struct agent *a)
{
    list_for_each(i, &a->terminals) terminal_free(list_entry(i, struct terminal, link));
}

void terminal_fail(struct terminal *t, const char *why)
{
    list_for_each(i, &t->clients) client_refuse(list_entry(i, struct terminal_client, link), why);
    terminal_free(t);
}

/* Nothing more will be read. */
static void finish(struct terminal *t)
{
    if (t->state == TERMINAL_ENDED)
        return;
    t->state = TERMINAL_ENDED; /* the next client of the session gets a new one */
    loop_timer_stop(t->agent->loop, &t->timer);
    loop_del(t->agent->loop, &t->source);
    close_fd(&t->master);
    list_for_each(i, &t->clients) client_pump(list_entry(i, struct terminal_client, link));
}

static void drain_over(struct timer *timer)
{
    struct terminal *t = container_of(timer, struct terminal, timer);
    finish(t);
    terminal_settle(t);
}

static void shell_exited(struct child *c, int code)
{
    struct terminal *t = container_of(c, struct terminal, child);
    t->exited = true;
    t->code = code;
    t->pid = 0;
    if (t->hung_up)
        finish(t);
    else
        loop_timer_start(t->agent->loop, &t->timer, TERMINAL_DRAIN_MS, drain_over);
    terminal_settle(t);
}

void terminal_run(struct terminal *t, pid_t pid, int master)
{
    t->state = TERMINAL_RUNNING;
    t->pid = pid;
    t->master = master;
    reaper_watch(t->agent->reaper, &t->child, pid, shell_exited);
    terminal_resize(t, t->cols, t->rows);
    list_for_each(i, &t->clients) client_ready(list_entry(i, struct terminal_client, link));
    terminal_settle(t);
}

/* ------------------------------------------------------------------ output */

static void put_ring(struct terminal *t, const char *data, size_t n)
{
    size_t at = (size_t)(t->end % TERMINAL_REPLAY), first = MIN(n, TERMINAL_REPLAY - at);
    memcpy(t->ring + at, data, first);
    memcpy(t->ring, data + first, n - first);
    t->end += n;
    if (t->end - t->begin > TERMINAL_REPLAY)
        t->begin = t->end - TERMINAL_REPLAY;
}

void terminal_copy(const struct terminal *t, uint64_t from, char *out, size_t n)
{
    size_t at = (size_t)(from % TERMINAL_REPLAY), first = MIN(n, TERMINAL_REPLAY - at);
    memcpy(out, t->ring + at, first);
    memcpy(out + first, t->ring, n - first);
}

static void output(struct terminal *t, const char *data, size_t n)
{
    put_ring(t, data, n);
    list_for_each(i, &t->clients)
    {
        struct terminal_client *c = list_entry(i, struct terminal_client, link);
        if (c->ready && c->sent < t->begin)
            client_drop(c, WS_CODE_TRY_AGAIN, "The terminal's output was not read fast enough");
        else
            client_pump(c);
    }
}

/* Whether more output can be taken: nobody is there, or somebody keeps up. */
static bool output_wanted(const struct terminal *t)
{
    bool any = false;
    for (const struct list *i = t->clients.next; i != &t->clients; i = i->next) {
        const struct terminal_client *c = list_entry(i, const struct terminal_client, link);
        if (c->ready && c->sent == t->end && ws_has_room(c->ws))
            return true;
        any |= c->ready;
    }
    return !any;
}

static void read_output(struct terminal *t)
{
    char *piece = agent_scratch(t->agent);
    ssize_t n = read(t->master, piece, TERMINAL_PIECE);
    if (n > 0) {
        output(t, piece, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) { /* EIO: nobody holds the other side */
        t->hung_up = true;
        loop_del(t->agent->loop, &t->source);
        if (t->exited)
            finish(t);
    }
}

/* ------------------------------------------------------------------ input */

static void write_input(struct terminal *t)
{
    while (buf_len(&t->input)) {
        ssize_t n = write(t->master, buf_data(&t->input), buf_len(&t->input));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            buf_clear(&t->input); /* nobody reads any more; the shell's end is told elsewhere */
        if (n <= 0)
            break;
        buf_consume(&t->input, (size_t)n);
    }
    if (!buf_len(&t->input))
        buf_done(&t->input);
}

bool terminal_input(struct terminal *t, const char *data, size_t n)
{
    if (t->state == TERMINAL_ENDED)
        return true;
    if (buf_append(&t->input, data, n) < 0)
        return false;
    if (t->state == TERMINAL_RUNNING)
        write_input(t);
    return true;
}

void terminal_resize(struct terminal *t, uint16_t cols, uint16_t rows)
{
    struct winsize size = {.ws_col = cols, .ws_row = rows};
    t->cols = cols;
    t->rows = rows;
    if (t->master >= 0)
        (void)ioctl(t->master, TIOCSWINSZ, &size); /* the kernel tells the foreground group */
}

/* ------------------------------------------------------------------ events */

static void on_ready(struct source *s, uint32_t events)
{
    struct terminal *t = container_of(s, struct terminal, source);
    if (events & EPOLLOUT)
        write_input(t);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (output_wanted(t))
            read_output(t);
        else
            loop_del(t->agent->loop, s); /* a hang-up would be reported again and again */
    }
    terminal_settle(t);
}

void terminal_settle(struct terminal *t)
{
    struct loop *loop = t->agent->loop;
    bool full = buf_len(&t->input) > TERMINAL_INPUT_HIGH;
    if (t->state == TERMINAL_ENDED && list_empty(&t->clients)) {
        terminal_free(t);
        return;
    }
    if (full != t->input_full) {
        t->input_full = full;
        list_for_each(i, &t->clients)
        {
            struct ws *ws = list_entry(i, struct terminal_client, link)->ws;
            full ? ws_pause(ws) : ws_resume(ws);
        }
    }
    if (t->master < 0 || t->hung_up)
        return;
    uint32_t events = (output_wanted(t) ? EPOLLIN : 0) | (buf_len(&t->input) ? EPOLLOUT : 0);
    if (!events)
        loop_del(loop, &t->source);
    else if (t->source.fd >= 0)
        loop_mod(loop, &t->source, events);
    else if (loop_add(loop, &t->source, t->master, events, on_ready) < 0 && t->pid)
        (void)kill(t->pid, SIGHUP); /* nobody could see what it does */
}
