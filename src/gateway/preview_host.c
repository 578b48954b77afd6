/* SPDX-License-Identifier: Apache-2.0 */
/* preview_host.c: see preview_host.h. */
#include "gateway/preview_host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || is_digit(c) || c == '_';
}

/* Lower case, without a port; false when it cannot be a name of ours. A trailing dot stays: it makes another
 * name. */
static bool normalise(const char *host, char out[PREVIEW_HOST_SIZE], size_t *ret_len)
{
    size_t n = strcspn(host, ":");
    if (host[n] == ':') {
        size_t digits = 0;
        while (is_digit(host[n + 1 + digits]))
            digits++;
        if (digits > 5 || host[n + 1 + digits])
            return false;
    }
    if (n >= PREVIEW_HOST_SIZE)
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = lower(host[i]);
    out[n] = '\0';
    *ret_len = n;
    return true;
}

/* Whether host ends in ".<domain>" or ".<domain>."; the length of what is in front of it. */
static bool below(const char *host, size_t n, const char *domain, size_t *ret_front, bool *ret_dot)
{
    size_t d = strlen(domain);
    *ret_dot = n > 0 && host[n - 1] == '.';
    n -= *ret_dot;
    if (n <= d || host[n - d - 1] != '.' || memcmp(host + n - d, domain, d) != 0)
        return false;
    *ret_front = n - d - 1;
    return true;
}

/* Four or five digits without a leading zero, in the range; the number of digits, 0 when it is none. */
static size_t parse_port(const char *s, size_t n, int *ret)
{
    size_t digits = 0;
    int port = 0;
    while (digits < n && digits < 6 && is_digit(s[digits]))
        port = port * 10 + (s[digits++] - '0');
    *ret = port;
    return digits <= 5 && s[0] != '0' && port >= PREVIEW_PORT_MIN && port <= PREVIEW_PORT_MAX ? digits : 0;
}

bool preview_token_ok(const char *token)
{
    size_t n = 0;
    while (is_word(token[n]))
        n++;
    return n >= 1 && n <= PREVIEW_TOKEN_MAX && token[n] == '\0';
}

static bool id_fits_label(const char *id)
{
    for (; *id; id++)
        if (!is_word(*id) && *id != '-')
            return false;
    return true;
}

/* The label: <port>-<id>-<token>; ids may contain '-', tokens and ports do not. */
static bool parse_label(const char *label, size_t n, struct preview_host *ret)
{
    if (n > PREVIEW_LABEL_MAX)
        return false;
    size_t digits = parse_port(label, n, &ret->port);
    if (!digits || digits == n || label[digits] != '-')
        return false;
    size_t end = n;
    while (end > digits + 1 && label[end - 1] != '-')
        end--;
    if (end <= digits + 2) /* no second '-', or nothing between the two */
        return false;
    size_t id_len = end - 1 - (digits + 1), token_len = n - end;
    if (id_len > SANDBOX_ID_MAX || token_len > PREVIEW_TOKEN_MAX)
        return false;
    memcpy(ret->id, label + digits + 1, id_len);
    ret->id[id_len] = '\0';
    memcpy(ret->token, label + end, token_len);
    ret->token[token_len] = '\0';
    return preview_token_ok(ret->token) && id_fits_label(ret->id) && sandbox_id_check(ret->id, NULL) == 0;
}

enum preview_host_kind preview_host_parse(const char *host, const char *domain, struct preview_host *ret)
{
    char name[PREVIEW_HOST_SIZE];
    size_t n, front;
    bool dot;
    if (!normalise(host, name, &n) || !below(name, n, domain, &front, &dot))
        return PREVIEW_HOST_OTHER;
    if (dot || memchr(name, '.', front) || !parse_label(name, front, ret))
        return PREVIEW_HOST_UNKNOWN;
    return PREVIEW_HOST_NAMED;
}

int preview_name_check(const char *id, const char *token, int port, struct error *reterr)
{
    if (!id_fits_label(id))
        return error_set(
            reterr, EINVAL,
            "the id '%s' cannot be part of a host name: only lower case letters, digits, '-' and '_' can",
            id);
    int n = snprintf(NULL, 0, "%d-%s-%s", port, id, token);
    if (n > PREVIEW_LABEL_MAX)
        return error_set(reterr, EINVAL,
                         "the id '%s' is too long for a host name: %d characters at most with this token", id,
                         (int)strlen(id) - (n - PREVIEW_LABEL_MAX));
    return 0;
}

int preview_domain_check(const char *domain, struct error *reterr)
{
    size_t n = strlen(domain), label = 0;
    if (n == 0 || n > PREVIEW_DOMAIN_MAX)
        return error_set(reterr, EINVAL, "a domain has 1 to %d characters", PREVIEW_DOMAIN_MAX);
    for (size_t i = 0; i <= n; i++) {
        char c = domain[i];
        if (c == '.' || c == '\0') {
            if (label == 0 || label > PREVIEW_LABEL_MAX || domain[i - 1] == '-' || domain[i - label] == '-')
                return error_set(reterr, EINVAL,
                                 "'%s' is not a domain: a label is empty, too long or ends in '-'", domain);
            label = 0;
        } else if ((c >= 'a' && c <= 'z') || is_digit(c) || c == '-') {
            label++;
        } else {
            return error_set(reterr, EINVAL,
                             "'%s' is not a domain: lower case letters, digits, '-' and '.' only", domain);
        }
    }
    return 0;
}
