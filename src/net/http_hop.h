/* SPDX-License-Identifier: Apache-2.0 */
/* http_hop.h: which headers belong to one connection and not to the message: whoever passes messages on
 * leaves them out. */
#pragma once

#include "net/http.h"

struct http_hops {
    const struct http_header *headers;
    size_t count;
    bool connection; /* there is a header Connection, which may name others */
};

struct http_hops http_hops_of(const struct http_header *headers, size_t count);
/* Of one connection (RFC 9110 section 7.6.1), or framing the message; Host never is. */
bool http_is_hop(const struct http_hops *h, const char *name);

/* Whether a table of names has this one; case does not matter. */
bool http_name_in(const char *const *names, size_t count, const char *name);
