/* SPDX-License-Identifier: Apache-2.0 */
/* container_exec.c: processes beside a container's main program, as the engine's API has them: created,
 * started with a stream or detached, resized, asked about. The stream itself is exec_stream.c's.
 *
 * Records live here and not in the gateway, so that they outlive it. At most EXECS_MAX are kept; the oldest
 * that has ended makes room for a new one. */
#include "agent/account.h"
#include "agent/container.h"
#include "agent/exec_stream.h"
#include "agent/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

enum { EXECS_MAX = 1024, ID_CHARS = 64, TTY_SIDE_MAX = 4096, NOT_RUN = 127 };

struct exec {
    struct list link;
    struct agent *agent;
    char id[ID_CHARS + 1];
    char **argv;
    struct env_list env;
    char *cwd;
    struct account *account; /* NULL: as all others */
    bool tty, attach_in, attach_out, attach_err;

    enum { EXEC_CREATED, EXEC_STARTING, EXEC_RUNNING, EXEC_ENDED } state;
    struct spawn spawn;
    struct child child;
    pid_t pid;
    int code;
    struct winsize size;
    struct http_request *req; /* waits for the start */
    bool detach;
    int ends[3]; /* ours: what becomes the process's input, where its outputs are read; a terminal is all in
                    ends[1] */
    struct exec_stream *stream;
};

struct container_execs {
    struct list list;
    size_t count;
};

/* ------------------------------------------------------------------ the records */

static void exec_free(struct exec *x)
{
    list_remove(&x->link);
    x->agent->execs->count--;
    spawner_cancel(&x->spawn);
    reaper_forget(x->agent->reaper, &x->child);
    exec_stream_free(x->stream);
    for (int i = 0; i < 3; i++)
        close_fd(&x->ends[i]);
    strings_free(x->argv);
    env_done(&x->env);
    free(x->cwd);
    free(x->account);
    free(x);
}

void container_execs_free(struct agent *a)
{
    if (!a->execs)
        return;
    list_for_each(i, &a->execs->list) exec_free(list_entry(i, struct exec, link));
    free(take_ptr(a->execs));
}

static struct exec *exec_find(const struct agent *a, const char *id)
{
    if (!a->execs)
        return NULL;
    list_for_each(i, &a->execs->list)
    {
        struct exec *x = list_entry(i, struct exec, link);
        if (strcmp(x->id, id) == 0)
            return x;
    }
    return NULL;
}

/* False when all of them run. */
static bool make_room(struct container_execs *execs)
{
    if (execs->count < EXECS_MAX)
        return true;
    list_for_each(i, &execs->list)
    {
        struct exec *x = list_entry(i, struct exec, link);
        if (x->state == EXEC_ENDED || x->state == EXEC_CREATED) {
            if (x->stream)
                continue; /* somebody still reads its last output */
            exec_free(x);
            return true;
        }
    }
    return false;
}

/* -ENOENT: the image has no such user. */
static int read_user(struct exec *x, const char *user)
{
    if (!user || !*user)
        return 0;
    x->account = calloc(1, sizeof *x->account);
    int r = x->account ? account_read(user, x->account, NULL) : -ENOMEM;
    return r < 0 ? r : env_set(&x->env, "HOME", x->account->home);
}

static int read_request(struct exec *x, const struct json_value *body)
{
    const char *cwd = json_string(json_get(body, "WorkingDir"), NULL);
    int r = strings_from_json(json_get(body, "Cmd"), &x->argv);
    if (r == 0)
        r = env_merge(&x->env, x->agent->env.vars);
    x->tty = json_bool(json_get(body, "Tty"), false);
    if (r == 0)
        r = read_user(x, json_string(json_get(body, "User"), NULL));
    if (r == 0 && x->tty)
        r = env_set(&x->env, "TERM", "xterm");
    json_for_each (item, json_get(body, "Env")) {
        const char *text = json_string(item, NULL);
        if (r == 0)
            r = text ? env_put(&x->env, text) : -EINVAL;
    }
    x->cwd = strdup(cwd && *cwd ? cwd : main_command_cwd(x->agent));
    x->attach_in = json_bool(json_get(body, "AttachStdin"), false);
    x->attach_out = json_bool(json_get(body, "AttachStdout"), false);
    x->attach_err = json_bool(json_get(body, "AttachStderr"), false);
    return r < 0 ? r : x->cwd ? 0 : -ENOMEM;
}

void container_exec_create(struct agent *a, struct http_request *req, const struct json_value *body)
{
    char id[ID_CHARS + 2] = "", answer[ID_CHARS + 32];
    if (!http_query_get(req->query, "id", id, sizeof id) || strlen(id) != ID_CHARS || exec_find(a, id)) {
        container_refuse(req, 400, "the id is not usable");
        return;
    }
    if (!a->execs && (a->execs = calloc(1, sizeof *a->execs)))
        list_init(&a->execs->list);
    if (!a->execs || !make_room(a->execs)) {
        container_refuse(req, a->execs ? 429 : 500, a->execs ? "%d processes run already" : "out of memory",
                         EXECS_MAX);
        return;
    }
    struct exec *x = calloc(1, sizeof *x);
    if (!x) {
        container_refuse(req, 500, "out of memory");
        return;
    }
    x->agent = a;
    x->ends[0] = x->ends[1] = x->ends[2] = -1;
    memcpy(x->id, id, sizeof x->id);
    list_append(&a->execs->list, &x->link);
    a->execs->count++;
    int r = read_request(x, body);
    if (r < 0) {
        exec_free(x);
        container_refuse(req, r == -ENOMEM ? 500 : 400, "%s",
                         r == -ENOMEM   ? "out of memory"
                         : r == -ENOENT ? "the image has no such user"
                                        : "Cmd must be a list of strings and Env one of NAME=value");
        return;
    }
    (void)snprintf(answer, sizeof answer, "{\"Id\":\"%s\"}", x->id);
    http_respond(req, 201, "application/json", answer, strlen(answer));
}

/* ------------------------------------------------------------------ the start */

static void exited(struct child *c, int code)
{
    struct exec *x = container_of(c, struct exec, child);
    x->state = EXEC_ENDED;
    x->code = code;
    exec_stream_process_ended(x->stream);
}

static void stream_over(void *arg)
{
    struct exec *x = arg;
    x->stream = NULL;
}

/* From here on the connection is a stream. */
static void begin_stream(struct exec *x, struct http_request *req)
{
    static const char head[] = "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
                               "Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
    struct buf rest = BUF_INIT((size_t)128 * 1024);
    int line = http_hijack(req, &rest);
    struct exec_stream_config config = {
        .agent = x->agent,
        .line = line,
        .first = {.iov_base = (void *)(uintptr_t)head, .iov_len = sizeof head - 1},
        .input = &rest,
        .ends = {take_fd(x->ends[0]), take_fd(x->ends[1]), take_fd(x->ends[2])},
        .tty = x->tty,
        .over = stream_over,
        .arg = x};
    x->stream = line >= 0 ? exec_stream_new(&config) : NULL;
    buf_done(&rest);
    if (line < 0) /* the caller went; nobody reads, and the process need not notice */
        exec_stream_discard(x->agent, config.ends);
}

static void start_gone(struct http_request *req)
{
    struct exec *x = req->user;
    x->req = NULL;
}

static void spawned(struct spawn *spawn, pid_t pid, int err, enum spawn_stage stage)
{
    struct exec *x = container_of(spawn, struct exec, spawn);
    struct http_request *req = take_ptr(x->req);
    if (!pid) {
        x->state = EXEC_ENDED;
        x->code = NOT_RUN;
        for (int i = 0; i < 3; i++)
            close_fd(&x->ends[i]);
        if (req)
            container_refuse(req, 400, "exec failed: %s: %s", stage == SPAWN_STAGE_CWD ? x->cwd : x->argv[0],
                             strerror(err));
        return;
    }
    x->pid = pid;
    x->state = EXEC_RUNNING;
    reaper_watch(x->agent->reaper, &x->child, pid, exited);
    if (req && !x->detach) {
        begin_stream(x, req);
        return;
    }
    exec_stream_discard(x->agent, (int[3]){take_fd(x->ends[0]), take_fd(x->ends[1]), take_fd(x->ends[2])});
    if (req)
        http_respond(req, 200, NULL, NULL, 0);
}

static int make_terminal(struct exec *x, int theirs[3])
{
    int unlock = 0;
    x->ends[1] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (x->ends[1] < 0 || fcntl(x->ends[1], F_SETFL, O_RDWR | O_NONBLOCK) < 0 ||
        ioctl(x->ends[1], TIOCSPTLCK, &unlock) < 0 ||
        (theirs[0] = ioctl(x->ends[1], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0 ||
        (theirs[1] = fcntl(theirs[0], F_DUPFD_CLOEXEC, 0)) < 0 ||
        (theirs[2] = fcntl(theirs[0], F_DUPFD_CLOEXEC, 0)) < 0)
        return -errno;
    if (x->size.ws_row && x->size.ws_col)
        (void)ioctl(x->ends[1], TIOCSWINSZ, &x->size);
    return 0;
}

/* What is not attached stays /dev/null. */
static int make_pipes(struct exec *x, int theirs[3])
{
    const bool wanted[] = {x->attach_in, x->attach_out, x->attach_err};
    for (int i = 0; i < 3; i++) {
        int pair[2];
        if (!wanted[i] || x->detach)
            continue;
        if (pipe2(pair, O_CLOEXEC) < 0)
            return -errno;
        x->ends[i] = pair[i == 0];
        theirs[i] = pair[i != 0];
        if (fcntl(x->ends[i], F_SETFL, O_NONBLOCK) < 0)
            return -errno;
    }
    return 0;
}

static int exec_spawn(struct exec *x)
{
    char path[PATH_MAX];
    int theirs[3] = {-1, -1, -1};
    int r = program_find(&x->env, x->argv[0], path, sizeof path);
    if (r == 0)
        r = x->tty ? make_terminal(x, theirs) : make_pipes(x, theirs);
    if (r < 0) {
        for (int i = 0; i < 3; i++)
            close_fd(&theirs[i]);
        return r;
    }
    struct spawn_target target = {.path = path,
                                  .argv = (const char *const *)x->argv,
                                  .env = x->env.vars,
                                  .cwd = x->cwd,
                                  .fds = {theirs[0], theirs[1], theirs[2]},
                                  .terminal = x->tty,
                                  .account = x->account};
    return spawner_spawn(x->agent->spawner, &x->spawn, &target, spawned);
}

static void read_size(const struct json_value *list, struct winsize *size)
{
    const struct json_value *rows = json_first(list);
    int64_t h, w;
    if (json_type_of(list) == JSON_ARRAY && json_integer(rows, 1, TTY_SIDE_MAX, &h) &&
        json_integer(rows ? json_next(rows) : NULL, 1, TTY_SIDE_MAX, &w)) {
        size->ws_row = (unsigned short)h;
        size->ws_col = (unsigned short)w;
    }
}

static void exec_start(struct exec *x, struct http_request *req, const struct json_value *body)
{
    if (x->state != EXEC_CREATED) {
        container_refuse(req, 409, "exec %.12s was started already", x->id);
        return;
    }
    x->detach = json_bool(json_get(body, "Detach"), false);
    if (!x->detach && !req->upgrade) {
        container_refuse(req, 400, "a stream needs Connection: Upgrade and Upgrade: tcp");
        return;
    }
    read_size(json_get(body, "ConsoleSize"), &x->size);
    x->state = EXEC_STARTING;
    x->req = req;
    req->user = x;
    req->on_gone = start_gone;
    int r = exec_spawn(x);
    if (r < 0)
        spawned(&x->spawn, 0, -r, SPAWN_STAGE_EXEC);
}

/* ------------------------------------------------------------------ the rest */

static void exec_resize(struct exec *x, struct http_request *req)
{
    char h[8] = "", w[8] = "";
    (void)http_query_get(req->query, "h", h, sizeof h);
    (void)http_query_get(req->query, "w", w, sizeof w);
    long rows = strtol(h, NULL, 10), cols = strtol(w, NULL, 10);
    if (rows < 1 || rows > TTY_SIDE_MAX || cols < 1 || cols > TTY_SIDE_MAX) {
        container_refuse(req, 400, "h and w must be 1 to %d", TTY_SIDE_MAX);
        return;
    }
    x->size = (struct winsize){.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
    exec_stream_resize(x->stream, &x->size);
    http_respond(req, 200, NULL, NULL, 0);
}

static void exec_inspect(const struct exec *x, struct http_request *req)
{
    struct buf out = BUF_INIT(4096);
    struct json_writer w;
    bool running = x->state == EXEC_STARTING || x->state == EXEC_RUNNING;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "ID", x->id);
    json_member_bool(&w, "Running", running);
    json_put_key(&w, "ExitCode");
    if (x->state == EXEC_ENDED)
        json_put_int(&w, x->code);
    else
        json_put_null(&w);
    json_member_int(&w, "Pid", x->state == EXEC_RUNNING ? x->pid : 0);
    json_member_bool(&w, "OpenStdin", x->attach_in);
    json_member_bool(&w, "OpenStdout", x->attach_out);
    json_member_bool(&w, "OpenStderr", x->attach_err);
    json_object_end(&w);
    http_respond(req, 200, "application/json", buf_data(&out), buf_len(&out));
    buf_done(&out);
}

void container_exec_request(struct agent *a, struct http_request *req, const char *id, const char *what,
                            const struct json_value *body)
{
    struct exec *x = exec_find(a, id);
    bool post = strcmp(req->method, "POST") == 0;
    if (!x)
        container_refuse(req, 404, "No such exec instance: %.12s", id);
    else if (post && strcmp(what, "/start") == 0)
        exec_start(x, req, body);
    else if (post && strcmp(what, "/resize") == 0)
        exec_resize(x, req);
    else if (!post && strcmp(what, "/json") == 0)
        exec_inspect(x, req);
    else
        container_refuse(req, 404, "page not found");
}
