/* SPDX-License-Identifier: Apache-2.0 */
/* link.c: starting the gateway, hearing its requests, and starting it again when it dies.
 *
 * The gateway is a fresh program image (this binary, executed again), never a fork of the threaded keeper: it
 * inherits exactly the descriptors below and nothing of our memory. */
#include "base/log.h"
#include "gateway/gateway_boot.h"
#include "keeper/keeper_internal.h"
#include "keeper/tls_files.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { RESTART_MS = 200, MESSAGES_PER_EVENT = 64, OUTBOX_MAX = 65536 };

/* A reply that did not fit into the socket. */
struct outgoing {
    struct keeper_reply reply;
    int fd;
    struct outgoing *next;
};

static void outbox_clear(struct keeper *k)
{
    while (k->outbox) {
        struct outgoing *o = k->outbox;
        k->outbox = o->next;
        close_fd(&o->fd);
        free(o);
    }
    k->outbox_last = &k->outbox;
    k->outbox_len = 0;
}

/* The gateway is useless to us or we to it: it is ended, and its exit brings a new one that asks for
 * everything again. */
static void link_break(struct keeper *k, const char *why)
{
    log_error("%s; the gateway is ended", why);
    loop_del(k->loop, &k->gateway);
    close_fd(&k->gateway_fd);
    outbox_clear(k);
    (void)syscall(SYS_pidfd_send_signal, k->gateway_pidfd, SIGKILL, NULL, 0);
}

static void outbox_flush(struct keeper *k)
{
    while (k->outbox) {
        struct outgoing *o = k->outbox;
        ssize_t n = socket_send_fd(k->gateway_fd, &o->reply, sizeof o->reply, o->fd);
        if (n == -EAGAIN)
            return;
        if (n < 0) {
            link_break(k, "the gateway does not listen");
            return;
        }
        k->outbox = o->next;
        if (!k->outbox)
            k->outbox_last = &k->outbox;
        k->outbox_len--;
        close_fd(&o->fd);
        free(o);
    }
    loop_mod(k->loop, &k->gateway, EPOLLIN);
}

void link_reply(struct keeper *k, const struct keeper_reply *reply, int fd)
{
    if (k->gateway_fd < 0)
        return; /* between two gateways: the next one asks for the list */
    struct keeper_reply r = *reply;
    r.version = KEEPER_PROTO_VERSION;
    ssize_t n = k->outbox ? -EAGAIN : socket_send_fd(k->gateway_fd, &r, sizeof r, fd);
    if (n >= 0)
        return;
    if (n != -EAGAIN) {
        link_break(k, "the gateway does not listen");
        return;
    }
    struct outgoing *o = k->outbox_len < OUTBOX_MAX ? malloc(sizeof *o) : NULL;
    if (!o) {
        link_break(k, "too many replies wait for the gateway");
        return;
    }
    *o = (struct outgoing){.reply = r, .fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    *k->outbox_last = o;
    k->outbox_last = &o->next;
    k->outbox_len++;
    loop_mod(k->loop, &k->gateway, EPOLLIN | EPOLLOUT);
}

static void link_ready(struct source *s, uint32_t events)
{
    struct keeper *k = container_of(s, struct keeper, gateway);
    if (events & EPOLLOUT)
        outbox_flush(k);
    for (int i = 0; i < MESSAGES_PER_EVENT && k->gateway_fd >= 0; i++) {
        struct keeper_request q;
        int fd = -1;
        ssize_t n = socket_recv_fd(k->gateway_fd, &q, sizeof q, &fd);
        if (n == -EAGAIN)
            return;
        if (n <= 0 || keeper_request_check(&q, (size_t)n) < 0) {
            close_fd(&fd);
            link_break(k, n > 0 ? "the gateway sent a message of the wrong shape"
                                : "the gateway closed its line");
            return;
        }
        if (keeper_type_is_image(q.type) && !q.id[0]) {
            image_request(k, &q, &fd);
            close_fd(&fd);
        } else {
            box_request(k, &q, fd);
        }
    }
}

static int boot_memfd(struct keeper *k, struct error *reterr)
{
    const struct keeper_config *c = k->config;
    struct gateway_boot boot = {.version = GATEWAY_BOOT_VERSION,
                                .listen_count = (uint32_t)c->listen_count,
                                .uid = c->gateway_uid,
                                .auth_off = c->auth_off,
                                .tls_listeners = c->tls_listeners,
                                .docker = k->docker_fd >= 0,
                                .shared = c->shared_bytes > 0,
                                .log_level = c->log_level,
                                .log_format = c->log_format,
                                .limits = c->limits,
                                .sleep_after_ms = c->sleep_after_ms,
                                .has_network = k->env.network != NULL,
                                .listed = c->allow != NULL,
                                .freeze_after_ms = c->freeze_after_ms,
                                .agent_silence_ms = c->agent_silence_ms,
                                .preview_timeout_ms = c->preview_timeout_ms,
                                .preview_bandwidth = c->preview_bandwidth};
    memcpy(boot.admin_hash, c->admin_hash, sizeof boot.admin_hash);
    (void)snprintf(boot.image, sizeof boot.image, "%s", c->image);
    (void)snprintf(boot.allow, sizeof boot.allow, "%s", c->allow ? c->allow : "");
    (void)snprintf(boot.preview_domain, sizeof boot.preview_domain, "%s", c->preview_domain);
    auto_close int fd = memfd_create("gateway", MFD_CLOEXEC);
    if (fd < 0 || pwrite(fd, &boot, sizeof boot, 0) != (ssize_t)sizeof boot)
        return error_sys(reterr, errno, "hand over the gateway's settings");
    return take_fd(fd);
}

/* After fork: system calls only. from[i] becomes descriptor GATEWAY_FD_FIRST + i. */
static _Noreturn void become_gateway(const int *from, size_t count, char *const *argv)
{
    int high[GATEWAY_FD_COUNT_MAX];
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < count; i++)
        if ((high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 256)) < 0)
            _exit(126);
    for (size_t i = 0; i < count; i++)
        if (dup2(high[i], GATEWAY_FD_FIRST + (int)i) < 0)
            _exit(126);
    if (close_range(GATEWAY_FD_FIRST + (unsigned)count, ~0U, 0) < 0)
        _exit(126);
    (void)execv("/proc/self/exe", argv);
    _exit(127);
}

static void gateway_ended(struct source *s, uint32_t events);

static void restart_fired(struct timer *t)
{
    struct keeper *k = container_of(t, struct keeper, gateway_restart);
    struct error e;
    if (k->stopping)
        return;
    if (link_start(k, &e) < 0) {
        log_error("cannot start the gateway: %s", e.msg);
        loop_timer_start(k->loop, t, RESTART_MS * 10, restart_fired);
    }
}

/* The gateway's own descriptor of the certificates: it can read them and nothing else. */
static int tls_open(struct keeper *k, struct error *reterr)
{
    char path[64];
    if (k->tls_fd < 0)
        k->tls_fd = memfd_create("tls", MFD_CLOEXEC);
    if (k->tls_fd < 0)
        return error_sys(reterr, errno, "hand over the TLS certificates");
    int r = tls_files_load(k->config, k->tls_fd, reterr);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", k->tls_fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? error_sys(reterr, errno, "hand over the TLS certificates") : fd;
}

void link_reload(struct keeper *k)
{
    struct error e;
    if (!k->config->tls_listeners || k->tls_fd < 0)
        return;
    if (tls_files_load(k->config, k->tls_fd, &e) < 0) {
        log_error("the TLS certificates stay as they are: %s", e.msg);
        return;
    }
    if (k->gateway_pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, k->gateway_pidfd, SIGHUP, NULL, 0);
}

int link_start(struct keeper *k, struct error *reterr)
{
    static char *argv[] = {"silica", "gateway", NULL};
    int pair[2], from[GATEWAY_FD_COUNT_MAX];
    size_t n = 0;
    char dir_path[512];
    (void)snprintf(dir_path, sizeof dir_path, "%s/gateway", k->config->data_dir);
    if (mkdir(dir_path, 0700) < 0 && errno != EEXIST)
        return error_sys(reterr, errno, "make the gateway's directory");
    auto_close int dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || fchown(dir, k->config->gateway_uid, k->config->gateway_uid) < 0)
        return error_sys(reterr, errno, "prepare the gateway's directory");
    auto_close int boot = boot_memfd(k, reterr);
    if (boot < 0)
        return boot;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return error_sys(reterr, errno, "make the line to the gateway");
    auto_close int ours = pair[0];
    auto_close int theirs = pair[1];
    from[n++] = boot;
    from[n++] = theirs;
    from[n++] = dir;
    for (size_t i = 0; i < k->config->listen_count; i++)
        from[n++] = k->config->listen_fds[i];
    auto_close int tls = -1;
    if (k->config->tls_listeners) {
        if ((tls = tls_open(k, reterr)) < 0)
            return tls;
        from[n++] = tls;
    }
    if (k->docker_fd >= 0)
        from[n++] = k->docker_fd;
    auto_close int shared = -1;
    if (k->config->shared_bytes) {
        shared = memfd_create("shared", MFD_CLOEXEC);
        if (shared < 0 ||
            pwrite(shared, k->config->shared, k->config->shared_bytes, 0) != (ssize_t)k->config->shared_bytes)
            return error_sys(reterr, errno, "hand over the settings of all sandboxes");
        from[n++] = shared;
    }

    pid_t pid = fork();
    if (pid < 0)
        return error_sys(reterr, errno, "start the gateway");
    if (pid == 0)
        become_gateway(from, n, argv);
    k->gateway_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (k->gateway_pidfd < 0)
        return error_sys(reterr, errno, "watch the gateway");
    int r = loop_add(k->loop, &k->gateway_exit, k->gateway_pidfd, EPOLLIN, gateway_ended);
    if (r == 0)
        r = loop_add(k->loop, &k->gateway, ours, EPOLLIN, link_ready);
    if (r < 0)
        return error_sys(reterr, -r, "watch the gateway");
    k->gateway_fd = take_fd(ours);
    k->gateway_life++;
    return 0;
}

static void gateway_ended(struct source *s, uint32_t events)
{
    struct keeper *k = container_of(s, struct keeper, gateway_exit);
    siginfo_t si = {0};
    (void)events;
    (void)waitid(P_PIDFD, (id_t)k->gateway_pidfd, &si, WEXITED | WNOHANG);
    loop_del(k->loop, &k->gateway_exit);
    loop_del(k->loop, &k->gateway);
    close_fd(&k->gateway_pidfd);
    close_fd(&k->gateway_fd);
    outbox_clear(k);
    if (k->stopping)
        return;
    log_warn("the gateway ended (%s %d); starting it again",
             si.si_code == CLD_EXITED ? "exit code" : "signal", si.si_status);
    /* one that gave up by itself said why, and will say so again: a damaged database does not mend */
    bool gave_up = si.si_code == CLD_EXITED && si.si_status != 0;
    loop_timer_start(k->loop, &k->gateway_restart, gave_up ? RESTART_MS * 10 : RESTART_MS, restart_fired);
}

void link_stop(struct keeper *k)
{
    loop_timer_stop(k->loop, &k->gateway_restart);
    if (k->gateway_pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, k->gateway_pidfd, SIGTERM, NULL, 0);
        loop_del(k->loop, &k->gateway_exit);
        loop_del(k->loop, &k->gateway);
        (void)waitid(P_PIDFD, (id_t)k->gateway_pidfd, &(siginfo_t){0}, WEXITED);
    }
    close_fd(&k->gateway_pidfd);
    close_fd(&k->gateway_fd);
    outbox_clear(k);
}
