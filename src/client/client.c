/* SPDX-License-Identifier: Apache-2.0 */
/* client.c: the settings of a client: from the caller, the environment, or the data directory of this
 * machine. */
#include "client/client_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { TOKEN_MAX = 1024, CONNECT_TIMEOUT_MS = 5000 };

/* NULL when unset or empty. */
static const char *setting(const char *given, const char *env)
{
    if (given)
        return given;
    const char *s = getenv(env);
    return s && *s ? s : NULL;
}

static int use_token(struct silica_client *c, const char *token, const char *where,
                     struct silica_error *reterr)
{
    size_t n = strlen(token);
    if (n == 0 || n > TOKEN_MAX)
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL, "the token in %s is %s", where,
                           n ? "too long" : "empty");
    for (const char *p = token; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL,
                               "the token in %s contains a character that no token has", where);
    if (asprintf(&c->authorization, "Bearer %s", token) < 0) {
        c->authorization = NULL;
        return client_fail_memory(reterr);
    }
    return 0;
}

/* Fills c->authorization; -errno without a struct silica_error when the file cannot be read. */
static int read_token_file(struct silica_client *c, const char *path, struct silica_error *reterr)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    char text[TOKEN_MAX + 3];
    size_t n = 0;
    while (n < sizeof text - 1) {
        ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    return use_token(c, text, path, reterr);
}

static int find_token(struct silica_client *c, const struct silica_options *o, struct silica_error *reterr)
{
    if (o->token)
        return use_token(c, o->token, "the options", reterr);
    if (o->token_file) {
        struct silica_error e = {0};
        int r = read_token_file(c, o->token_file, &e);
        if (r < 0 && e.kind == SILICA_ERROR_NONE)
            return client_fail(reterr, SILICA_ERROR_ARGUMENT, -r, "cannot read the token file '%.200s': %s",
                               o->token_file, strerror(-r));
        if (r < 0 && reterr)
            *reterr = e;
        return r;
    }
    const char *token = setting(NULL, "SILICA_TOKEN");
    if (token)
        return use_token(c, token, "SILICA_TOKEN", reterr);

    const char *dir = setting(o->data_dir, "SILICA_DATA");
    if (!c->url.local) {
        (void)snprintf(c->token_problem, sizeof c->token_problem,
                       "no token was given, and the token of this machine is not sent to another one");
        return 0;
    }
    auto_free char *path = NULL;
    if (asprintf(&path, "%s/admin.token", dir ? dir : SILICA_DEFAULT_DATA) < 0) {
        path = NULL;
        return client_fail_memory(reterr);
    }
    struct silica_error e = {0};
    int r = read_token_file(c, path, &e);
    if (r < 0) /* no failure yet: a server may run without tokens, and health needs none */
        (void)snprintf(c->token_problem, sizeof c->token_problem, "no token was given, and %s%.200s%s%s",
                       e.kind ? "" : "'", e.kind ? e.message : path,
                       e.kind ? "" : "' cannot be read: ", e.kind ? "" : strerror(-r));
    return 0;
}

int silica_client_new(const struct silica_options *options, struct silica_client **ret,
                      struct silica_error *reterr)
{
    static const struct silica_options none;
    const struct silica_options *o = options ? options : &none;
    struct silica_client *c = calloc(1, sizeof *c);
    if (!c)
        return client_fail_memory(reterr);
    c->connect_timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    c->answer_timeout_ms = MAX(o->answer_timeout_ms, 0);

    const char *url = setting(o->url, "SILICA_URL");
    struct error e;
    int r = client_url_parse(url ? url : SILICA_DEFAULT_URL, &c->url, reterr);
    if (r == 0)
        r = find_token(c, o, reterr);
    if (r == 0 && (r = loop_new(&c->loop, &e)) < 0)
        (void)client_fail(reterr, SILICA_ERROR_SYSTEM, -r, "%s", e.msg);
    if (r < 0) {
        silica_client_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void silica_client_free(struct silica_client *c)
{
    if (!c)
        return;
    http_client_free(c->conn);
    if (c->loop)
        loop_free(c->loop);
    if (c->authorization)
        explicit_bzero(c->authorization, strlen(c->authorization));
    free(c->authorization);
    client_url_done(&c->url);
    free(c);
}

const char *silica_client_url(const struct silica_client *c)
{
    return c->url.text;
}

const char *silica_client_token_problem(const struct silica_client *c)
{
    return c->authorization ? NULL : c->token_problem;
}
