/* SPDX-License-Identifier: Apache-2.0 */
/* fake_keeper.c: runs the real gateway with a keeper that only pretends: every sandbox is a scripted agent
 * in this process (fake_agent.c). Used by the tests in this directory; needs no privileges.
 *
 *   fake_keeper --dir DIR [--uid N] [--auth-off] [--token TOKEN] [--sleep-after MS] [--freeze-after MS]
 *               [--silence MS] [--alloc FILE]
 *
 * --alloc: allocations of the gateway, not ours, fail as this file says (src/base/failpoint_alloc.c); it may
 * then end itself rather than break a promise, and is started again.
 *
 * Prints one line {"port":P,"gateway":PID} when it listens, and another whenever it has started the gateway
 * anew because it ended. Ends when its standard input does.
 *
 * Ids choose their fate: "full-*" cannot start for want of room, "broken-*" fail with EIO, "slow-*" take 300
 * ms, "stuck-*" cannot be destroyed, "lost-*" accept no second connection, with "distant-*" it takes 300 ms,
 * "late-*" are recorded by the keeper 150 ms after their start, "unrecorded-*" never, "restless-*" cannot be
 * frozen, "worker-*" use cpu time all the time. The image "missing" does not exist. */
#include "fake_agent.h"
#include "gateway/gateway.h"
#include "keeper/proto.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct options {
    const char *dir, *token;
    const char *uid, *sleep_after_ms, *freeze_after_ms,
        *silence_ms; /* as given: they are passed on to the gateway's command line */
    const char *alloc;
    bool auth_off;
};

static struct {
    pthread_mutex_t mutex; /* sandboxes, link */
    struct fake_sandbox *sandboxes;
    uint64_t generation;
    int link; /* to the gateway; -1 while it is down */
} keeper = {.mutex = PTHREAD_MUTEX_INITIALIZER, .link = -1};

/* ------------------------------------------------------------------ the gateway's side of the fork */

static int run_gateway(char **argv)
{
    struct gateway_config config = {
        .keeper_fd = atoi(argv[0]),
        .listen_fds = {atoi(argv[1])},
        .listen_count = 1,
        .state_dir_fd = atoi(argv[2]),
        .uid = (uid_t)atoi(argv[3]),
        .auth_off = strcmp(argv[4], "1") == 0,
        .default_image = "base",
        .default_limits = instance_types[0].limits,
        .sleep_after_ms = atoll(argv[6]),
        .freeze_after_ms = atoll(argv[7]),
        .agent_silence_ms = atoll(argv[8]),
        .docker_fd = -1,
        .shared_fd = -1,
    };
    unsigned len;
    if (EVP_Digest(argv[5], strlen(argv[5]), config.admin_hash, &len, EVP_sha256(), NULL) != 1)
        return EXIT_FAILURE;
    log_init("gateway", getenv("SILICA_TEST_DEBUG") ? LOG_DEBUG : LOG_WARN, LOG_TEXT);
    return gateway_main(&config);
}

static void keep_open(int fd)
{
    (void)fcntl(fd, F_SETFD, 0);
}

static pid_t start_gateway(const struct options *o, int listen_fd, int dir_fd, int *ret_link)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    char fds[3][16];
    (void)snprintf(fds[0], sizeof fds[0], "%d", pair[1]);
    (void)snprintf(fds[1], sizeof fds[1], "%d", listen_fd);
    (void)snprintf(fds[2], sizeof fds[2], "%d", dir_fd);
    pid_t pid = fork();
    if (pid == 0) {
        keep_open(pair[1]);
        keep_open(listen_fd);
        keep_open(dir_fd);
        (void)setenv("SILICA_GATEWAY_UNCONFINED", "1", 1);
        if (o->alloc)
            (void)setenv("SILICA_ALLOC", o->alloc, 1);
        (void)execl("/proc/self/exe", "fake_keeper", "--gateway", fds[0], fds[1], fds[2], o->uid,
                    o->auth_off ? "1" : "0", o->token, o->sleep_after_ms, o->freeze_after_ms, o->silence_ms,
                    (char *)NULL);
        _exit(127);
    }
    (void)close(pair[1]);
    *ret_link = pair[0];
    return pid;
}

/* ------------------------------------------------------------------ the keeper's side */

static bool begins(const char *id, const char *prefix)
{
    return strncmp(id, prefix, strlen(prefix)) == 0;
}

static void send_reply(const struct keeper_request *r, uint32_t type, int error, const struct fake_sandbox *s,
                       int fd)
{
    struct keeper_reply reply = {
        .version = KEEPER_PROTO_VERSION,
        .type = type,
        .seq = r ? r->seq : 0, /* events answer nobody */
        .error = error,
        .durable = !r || !(begins(r->id, "late-") || begins(r->id, "unrecorded-")),
    };
    if (s) {
        memcpy(reply.id, s->id, sizeof reply.id);
        reply.state = !s->running ? KEEPER_STATE_STOPPED
                      : s->frozen ? KEEPER_STATE_FROZEN
                                  : KEEPER_STATE_RUNNING;
        reply.generation = s->running || type == KEEPER_EVENT_EXIT ? s->generation : 0;
        reply.usage.memory_bytes = 12345678;
        reply.usage.tasks = 3;
        reply.usage.oom_kills = 2;
        if (begins(s->id, "worker-")) {
            struct timespec now;
            (void)clock_gettime(CLOCK_MONOTONIC, &now);
            reply.usage.cpu_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
        }
    }
    if (error)
        (void)snprintf(reply.message, sizeof reply.message, "pretended error %d", error);
    if (keeper.link >= 0)
        (void)socket_send_fd(keeper.link, &reply, sizeof reply, fd);
}

static void agent_died(struct fake_sandbox *s)
{
    (void)pthread_mutex_lock(&keeper.mutex);
    bool was_running = s->running;
    s->running = false;
    if (was_running)
        send_reply(NULL, KEEPER_EVENT_EXIT, 0, s, -1);
    (void)pthread_mutex_unlock(&keeper.mutex);
    fake_agent_cut(s);
}

static struct fake_sandbox *find(const char *id)
{
    struct fake_sandbox *s = keeper.sandboxes;
    while (s && strcmp(s->id, id) != 0)
        s = s->next;
    return s;
}

static int connect_agent(struct fake_sandbox *s)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    fake_agent_serve(s, pair[0]);
    return pair[1];
}

static void read_env(struct fake_sandbox *s, int fd)
{
    char text[sizeof s->env];
    ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, 0);
    s->env_len = n > 0 ? (unsigned)n : 0;
    for (unsigned i = 0; i < s->env_len; i++)
        s->env[i] = text[i] ? text[i] : '\n';
}

/* The keeper's own record is written after the start. */
static void *record_later(void *arg)
{
    struct fake_sandbox *s = arg;
    (void)poll(NULL, 0, 150);
    (void)pthread_mutex_lock(&keeper.mutex);
    send_reply(NULL, KEEPER_EVENT_DURABLE, begins(s->id, "unrecorded-") ? EIO : 0, s, -1);
    (void)pthread_mutex_unlock(&keeper.mutex);
    return NULL;
}

static void run_thread(void *(*run)(void *arg), void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, arg) != 0)
        abort();
    (void)pthread_detach(thread);
}

static void start(const struct keeper_request *r, int env_fd)
{
    int error = 0;
    if (begins(r->id, "full-"))
        error = ENOSPC;
    else if (begins(r->id, "broken-"))
        error = EIO;
    else if (strcmp(r->image, "missing") == 0)
        error = ENOENT;
    if (error) {
        send_reply(r, KEEPER_REPLY, error, NULL, -1);
        return;
    }
    struct fake_sandbox *s = find(r->id);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            abort();
        (void)pthread_mutex_init(&s->mutex, NULL);
        memcpy(s->id, r->id, sizeof s->id);
        s->died = agent_died;
        s->next = keeper.sandboxes;
        keeper.sandboxes = s;
    }
    if (!s->running) {
        s->running = true;
        s->generation = ++keeper.generation;
        s->starts++;
        read_env(s, env_fd);
    }
    s->connects++;
    int fd = connect_agent(s);
    send_reply(r, KEEPER_REPLY, 0, s, fd);
    (void)close(fd);
    if (begins(r->id, "late-") || begins(r->id, "unrecorded-"))
        run_thread(record_later, s);
}

static void connect_again(const struct keeper_request *r)
{
    struct fake_sandbox *s = find(r->id);
    if (!s || !s->running || begins(r->id, "lost-")) {
        send_reply(r, KEEPER_REPLY, ENOENT, NULL, -1);
        return;
    }
    int agent = connect_agent(s);
    send_reply(r, KEEPER_REPLY, 0, s, agent);
    (void)close(agent);
}

struct slow {
    struct keeper_request request;
    int env_fd;
};

static void *handle_slowly(void *arg)
{
    struct slow *slow = arg;
    (void)poll(NULL, 0, 300);
    (void)pthread_mutex_lock(&keeper.mutex);
    if (slow->request.type == KEEPER_START)
        start(&slow->request, slow->env_fd);
    else
        connect_again(&slow->request);
    (void)pthread_mutex_unlock(&keeper.mutex);
    if (slow->env_fd >= 0)
        (void)close(slow->env_fd);
    free(slow);
    return NULL;
}

static void handle_later(const struct keeper_request *r, int env_fd)
{
    struct slow *slow = malloc(sizeof *slow);
    if (!slow)
        abort();
    *slow = (struct slow){*r, env_fd < 0 ? -1 : fcntl(env_fd, F_DUPFD_CLOEXEC, 3)};
    run_thread(handle_slowly, slow);
}

static void stop(struct fake_sandbox *s)
{
    if (!s)
        return;
    s->running = s->frozen = false;
    fake_agent_cut(s);
}

/* A destroyed sandbox is as good as new, except for its counters, which tests look at. */
static void handle(const struct keeper_request *r, int fd)
{
    struct fake_sandbox *s = find(r->id);
    switch (r->type) {
    case KEEPER_START:
        if (begins(r->id, "slow-"))
            handle_later(r, fd);
        else
            start(r, fd);
        break;
    case KEEPER_CONNECT:
        if (s)
            s->connects++;
        if (begins(r->id, "distant-"))
            handle_later(r, -1);
        else
            connect_again(r);
        break;
    case KEEPER_FREEZE:
    case KEEPER_THAW:
        if (begins(r->id, "restless-") && r->type == KEEPER_FREEZE) {
            send_reply(r, KEEPER_REPLY, ETIMEDOUT, s, -1);
            break;
        }
        if (s)
            s->frozen = r->type == KEEPER_FREEZE;
        send_reply(r, KEEPER_REPLY, s && s->running ? 0 : ENOENT, s, -1);
        break;
    case KEEPER_STOP:
    case KEEPER_KILL:
        stop(s);
        send_reply(r, KEEPER_REPLY, 0, s, -1);
        break;
    case KEEPER_DESTROY:
        if (begins(r->id, "stuck-")) {
            send_reply(r, KEEPER_REPLY, EIO, s, -1);
            break;
        }
        stop(s);
        send_reply(r, KEEPER_REPLY, 0, NULL, -1);
        break;
    case KEEPER_STATS:
        send_reply(r, KEEPER_REPLY, s ? 0 : ENOENT, s, -1);
        break;
    case KEEPER_LIST:
        for (s = keeper.sandboxes; s; s = s->next)
            if (s->running)
                send_reply(r, KEEPER_ITEM, 0, s, -1);
        send_reply(r, KEEPER_REPLY, 0, NULL, -1);
        break;
    case KEEPER_VOLUME_LIST: /* there are none */
    case KEEPER_IMAGE_LIST:
        send_reply(r, KEEPER_REPLY, 0, NULL, -1);
        break;
    default:
        send_reply(r, KEEPER_REPLY, EOPNOTSUPP, s, -1);
    }
}

/* Until the gateway ends or our standard input does; false: the latter. */
static bool serve_gateway(void)
{
    for (;;) {
        struct pollfd polls[2] = {{.fd = keeper.link, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        if (poll(polls, 2, -1) < 0 && errno != EINTR)
            return false;
        if (polls[1].revents)
            return false;
        if (!polls[0].revents)
            continue;
        struct keeper_request r;
        int fd = -1;
        ssize_t n = socket_recv_fd(keeper.link, &r, sizeof r, &fd);
        if (n <= 0)
            return true;
        if (keeper_request_check(&r, (size_t)n) < 0) {
            (void)fprintf(stderr, "fake_keeper: the gateway sent a malformed request\n");
            exit(EXIT_FAILURE);
        }
        (void)pthread_mutex_lock(&keeper.mutex);
        handle(&r, fd);
        (void)pthread_mutex_unlock(&keeper.mutex);
        if (fd >= 0)
            (void)close(fd);
    }
}

static int run(const struct options *o)
{
    struct error e;
    int listen_fd;
    char name[64];
    int dir_fd = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0 || socket_listen_tcp("127.0.0.1:0", &listen_fd, &e) < 0 ||
        socket_local_name(listen_fd, name, sizeof name) < 0) {
        (void)fprintf(stderr, "fake_keeper: cannot start\n");
        return EXIT_FAILURE;
    }
    for (bool again = true; again;) {
        int link;
        pid_t pid = start_gateway(o, listen_fd, dir_fd, &link);
        if (pid < 0)
            return EXIT_FAILURE;
        (void)pthread_mutex_lock(&keeper.mutex);
        keeper.link = link;
        (void)pthread_mutex_unlock(&keeper.mutex);
        (void)printf("{\"port\":%s,\"gateway\":%d}\n", strrchr(name, ':') + 1, (int)pid);
        (void)fflush(stdout);
        again = serve_gateway();
        int status = 0;
        (void)kill(pid, SIGTERM);
        (void)waitpid(pid, &status, 0);
        (void)pthread_mutex_lock(&keeper.mutex);
        (void)close(keeper.link);
        keeper.link = -1;
        (void)pthread_mutex_unlock(&keeper.mutex);
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL &&
            !(o->alloc && WTERMSIG(status) == SIGABRT)) {
            (void)fprintf(stderr, "fake_keeper: the gateway died of signal %d\n", WTERMSIG(status));
            return EXIT_FAILURE;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) > 1) { /* a sanitizer's */
            (void)fprintf(stderr, "fake_keeper: the gateway ended with %d\n", WEXITSTATUS(status));
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct options o = {.token = "secret",
                        .uid = "0",
                        .sleep_after_ms = "600000",
                        .freeze_after_ms = "0",
                        .silence_ms = "30000"};
    if (argc == 11 && strcmp(argv[1], "--gateway") == 0)
        return run_gateway(argv + 2);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--auth-off") == 0)
            o.auth_off = true;
        else if (i + 1 < argc && strcmp(argv[i], "--dir") == 0)
            o.dir = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--token") == 0)
            o.token = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--uid") == 0)
            o.uid = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--sleep-after") == 0)
            o.sleep_after_ms = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--freeze-after") == 0)
            o.freeze_after_ms = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--silence") == 0)
            o.silence_ms = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--alloc") == 0)
            o.alloc = argv[++i];
        else
            return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    return o.dir ? run(&o) : 2;
}
