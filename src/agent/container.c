/* SPDX-License-Identifier: Apache-2.0 */
/* container.c: the requests of the gateway's container engine; see container.h. */
#include "agent/container.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BODY_MAX = 4 << 20, ID_CHARS = 64 };

static const char prefix[] = "/container/";

void container_refuse(struct http_request *req, int status, const char *fmt, ...)
{
    char text[512];
    struct buf body = BUF_INIT(4096);
    struct json_writer w;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_put_key(&w, "message");
    json_put_bytes(&w, text, strlen(text)); /* names of programs and files may be any bytes */
    json_object_end(&w);
    http_respond(req, status, "application/json", buf_data(&body), buf_len(&body));
    buf_done(&body);
}

void strings_free(char **list)
{
    for (char **s = list; s && *s; s++)
        free(*s);
    free(list);
}

int strings_from_json(const struct json_value *list, char ***ret)
{
    size_t n = 0;
    if (json_type_of(list) != JSON_ARRAY || !json_count(list))
        return -EINVAL;
    char **copy = calloc(json_count(list) + 1, sizeof *copy);
    if (!copy)
        return -ENOMEM;
    json_for_each (item, list) {
        const char *text = json_string(item, NULL);
        if (!text || !(copy[n++] = strdup(text))) {
            strings_free(copy);
            return text ? -ENOMEM : -EINVAL;
        }
    }
    *ret = copy;
    return 0;
}

/* "exec/ID/start" -> ID and "/start". */
static bool split_exec(const char *rest, char id[ID_CHARS + 1], const char **ret_what)
{
    static const char head[] = "exec/";
    if (strncmp(rest, head, sizeof head - 1) != 0)
        return false;
    rest += sizeof head - 1;
    size_t n = strcspn(rest, "/");
    if (n != ID_CHARS)
        return false;
    memcpy(id, rest, n);
    id[n] = '\0';
    *ret_what = rest + n;
    return true;
}

static void dispatch(struct agent *a, struct http_request *req, const struct json_value *body)
{
    const char *rest = req->path + sizeof prefix - 1, *what;
    char id[ID_CHARS + 1];
    bool post = strcmp(req->method, "POST") == 0;
    if (post && strcmp(rest, "start") == 0)
        main_command_start(a, req, body);
    else if (post && strcmp(rest, "signal") == 0)
        main_command_signal(a, req);
    else if (post && strcmp(rest, "exec") == 0)
        container_exec_create(a, req, body);
    else if (!post && strcmp(rest, "logs") == 0)
        main_command_logs(a, req);
    else if (split_exec(rest, id, &what))
        container_exec_request(a, req, id, what, body);
    else
        container_refuse(req, 404, "page not found");
}

static void body_done(struct http_request *req, struct buf *body, int err)
{
    struct agent *a = req->user;
    struct error e;
    auto_json struct json_doc *doc = NULL;
    req->user = NULL;
    if (err == -EMSGSIZE) {
        http_response_close_after(req);
        container_refuse(req, 413, "the request is too large");
        return;
    }
    if (err < 0)
        return; /* the server has answered */
    if (buf_len(body) && json_parse(buf_data(body), buf_len(body), 0, &doc, &e) < 0) {
        container_refuse(req, 400, "invalid JSON: %s", e.msg);
        return;
    }
    dispatch(a, req, doc ? json_root(doc) : NULL);
}

bool container_request(struct agent *a, struct http_request *req)
{
    if (strncmp(req->path, prefix, sizeof prefix - 1) != 0 || strcmp(req->peer, "unix") != 0 || !a->sandbox)
        return false;
    if (strcmp(req->path + sizeof prefix - 1, "archive") == 0) { /* a body of any size, or none */
        if (strcmp(req->method, "PUT") == 0)
            container_archive_put(a, req);
        else
            container_archive_get(a, req);
        return true;
    }
    req->user = a;
    http_request_collect(req, BODY_MAX, body_done);
    return true;
}
