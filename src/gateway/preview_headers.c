/* SPDX-License-Identifier: Apache-2.0 */
/* preview_headers.c: see preview_headers.h.
 *
 * Host is passed on as the browser sent it: services compare it with Origin, and a name below localhost is
 * accepted by every development server we know. Everything that would speak for more than this one preview
 * (cookies of the parent domain, transport security of other names, other servers for this one) is held back
 * on its way out. */
#include "gateway/preview_headers.h"
#include "net/http_hop.h"

#include <string.h>
#include <strings.h>

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
    struct http_hops hops = http_hops_of(headers, count);
    ret->count = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name;
        if (http_is_hop(&hops, name) || http_name_in(not_to_service, ARRAY_SIZE(not_to_service), name) ||
            (origin->hide_authorization && http_name_equal(name, "Authorization")))
            continue;
        if (!proxy_headers_add(ret, name, headers[i].value))
            return false;
    }
    if (upgrade && !(proxy_headers_add(ret, "Connection", "Upgrade") &&
                     proxy_headers_add(ret, "Upgrade", http_header_find(headers, count, "Upgrade"))))
        return false;
    return proxy_headers_add(ret, "X-Forwarded-For", origin->address) &&
           proxy_headers_add(ret, "X-Forwarded-Host", origin->host) &&
           proxy_headers_add(ret, "X-Forwarded-Proto", origin->scheme) &&
           proxy_headers_add(ret, "X-Sandbox-Name", origin->sandbox);
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
    struct http_hops hops = http_hops_of(headers, count);
    ret->count = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name, *value = headers[i].value;
        if (http_is_hop(&hops, name) || http_name_in(not_from_service, ARRAY_SIZE(not_from_service), name) ||
            (http_name_equal(name, "Set-Cookie") && !cookie_ok(value, host)) ||
            (http_name_equal(name, "Strict-Transport-Security") && !hsts_ok(value)))
            continue;
        if (!proxy_headers_add(ret, name, value))
            return false;
    }
    const char *protocol = http_header_find(headers, count, "Upgrade");
    return !upgrade || (proxy_headers_add(ret, "Connection", "Upgrade") &&
                        (!protocol || proxy_headers_add(ret, "Upgrade", protocol)));
}
