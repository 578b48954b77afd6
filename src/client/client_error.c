/* SPDX-License-Identifier: Apache-2.0 */
/* client_error.c: from an errno, an error envelope or a strange answer to a struct silica_error. */
#include "client/client_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void error_reset(struct silica_error *e, enum silica_error_kind kind)
{
    memset(e, 0, sizeof *e);
    e->kind = kind;
    e->exit_code = -1;
}

int client_fail(struct silica_error *reterr, enum silica_error_kind kind, int errnum, const char *fmt, ...)
{
    if (reterr) {
        error_reset(reterr, kind);
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(reterr->message, sizeof reterr->message, fmt, ap);
        va_end(ap);
    }
    return -errnum;
}

int client_fail_memory(struct silica_error *reterr)
{
    return client_fail(reterr, SILICA_ERROR_SYSTEM, ENOMEM, "out of memory");
}

/* The errno nearest to what the server said. */
static int status_errno(int status)
{
    switch (status) {
    case 400:
        return EINVAL;
    case 401:
    case 403:
        return EACCES;
    case 404:
        return ENOENT;
    case 409:
        return EEXIST;
    case 410:
        return ESHUTDOWN;
    case 413:
        return EFBIG;
    case 429:
    case 503:
        return EAGAIN;
    default:
        return EREMOTEIO;
    }
}

static void copy_string(char *out, size_t cap, const struct json_value *v)
{
    const char *s = json_string(v, NULL);
    if (s)
        (void)snprintf(out, cap, "%s", s);
}

int client_fail_envelope(struct silica_error *reterr, int status, const struct json_value *envelope)
{
    int64_t number;
    if (status == 0 && json_integer(json_get(envelope, "httpStatus"), 100, 599, &number))
        status = (int)number;
    if (!reterr)
        return -status_errno(status);

    error_reset(reterr, SILICA_ERROR_SERVER);
    reterr->http_status = status;
    copy_string(reterr->code, sizeof reterr->code, json_get(envelope, "code"));
    copy_string(reterr->suggestion, sizeof reterr->suggestion, json_get(envelope, "suggestion"));
    /* older forms of the same thing: {"error": ...} and, in streams, {"data": ...} */
    static const char *const names[] = {"message", "error", "data"};
    for (size_t i = 0; i < ARRAY_SIZE(names) && !reterr->message[0]; i++)
        copy_string(reterr->message, sizeof reterr->message, json_get(envelope, names[i]));
    if (!reterr->message[0])
        (void)snprintf(reterr->message, sizeof reterr->message, "the server answered with HTTP status %d",
                       status);

    const struct json_value *exit_code = json_get(envelope, "exitCode");
    if (!exit_code)
        exit_code = json_get(json_get(envelope, "context"), "exitCode");
    if (json_integer(exit_code, 0, 255, &number))
        reterr->exit_code = (int)number;
    return -status_errno(status);
}

int client_fail_answer(struct silica_error *reterr, int status, const char *body, size_t n)
{
    auto_free char *text = malloc(n + 1);
    auto_json struct json_doc *doc = NULL;
    if (text) {
        memcpy(text, body, n);
        if (json_parse(text, n, JSON_ALLOW_NUL, &doc, NULL) == 0 &&
            json_type_of(json_root(doc)) == JSON_OBJECT)
            return client_fail_envelope(reterr, status, json_root(doc));
    }
    int r = client_fail(reterr, SILICA_ERROR_SERVER, status_errno(status),
                        "the server answered with HTTP status %d (%s)", status, http_status_text(status));
    if (reterr)
        reterr->http_status = status;
    return r;
}
