/* SPDX-License-Identifier: Apache-2.0 */
/* preview_headers.c: see preview_headers.h.
 *
 * Host is passed on as the browser sent it: services compare it with Origin, and a name below localhost is
 * accepted by every development server we know. Everything that would speak for more than this one preview
 * (cookies of the parent domain, transport security of other names, other servers for this one) is held back
 * on its way out. */
#include "gateway/preview_headers.h"

#include <string.h>
#include <strings.h>

/* Of one connection, not of the message (RFC 9110 section 7.6.1), and what frames it. */
static const char *const hop_by_hop[] = {
    "Connection",
    "Content-Length",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authentication-Info",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
};

/* What only we may say, or what we have dealt with. */
static const char *const not_to_service[] = {
    "Expect",           "Forwarded",        "HTTP2-Settings",    "X-Forwarded-For",
    "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto", "X-Forwarded-Server",
    "X-Original-URL",   "X-Real-IP",        "X-Sandbox-Name",
};

static const char *const not_from_service[] = {
    "Alt-Svc",
    "Clear-Site-Data",
};

static bool in_table(const char *const *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) /* the first letter decides nearly always */
        if (((table[i][0] ^ name[0]) & ~0x20) == 0 && strcasecmp(table[i], name) == 0)
            return true;
    return false;
}

static bool named_by_connection(const struct http_header *headers, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(headers[i].name, "Connection") == 0 && http_list_has(headers[i].value, name))
            return true;
    return false;
}

static bool add(struct proxy_headers *h, const char *name, const char *value)
{
    if (h->count == PROXY_HEADERS_MAX)
        return false;
    h->list[h->count++] = (struct http_header){name, value};
    return true;
}

/* Of a list of protocols, whether one is HTTP/2 or TLS. */
static bool smuggles(const char *value)
{
    while (*value) {
        value += strspn(value, ", \t");
        size_t n = strcspn(value, ",; \t/");
        if ((n == 3 && (strncasecmp(value, "h2c", 3) == 0 || strncasecmp(value, "tls", 3) == 0)) ||
            (n == 2 && strncasecmp(value, "h2", 2) == 0) || (n == 4 && strncasecmp(value, "http", 4) == 0))
            return true;
        value += strcspn(value, ",");
    }
    return false;
}

bool preview_upgrade_ok(const struct http_header *headers, size_t count)
{
    const char *value = http_header_find(headers, count, "Upgrade");
    return value && *value && http_header_occurs(headers, count, "Upgrade") == 1 && !smuggles(value);
}

bool preview_headers_to_service(const struct http_header *headers, size_t count,
                                const struct preview_origin *origin, bool upgrade, struct proxy_headers *ret)
{
    bool connection = http_header_find(headers, count, "Connection") != NULL;
    ret->count = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name;
        if (in_table(hop_by_hop, ARRAY_SIZE(hop_by_hop), name) ||
            in_table(not_to_service, ARRAY_SIZE(not_to_service), name) ||
            (origin->hide_authorization && strcasecmp(name, "Authorization") == 0))
            continue;
        /* Host is the message's, whatever Connection says */
        if (connection && strcasecmp(name, "Host") != 0 && named_by_connection(headers, count, name))
            continue;
        if (!add(ret, name, headers[i].value))
            return false;
    }
    if (upgrade && !(add(ret, "Connection", "Upgrade") &&
                     add(ret, "Upgrade", http_header_find(headers, count, "Upgrade"))))
        return false;
    return add(ret, "X-Forwarded-For", origin->address) && add(ret, "X-Forwarded-Host", origin->host) &&
           add(ret, "X-Forwarded-Proto", origin->scheme) && add(ret, "X-Sandbox-Name", origin->sandbox);
}

/* The value of an attribute of a cookie, NULL when it has none; *ret_len without the blanks around it. */
static const char *next_attribute(const char *p, const char *name, size_t *ret_len)
{
    while ((p = strchr(p, ';'))) {
        p += 1 + strspn(p + 1, " \t");
        size_t n = strcspn(p, "=;");
        size_t bare = n;
        while (bare && (p[bare - 1] == ' ' || p[bare - 1] == '\t'))
            bare--;
        if (bare != strlen(name) || strncasecmp(p, name, bare) != 0)
            continue;
        if (p[n] != '=') {
            *ret_len = 0;
            return p + n;
        }
        p += n + 1;
        p += strspn(p, " \t");
        n = strcspn(p, ";");
        while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
            n--;
        *ret_len = n;
        return p;
    }
    return NULL;
}

/* Only for this host: no Domain, or one that is exactly it. Every Domain counts, whichever a browser may
 * take. */
static bool cookie_ok(const char *value, const char *host)
{
    size_t host_len = strcspn(host, ":"), n;
    for (const char *p = value; (p = next_attribute(p, "Domain", &n)); p += n) {
        if (n && *p == '.') { /* browsers ignore it */
            p++;
            n--;
        }
        if (n && (n != host_len || strncasecmp(p, host, n) != 0))
            return false;
    }
    return true;
}

static bool hsts_ok(const char *value)
{
    for (const char *p = value; *p; p += strcspn(p, ";"), p += *p == ';') {
        p += strspn(p, " \t");
        size_t n = strcspn(p, ";= \t");
        if (n == strlen("includeSubDomains") && strncasecmp(p, "includeSubDomains", n) == 0)
            return false;
    }
    return true;
}

bool preview_headers_from_service(const struct http_header *headers, size_t count, const char *host,
                                  bool upgrade, struct proxy_headers *ret)
{
    bool connection = http_header_find(headers, count, "Connection") != NULL;
    ret->count = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name, *value = headers[i].value;
        if (in_table(hop_by_hop, ARRAY_SIZE(hop_by_hop), name) ||
            in_table(not_from_service, ARRAY_SIZE(not_from_service), name) ||
            (strcasecmp(name, "Set-Cookie") == 0 && !cookie_ok(value, host)) ||
            (strcasecmp(name, "Strict-Transport-Security") == 0 && !hsts_ok(value)) ||
            (connection && named_by_connection(headers, count, name)))
            continue;
        if (!add(ret, name, value))
            return false;
    }
    const char *protocol = http_header_find(headers, count, "Upgrade");
    return !upgrade || (add(ret, "Connection", "Upgrade") && (!protocol || add(ret, "Upgrade", protocol)));
}
