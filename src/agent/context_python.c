/* SPDX-License-Identifier: Apache-2.0 */
/* context_python.c: Python processes, forked by one zygote that has all packages loaded.
 *
 * Theory of operation
 * The zygote is started with the first request and asked for a process per context, over a packet socket: the
 * nonce and three descriptors go there, the pid and a pidfd come back, in the order of the requests. A
 * request whose owner is gone keeps its place. When the zygote dies, what it has made lives on and becomes
 * our child; what was asked for fails; the next request starts another. */
#include "agent/context_internal.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { REPLY_MAX = 1024, REPLIES_PER_EVENT = 64, ASKED_MAX = 32 };

struct fork_request {
    struct list link;
    struct context_process *process; /* NULL: nobody wants it any more */
    int peer[3];                     /* kept until the answer: the zygote may die of something else */
    bool asked;
};

static void request_free(struct fork_request *w)
{
    list_remove(&w->link);
    for (int i = 0; i < 3; i++)
        close_fd(&w->peer[i]);
    free(w);
}

static void fail_waiting(struct zygote *z, const char *why)
{
    while (!list_empty(&z->waiting)) {
        struct fork_request *w = list_first(&z->waiting, struct fork_request, link);
        if (w->process)
            context_process_failed(w->process, "%s", why);
        request_free(w);
    }
}

/* why: what those who wait for a process are told; NULL: they go on waiting. */
static void zygote_gone(struct contexts *cs, const char *why)
{
    struct zygote *z = &cs->zygote;
    loop_del(cs->agent->loop, &z->source);
    close_fd(&z->fd);
    (void)tap_drain(&z->err);
    tap_close(&z->err);
    spawner_cancel(&z->spawn);
    if (z->child.pid)
        (void)kill(z->child.pid, SIGKILL);
    reaper_forget(cs->agent->reaper, &z->child);
    if (z->words[0])
        log_warn("the Python zygote said: %s", z->words);
    list_for_each(i, &z->processes) context_process_adopted(list_entry(i, struct context_process, link));
    if (why)
        fail_waiting(z, why);
}

/* ------------------------------------------------------------------ what is said */

static int ask(struct zygote *z, const char *nonce, const int fds[3])
{
    char text[80];
    int n = snprintf(text, sizeof text, "{\"nonce\":\"%s\"}", nonce);
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control = {0};
    struct iovec iov = {text, (size_t)n};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(3 * sizeof(int));
    memcpy(CMSG_DATA(c), fds, 3 * sizeof(int));
    return sendmsg(z->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Asks for what is waiting. Not too much at once: descriptors under way count against our limit. */
static void flush(struct zygote *z)
{
    size_t asked = 0;
    list_for_each(i, &z->waiting)
    {
        struct fork_request *w = list_entry(i, struct fork_request, link);
        if (w->asked || !w->process) {
            asked += w->asked;
            if (!w->asked)
                request_free(w);
            continue;
        }
        if (asked == ASKED_MAX || ask(z, context_process_nonce(w->process), w->peer) < 0)
            return; /* the next answer makes room; a dead zygote is noticed by the reaper */
        w->asked = true;
        asked++;
    }
}

/* The request which is answered now; NULL when there is none. */
static struct fork_request *answered(struct zygote *z)
{
    struct fork_request *w =
        list_empty(&z->waiting) ? NULL : list_first(&z->waiting, struct fork_request, link);
    return w && w->asked ? w : NULL;
}

static void forked(struct contexts *cs, pid_t pid, int pidfd)
{
    struct zygote *z = &cs->zygote;
    struct fork_request *w = answered(z);
    struct context_process *p = w ? w->process : NULL;
    if (w)
        request_free(w);
    if (!p) {
        close_fd(&pidfd); /* its channel is closed: it ends by itself */
        return;
    }
    list_append(&z->processes, &p->link);
    context_process_started(p, pid, pidfd);
}

static void refused(struct contexts *cs, const char *why)
{
    struct fork_request *w = answered(&cs->zygote);
    if (!w)
        return;
    if (w->process)
        context_process_failed(w->process, "%s", why);
    request_free(w);
}

static void exited(struct contexts *cs, pid_t pid, int code)
{
    list_for_each(i, &cs->zygote.processes)
    {
        struct context_process *p = list_entry(i, struct context_process, link);
        if (p->pid == pid && p->state == PROCESS_RUNNING && !p->child.pid) {
            context_process_exited(p, code);
            return;
        }
    }
}

/* False when it does not speak as it should. */
static bool understand(struct contexts *cs, char *text, size_t n, int *pidfd)
{
    auto_json struct json_doc *doc = NULL;
    int64_t pid, code;
    if (json_parse(text, n, 0, &doc, NULL) < 0)
        return false;
    const struct json_value *v = json_root(doc);
    const char *why = json_string(json_get(v, "error"), NULL);
    if (json_integer(json_get(v, "pid"), 2, INT32_MAX, &pid) && *pidfd >= 0)
        forked(cs, (pid_t)pid, take_fd(*pidfd));
    else if (json_integer(json_get(v, "exit"), 2, INT32_MAX, &pid) &&
             json_integer(json_get(v, "code"), -255, 255, &code))
        exited(cs, (pid_t)pid, (int)code);
    else if (why)
        refused(cs, why);
    else if (json_bool(json_get(v, "ready"), false))
        cs->zygote.ready = true;
    else
        return false;
    return true;
}

static int receive_fd(struct msghdr *msg)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    int fd = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static void zygote_ready(struct source *s, uint32_t events)
{
    struct contexts *cs = container_of(s, struct contexts, zygote.source);
    struct zygote *z = &cs->zygote;
    (void)events;
    for (int i = 0; i < REPLIES_PER_EVENT && z->fd >= 0; i++) {
        char text[REPLY_MAX];
        union {
            struct cmsghdr align;
            char space[CMSG_SPACE(sizeof(int))]; /* one descriptor a message */
        } control;
        struct iovec iov = {text, sizeof text};
        struct msghdr msg = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(z->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        auto_close int fd = n > 0 ? receive_fd(&msg) : -1;
        if (n <= 0)
            return; /* the reaper tells more */
        if (!understand(cs, text, (size_t)n, &fd)) {
            zygote_gone(cs, "the Python zygote made no sense");
            return;
        }
        flush(z);
    }
}

static void words_data(struct tap *t, const char *data, size_t n)
{
    struct contexts *cs = container_of(t, struct contexts, zygote.err);
    char *words = cs->zygote.words;
    while (n && data[n - 1] == '\n')
        n--;
    const char *line = memrchr(data, '\n', n); /* the last line of a traceback says it all */
    line = line ? line + 1 : data;
    (void)snprintf(words, sizeof cs->zygote.words, "%.*s", (int)MIN(n - (size_t)(line - data), (size_t)400),
                   line);
}

static void words_end(struct tap *t)
{
    (void)t;
}

/* ------------------------------------------------------------------ its life */

static int zygote_start(struct contexts *cs, struct error *reterr);

/* One that has worked was killed: what was asked of it is asked of the next. One that never came up will not
 * do so the second time. */
static void zygote_exited(struct child *c, int code)
{
    struct contexts *cs = container_of(c, struct contexts, zygote.child);
    struct zygote *z = &cs->zygote;
    struct error e;
    char why[160];
    (void)tap_drain(&z->err);
    (void)snprintf(why, sizeof why, "python executor exited with code %d%s%.100s", code,
                   z->words[0] ? ": " : "", z->words);
    bool again = z->ready && !list_empty(&z->waiting);
    zygote_gone(cs, again ? NULL : why);
    if (!again)
        return;
    list_for_each(i, &z->waiting) list_entry(i, struct fork_request, link)->asked = false;
    if (zygote_start(cs, &e) < 0)
        fail_waiting(z, e.msg);
    else
        flush(z);
}

static void zygote_spawned(struct spawn *s, pid_t pid, int err, enum spawn_stage stage)
{
    struct contexts *cs = container_of(s, struct contexts, zygote.spawn);
    (void)stage;
    if (pid) {
        reaper_watch(cs->agent->reaper, &cs->zygote.child, pid, zygote_exited);
        return;
    }
    char why[80];
    (void)snprintf(why, sizeof why, "start python3: %s", strerror(err));
    zygote_gone(cs, why);
}

static int zygote_start(struct contexts *cs, struct error *reterr)
{
    struct zygote *z = &cs->zygote;
    struct agent *a = cs->agent;
    char python[256], script[256];
    if (!context_find_program(a, "python3", python, sizeof python))
        return error_set(reterr, ENOENT, "python3 is not in PATH");
    if (!context_find_runtime(a, "python/zygote.py", script, sizeof script))
        return error_set(reterr, ENOENT, "python/zygote.py is not installed");
    int pair[2], words[2];
    if (pipe2(words, O_CLOEXEC) < 0)
        return error_sys(reterr, errno, "start python3");
    (void)fcntl(words[0], F_SETFL, O_NONBLOCK);
    tap_init(&z->err, a, words[0], words_data, words_end);
    auto_close int words_peer = words[1];
    int r = tap_follow(&z->err);
    if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        r = -errno;
    if (r < 0) {
        tap_close(&z->err);
        return error_sys(reterr, -r, "start python3");
    }
    const char *argv[] = {"python3", "-u", script, NULL};
    struct spawn_target target = {.path = python,
                                  .argv = argv,
                                  .env = a->env.vars,
                                  .cwd = "/",
                                  .fds = {pair[1], -1, take_fd(words_peer)}};
    z->fd = pair[0];
    z->ready = false;
    z->words[0] = '\0';
    (void)fcntl(z->fd, F_SETFL, O_NONBLOCK);
    r = loop_add(a->loop, &z->source, z->fd, EPOLLIN, zygote_ready);
    if (r == 0)
        r = spawner_spawn(a->spawner, &z->spawn, &target, zygote_spawned);
    else
        for (int i = 0; i < 3; i++)
            close_fd(&target.fds[i]);
    if (r < 0) {
        zygote_gone(cs, "out of memory");
        return error_sys(reterr, -r, "start python3");
    }
    return 0;
}

void context_python_stop(struct contexts *cs)
{
    zygote_gone(cs, "the sandbox ends");
}

void context_python_wedged(struct contexts *cs)
{
    if (cs->zygote.fd >= 0)
        zygote_gone(cs, "python did not answer in time");
}

/* ------------------------------------------------------------------ requests */

static void abandoned(struct context_process *p)
{
    struct zygote *z = &p->agent->contexts->zygote;
    list_for_each(i, &z->waiting)
    {
        struct fork_request *w = list_entry(i, struct fork_request, link);
        if (w->process == p)
            w->process = NULL;
    }
}

int context_python_get(struct contexts *cs, struct context_process **ret, struct error *reterr)
{
    struct zygote *z = &cs->zygote;
    int r = z->fd < 0 ? zygote_start(cs, reterr) : 0;
    if (r < 0)
        return r;
    struct fork_request *w = calloc(1, sizeof *w);
    if (!w)
        return error_sys(reterr, ENOMEM, "ask for a Python process");
    r = context_process_new(cs->agent, CONTEXT_PYTHON, SOCK_SEQPACKET, w->peer, &w->process, reterr);
    if (r < 0) {
        free(w);
        return r;
    }
    w->process->abandoned = abandoned;
    list_append(&z->waiting, &w->link);
    *ret = w->process;
    flush(z);
    return 0;
}
