/* SPDX-License-Identifier: Apache-2.0 */
/* proxy_head.c: see proxy_head.h.
 *
 * The agent's answers come from hostile code and appear under the origin of the API. A browser that opens one
 * must not be talked into running it with that origin's rights, hence the policy header and the names that
 * are held back. */
#include "gateway/proxy_head.h"

#include <string.h>
#include <strings.h>

/* Of one connection, not of the message (RFC 9110 section 7.6.1), and what frames it. */
static const char *const hop_by_hop[] = {
    "Connection", "Keep-Alive",        "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "TE",
    "Trailer",    "Transfer-Encoding", "Upgrade",          "Content-Length",
};

static const char *const not_to_agent[] = {
    "Authorization",  /* the platform's token never enters a sandbox */
    "Host", "Expect", /* answered by the gateway */
};

static const char *const not_from_agent[] = {
    "Date", /* ours is sent */
    "X-Content-Type-Options",
    "Content-Security-Policy", /* ours, too */
    "Set-Cookie",
    "Clear-Site-Data",
    "Strict-Transport-Security",
    "Alt-Svc",
    "Service-Worker-Allowed",
};

static bool in_table(const char *const *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(table[i], name) == 0)
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

bool proxy_headers_to_agent(const struct http_header *headers, size_t count, struct proxy_headers *ret)
{
    bool connection = http_header_find(headers, count, "Connection") != NULL;
    ret->count = 0;
    if (!add(ret, "Host", "localhost:3000"))
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name;
        if (in_table(hop_by_hop, ARRAY_SIZE(hop_by_hop), name) ||
            in_table(not_to_agent, ARRAY_SIZE(not_to_agent), name) ||
            (connection && named_by_connection(headers, count, name)))
            continue;
        if (!add(ret, name, headers[i].value))
            return false;
    }
    return true;
}

bool proxy_headers_from_agent(const struct http_header *headers, size_t count, bool with_cors,
                              struct proxy_headers *ret)
{
    bool connection = http_header_find(headers, count, "Connection") != NULL;
    ret->count = 0;
    if (!add(ret, "Content-Security-Policy", "default-src 'none'; sandbox"))
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name;
        if (in_table(hop_by_hop, ARRAY_SIZE(hop_by_hop), name) ||
            in_table(not_from_agent, ARRAY_SIZE(not_from_agent), name) ||
            (!with_cors && strncasecmp(name, "Access-Control-", 15) == 0) ||
            (connection && named_by_connection(headers, count, name)))
            continue;
        if (!add(ret, name, headers[i].value))
            return false;
    }
    return true;
}
