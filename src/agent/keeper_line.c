/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_line.c: see keeper_line.h. */
#include "agent/keeper_line.h"
#include "agent/spare_shell.h"
#include "base/log.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { BOOT_ENV_MAX = 8 << 20 };

struct keeper_line {
    struct agent *agent;
    struct source listener, conn;
    bool booted;
    void (*on_boot)(struct agent *a);
};

int keeper_line_fd(void *arg)
{
    const struct keeper_line *k = arg;
    return k->conn.fd;
}

static void drop(struct keeper_line *k)
{
    int fd = k->conn.fd;
    loop_del(k->agent->loop, &k->conn);
    close_fd(&fd);
}

void keeper_line_say_exit(struct keeper_line *k, int code)
{
    const struct control_message m = {.version = CONTROL_VERSION,
                                      .type = CONTROL_EXIT | ((uint32_t)code & 0xff)};
    if (k && k->conn.fd >= 0)
        (void)send(k->conn.fd, &m, sizeof m,
                   MSG_NOSIGNAL | MSG_DONTWAIT); /* without a keeper nobody wants to know */
}

static int merge_env(struct agent *a, int memfd)
{
    struct stat st;
    if (fstat(memfd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < 0 || st.st_size > BOOT_ENV_MAX)
        return -EBADMSG;
    size_t n = (size_t)st.st_size, done = 0;
    auto_free char *block = malloc(n + 1);
    if (!block)
        return -ENOMEM;
    while (done < n) {
        ssize_t r = pread(memfd, block + done, n - done, (off_t)done);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return -EIO;
        done += (size_t)r;
    }
    int r = env_merge_block(&a->env, block, n);
    return r < 0 ? r : settings_take_block(&a->settings, block, n);
}

static void boot(struct keeper_line *k, int memfd)
{
    static const struct control_message booted = {.version = CONTROL_VERSION, .type = CONTROL_BOOTED};
    if (!k->booted) {
        int r = memfd >= 0 ? merge_env(k->agent, memfd) : 0;
        if (r < 0)
            log_error("the sandbox's environment cannot be used: %s", strerror(-r));
        k->booted = true;
        k->on_boot(k->agent);
    }
    if (send(k->conn.fd, &booted, sizeof booted, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        drop(k);
}

static void conn_ready(struct source *s, uint32_t events)
{
    struct keeper_line *k = container_of(s, struct keeper_line, conn);
    struct control_message m;
    int fd = -1;
    (void)events;
    ssize_t n = socket_recv_fd(s->fd, &m, sizeof m, &fd);
    auto_close int attached = fd;
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n != (ssize_t)sizeof m || m.version != CONTROL_VERSION) {
        drop(k);
        return;
    }
    if (m.type == CONTROL_BOOT || m.type == CONTROL_BOOT_PRISTINE) {
        k->agent->pristine = m.type == CONTROL_BOOT_PRISTINE;
        boot(k, attached);
    } else if (m.type == CONTROL_PLACED) {
        spawner_placed(k->agent->spawner);
        if (!k->booted)
            spare_shell_prepare(k->agent);
    }
}

static void listener_ready(struct source *s, uint32_t events)
{
    struct keeper_line *k = container_of(s, struct keeper_line, listener);
    (void)events;
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    drop(k); /* the newest keeper counts */
    if (loop_add(k->agent->loop, &k->conn, fd, EPOLLIN, conn_ready) < 0) {
        (void)close(fd);
        return;
    }
    spawner_connected(k->agent->spawner);
}

int keeper_line_new(struct agent *a, int listen_fd, void (*on_boot)(struct agent *a),
                    struct keeper_line **ret, struct error *reterr)
{
    struct keeper_line *k = calloc(1, sizeof *k);
    if (!k)
        return error_sys(reterr, ENOMEM, "follow the keeper");
    k->agent = a;
    k->conn.fd = -1;
    k->on_boot = on_boot;
    (void)fcntl(listen_fd, F_SETFL, O_NONBLOCK);
    int r = loop_add(a->loop, &k->listener, listen_fd, EPOLLIN, listener_ready);
    if (r < 0) {
        free(k);
        return error_sys(reterr, -r, "follow the keeper's socket");
    }
    *ret = k;
    return 0;
}
