/* SPDX-License-Identifier: Apache-2.0 */
/* main_command.c: the program a container is for.
 *
 * Either the agent itself: that is what the documented entrypoints mean (the server's program in the image),
 * and then it serves the container protocol on TCP port 3000 inside, too, where its clients and programs
 * inside look for it; words behind the entrypoint are a command it starts beside itself, as the documented
 * server does. Or any other program, whose end is the container's end, and whose exit code is the
 * container's. */
#include "agent/container.h"
#include "agent/intercept_ca.h"
#include "agent/main_log.h"
#include "agent/supervisor.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/socket.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct main_command {
    struct agent *agent;
    char **argv;                /* NULL: none */
    struct supervisor *program; /* NULL: the agent alone */
    struct http_request *req;   /* waits for the program's start */
    bool is_server;
    bool running;
    char *cwd;
    struct timer look; /* for a certificate */
    int64_t deadline_ms;
    struct main_log log;
};

static const char *const server_names[] = {"/sandbox", "/container-server/sandbox"};
static const char *const addresses[] = {"0.0.0.0:3000", "[::]:3000"};

const char *main_command_cwd(const struct agent *a)
{
    return a->main_command && a->main_command->cwd ? a->main_command->cwd : "/";
}

void main_command_free(struct agent *a)
{
    struct main_command *m = take_ptr(a->main_command);
    if (!m)
        return;
    loop_timer_stop(a->loop, &m->look);
    supervisor_free(m->program);
    main_log_done(&m->log);
    strings_free(m->argv);
    free(m->cwd);
    free(m);
}

static bool names_server(const char *program)
{
    for (size_t i = 0; i < ARRAY_SIZE(server_names); i++)
        if (strcmp(program, server_names[i]) == 0)
            return true;
    return false;
}

static int listen_inside(struct agent *a, struct error *reterr)
{
    for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
        int fd = -1;
        int r = socket_listen_tcp(addresses[i], &fd, reterr);
        if (r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL)
            continue; /* a kernel without IPv6 */
        if (r == 0)
            r = http_server_listen(a->server, fd, reterr);
        if (r < 0) {
            close_fd(&fd);
            return r;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ the start */

static void caller_gone(struct http_request *req)
{
    struct agent *a = req->user;
    a->main_command->req = NULL; /* the program runs on: the next caller is told that it does */
}

static void reply_started(struct http_request *req)
{
    http_respond(req, 200, "application/json", "{}", 2);
}

/* The documented server ends when its command cannot be started. */
static void command_failed(struct agent *a, const char *why)
{
    log_error("cannot start the command: %s", why);
    agent_end(a, 1, false);
}

static void program_started(struct agent *a, int err)
{
    struct main_command *m = a->main_command;
    struct http_request *req = take_ptr(m->req);
    m->running = m->is_server || !err;
    if (req && m->running)
        reply_started(req);
    else if (req)
        container_refuse(req, 400, "the program cannot be run: %s", strerror(err));
    if (err && m->is_server)
        command_failed(a, strerror(err));
    else if (err)
        main_command_free(a); /* another may be tried */
}

static void program_ended(struct agent *a, int code)
{
    main_log_end(&a->main_command->log);
    agent_end(a, code, !a->main_command->is_server);
}

static void program_output(struct agent *a, int stream, const char *data, size_t n)
{
    main_log_add(&a->main_command->log, stream, data, n);
}

static int start_program(struct agent *a, char *const *argv, struct error *reterr)
{
    struct main_command *m = a->main_command;
    struct supervisor_config config = {.argv = argv,
                                       .cwd = main_command_cwd(a),
                                       .is_main = !m->is_server,
                                       .output = program_output,
                                       .started = program_started,
                                       .ended = program_ended};
    return supervisor_start(a, &config, &m->program, reterr);
}

/* ------------------------------------------------------------------ the agent as the program */

static void server_serve(struct agent *a)
{
    struct main_command *m = a->main_command;
    struct error e;
    if (listen_inside(a, &e) < 0 || (m->argv && m->argv[1] && start_program(a, m->argv + 1, &e) < 0))
        command_failed(a, e.msg);
}

/* Whoever starts a container puts the certificate there first; the documented server waits for it, too. */
static void look_for_certificate(struct timer *t)
{
    struct main_command *m = container_of(t, struct main_command, look);
    struct agent *a = m->agent;
    struct error e;
    int r = intercept_ca_take(a, &e);
    if (r == -ENOENT && clock_mono_ms() < m->deadline_ms)
        loop_timer_start(a->loop, t, INTERCEPT_CA_LOOK_MS, look_for_certificate);
    else if (r < 0)
        command_failed(a, e.msg);
    else
        server_serve(a);
}

static void server_start(struct agent *a)
{
    struct main_command *m = a->main_command;
    m->running = true;
    m->deadline_ms = clock_mono_ms() + INTERCEPT_CA_WAIT_MS;
    if (intercept_ca_wanted(a))
        look_for_certificate(&m->look);
    else
        server_serve(a);
}

/* ------------------------------------------------------------------ the request */

static void refuse(struct agent *a, struct http_request *req, int err, const char *why)
{
    main_command_free(a);
    container_refuse(req, err == -EINVAL || err == -ENOENT || err == -EACCES ? 400 : 500, "%s", why);
}

void main_command_start(struct agent *a, struct http_request *req, const struct json_value *body)
{
    const struct json_value *list = json_get(body, "argv");
    const char *cwd = json_string(json_get(body, "cwd"), NULL);
    struct main_command *m = a->main_command;
    struct error e;
    if (m && m->running) {
        reply_started(req);
        return;
    }
    if (m) {
        container_refuse(req, 409, "the container is being started");
        return;
    }
    m = a->main_command = calloc(1, sizeof *m);
    if (m)
        main_log_init(&m->log);
    int r = !m ? -ENOMEM : json_count(list) ? strings_from_json(list, &m->argv) : 0;
    if (r == 0 && cwd && *cwd && !(m->cwd = strdup(cwd)))
        r = -ENOMEM;
    if (r < 0) {
        refuse(a, req, r, r == -EINVAL ? "argv must be strings" : "out of memory");
        return;
    }
    m->agent = a;
    m->is_server = !m->argv || names_server(m->argv[0]);
    if (m->is_server) {
        reply_started(req);
        server_start(a);
        return;
    }
    r = start_program(a, m->argv, &e);
    if (r < 0) {
        refuse(a, req, r, e.msg);
        return;
    }
    m->req = req;
    req->user = a;
    req->on_gone = caller_gone;
}

/* ------------------------------------------------------------------ signals */

void main_command_signal(struct agent *a, struct http_request *req)
{
    struct main_command *m = a->main_command;
    char text[8] = "";
    (void)http_query_get(req->query, "n", text, sizeof text);
    char *end;
    long n = strtol(text, &end, 10);
    if (!*text || *end || n < 1 || n > 64) {
        container_refuse(req, 400, "there is no signal '%s'", text);
        return;
    }
    if (!m || !m->running) {
        container_refuse(req, 409, "the container is not running");
        return;
    }
    http_respond(req, 204, NULL, NULL, 0);
    pid_t pid = supervisor_pid(m->program);
    if (m->is_server && (n == SIGTERM || n == SIGINT))
        agent_end(a, 0, false); /* the command gets SIGTERM as all others do */
    else if (pid)
        (void)kill(pid, (int)n);
}

void main_command_logs(struct agent *a, struct http_request *req)
{
    if (a->main_command)
        main_log_request(a, &a->main_command->log, req);
    else
        http_respond(req, 200, "application/vnd.docker.multiplexed-stream", NULL, 0);
}
