/* SPDX-License-Identifier: Apache-2.0 */
/* preview.h: requests to the host names of previews. */
#pragma once

#include "gateway/ports.h"
#include "gateway/throttle.h"
#include "net/http.h"

enum {
    PREVIEW_TIMEOUT_MS = 60 * 1000,   /* default of --preview-timeout: a service's first byte, then 504 */
    PREVIEW_IDLE_MS = 60 * 60 * 1000, /* an answer of which nothing moves for this long is broken off */
};

/* Where previews are reached: what --preview-domain says. */
struct preview_site {
    char domain[PREVIEW_DOMAIN_MAX + 1];
    const char *scheme; /* "http" or "https" */
    int port;           /* in URLs; 0: the scheme's own */
};

/* "[SCHEME://]DOMAIN[:PORT]". Without a scheme: http for localhost, else https. Without a port: -1, the
 * caller decides. */
int preview_site_parse(const char *text, struct preview_site *ret, struct error *reterr);
/* The name of a socket we listen on ("127.0.0.1:8787"): its port is that of localhost's URLs, unless one is
 * known. */
void preview_site_listener(struct preview_site *site, const char *name);
/* "http://8080-demo-token.localhost:8787/" */
int preview_site_url(const struct preview_site *site, const struct exposed_port *e, struct buf *out);

struct gateway;

/* Takes requests whose Host lies below the domain of the previews; false: it is one for the API. */
bool preview_request(struct gateway *g, struct http_request *req);

/* preview_page.c: a refusal, as a page for browsers and as the error envelope for programs. */
struct problem;
void preview_refuse(struct http_request *req, const char *sandbox_id, const struct problem *p);
