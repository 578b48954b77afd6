/* SPDX-License-Identifier: Apache-2.0 */
/* context_routes.c: the routes of the code interpreter. */
#include "agent/context_internal.h"
#include "agent/reply.h"
#include "agent/routes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CWD_MAX = 4096 };

/* ------------------------------------------------------------------ answers */

static void put_context(struct json_writer *w, const struct context *c)
{
    json_member_string(w, "id", c->id);
    json_member_string(w, "language", context_language_name(c->language));
    json_member_string(w, "cwd", c->cwd);
    reply_time(w, "createdAt", c->created_ms);
    reply_time(w, "lastUsed", c->used_ms);
}

static void reply_invalid(struct http_request *req, const char *field, const char *why)
{
    struct reply r;
    reply_error_begin(&r, "VALIDATION_FAILED", "%s %s", field, why);
    json_put_key(&r.w, "validationErrors");
    json_array_begin(&r.w);
    json_object_begin(&r.w);
    json_member_string(&r.w, "field", field);
    json_member_string(&r.w, "message", why);
    json_object_end(&r.w);
    json_array_end(&r.w);
    reply_error_operation(&r, "code.context.create");
    reply_error_send(&r, req);
}

static void reply_unknown(struct http_request *req, const char *id, const char *operation)
{
    struct reply r;
    reply_error_begin(&r, "CONTEXT_NOT_FOUND", "Code context '%s' not found", id);
    json_member_string(&r.w, "contextId", id);
    reply_error_operation(&r, operation);
    reply_error_send(&r, req);
}

void route_interpreter_health(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    (void)a;
    (void)call;
    reply_begin(&r);
    json_member_string(&r.w, "status", "healthy");
    reply_send(&r, req);
}

/* ------------------------------------------------------------------ create */

static void creation_gone(struct http_request *req)
{
    struct context *c = req->user;
    c->created_arg = NULL; /* the context stays: it is in the list */
}

static void reply_no_interpreter(struct http_request *req, const char *code, const char *why)
{
    struct reply r;
    reply_error_begin(&r, code, "%s", why);
    json_member_string(&r.w, "originalError", why);
    reply_error_operation(&r, "code.context.create");
    reply_error_send(&r, req);
}

static void created(struct context *c, const char *why, void *arg)
{
    struct http_request *req = arg;
    struct reply r;
    if (!req)
        return;
    req->on_gone = NULL;
    if (why) {
        reply_no_interpreter(req, "INTERNAL_ERROR", why);
        return;
    }
    reply_begin(&r);
    json_member_string(&r.w, "contextId", c->id);
    put_context(&r.w, c);
    reply_send(&r, req);
}

static const char *parse_env(const struct json_value *vars, struct env_list *env)
{
    if (!vars || json_type_of(vars) == JSON_NULL)
        return NULL;
    if (json_type_of(vars) != JSON_OBJECT)
        return "must be an object";
    json_for_each (var, vars) {
        const char *value = json_string(var, NULL);
        if (json_type_of(var) == JSON_NULL)
            continue;
        if (!env_name_valid(json_key(var)))
            return "has a name that no variable can have";
        if (!value)
            return "must have strings as values";
        if (env_set(env, json_key(var), value) < 0)
            return "has too many variables";
    }
    return NULL;
}

static const char *parse_cwd(const struct json_value *v, const char **ret)
{
    size_t n = 0;
    *ret = NULL;
    if (!v || json_type_of(v) == JSON_NULL)
        return NULL;
    const char *cwd = json_string(v, &n);
    if (!cwd || cwd[0] != '/')
        return "must be an absolute path";
    if (n >= CWD_MAX)
        return "is too long";
    *ret = cwd;
    return NULL;
}

/* The name, "python" when there is none; NULL when there is no such language. */
static const char *parse_language(const struct json_value *v)
{
    enum context_language language;
    if (!v || json_type_of(v) == JSON_NULL)
        return "python";
    size_t n = 0;
    const char *name = json_string(v, &n);
    return name && strlen(name) == n && context_language_parse(name, &language) ? name : NULL;
}

static int64_t parse_timeout(const struct json_value *body, const char *key, const char *other)
{
    double ms;
    if ((json_number(json_get(body, key), &ms) || json_number(json_get(body, other), &ms)) && ms >= 1 &&
        ms < 1e12)
        return (int64_t)ms;
    return -1;
}

void route_context_create(struct agent *a, struct http_request *req, struct route_call *call)
{
    const struct json_value *body = call->body;
    struct context_config config = {.language = parse_language(json_get(body, "language")),
                                    .timeout_ms = parse_timeout(body, "timeout_ms", "timeout")};
    const struct json_value *vars = json_get(body, "env_vars");
    if (!config.language) {
        reply_invalid(req, "language", "must be python, javascript or typescript");
        return;
    }
    const char *why = parse_cwd(json_get(body, "cwd"), &config.cwd);
    if (why) {
        reply_invalid(req, "cwd", why);
        return;
    }
    why = parse_env(vars ? vars : json_get(body, "envVars"), &config.env);
    struct context *c;
    struct error e;
    const char *code;
    if (why)
        reply_invalid(req, "env_vars", why);
    else if (context_create(a, &config, &c, &code, created, req, &e) < 0)
        reply_no_interpreter(req, code, e.msg);
    else {
        req->user = c;
        req->on_gone = creation_gone;
    }
    env_done(&config.env);
}

/* ------------------------------------------------------------------ list, delete, interrupt */

void route_context_list(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    (void)call;
    reply_begin(&r);
    json_put_key(&r.w, "contexts");
    json_array_begin(&r.w);
    if (a->contexts)
        list_for_each(i, &a->contexts->all)
        {
            json_object_begin(&r.w);
            put_context(&r.w, list_entry(i, struct context, link));
            json_object_end(&r.w);
        }
    json_array_end(&r.w);
    reply_send(&r, req);
}

void route_context_delete(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct context *c = context_find(a, call->param);
    struct reply r;
    if (!c) {
        reply_unknown(req, call->param, "code.context.delete");
        return;
    }
    context_delete(c);
    reply_begin(&r);
    json_member_string(&r.w, "contextId", call->param);
    reply_send(&r, req);
}

void route_context_interrupt(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct context *c = context_find(a, call->param);
    struct reply r;
    if (!c) {
        reply_unknown(req, call->param, "code.execute");
        return;
    }
    bool running = context_interrupt(c);
    reply_begin(&r);
    json_member_string(&r.w, "contextId", call->param);
    json_member_bool(&r.w, "interrupted", running);
    reply_send(&r, req);
}

/* ------------------------------------------------------------------ execute */

/* Release 0.3 reads bare lines. Somebody of whom nothing is known yet gets both; each side ignores the
 * other's. */
static enum code_run_form form_of(const struct agent *a, const struct http_request *req)
{
    const char *accept = http_request_header(req, "Accept");
    if (a->legacy_03)
        return RUN_FORM_BARE;
    if (http_request_header(req, "X-Sandbox-Id") || a->version_asked || !accept ||
        !strstr(accept, "text/event-stream"))
        return RUN_FORM_SSE;
    return RUN_FORM_BOTH;
}

static struct context *choose_context(struct agent *a, struct http_request *req,
                                      const struct json_value *body, const char *language)
{
    const struct json_value *v = json_get(body, "context_id");
    const char *id = json_string(v, NULL);
    struct context *c = NULL;
    struct error e;
    const char *code;
    if (!v || json_type_of(v) == JSON_NULL) {
        if (context_default(a, language ? language : "python", &c, &code, &e) < 0)
            code_run_refuse(req, code, NULL, NULL, "%s", e.msg);
        return c;
    }
    if (id)
        c = context_find(a, id);
    if (!c)
        code_run_refuse(req, "CONTEXT_NOT_FOUND", id ? id : "", NULL, "Context %.100s not found",
                        id ? id : "");
    return c;
}

void route_execute_code(struct agent *a, struct http_request *req, struct route_call *call)
{
    const struct json_value *body = call->body, *wanted = json_get(body, "language");
    const char *language = parse_language(wanted);
    struct code_run_config config = {.timeout_ms = parse_timeout(body, "timeout_ms", "timeout"),
                                     .cancel_when_gone =
                                         json_bool(json_get(body, "cancel_on_disconnect"), false),
                                     .form = form_of(a, req)};
    config.code = json_string(json_get(body, "code"), &config.len);
    if (!language || !config.code) {
        code_run_refuse(req, "VALIDATION_FAILED", NULL, NULL, "%s",
                        language ? "code must be a string"
                                 : "language must be python, javascript or typescript");
        return;
    }
    bool named = wanted && json_type_of(wanted) == JSON_STRING;
    struct context *c = choose_context(a, req, body, named ? language : NULL);
    if (!c)
        return;
    enum context_language l = c->language;
    if (named)
        (void)context_language_parse(language, &l);
    if (l != c->language) {
        char why[120];
        (void)snprintf(why, sizeof why, "Context was created for %s, cannot execute %s code",
                       context_language_name(c->language), context_language_name(l));
        code_run_refuse(req, "CODE_EXECUTION_ERROR", c->id, why, "Failed to execute code in context '%s': %s",
                        c->id, why);
        return;
    }
    int r = code_run_submit(c, req, &config);
    if (r < 0)
        code_run_refuse(req, "CODE_EXECUTION_ERROR", c->id, strerror(-r),
                        "Failed to execute code in context '%s': %s", c->id,
                        r == -EAGAIN ? "too many runs wait" : strerror(-r));
}
