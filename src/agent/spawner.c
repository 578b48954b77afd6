/* SPDX-License-Identifier: Apache-2.0 */
/* spawner.c: the agent's side of the spawner: queue, answers, a new spawner when the old one dies.
 *
 * STOPPED   no spawner; started by spawner_connected, or at once when no placement is needed
 * PLACING   forked, waits for the keeper; requests wait
 * SERVING   requests are sent as they come
 * A request is kept until it is answered, so that it can be handed to the next spawner. */
#include "agent/spawner_internal.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { PENDING_MAX = 4096, RESTART_DELAY_MS = 100, SENT_MAX = 64 };

enum spawner_state { SPAWNER_STOPPED, SPAWNER_PLACING, SPAWNER_SERVING };

struct spawner {
    struct spawner_config config;
    enum spawner_state state;
    struct source source;
    struct child child;
    struct timer restart;
    struct deferred flusher; /* so that no request is answered before spawner_spawn has returned */
    struct list pending;
    size_t pending_count, sent_count;
    uint32_t seq;
    struct account account;
};

static void start(struct spawner *sp);
static void flush(struct spawner *sp);

static void on_restart(struct timer *t)
{
    start(container_of(t, struct spawner, restart));
}

static void stop(struct spawner *sp)
{
    int fd = sp->source.fd;
    loop_del(sp->config.loop, &sp->source);
    close_fd(&fd);
    if (sp->child.pid > 0) {
        (void)kill(sp->child.pid, SIGKILL);
        reaper_forget(sp->config.reaper, &sp->child);
    }
    sp->state = SPAWNER_STOPPED;
    sp->sent_count = 0;
    list_for_each(i, &sp->pending)
    {
        struct spawn *s = list_entry(i, struct spawn, link);
        if (s->sent)
            reaper_unexpect(sp->config.reaper);
        s->sent = false;
    }
}

static void died(struct spawner *sp)
{
    log_warn("the spawner is gone; starting another one");
    stop(sp);
    loop_timer_start(sp->config.loop, &sp->restart, RESTART_DELAY_MS, on_restart);
}

static void child_exited(struct child *c, int code)
{
    struct spawner *sp = container_of(c, struct spawner, child);
    (void)code;
    died(sp);
}

static struct spawn *find_sent(struct spawner *sp, uint32_t seq)
{
    list_for_each(i, &sp->pending)
    {
        struct spawn *s = list_entry(i, struct spawn, link);
        if (s->sent && s->seq == seq)
            return s;
    }
    return NULL;
}

static void release(struct spawn *s)
{
    struct spawner *sp = s->spawner;
    list_remove(&s->link);
    sp->pending_count--;
    free(take_ptr(s->blob));
    for (int i = 0; i < 3; i++)
        close_fd(&s->fds[i]);
    s->spawner = NULL;
}

static void answered(struct spawner *sp, const struct spawn_answer *a)
{
    struct spawn *s = find_sent(sp, a->seq);
    if (!s)
        return;
    sp->sent_count--;
    release(s);
    pid_t pid = a->pid > 1 && a->pid != getpid() ? a->pid : 0;
    s->done(s, pid, pid ? 0 : MAX(a->err, 1), (enum spawn_stage)MIN(a->stage, (uint32_t)SPAWN_STAGE_EXEC));
    reaper_unexpect(sp->config.reaper); /* after done, which watches the pid */
}

void spawner_poll(struct spawner *sp)
{
    struct spawn_answer a;
    while (sp->source.fd >= 0) {
        ssize_t n = recv(sp->source.fd, &a, sizeof a, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n != (ssize_t)sizeof a || a.magic != SPAWN_MAGIC) {
            died(sp);
            return;
        }
        answered(sp, &a);
    }
    flush(sp);
}

static void ready(struct source *source, uint32_t events)
{
    (void)events;
    spawner_poll(container_of(source, struct spawner, source));
}

static void start(struct spawner *sp)
{
    int control_fd = -1;
    if (sp->config.control_fd) {
        control_fd = sp->config.control_fd(sp->config.arg);
        if (control_fd < 0)
            return; /* spawner_connected comes when there is a keeper again */
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        goto fail;
    pid_t pid = fork();
    if (pid == 0)
        spawner_main(pair[1], control_fd, &sp->config);
    (void)close(pair[1]);
    if (pid < 0 || loop_add(sp->config.loop, &sp->source, pair[0], EPOLLIN, ready) < 0) {
        (void)close(pair[0]);
        goto fail;
    }
    reaper_watch(sp->config.reaper, &sp->child, pid, child_exited);
    sp->state = SPAWNER_PLACING;
    if (!sp->config.control_fd)
        spawner_placed(sp);
    return;
fail:
    log_error("cannot start the spawner: %s", strerror(errno));
    loop_timer_start(sp->config.loop, &sp->restart, RESTART_DELAY_MS, on_restart);
}

void spawner_connected(struct spawner *sp)
{
    if (sp->state == SPAWNER_PLACING)
        stop(sp); /* it asked on a connection that is gone */
    if (sp->state == SPAWNER_STOPPED) {
        loop_timer_stop(sp->config.loop, &sp->restart);
        start(sp);
    }
}

void spawner_placed(struct spawner *sp)
{
    const struct spawn_message go = {.magic = SPAWN_MAGIC};
    if (sp->state != SPAWNER_PLACING)
        return;
    if (send(sp->source.fd, &go, sizeof go, MSG_NOSIGNAL) != (ssize_t)sizeof go)
        return; /* it died: the reaper tells */
    sp->state = SPAWNER_SERVING;
    flush(sp);
}

void spawner_use(struct spawner *sp, const struct account *account)
{
    sp->account = *account;
}

int spawner_new(const struct spawner_config *config, struct spawner **ret, struct error *reterr)
{
    struct spawner *sp = calloc(1, sizeof *sp);
    if (!sp)
        return error_sys(reterr, ENOMEM, "make the spawner");
    sp->config = *config;
    sp->source.fd = -1;
    list_init(&sp->pending);
    *ret = sp;
    start(sp);
    return 0;
}

void spawner_free(struct spawner *sp)
{
    if (!sp)
        return;
    stop(sp);
    loop_timer_stop(sp->config.loop, &sp->restart);
    loop_undefer(sp->config.loop, &sp->flusher);
    list_for_each(i, &sp->pending) release(list_entry(i, struct spawn, link));
    free(sp);
}

static int memfd_of(const struct spawn *s)
{
    auto_close int fd = memfd_create("spawn", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (size_t done = 0; done < s->blob_len;) {
        ssize_t w = write(fd, s->blob + done, s->blob_len - done);
        if (w < 0 && errno != EINTR)
            return -errno;
        done += w > 0 ? (size_t)w : 0;
    }
    return take_fd(fd);
}

static int send_request(struct spawner *sp, struct spawn *s)
{
    const struct account *account = s->account ? s->account : &sp->account;
    struct spawn_message m = {
        .magic = SPAWN_MAGIC,
        .seq = s->seq,
        .argc = s->argc,
        .envc = s->envc,
        .blob_len = (uint32_t)s->blob_len,
        .tag = s->tag,
        .uid = account->uid,
        .gid = account->gid,
        .group_count = account->group_count,
    };
    memcpy(m.groups, account->groups, sizeof m.groups);
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * SPAWN_FDS_MAX)];
    } control = {0};
    int fds[SPAWN_FDS_MAX];
    size_t count = 0;
    for (int i = 0; i < 3; i++)
        if (s->fds[i] >= 0) {
            m.flags |= 1U << i;
            fds[count++] = s->fds[i];
        }
    if (s->terminal)
        m.flags |= SPAWN_TERMINAL;
    struct iovec iov[2] = {{&m, sizeof m}, {s->blob, s->blob_len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    auto_close int memfd = -1;
    if (s->blob_len > SPAWN_INLINE_MAX) {
        memfd = memfd_of(s);
        if (memfd < 0)
            return memfd;
        m.flags |= SPAWN_HAS_MEMFD;
        fds[count++] = memfd;
        msg.msg_iovlen = 1;
    }
    if (count) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    }
    return sendmsg(sp->source.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Sends what waits; at most SENT_MAX are under way, the rest follows with the answers. */
static void flush(struct spawner *sp)
{
    if (sp->state != SPAWNER_SERVING)
        return;
again:
    list_for_each(i, &sp->pending)
    {
        struct spawn *s = list_entry(i, struct spawn, link);
        if (s->sent)
            continue;
        if (sp->sent_count == SENT_MAX)
            return;
        int r = send_request(sp, s);
        if (r == -EAGAIN || r == -EPIPE || r == -ECONNRESET)
            return; /* answers make room; a dead spawner is noticed by itself */
        s->sent = true;
        sp->sent_count++;
        reaper_expect(sp->config.reaper);
        if (r < 0) {
            answered(sp, &(struct spawn_answer){.seq = s->seq, .err = -r, .stage = SPAWN_STAGE_FORK});
            goto again; /* the callback may have changed the list */
        }
    }
}

static void run_flusher(struct deferred *d)
{
    flush(container_of(d, struct spawner, flusher));
}

static size_t strings_size(const char *const *v, uint32_t *count)
{
    size_t n = 0;
    for (; v && *v; v++, (*count)++)
        n += strlen(*v) + 1;
    return n;
}

static char *put_strings(char *p, const char *const *v)
{
    for (; v && *v; v++)
        p = stpcpy(p, *v) + 1;
    return p;
}

int spawner_spawn(struct spawner *sp, struct spawn *s, const struct spawn_target *t,
                  void (*done)(struct spawn *s, pid_t pid, int err, enum spawn_stage stage))
{
    const char *head[] = {t->path, t->cwd ? t->cwd : "/", NULL};
    const char *const *env = (const char *const *)t->env;
    uint32_t ignored = 0;
    *s = (struct spawn){.done = done,
                        .spawner = sp,
                        .fds = {t->fds[0], t->fds[1], t->fds[2]},
                        .terminal = t->terminal,
                        .tag = t->tag,
                        .account = t->account};
    s->blob_len =
        strings_size(head, &ignored) + strings_size(t->argv, &s->argc) + strings_size(env, &s->envc);
    int r = -E2BIG;
    if (s->blob_len > SPAWN_BLOB_MAX)
        goto fail;
    r = -EAGAIN;
    if (sp->pending_count == PENDING_MAX)
        goto fail;
    r = -ENOMEM;
    s->blob = malloc(s->blob_len);
    if (!s->blob)
        goto fail;
    (void)put_strings(put_strings(put_strings(s->blob, head), t->argv), env);
    s->seq = ++sp->seq ? sp->seq : ++sp->seq;
    list_append(&sp->pending, &s->link);
    sp->pending_count++;
    loop_defer(sp->config.loop, &sp->flusher, run_flusher);
    return 0;
fail:
    for (int i = 0; i < 3; i++)
        close_fd(&s->fds[i]);
    s->spawner = NULL;
    return r;
}

void spawner_cancel(struct spawn *s)
{
    struct spawner *sp = s->spawner;
    if (!sp)
        return;
    if (s->sent) {
        sp->sent_count--;
        reaper_unexpect(sp->config.reaper);
    }
    release(s);
}
