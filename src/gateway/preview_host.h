/* SPDX-License-Identifier: Apache-2.0 */
/* preview_host.h: the host names of previews: <port>-<sandbox id>-<token>.<domain>. Pure. */
#pragma once

#include "base/error.h"
#include "base/id.h"

enum {
    PREVIEW_TOKEN_MAX = 16,
    PREVIEW_LABEL_MAX = 63,   /* of DNS */
    PREVIEW_DOMAIN_MAX = 189, /* a name has 253 characters at most */
    PREVIEW_HOST_SIZE = 256,
    PREVIEW_PORT_MIN = 1024,
    PREVIEW_PORT_MAX = 65535,
    PREVIEW_PORT_REFUSED = 3000, /* the documented system's own server */
};

struct preview_host {
    int port;
    char id[SANDBOX_ID_MAX + 1];
    char token[PREVIEW_TOKEN_MAX + 1];
};

enum preview_host_kind {
    PREVIEW_HOST_OTHER,   /* not below the domain: the API */
    PREVIEW_HOST_UNKNOWN, /* below the domain, but no name of a preview */
    PREVIEW_HOST_NAMED,   /* *ret is filled in; whether it exists is another question */
};

/* host: the Host header as sent; domain: lower case, without a dot in front. Case does not matter, a port is
 * ignored, everything else must be exact. */
enum preview_host_kind preview_host_parse(const char *host, const char *domain, struct preview_host *ret);

/* 1 to 16 of [a-z0-9_]. */
bool preview_token_ok(const char *token);
/* Whether a preview of this sandbox can have a name: 0, or -EINVAL with a sentence. */
int preview_name_check(const char *id, const char *token, int port, struct error *reterr);
/* A domain as an operator gives it: labels of letters, digits and '-', lower case; 0 or -EINVAL with a
 * sentence. */
int preview_domain_check(const char *domain, struct error *reterr);
