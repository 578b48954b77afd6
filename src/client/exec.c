/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c: running commands, with the output at the end or live.
 *
 * Both forms are POST .../api/execute, a foreground command of the session, so that its effects on the shell
 * persist. The header "Accept: text/event-stream" asks for the output as events while the command runs; a
 * server that does not know this answers with one JSON document, which is then handed over in two pieces. */
#include "client/client_internal.h"

#include "client/sse_reader.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

/* A command may be as large as a request body; env and quoting come on top. */
#define COMMAND_MAX ((size_t)128 << 20)

struct exec_request {
    struct buf path;
    struct buf body;
    struct silica_request request;
};

static int write_body(struct buf *out, const char *command, const struct silica_exec_options *o)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object_begin(&w);
    json_put_key(&w, "command");
    json_put_bytes(&w, command, strlen(command));
    if (o->session)
        json_member_string(&w, "sessionId", o->session);
    if (o->cwd)
        json_member_string(&w, "cwd", o->cwd);
    if (o->timeout_ms > 0)
        json_member_int(&w, "timeoutMs", o->timeout_ms);
    if (o->env && *o->env) {
        json_put_key(&w, "env");
        client_put_pairs(&w, o->env);
    }
    json_object_end(&w);
    return w.err;
}

static void exec_request_done(struct exec_request *x)
{
    buf_done(&x->path);
    buf_done(&x->body);
}

/* Empties itself on failure. */
static int exec_request_init(struct exec_request *x, const char *id, const char *command,
                             const struct silica_exec_options *options, const char *const *headers,
                             struct silica_error *reterr)
{
    static const struct silica_exec_options none;
    const struct silica_exec_options *o = options ? options : &none;
    *x = (struct exec_request){.path = BUF_INIT(4096), .body = BUF_INIT(COMMAND_MAX)};
    if (!*id)
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL, "the id of the sandbox is empty");
    int r = client_check_pairs(o->env, reterr);
    if (r < 0)
        return r;
    r = client_sandbox_path(&x->path, id, "/api/execute");
    if (r == 0)
        r = write_body(&x->body, command, o);
    if (r < 0) {
        exec_request_done(x);
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, -r, "the command is too long");
    }
    x->request = (struct silica_request){.method = "POST",
                                         .path = buf_cstr(&x->path),
                                         .headers = headers,
                                         .body = buf_data(&x->body),
                                         .body_bytes = buf_len(&x->body)};
    return 0;
}

static bool copy_output(const struct json_value *v, char **ret, size_t *ret_bytes)
{
    size_t n = 0;
    const char *s = json_string(v, &n);
    *ret = malloc(n + 1);
    if (!*ret)
        return false;
    memcpy(*ret, s ? s : "", n + 1);
    *ret_bytes = n;
    return true;
}

static int no_exit_code(struct silica_error *reterr)
{
    return client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG,
                       "the server did not tell the exit code of the command");
}

int silica_exec(struct silica_client *c, const char *id, const char *command,
                const struct silica_exec_options *options, struct silica_exec_result *ret,
                struct silica_error *reterr)
{
    static const char *const headers[] = {"Accept: application/json", NULL};
    struct exec_request x;
    int r = exec_request_init(&x, id, command, options, headers, reterr);
    if (r < 0)
        return r;
    struct client_answer a;
    r = client_call(c, &x.request, &a, reterr);
    exec_request_done(&x);
    if (r < 0)
        return r;

    struct silica_exec_result result = {0};
    const struct json_value *v = json_root(a.doc);
    int64_t exit_code;
    if (!json_integer(json_get(v, "exitCode"), 0, INT_MAX, &exit_code))
        r = no_exit_code(reterr);
    else if (!copy_output(json_get(v, "stdout"), &result.out, &result.out_bytes) ||
             !copy_output(json_get(v, "stderr"), &result.err, &result.err_bytes))
        r = client_fail_memory(reterr);
    if (r == 0) {
        result.exit_code = (int)exit_code;
        result.json = take_ptr(a.json);
        *ret = result;
    } else {
        silica_exec_result_done(&result);
    }
    client_answer_done(&a);
    return r;
}

void silica_exec_result_done(struct silica_exec_result *r)
{
    free(r->out);
    free(r->err);
    free(r->json);
    memset(r, 0, sizeof *r);
}

/* ------------------------------------------------------------------ live */

struct live {
    silica_output output;
    void *user;
    bool events; /* the answer is a stream of events */
    int status;
    struct sse_reader reader;
    struct buf body; /* any other answer */
    bool complete;   /* the exit code is known */
    int exit_code;
    int err; /* first failure; *failure tells more when it is filled */
    struct silica_error failure;
};

static int live_output(struct live *l, enum silica_stream stream, const char *data, size_t n)
{
    if (n == 0 || !l->output)
        return 0;
    int r = l->output(stream, data, n, l->user);
    return r < 0 ? client_fail(&l->failure, SILICA_ERROR_STOPPED, ECANCELED, "stopped by the caller") : 0;
}

static int live_event(char *data, size_t n, void *user)
{
    struct live *l = user;
    auto_json struct json_doc *doc = NULL;
    struct error e;
    if (json_parse(data, n, JSON_ALLOW_NUL, &doc, &e) < 0)
        return client_fail(&l->failure, SILICA_ERROR_PROTOCOL, EBADMSG,
                           "an event of the command is not JSON: %s", e.msg);
    const struct json_value *v = json_root(doc);
    const char *type = json_string(json_get(v, "type"), NULL);
    if (!type || l->complete)
        return 0;

    if (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0) {
        size_t bytes = 0;
        const char *piece = json_string(json_get(v, "data"), &bytes);
        return live_output(l, type[3] == 'o' ? SILICA_STDOUT : SILICA_STDERR, piece, bytes);
    }
    if (strcmp(type, "complete") == 0) {
        int64_t exit_code;
        if (!json_integer(json_get(v, "exitCode"), 0, INT_MAX, &exit_code))
            return no_exit_code(&l->failure);
        l->complete = true;
        l->exit_code = (int)exit_code;
    } else if (strcmp(type, "error") == 0) {
        return client_fail_envelope(&l->failure, 0, v);
    }
    return 0; /* "start", and kinds that later servers may add */
}

static int live_head(int status, const char *content_type, void *user)
{
    static const char sse[] = "text/event-stream";
    struct live *l = user;
    l->status = status;
    l->events = status == 200 && strncasecmp(content_type, sse, sizeof sse - 1) == 0;
    return 0;
}

static int live_data(const void *data, size_t n, void *user)
{
    struct live *l = user;
    l->err = l->events ? sse_reader_feed(&l->reader, data, n) : buf_append(&l->body, data, n);
    return l->err;
}

/* The session form of /api/execute removes the last newline of each output; it comes back here. */
static int live_field(struct live *l, enum silica_stream stream, const struct json_value *v)
{
    size_t n = 0;
    const char *s = json_string(v, &n);
    if (n == 0)
        return 0;
    int r = live_output(l, stream, s, n);
    return r < 0 ? r : live_output(l, stream, "\n", 1);
}

static int live_document(struct live *l)
{
    if (!buf_cstr(&l->body)) /* also makes an empty body a string */
        return client_fail_memory(&l->failure);
    if (l->status >= 400)
        return client_fail_answer(&l->failure, l->status, buf_data(&l->body), buf_len(&l->body));
    auto_json struct json_doc *doc = NULL;
    struct error e;
    int64_t exit_code;
    if (json_parse(buf_data(&l->body), buf_len(&l->body), JSON_ALLOW_NUL, &doc, &e) < 0)
        return client_fail(&l->failure, SILICA_ERROR_PROTOCOL, EBADMSG,
                           "the answer is not JSON (%s): is this a Silica server?", e.msg);
    const struct json_value *v = json_root(doc);
    if (!json_integer(json_get(v, "exitCode"), 0, INT_MAX, &exit_code))
        return no_exit_code(&l->failure);
    int r = live_field(l, SILICA_STDOUT, json_get(v, "stdout"));
    if (r == 0)
        r = live_field(l, SILICA_STDERR, json_get(v, "stderr"));
    l->complete = r == 0;
    l->exit_code = (int)exit_code;
    return r;
}

static int live_result(struct live *l, int transport, int *ret_exit_code, struct silica_error *reterr)
{
    int r = l->err;
    if (r == 0 && transport == 0 && !l->events)
        r = live_document(l);
    if (r == 0 && l->complete) { /* also when the connection broke behind the last event */
        *ret_exit_code = l->exit_code;
        return 0;
    }
    if (r == 0 && transport < 0)
        return transport; /* *reterr is filled */
    if (r == 0)
        return client_fail(reterr, SILICA_ERROR_BROKEN, ECONNRESET,
                           "the output of the command ended before the command did");
    if (l->failure.kind == SILICA_ERROR_NONE)
        return r == -ENOBUFS
                   ? client_fail(reterr, SILICA_ERROR_PROTOCOL, EFBIG,
                                 "one piece of the answer is larger than %zu MiB", CLIENT_ANSWER_MAX >> 20)
                   : client_fail_memory(reterr);
    if (reterr)
        *reterr = l->failure;
    return r;
}

int silica_exec_stream(struct silica_client *c, const char *id, const char *command,
                       const struct silica_exec_options *options, silica_output output, void *user,
                       int *ret_exit_code, struct silica_error *reterr)
{
    static const char *const headers[] = {"Accept: text/event-stream", NULL};
    struct exec_request x;
    int r = exec_request_init(&x, id, command, options, headers, reterr);
    if (r < 0)
        return r;
    struct live l = {.output = output, .user = user, .body = BUF_INIT(CLIENT_ANSWER_MAX)};
    sse_reader_init(&l.reader, CLIENT_ANSWER_MAX, live_event, &l);
    struct silica_receiver receiver = {live_head, live_data, &l};
    r = transport_run(c, &x.request, &receiver, reterr);
    exec_request_done(&x);
    r = live_result(&l, r, ret_exit_code, reterr);
    sse_reader_done(&l.reader);
    buf_done(&l.body);
    return r;
}
