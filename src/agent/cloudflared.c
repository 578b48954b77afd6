/* SPDX-License-Identifier: Apache-2.0 */
/* cloudflared.c: see cloudflared.h.
 *
 * A tunnel is a sessionless process without a record: its output, its end and the end of its tree are those
 * of any other. Its log is read line by line. */
#include "agent/cloudflared.h"
#include "agent/context.h"
#include "agent/rpc.h"
#include "agent/shell_quote.h"
#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    POLL_MS = 200,
    LIMIT_MS = 90 * 1000,
    LINE_BYTES_MAX = 16 * 1024,
    COMMAND_MAX = 64 * 1024,
    PIECE = 4096
};

/* ------------------------------------------------------------------ the end */

static void tell(struct list *waiters, struct cloudflared *t, const char *code, const char *why)
{
    while (!list_empty(waiters)) {
        struct cloudflared_waiter *w = list_first(waiters, struct cloudflared_waiter, link);
        list_remove(&w->link);
        w->done(w, t, code, why);
    }
}

static void tunnel_free(struct cloudflared *t)
{
    list_remove(&t->link);
    loop_timer_stop(t->agent->loop, &t->poll);
    loop_timer_stop(t->agent->loop, &t->limit);
    cloudflared_ready_free(t->asking);
    if (t->process) {
        process_unwatch(t->process, &t->watcher);
        process_unref(t->process);
    }
    buf_done(&t->line);
    free(t->id);
    free(t->run_id);
    free(t->token);
    free(t);
}

void cloudflareds_free(struct agent *a)
{
    list_for_each(i, &a->cloudflareds) tunnel_free(list_entry(i, struct cloudflared, link));
}

void cloudflared_waiter_gone(struct cloudflared_waiter *w)
{
    list_remove(&w->link);
}

static void kill_process(struct cloudflared *t);

/* It could not be started: whoever waits hears why. */
static void start_failed(struct cloudflared *t, const char *why)
{
    tell(&t->starting, t, "TUNNEL_START_ERROR", why);
}

static void ended(struct cloudflared *t)
{
    char why[600];
    int code = t->process->exit_code;
    enum cloudflared_state state = t->state;
    if (state == CLOUDFLARED_READY)
        rpc_tunnel_exited(t->agent, t->id, t->port, code, t->run_id);
    (void)snprintf(why, sizeof why, "cloudflared exited with code %d%s%s", code, t->said[0] ? ": " : "",
                   t->said);
    start_failed(t, why);
    tell(&t->ending, t, NULL, NULL);
    tunnel_free(t);
}

/* ------------------------------------------------------------------ becoming ready */

static void look(struct cloudflared *t);

static void poll_again(struct timer *timer)
{
    look(container_of(timer, struct cloudflared, poll));
}

static void answered(void *arg, bool ready)
{
    struct cloudflared *t = arg;
    cloudflared_ready_free(take_ptr(t->asking));
    if (!ready) {
        loop_timer_start(t->agent->loop, &t->poll, POLL_MS, poll_again);
        return;
    }
    t->state = CLOUDFLARED_READY;
    loop_timer_stop(t->agent->loop, &t->limit);
    tell(&t->starting, t, NULL, NULL);
}

/* Asks as soon as it is known whom, and the URL is there. */
static void look(struct cloudflared *t)
{
    if (t->state != CLOUDFLARED_STARTING || !t->metrics_port || (!t->token && !t->url[0]) || t->asking ||
        loop_timer_running(&t->poll))
        return;
    t->asking = cloudflared_ready_ask(t->agent->loop, t->metrics_port, answered, t);
    if (!t->asking)
        loop_timer_start(t->agent->loop, &t->poll, POLL_MS, poll_again);
}

static void take_line(struct cloudflared *t, const char *line)
{
    (void)snprintf(t->said, sizeof t->said, "%s", line);
    if (!t->metrics_port)
        t->metrics_port = cloudflared_metrics_port(line);
    if (!t->url[0] && !t->token)
        (void)cloudflared_url(line, t->url, sizeof t->url);
}

/* Both outputs are one log; cloudflared writes whole lines. */
static void read_log(struct cloudflared *t, int i)
{
    const struct spool *spool = t->process->spools[i];
    char piece[PIECE];
    ssize_t n;
    t->seen[i] = MAX(t->seen[i], spool_begin(spool));
    while ((n = spool_read(spool, t->seen[i], piece, sizeof piece)) > 0) {
        t->seen[i] += (uint64_t)n;
        for (ssize_t k = 0; k < n; k++) {
            if (piece[k] != '\n') {
                if (buf_len(&t->line) < LINE_BYTES_MAX && piece[k])
                    (void)buf_putc(&t->line, piece[k]);
                continue;
            }
            const char *line = buf_cstr(&t->line);
            if (line && *line)
                take_line(t, line);
            buf_clear(&t->line);
        }
    }
}

static void changed(struct process_watcher *w)
{
    struct cloudflared *t = container_of(w, struct cloudflared, watcher);
    for (int i = 0; i < 2; i++)
        read_log(t, i);
    if (t->process->ended)
        ended(t);
    else
        look(t);
}

/* ------------------------------------------------------------------ life */

bool cloudflared_find(const struct agent *a, char *out, size_t cap)
{
    return context_find_program(a, "cloudflared", out, cap);
}

static void out_of_time(struct timer *timer)
{
    struct cloudflared *t = container_of(timer, struct cloudflared, limit);
    char why[600];
    (void)snprintf(why, sizeof why, "cloudflared had no connection after %d s%s%s", LIMIT_MS / 1000,
                   t->said[0] ? ": " : "", t->said);
    t->state = CLOUDFLARED_STOPPING;
    start_failed(t, why);
    kill_process(t);
}

static void started(struct process *p, const struct process_failure *failure, void *arg)
{
    struct cloudflared *t = arg;
    if (failure) {
        start_failed(t, failure->why ? failure->why : "cloudflared cannot be started");
        tell(&t->ending, t, NULL, NULL);
        tunnel_free(t);
        return;
    }
    t->process = process_ref(p);
    t->watcher.changed = changed;
    process_watch(p, &t->watcher);
    if (t->state == CLOUDFLARED_STOPPING)
        kill_process(t);
}

static int put_words(struct buf *out, const char *const *words)
{
    int r = buf_puts(out, "exec");
    for (; *words && r == 0; words++) {
        r = buf_putc(out, ' ');
        if (r == 0)
            r = shell_quote(out, *words);
    }
    return r;
}

static int make_request(const struct cloudflared *t, const char *program, struct command_request *c)
{
    char url[64];
    struct buf text = BUF_INIT(COMMAND_MAX);
    (void)snprintf(url, sizeof url, "http://localhost:%d", t->port);
    const char *const quick[] = {program,    "tunnel", "--metrics", "127.0.0.1:0", "--no-autoupdate",
                                 "--output", "json",   "--url",     url,           NULL};
    const char *const named[] = {program,           "tunnel", "--metrics", "127.0.0.1:0",
                                 "--no-autoupdate", "run",    "--token",   t->token,
                                 "--url",           url,      NULL};
    *c = (struct command_request){.timeout_ms = -1, .sessionless = true};
    int r = put_words(&text, t->token ? named : quick);
    if (r == 0) {
        c->len = buf_len(&text);
        c->command = strndup(buf_data(&text), c->len);
        c->session_id = strdup(AGENT_SESSIONLESS);
        if (!c->command || !c->session_id)
            r = -ENOMEM;
    }
    buf_done(&text);
    return r;
}

static char *copy(const char *s)
{
    return s ? strdup(s) : NULL;
}

int cloudflared_start(struct agent *a, const char *program, const struct cloudflared_config *config,
                      struct cloudflared **ret)
{
    struct cloudflared *t = calloc(1, sizeof *t);
    struct command_request c = {0};
    if (!t)
        return -ENOMEM;
    t->agent = a;
    t->id = copy(config->id);
    t->run_id = copy(config->run_id);
    t->token = copy(config->token);
    t->port = config->port;
    t->created_ms = clock_wall_ms();
    t->line = BUF_INIT(LINE_BYTES_MAX + 1);
    list_init(&t->starting);
    list_init(&t->ending);
    list_append(&a->cloudflareds, &t->link);
    int r = t->id && !t->run_id == !config->run_id && !t->token == !config->token ? 0 : -ENOMEM;
    if (r == 0)
        r = make_request(t, program, &c);
    if (r == 0)
        loop_timer_start(a->loop, &t->limit, LIMIT_MS, out_of_time);
    *ret = t;
    if (r == 0)
        r = process_start(a, &c, &(struct process_options){.hidden = true, .started = started, .arg = t});
    command_request_done(&c);
    if (r < 0)
        tunnel_free(t);
    return r;
}

void cloudflared_wait(struct cloudflared *t, struct cloudflared_waiter *w)
{
    if (t->state == CLOUDFLARED_READY) {
        list_init(&w->link);
        w->done(w, t, NULL, NULL);
    } else {
        list_append(&t->starting, &w->link);
    }
}

static void killed(void *arg, size_t count)
{
    (void)arg; /* its end has been told by the process itself */
    (void)count;
}

static void kill_process(struct cloudflared *t)
{
    struct process *p = t->process;
    if (p && processes_kill(t->agent, &p, 1, SIGTERM, killed, NULL) < 0)
        (void)kill(p->pid, SIGKILL);
}

void cloudflared_stop(struct cloudflared *t, struct cloudflared_waiter *w)
{
    list_append(&t->ending, &w->link);
    if (t->state == CLOUDFLARED_STOPPING)
        return;
    t->state = CLOUDFLARED_STOPPING;
    loop_timer_stop(t->agent->loop, &t->limit);
    loop_timer_stop(t->agent->loop, &t->poll);
    start_failed(t, "the tunnel was stopped before it was ready");
    kill_process(t);
}
