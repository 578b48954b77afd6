/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_methods.c: see rpc_methods.h. A new method is a new row. */
#include "agent/rpc_methods.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { VALUE_MAX = 160 << 20, MEMBERS_MAX = 64, NAME_MAX_BYTES = 64, DATE_LEN = 24 };

#define COMMAND_ARGUMENTS "command sessionId {timeoutMs env cwd origin}"

static const struct rpc_method methods[] = {
    {"commands.execute", "POST", "/api/execute", COMMAND_ARGUMENTS,
     "success exitCode stdout stderr dropped command timestamp", RPC_ANSWER_JSON, 0},
    {"commands.executeStream", "POST", "/api/execute/stream?rpc", COMMAND_ARGUMENTS, NULL, RPC_ANSWER_STREAM,
     RPC_SOFT},

    {"files.readFile", "POST", "/api/read", "path sessionId {encoding}",
     "success content path encoding isBinary size mimeType timestamp", RPC_ANSWER_FILE, 0},
    {"files.readFileStream", "POST", "/api/read/stream", "path sessionId", NULL, RPC_ANSWER_STREAM, 0},
    {"files.writeFile", "POST", "/api/write", "path content sessionId {encoding permissions}",
     "success path +bytesWritten timestamp", RPC_ANSWER_JSON, 0},
    {"files.writeFileStream", "PUT", "/file", "path <stream sessionId",
     "success +path size>bytesWritten timestamp", RPC_ANSWER_UPLOAD, 0},
    {"files.deleteFile", "POST", "/api/delete", "path sessionId", "success path timestamp", RPC_ANSWER_JSON,
     0},
    {"files.renameFile", "POST", "/api/rename", "oldPath newPath sessionId",
     "success path path>oldPath newPath timestamp", RPC_ANSWER_JSON, 0},
    {"files.moveFile", "POST", "/api/move", "sourcePath destinationPath sessionId",
     "success path newPath timestamp", RPC_ANSWER_JSON, 0},
    {"files.mkdir", "POST", "/api/mkdir", "path sessionId {recursive}", "success path recursive timestamp",
     RPC_ANSWER_JSON, 0},
    {"files.listFiles", "POST", "/api/list-files", "path sessionId options",
     "success files count path timestamp", RPC_ANSWER_JSON, 0},
    {"files.exists", "POST", "/api/exists", "path sessionId", "success exists path timestamp",
     RPC_ANSWER_JSON, 0},

    {"processes.startProcess", "POST", "/api/process/start",
     "command sessionId {processId timeoutMs env cwd encoding autoCleanup origin}",
     "success processId pid command timestamp", RPC_ANSWER_JSON, 0},
    {"processes.listProcesses", "GET", "/api/process/list", "", "success processes timestamp",
     RPC_ANSWER_JSON, 0},
    {"processes.getProcess", "GET", "/api/process/-", "%id", "success process timestamp", RPC_ANSWER_JSON, 0},
    {"processes.killProcess", "DELETE", "/api/process/-", "%id", "success processId timestamp",
     RPC_ANSWER_JSON, 0},
    {"processes.killAllProcesses", "DELETE", "/api/process/kill-all", "", "success cleanedCount timestamp",
     RPC_ANSWER_JSON, 0},
    {"processes.getProcessLogs", "GET", "/api/process/-/logs", "%id",
     "success processId stdout stderr dropped timestamp", RPC_ANSWER_JSON, 0},
    {"processes.streamProcessLogs", "GET", "/api/process/-/stream?rpc", "%id", NULL, RPC_ANSWER_STREAM, 0},

    {"ports.watchPort", "POST", "/api/port-watch", "{port mode path statusMin statusMax processId interval}",
     NULL, RPC_ANSWER_STREAM, 0},

    {"git.checkout", "POST", "/api/git/checkout", "repoUrl sessionId {branch targetDir depth timeoutMs}",
     "success repoUrl branch targetDir timestamp", RPC_ANSWER_JSON, 0},

    {"interpreter.createCodeContext", "POST", "/api/contexts", "{language cwd envVars timeout}",
     "id language cwd createdAt lastUsed", RPC_ANSWER_JSON, RPC_DATES},
    {"interpreter.streamCode", "POST", "/api/execute/code", "context_id code language", NULL,
     RPC_ANSWER_STREAM, 0},
    {"interpreter.runCodeStream", "POST", "/api/execute/code",
     "context_id code language <callbacks timeout_ms", "", RPC_ANSWER_CALLBACKS, 0},
    {"interpreter.listCodeContexts", "GET", "/api/contexts", "", "=contexts", RPC_ANSWER_JSON, RPC_DATES},
    {"interpreter.deleteCodeContext", "DELETE", "/api/contexts/-", "%id", "", RPC_ANSWER_JSON, 0},

    {"utils.ping", "GET", "/api/ping", "", "=status", RPC_ANSWER_JSON, 0},
    {"utils.getVersion", "GET", "/api/version", "", "=version", RPC_ANSWER_JSON, 0},
    {"utils.getCommands", "GET", "/api/commands", "", "=availableCommands", RPC_ANSWER_JSON, 0},
    {"utils.createSession", "POST", "/api/session/create", "{id env cwd commandTimeoutMs}",
     "success id message timestamp containerPlacementId", RPC_ANSWER_JSON, 0},
    {"utils.deleteSession", "POST", "/api/session/delete", "sessionId", "success sessionId timestamp",
     RPC_ANSWER_JSON, 0},
    {"utils.listSessions", "GET", "/api/session/list", "", "sessions", RPC_ANSWER_JSON, 0},

    {"backup.createArchive", "POST", "/api/backup/create",
     "dir archivePath sessionId {excludes gitignore compression}", "success sizeBytes archivePath",
     RPC_ANSWER_JSON, 0},
    {"backup.restoreArchive", "POST", "/api/backup/restore", "dir archivePath sessionId", "success dir",
     RPC_ANSWER_JSON, 0},
    {"backup.uploadParts", "POST", "/api/backup/upload-parts", "{archivePath parts sessionId}",
     "success parts", RPC_ANSWER_JSON, 0},

    {"watch.watch", "POST", "/api/watch?rpc", "{path recursive include exclude sessionId}", NULL,
     RPC_ANSWER_STREAM, 0},
    {"watch.checkChanges", "POST", "/api/watch/check?rpc", "{path recursive include exclude since sessionId}",
     "success status version reason timestamp", RPC_ANSWER_JSON, 0},

    {"tunnels.runQuickTunnel", "POST", "/api/tunnels/quick", "id port", "id port url hostname createdAt",
     RPC_ANSWER_JSON, 0},
    {"tunnels.runNamedTunnel", "POST", "/api/tunnels/named", "id token port",
     "id port url hostname createdAt", RPC_ANSWER_JSON, 0},
    {"tunnels.destroyTunnel", "POST", "/api/tunnels/destroy", "id", "success id", RPC_ANSWER_JSON, 0},
    {"tunnels.listTunnels", "GET", "/api/tunnels", "", "=tunnels", RPC_ANSWER_JSON, 0},
    {"tunnels.ensureTunnelRun", "POST", "/api/tunnels/ensure", "{tunnelId runId mode port token}",
     "run started", RPC_ANSWER_JSON, 0},
    {"tunnels.stopTunnelRun", "POST", "/api/tunnels/stop", "{tunnelId runId}", "stopped", RPC_ANSWER_JSON, 0},
};

/* ------------------------------------------------------------------ names */

/* "prefix.a.b"; false: it is longer than any name, or has a part that no name has. */
static bool full_name(char out[NAME_MAX_BYTES], const char *prefix, const struct json_value *path)
{
    size_t n = strlen(prefix), len;
    memcpy(out, prefix, n + 1);
    json_for_each (part, path) {
        const char *s = json_string(part, &len);
        if (!s || strlen(s) != len || strchr(s, '.') || n + len + 2 > NAME_MAX_BYTES)
            return false;
        if (n)
            out[n++] = '.';
        memcpy(out + n, s, len + 1);
        n += len;
    }
    return true;
}

const struct rpc_method *rpc_method_find(const char *prefix, const struct json_value *path)
{
    char name[NAME_MAX_BYTES];
    if (full_name(name, prefix, path))
        for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
            if (strcmp(methods[i].name, name) == 0)
                return &methods[i];
    return NULL;
}

const char *rpc_part_find(const char *prefix, const struct json_value *path)
{
    static const char *const areas[] = {"",       "commands", "files",       "processes",
                                        "ports",  "git",      "interpreter", "utils",
                                        "backup", "watch",    "tunnels"};
    char name[NAME_MAX_BYTES];
    if (!full_name(name, prefix, path))
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(areas); i++)
        if (strcmp(areas[i], name) == 0)
            return areas[i];
    const struct rpc_method *m = rpc_method_find(name, NULL);
    return m ? m->name : NULL;
}

/* ------------------------------------------------------------------ the request */

/* The next word of a list, a group in braces being one; false: that was all. */
static bool next_word(const char **at, const char **ret, size_t *ret_len)
{
    const char *p = *at + strspn(*at, " ");
    if (!*p)
        return false;
    const char *end = *p == '{' ? strchr(p, '}') + 1 : p + strcspn(p, " ");
    *ret = p;
    *ret_len = (size_t)(end - p);
    *at = end;
    return true;
}

static bool is_given(const struct json_value *arg)
{
    enum rpc_form form = rpc_form_of(arg);
    return arg && form != RPC_FORM_UNDEFINED && form != RPC_FORM_EXPORT;
}

const struct json_value *rpc_argument(const struct rpc_method *m, const struct json_value *args,
                                      const char *name)
{
    const char *at = m->arguments, *word;
    size_t len;
    for (const struct json_value *arg = json_first(args); arg && next_word(&at, &word, &len);
         arg = json_next(arg))
        if (len == strlen(name) && memcmp(word, name, len) == 0)
            return rpc_form_of(arg) == RPC_FORM_UNDEFINED ? NULL : arg;
    return NULL;
}

/* An argument as a JSON text of its own. */
static int argument_text(const struct json_value *arg, struct buf *out, rpc_resolver *resolve, void *user)
{
    struct json_writer w;
    json_writer_init(&w, out);
    return rpc_to_json(arg, &w, resolve, user);
}

/* The members of an object that the group names. */
static int put_group(struct json_writer *body, const char *group, size_t len, const struct json_value *arg,
                     rpc_resolver *resolve, void *user)
{
    struct rpc_member members[MEMBERS_MAX];
    struct buf text = BUF_INIT(VALUE_MAX);
    int r = argument_text(arg, &text, resolve, user);
    size_t count = r < 0 ? 0 : rpc_members(buf_data(&text), buf_len(&text), members, MEMBERS_MAX);
    for (const char *p = group + 1, *end = group + len - 1; p < end;) {
        char key[NAME_MAX_BYTES];
        size_t n = strcspn(p, " }");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, p);
        p += n + 1;
        const struct rpc_member *m = rpc_member_find(members, count, key);
        if (m) {
            json_put_key(body, key);
            json_put_raw(body, m->value, m->value_len);
        }
    }
    buf_done(&text);
    return r;
}

int rpc_put_encoded(struct buf *out, const char *text, size_t n, bool slashes)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        if ((text[i] && strchr(plain, text[i])) || (slashes && text[i] == '/'))
            r = buf_putc(out, text[i]);
        else
            r = buf_printf(out, "%%%02X", (unsigned char)text[i]);
    }
    return r;
}

/* An id becomes a parameter of the query: a segment of the path could not hold every one. */
static int put_parameter(struct buf *target, const struct json_value *arg, rpc_resolver *resolve, void *user)
{
    struct buf text = BUF_INIT(VALUE_MAX);
    struct error e;
    auto_json struct json_doc *doc = NULL;
    const char *id = "";
    size_t n = 0;
    int r = argument_text(arg, &text, resolve, user);
    if (r == 0)
        r = json_parse(buf_data(&text), buf_len(&text), JSON_ALLOW_NUL, &doc, &e);
    if (r == 0 && !(id = json_string(json_root(doc), &n)))
        r = -ENOTSUP;
    if (r == 0)
        r = buf_puts(target, memchr(buf_data(target), '?', buf_len(target)) ? "&param=" : "?param=");
    if (r == 0)
        r = rpc_put_encoded(target, id, n, false);
    buf_done(&text);
    return r;
}

int rpc_request_build(const struct rpc_method *m, const struct json_value *args, struct buf *body,
                      struct buf *target, rpc_resolver *resolve, void *user)
{
    const struct json_value *arg = json_first(args);
    const char *at = m->arguments, *word;
    size_t len;
    struct json_writer w;
    int r = buf_puts(target, m->target);
    json_writer_init(&w, body);
    json_object_begin(&w);
    for (; r == 0 && next_word(&at, &word, &len); arg = arg ? json_next(arg) : NULL) {
        char key[NAME_MAX_BYTES];
        if (*word == '%') {
            static const char nothing[] = "?param=";
            r = is_given(arg) ? put_parameter(target, arg, resolve, user) : buf_puts(target, nothing);
            continue;
        }
        if (*word == '<' || !is_given(arg))
            continue;
        if (*word == '{') {
            r = put_group(&w, word, len, arg, resolve, user);
            continue;
        }
        (void)snprintf(key, sizeof key, "%.*s", (int)len, word);
        json_put_key(&w, key);
        r = rpc_to_json(arg, &w, resolve, user);
    }
    json_object_end(&w);
    if (r == 0)
        r = w.err;
    if (strcmp(m->verb, "GET") == 0 || strcmp(m->verb, "DELETE") == 0)
        buf_clear(body);
    return r;
}

/* ------------------------------------------------------------------ the result */

/* "2026-01-02T03:04:05.678Z" in milliseconds; false: it is not one. */
static bool parse_iso(const char *s, int64_t *ret)
{
    struct tm tm = {0};
    int ms, used = 0;
    if (sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &ms, &used) != 7 ||
        used != DATE_LEN)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *ret = (int64_t)timegm(&tm) * 1000 + ms;
    return true;
}

/* Writes the times in an expression as dates. A key is a string with a colon behind it, so what is inside of
 * other strings cannot be taken for one. */
static int put_dates(struct buf *out, const char *expr, size_t n)
{
    static const char *const keys[] = {"\"createdAt\":\"", "\"lastUsed\":\""};
    const char *p = expr, *end = expr + n;
    int r = 0;
    while (p < end && r == 0) {
        const char *found = NULL;
        size_t key_len = 0;
        char text[DATE_LEN + 1];
        int64_t ms;
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
            const char *f = memmem(p, (size_t)(end - p), keys[i], strlen(keys[i]));
            if (f && (!found || f < found)) {
                found = f;
                key_len = strlen(keys[i]);
            }
        }
        if (!found)
            break;
        const char *value = found + key_len;
        r = buf_append(out, p, (size_t)(value - 1 - p));
        p = value - 1;
        if (end - value <= DATE_LEN)
            break;
        (void)snprintf(text, sizeof text, "%.*s", DATE_LEN, value);
        if (r == 0 && parse_iso(text, &ms) && value[DATE_LEN] == '"') {
            r = buf_printf(out, "[\"date\",%lld]", (long long)ms);
            p = value + DATE_LEN + 1;
        } else if (r == 0) {
            r = buf_append(out, p++, 1);
        }
    }
    return r < 0 ? r : buf_append(out, p, (size_t)(end - p));
}

static int put_extra(struct json_writer *w, const char *name, const struct rpc_result_extra *extra)
{
    if (strcmp(name, "path") == 0)
        json_member_string(w, name, extra->path);
    else
        json_member_int(w, name, extra->content_len);
    return w->err;
}

/* One word of the list; what the answer lacks is left out. */
static int put_word(struct json_writer *w, const char *word, size_t len, const struct rpc_member *members,
                    size_t count, const struct rpc_result_extra *extra)
{
    char from[NAME_MAX_BYTES], *to;
    (void)snprintf(from, sizeof from, "%.*s", (int)len, word);
    if (*from == '+')
        return put_extra(w, from + 1, extra);
    to = strchr(from, '>');
    if (to)
        *to++ = '\0';
    const struct rpc_member *m = rpc_member_find(members, count, from);
    if (!m)
        return 0;
    json_put_key(w, to ? to : from);
    if (w->err == 0)
        w->err = rpc_put_json(w->out, m->value, m->value_len);
    json_put_raw(w, "", 0); /* for the writer a value has been put */
    return w->err;
}

static int put_result(const struct rpc_method *m, const char *json, size_t n,
                      const struct rpc_result_extra *extra, struct buf *out)
{
    struct rpc_member members[MEMBERS_MAX];
    size_t len, count = rpc_members(json, n, members, MEMBERS_MAX);
    const char *at = m->result, *word;
    struct json_writer w;
    int r = 0;
    if (!*at)
        return buf_puts(out, "[\"undefined\"]");
    if (*at == '=') {
        const struct rpc_member *found = rpc_member_find(members, count, at + 1);
        return found ? rpc_put_json(out, found->value, found->value_len) : -EBADMSG;
    }
    json_writer_init(&w, out);
    json_object_begin(&w);
    while (r == 0 && next_word(&at, &word, &len))
        r = put_word(&w, word, len, members, count, extra);
    json_object_end(&w);
    return r < 0 ? r : w.err;
}

int rpc_result_build(const struct rpc_method *m, const char *json, size_t n,
                     const struct rpc_result_extra *extra, struct buf *out)
{
    if (!(m->flags & RPC_DATES))
        return put_result(m, json, n, extra, out);
    struct buf text = BUF_INIT(VALUE_MAX);
    int r = put_result(m, json, n, extra, &text);
    if (r == 0)
        r = put_dates(out, buf_data(&text), buf_len(&text));
    buf_done(&text);
    return r;
}

int rpc_failure_build(int status, const char *json, size_t n, struct buf *out)
{
    struct rpc_member members[MEMBERS_MAX];
    size_t count = rpc_members(json, n, members, MEMBERS_MAX);
    const struct rpc_member *code = rpc_member_find(members, count, "code"),
                            *message = rpc_member_find(members, count, "message"),
                            *context = rpc_member_find(members, count, "context");
    char text[80];
    if (!code || !message) { /* not an answer of a route: too large, or the server is full */
        (void)snprintf(text, sizeof text, "The request was refused with status %d", status);
        return rpc_put_error(out, "Error", text, "INTERNAL_ERROR");
    }
    int r = buf_puts(out, "[\"error\",\"Error\",");
    if (r == 0)
        r = buf_append(out, message->value, message->value_len);
    if (r == 0)
        r = buf_puts(out, ",null,{\"code\":");
    if (r == 0)
        r = buf_append(out, code->value, code->value_len);
    if (r == 0)
        r = buf_puts(out, ",\"details\":");
    if (r == 0)
        r = context ? rpc_put_json(out, context->value, context->value_len) : buf_puts(out, "{}");
    return r < 0 ? r : buf_puts(out, "}]");
}
