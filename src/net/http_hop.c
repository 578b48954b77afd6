/* SPDX-License-Identifier: Apache-2.0 */
/* http_hop.c: see http_hop.h. */
#include "net/http_hop.h"

static const char *const always[] = {
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

bool http_name_in(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (http_name_equal(names[i], name))
            return true;
    return false;
}

struct http_hops http_hops_of(const struct http_header *headers, size_t count)
{
    return (struct http_hops){headers, count, http_header_find(headers, count, "Connection") != NULL};
}

bool http_is_hop(const struct http_hops *h, const char *name)
{
    if (http_name_in(always, ARRAY_SIZE(always), name))
        return true;
    if (!h->connection || http_name_equal(name, "Host")) /* Host is the message's, whatever Connection says */
        return false;
    for (size_t i = 0; i < h->count; i++)
        if (http_name_equal(h->headers[i].name, "Connection") && http_list_has(h->headers[i].value, name))
            return true;
    return false;
}
