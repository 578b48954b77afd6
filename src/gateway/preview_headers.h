/* SPDX-License-Identifier: Apache-2.0 */
/* preview_headers.h: which headers cross a preview, in both directions. Pure. */
#pragma once

#include "gateway/proxy_head.h"

/* What we tell the service about the client. */
struct preview_origin {
    const char *host;        /* as the client sent it */
    const char *address;     /* of the client, without a port */
    const char *scheme;      /* "http" or "https" */
    const char *sandbox;     /* id */
    bool hide_authorization; /* the Authorization header carries a token of this platform */
};

/* Whether a request for a change of protocol may be passed on: a WebSocket and the like may, HTTP/2 and TLS
 * may not, since requests inside them would pass unseen. */
bool preview_upgrade_ok(const struct http_header *headers, size_t count);

/* To the service. upgrade: the request asks for a change of protocol which is passed on. false: more than
 * fit. The strings stay those of the sources. */
bool preview_headers_to_service(const struct http_header *headers, size_t count,
                                const struct preview_origin *origin, bool upgrade, struct proxy_headers *ret);
/* From the service; host: the preview's own, with or without a port. */
bool preview_headers_from_service(const struct http_header *headers, size_t count, const char *host,
                                  bool upgrade, struct proxy_headers *ret);
