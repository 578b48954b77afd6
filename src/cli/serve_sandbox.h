/* SPDX-License-Identifier: Apache-2.0 */
/* serve_sandbox.h: what the operator wants in every sandbox: a proxy, certificates, mirrors of package
 * archives. */
#pragma once

#include "base/buf.h"
#include "base/error.h"

enum { SANDBOX_CA_MAX = 1 << 20, SANDBOX_SHARED_MAX = SANDBOX_CA_MAX + (64 << 10) };

struct sandbox_shared {
    const char *proxy; /* a URL, or "host": what the server's own environment says */
    const char *no_proxy;
    const char *ca_file;
    const char *apt_mirror, *pip_index, *npm_registry;
};

/* Whether value can be one of the URLs; socks: also a SOCKS proxy's. -EINVAL with a sentence that begins with
 * source. */
int sandbox_url_check(const char *source, const char *value, bool socks, struct error *reterr);
/* Variables and settings as an agent reads them (src/agent/settings.h): "K=V\0=ca=...\0". getenv_host is
 * getenv. */
int sandbox_shared_build(const struct sandbox_shared *s, char *(*getenv_host)(const char *name),
                         struct buf *out, struct error *reterr);
/* The same for the text of the file of certificates. */
int sandbox_ca_check(const char *path, const char *text, size_t n, struct error *reterr);
