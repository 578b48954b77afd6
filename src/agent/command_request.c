/* SPDX-License-Identifier: Apache-2.0 */
/* command_request.c: see command_request.h. */
#include "agent/command_request.h"
#include "agent/process.h"
#include "agent/reply.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum { SESSION_ID_MAX = 4096, HELD_OVERHEAD = 2048 /* of what waits or runs, besides its texts */ };

int env_from_json(struct env_list *e, const struct json_value *object, char **ret_bad)
{
    if (json_type_of(object) != JSON_OBJECT)
        return 0;
    json_for_each (member, object) {
        const char *value = json_string(member, NULL);
        if (!value)
            continue;
        const char *name = json_key(member);
        if (ret_bad && !env_name_valid(name)) {
            if (!*ret_bad && !(*ret_bad = strdup(name)))
                return -ENOMEM;
            continue;
        }
        int r = env_set(e, name, value);
        if (r < 0 && r != -EINVAL)
            return r;
    }
    return 0;
}

bool request_session_id(const struct http_request *req, char *out, size_t cap)
{
    const char *auth = http_request_header(req, "Authorization");
    const char *id = auth && strncasecmp(auth, "Bearer ", 7) == 0 ? auth + 7 : NULL;
    if (!id || !*id)
        id = http_request_header(req, "X-Session-Id");
    if (id && *id && strlen(id) < cap) {
        memcpy(out, id, strlen(id) + 1);
        return true;
    }
    if (http_query_get(req->query, "session", out, cap) && *out)
        return true;
    return http_query_get(req->query, "sessionId", out, cap) && *out;
}

bool session_name_is_blank(const char *id)
{
    return id[strspn(id, " \t\r\n\f\v")] == '\0';
}

bool command_is_blank(const struct command_request *c)
{
    return !c->command || c->command[strspn(c->command, " \t\r\n\f\v")] == '\0';
}

static const char *non_empty(const struct json_value *v)
{
    const char *s = json_string(v, NULL);
    return s && *s ? s : NULL;
}

static int copy(char **to, const char *from)
{
    if (from && !(*to = strdup(from)))
        return -ENOMEM;
    return 0;
}

static size_t length(const char *s)
{
    return s ? strlen(s) : 0;
}

static size_t weight(const struct command_request *c)
{
    size_t n = HELD_OVERHEAD + c->len + length(c->session_id) + length(c->cwd) + length(c->process_id);
    for (size_t i = 0; i < c->env.count; i++)
        n += strlen(c->env.vars[i]) + sizeof c->env.vars[i];
    return n;
}

static int hold(struct command_request *c, struct agent *a)
{
    size_t n = weight(c);
    while (n > AGENT_HELD_MAX - a->held_bytes)
        if (!process_forget_oldest(a))
            return -EDQUOT;
    c->agent = a;
    c->held = n;
    a->held_bytes += n;
    return 0;
}

void command_request_started(struct command_request *c)
{
    env_done(&c->env);
    if (!c->agent)
        return;
    c->agent->held_bytes -= c->held;
    c->held = weight(c);
    c->agent->held_bytes += c->held;
}

void reply_command_error(struct http_request *req, int r, const char *code)
{
    if (r == -EDQUOT)
        reply_error(req, "TOO_MANY_REQUESTS", "too many commands wait or run, or too large ones");
    else
        reply_error(req, code, r == -E2BIG ? "too many variables" : "out of memory");
}

int command_request_parse(struct command_request *c, struct agent *a, const struct http_request *req,
                          const struct json_value *body, bool from_context)
{
    *c = (struct command_request){.timeout_ms = -1};
    c->modern = http_request_header(req, "X-Sandbox-Id") != NULL;
    const char *id = non_empty(json_get(body, "sessionId"));
    if (!id && from_context && non_empty(json_get(body, "id"))) {
        id = non_empty(json_get(body, "id"));
        a->legacy_03 = true;
    }
    char context_id[SESSION_ID_MAX];
    if (!id && from_context && request_session_id(req, context_id, sizeof context_id))
        id = context_id;
    c->session_given = id != NULL;
    c->sessionless = id && strcmp(id, AGENT_SESSIONLESS) == 0;

    const struct json_value *options = json_get(body, "options"); /* release 0.3 */
    if (json_type_of(options) == JSON_OBJECT)
        a->legacy_03 = true;
    else
        options = NULL;
    const struct json_value *timeout = json_get(body, "timeoutMs");
    if (!timeout)
        timeout = json_get(options, "timeout");
    double ms;
    if (json_number(timeout, &ms))
        c->timeout_ms = ms <= 0 ? 0 : ms > 1e12 ? (int64_t)1e12 : (int64_t)ms;
    c->background = json_bool(json_get(body, "background"), false);
    const char *cwd = non_empty(json_get(body, "cwd"));
    const char *process_id = non_empty(json_get(body, "processId"));

    int r = copy(&c->session_id, id ? id : "default");
    const char *command = json_string(json_get(body, "command"), &c->len);
    if (r == 0)
        r = copy(&c->command, command);
    if (r == 0)
        r = copy(&c->cwd, cwd ? cwd : non_empty(json_get(options, "cwd")));
    if (r == 0)
        r = copy(&c->process_id, process_id ? process_id : non_empty(json_get(options, "processId")));
    char **check = c->sessionless ? NULL : &c->bad_env_name;
    if (r == 0)
        r = env_from_json(&c->env, json_get(options, "env"), check);
    if (r == 0)
        r = env_from_json(&c->env, json_get(body, "env"), check);
    if (r == 0)
        r = hold(c, a);
    if (r < 0)
        command_request_done(c);
    return r;
}

void command_request_done(struct command_request *c)
{
    free(c->command);
    free(c->session_id);
    free(c->cwd);
    free(c->bad_env_name);
    free(c->process_id);
    env_done(&c->env);
    if (c->agent)
        c->agent->held_bytes -= c->held;
    *c = (struct command_request){.timeout_ms = -1};
}

void session_fault_text(const char *session_id, const struct session_fault *fault, const char *code,
                        const char **ret_code, struct buf *message)
{
    switch (fault->kind) {
    case SESSION_FAULT_TERMINATED:
        *ret_code = "SESSION_TERMINATED";
        (void)buf_printf(message, "Session '%s' shell exited (exit code: %d)", session_id, fault->exit_code);
        break;
    case SESSION_FAULT_DESTROYED:
        *ret_code = "SESSION_DESTROYED";
        (void)buf_printf(message, "Session '%s' was destroyed during command execution", session_id);
        break;
    case SESSION_FAULT_NO_SHELL:
        *ret_code = "INTERNAL_ERROR";
        (void)buf_printf(message, "Failed to create session '%s': %s", session_id, fault->why);
        break;
    case SESSION_FAULT_BROKEN:
    case SESSION_FAULT_BUSY:
        *ret_code = fault->code ? fault->code : code;
        (void)buf_printf(message, "Session '%s': %s", session_id, fault->why);
        break;
    }
}

void reply_session_fault(struct http_request *req, const char *session_id, const struct session_fault *fault,
                         const char *code)
{
    struct buf message = BUF_INIT(64 * 1024);
    const char *name = code;
    struct reply r;
    session_fault_text(session_id, fault, code, &name, &message);
    const char *text = buf_cstr(&message);
    reply_error_begin(&r, name, "%s", text ? text : name);
    json_member_string(&r.w, "sessionId", session_id);
    if (fault->kind == SESSION_FAULT_TERMINATED)
        json_member_int(&r.w, "exitCode", fault->exit_code);
    reply_error_send(&r, req);
    buf_done(&message);
}
