/* SPDX-License-Identifier: Apache-2.0 */
/* proxy_head.c: see proxy_head.h.
 *
 * The agent's answers come from hostile code and appear under the origin of the API. A browser that opens one
 * must not be talked into running it with that origin's rights, hence the policy header and the names that
 * are held back. */
#include "gateway/proxy_head.h"
#include "net/http_hop.h"

#include <strings.h>

static const char *const not_to_agent[] = {
    "Authorization",  /* the platform's token never enters a sandbox */
    "Host", "Expect", /* answered by the gateway */
};

static const char *const not_from_agent[] = {
    "Date", /* ours is sent */
    "X-Content-Type-Options",
    "Content-Security-Policy",          /* ours, too */
    "Access-Control-Allow-Credentials", /* there are none that a browser would add */
    "Set-Cookie",
    "Clear-Site-Data",
    "Strict-Transport-Security",
    "Alt-Svc",
    "Service-Worker-Allowed",
};

bool proxy_headers_add(struct proxy_headers *h, const char *name, const char *value)
{
    if (h->count == PROXY_HEADERS_MAX)
        return false;
    h->list[h->count++] = (struct http_header){name, value};
    return true;
}

bool proxy_headers_to_agent(const struct http_header *headers, size_t count, struct proxy_headers *ret)
{
    struct http_hops hops = http_hops_of(headers, count);
    ret->count = 0;
    if (!proxy_headers_add(ret, "Host", "localhost:3000"))
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name;
        if (http_is_hop(&hops, name) || http_name_in(not_to_agent, ARRAY_SIZE(not_to_agent), name))
            continue;
        if (!proxy_headers_add(ret, name, headers[i].value))
            return false;
    }
    return true;
}

bool proxy_headers_from_agent(const struct http_header *headers, size_t count, bool with_cors,
                              struct proxy_headers *ret)
{
    struct http_hops hops = http_hops_of(headers, count);
    ret->count = 0;
    if (!proxy_headers_add(ret, "Content-Security-Policy", "default-src 'none'; sandbox"))
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name;
        if (http_is_hop(&hops, name) || http_name_in(not_from_agent, ARRAY_SIZE(not_from_agent), name) ||
            (!with_cors && strncasecmp(name, "Access-Control-", 15) == 0))
            continue;
        if (!proxy_headers_add(ret, name, headers[i].value))
            return false;
    }
    return true;
}
