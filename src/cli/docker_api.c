/* SPDX-License-Identifier: Apache-2.0 */
/* docker_api.c: requests to the engine's socket, and what the verbs of 'silica docker' have in common. */
#include "cli/docker.h"

#include "cli/go_template.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum { KEY_FORMAT = OPTION_KEY_FIRST, KEY_FILTER, KEY_FORCE, KEY_QUIET, KEY_ALL, KEY_NO_TRUNC, KEY_IGNORED };

const struct option docker_word_options[] = {
    {KEY_FORMAT, "format", 'f', "TEMPLATE", NULL, "how to print it"},
    {KEY_FILTER, "filter", 0, "K=V", NULL, "only those"},
    {KEY_FORCE, "force", 0, NULL, NULL, "also when it is in use"},
    {KEY_QUIET, "quiet", 'q', NULL, NULL, "only ids"},
    {KEY_ALL, "all", 'a', NULL, NULL, "also those that do not run"},
    {KEY_NO_TRUNC, "no-trunc", 0, NULL, NULL, "whole ids"},
    {KEY_IGNORED, "platform", 0, "NAME", NULL, "ignored: images are for this machine"},
    {KEY_IGNORED, "volumes", 'v', NULL, NULL, "ignored"},
    {KEY_IGNORED, "type", 0, "TYPE", NULL, "ignored"},
    {0, NULL, 0, NULL, NULL, NULL},
};

int docker_error(const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)cli_error("docker", "%s", text);
    return DOCKER_ERROR;
}

const char *docker_host(const struct docker *d)
{
    static char fallback[300];
    const char *const names[] = {"WRANGLER_DOCKER_HOST", "DOCKER_HOST"};
    if (d->host)
        return d->host;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return value;
    }
    const char *run = getenv("SILICA_RUN");
    (void)snprintf(fallback, sizeof fallback, "unix://%.256s/docker.sock", run && *run ? run : "/run/silica");
    return fallback;
}

static int open_engine(struct docker *d)
{
    const char *host = docker_host(d);
    char url[320];
    struct silica_error e;
    if (d->engine)
        return 0;
    if (strncmp(host, "unix://", 7) != 0)
        return docker_error("the engine's address '%.100s' does not begin with unix://", host);
    (void)snprintf(url, sizeof url, "unix:%.300s", host + 7);
    /* the engine knows no tokens: whoever can open its socket may use it */
    struct silica_options o = {.url = url, .token = "none"};
    return silica_client_new(&o, &d->engine, &e) < 0 ? docker_error("%s", e.message) : 0;
}

int docker_call(struct docker *d, const char *method, const char *path, struct docker_answer *ret)
{
    struct silica_request q = {.method = method, .path = path};
    struct silica_error e;
    int r = open_engine(d);
    if (r != 0)
        return r;
    struct docker_answer a = {0};
    if (silica_request(d->engine, &q, &a.response, &e) < 0)
        return docker_error(
            "%s%s", e.message,
            e.kind == SILICA_ERROR_CONNECT
                ? "\nIs 'silica serve' running, and are you allowed to open its socket (root is)?"
                : "");
    if (a.response.body_bytes)
        (void)json_parse(a.response.body, a.response.body_bytes, 0, &a.doc, NULL); /* progress is no JSON */
    *ret = a;
    return 0;
}

void docker_answer_done(struct docker_answer *a)
{
    json_free(a->doc);
    silica_response_done(&a->response);
    *a = (struct docker_answer){0};
}

int docker_failed(const struct docker_answer *a)
{
    const char *message = json_string(json_get(json_root(a->doc), "message"), NULL);
    return message ? docker_error("%s", message)
                   : docker_error("the engine answered with status %d", a->response.status);
}

int docker_must(struct docker *d, const char *method, const char *path, struct docker_answer *ret)
{
    int r = docker_call(d, method, path, ret);
    if (r == 0 && ret->response.status >= 400) {
        r = docker_failed(ret);
        docker_answer_done(ret);
    }
    return r;
}

int docker_encode(struct buf *out, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/:";
    int r = 0;
    for (; r == 0 && *text; text++)
        r = strchr(plain, *text) ? buf_putc(out, *text) : buf_printf(out, "%%%02X", (unsigned char)*text);
    return r;
}

int docker_split_name(const char *name, struct buf *repo, const char **ret_tag)
{
    const char *at = strchr(name, '@'), *slash = strrchr(name, '/');
    const char *colon = strrchr(slash ? slash : name, ':');
    size_t n = at ? (size_t)(at - name) : colon ? (size_t)(colon - name) : strlen(name);
    *ret_tag = at ? at + 1 : colon ? colon + 1 : "latest";
    int r = buf_append(repo, name, n);
    return r == 0 && !buf_cstr(repo) ? -ENOMEM : r;
}

int docker_print(const char *template, const struct json_value *v)
{
    struct buf out = BUF_INIT(TEMPLATE_OUTPUT_MAX), text = BUF_INIT(TEMPLATE_MAX);
    struct error e;
    int r = 0;
    if (strcmp(template, "json") == 0)
        template = "{{json .}}";
    /* people and programs write \n and \t for what they mean */
    for (const char *p = template; r == 0 && *p; p++) {
        bool escape = *p == '\\' && (p[1] == 'n' || p[1] == 't');
        r = buf_putc(&text, escape ? (p[1] == 'n' ? '\n' : '\t') : *p);
        p += escape;
    }
    if (r < 0 || !buf_cstr(&text))
        r = docker_error("the template is too long");
    else if (go_template_run(buf_data(&text), v, &out, &e) < 0)
        r = docker_error("%s", e.msg);
    else
        printf("%.*s\n", (int)buf_len(&out), buf_len(&out) ? buf_data(&out) : "");
    buf_done(&out);
    buf_done(&text);
    return r;
}

/* "K=V" as one more member; the object is closed by docker_read_words. */
static int add_filter(struct docker_words *w, const char *value)
{
    size_t n = strcspn(value, "=");
    auto_free char *key = strndup(value, n);
    struct json_writer writer;
    if (!value[n] || n == 0)
        return docker_error("--filter %.60s is not K=V", value);
    json_writer_init(&writer, &w->filters);
    int r = buf_putc(&w->filters, buf_len(&w->filters) ? ',' : '{');
    json_put_string(&writer, key);
    if (r == 0)
        r = buf_puts(&w->filters, ":[");
    json_writer_init(&writer, &w->filters);
    json_put_string(&writer, value + n + 1);
    if (r == 0)
        r = buf_putc(&w->filters, ']');
    return r < 0 || writer.err < 0 || !key ? docker_error("too many filters") : 0;
}

static int take_word(struct docker_words *w, int key, const char *value)
{
    switch (key) {
    case KEY_FORMAT:
        w->format = value;
        return 0;
    case KEY_FILTER:
        return add_filter(w, value);
    case KEY_FORCE:
        w->force = true;
        return 0;
    case KEY_QUIET:
        w->quiet = true;
        return 0;
    case KEY_ALL:
        w->all = true;
        return 0;
    case KEY_NO_TRUNC:
        w->no_trunc = true;
        return 0;
    case OPTION_OPERAND:
        if (w->count == DOCKER_OPERANDS_MAX)
            return docker_error("more than %d names", DOCKER_OPERANDS_MAX);
        w->operands[w->count++] = value;
        return 0;
    default:
        return 0;
    }
}

int docker_read_words(struct docker_words *w, const char *verb, int argc, char **argv)
{
    *w = (struct docker_words){.filters = BUF_INIT(65536)};
    struct options o = OPTIONS_INIT(docker_word_options, NULL, argc, argv);
    const char *value;
    struct error e;
    int key;
    while ((key = options_next(&o, &value, &e)) > 0) {
        if (key == OPTION_HELP)
            return docker_error("see 'silica help docker'");
        int r = take_word(w, key, value);
        if (r != 0)
            return r;
    }
    if (key < 0)
        return docker_error("%s: %s", verb, e.msg);
    if (buf_len(&w->filters) && (buf_putc(&w->filters, '}') < 0 || !buf_cstr(&w->filters)))
        return docker_error("too many filters");
    return 0;
}
