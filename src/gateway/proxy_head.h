/* SPDX-License-Identifier: Apache-2.0 */
/* proxy_head.h: which headers cross the gateway, in both directions. */
#pragma once

#include "net/http.h"

enum { PROXY_HEADERS_MAX = 128 };

struct proxy_headers {
    struct http_header list[PROXY_HEADERS_MAX];
    size_t count;
};

bool proxy_headers_add(struct proxy_headers *h, const char *name, const char *value); /* false: it is full */

/* To the agent: no hop-by-hop headers, no framing, no platform credentials; Host as the agent expects it.
 * false: more than fit. The strings stay those of the source. */
bool proxy_headers_to_agent(const struct http_header *headers, size_t count, struct proxy_headers *ret);
/* From the agent: no hop-by-hop headers, no framing, nothing that speaks for the whole origin of the API.
 * with_cors: pass Access-Control-*. */
bool proxy_headers_from_agent(const struct http_header *headers, size_t count, bool with_cors,
                              struct proxy_headers *ret);
