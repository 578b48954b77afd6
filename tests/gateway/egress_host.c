/* SPDX-License-Identifier: Apache-2.0 */
/* egress_host.c: the way out of a sidecar's sandbox without a sandbox: a command in a network namespace of
 * its own, the gateway's egress around it, and a thread that answers as the keeper does.
 *
 *   egress_host RESOLVER CA_FILE SETTINGS COMMAND...
 *
 * RESOLVER is an address, or "-" for none. The authority's certificate is written to CA_FILE before the
 * command starts. Every line of standard input is one more PUT /egress, answered with a line. The exit code
 * is the command's. */
#include "gateway/egress.h"
#include "keeper/box_socket.h"
#include "keeper/netlink.h"
#include "keeper/nft_redirect.h"
#include "net/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct lab {
    struct loop *loop;
    struct egress *egress;
    struct sandbox sb;
    uint32_t resolvers[1];
    size_t resolver_count;
    int keeper_fd;
    int go[2]; /* the command waits for a byte */
    struct source end, input;
    int status;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "egress_host: %s: %s\n", what, strerror(errno));
    exit(125);
}

static void *keeper(void *arg)
{
    struct lab *h = arg;
    for (;;) {
        struct keeper_request q;
        auto_close int fd = -1;
        auto_close int made = -1;
        if (socket_recv_fd(h->keeper_fd, &q, sizeof q, &fd) <= 0)
            return NULL;
        struct keeper_reply r = {.version = KEEPER_PROTO_VERSION, .type = KEEPER_REPLY, .seq = q.seq};
        struct error e = {0};
        if (keeper_request_check(&q, sizeof q) < 0 || q.type != KEEPER_SOCKET)
            r.error = EBADMSG;
        else if (q.socket.kind >= KEEPER_SOCKET_RESOLVE_UDP && !h->resolver_count)
            r.error = ENOENT;
        else
            r.error = -box_socket_make(&q, &h->sb, NULL, h->resolvers, h->resolver_count, &made, &e);
        if (socket_send_fd(h->keeper_fd, &r, sizeof r, made) < 0)
            return NULL;
    }
}

static _Noreturn void inside(struct lab *h, int line, char **command)
{
    unsigned lo;
    char go;
    if (unshare(CLONE_NEWNET) < 0 || !(lo = if_nametoindex("lo")) || nl_link_up(lo) < 0 ||
        nl_local_route_add(lo) < 0 || nft_redirect_add(KEEPER_PORT_CATCHER) < 0)
        _exit(124);
    if (write(line, "r", 1) != 1 || read(h->go[0], &go, 1) != 1)
        _exit(124);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)execvp(command[0], command);
    _exit(127);
}

static void start_command(struct lab *h, char **command)
{
    int line[2];
    char c;
    if (pipe2(line, O_CLOEXEC) < 0 || pipe2(h->go, O_CLOEXEC) < 0)
        die("pipe");
    h->sb.pid = fork();
    if (h->sb.pid == 0)
        inside(h, line[1], command);
    (void)close(line[1]);
    h->sb.pidfd = (int)syscall(SYS_pidfd_open, h->sb.pid, 0);
    h->sb.spec.sidecar = true;
    if (h->sb.pidfd < 0 || read(line[0], &c, 1) != 1)
        die("the namespace could not be made");
    (void)close(line[0]);
}

static void attached(void *arg, int err)
{
    struct lab *h = arg;
    errno = -err;
    if (err || write(h->go[1], "g", 1) != 1)
        die("attach");
}

static void ended(struct source *s, uint32_t events)
{
    struct lab *h = container_of(s, struct lab, end);
    siginfo_t si = {0};
    (void)events;
    (void)waitid(P_PIDFD, (id_t)h->sb.pidfd, &si, WEXITED);
    h->status = si.si_code == CLD_EXITED ? si.si_status : 128 + si.si_status;
    loop_stop(h->loop);
}

static void put(struct source *s, uint32_t events)
{
    struct lab *h = container_of(s, struct lab, input);
    char line[65536];
    struct error e = {0};
    (void)events;
    ssize_t n = read(0, line, sizeof line);
    if (n <= 0) {
        loop_del(h->loop, s);
        return;
    }
    int r = egress_put(h->egress, line, (size_t)n, &e);
    printf("%s\n", r < 0 ? e.msg : "ok");
    (void)fflush(stdout);
}

static void write_ca(const struct lab *h, const char *path)
{
    FILE *f = fopen(path, "we");
    if (!f || fputs(egress_ca_pem(h->egress), f) < 0 || fclose(f) != 0)
        die("write the certificate");
}

static void gone(void *arg)
{
    (void)arg;
    die("the keeper is gone");
}

int main(int argc, char **argv)
{
    struct lab h = {0};
    struct keeper_link_ops ops = {.gone = gone};
    struct keeper_link *link;
    struct error e = {0};
    pthread_t thread;
    int pair[2];
    if (argc < 5)
        return 2;
    (void)signal(SIGPIPE, SIG_IGN);
    h.resolver_count = inet_pton(AF_INET, argv[1], &h.resolvers[0]) == 1;
    start_command(&h, argv + 4);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        die("socketpair");
    h.keeper_fd = pair[1];
    if (pthread_create(&thread, NULL, keeper, &h) || loop_new(&h.loop, &e) < 0 ||
        keeper_link_new(h.loop, pair[0], &ops, &link, &e) < 0 ||
        egress_new(h.loop, link, NULL, &h.egress, &e) < 0 ||
        egress_put(h.egress, argv[3], strlen(argv[3]), &e) < 0) {
        fprintf(stderr, "egress_host: %s\n", e.msg);
        return 125;
    }
    write_ca(&h, argv[2]);
    if (loop_add(h.loop, &h.end, h.sb.pidfd, EPOLLIN, ended) < 0 ||
        loop_add(h.loop, &h.input, 0, EPOLLIN, put) < 0)
        h.input.fd = -1; /* standard input may be a file, of which epoll knows nothing */
    egress_attach(h.egress, "test", attached, &h);
    (void)loop_run(h.loop);
    egress_free(h.egress);
    loop_del(h.loop, &h.end);
    loop_del(h.loop, &h.input);
    keeper_link_free(link);
    (void)pthread_join(thread, NULL);
    loop_free(h.loop);
    (void)close(pair[1]);
    (void)close(h.sb.pidfd);
    (void)close(h.go[0]);
    (void)close(h.go[1]);
    return h.status;
}
