/* SPDX-License-Identifier: Apache-2.0 */
/* egress.h: the way out of a sandbox whose network is its sidecar (KEEPER_NETWORK_SIDECAR).
 *
 * One object per sidecar. It owns the authority whose certificates the sandbox is to trust, the settings the
 * sidecar was given, and, while a sandbox is attached, everything the sandbox has outside of itself: the
 * catcher of its TCP connections, each of which becomes a CONNECT to the owner's listener on the host's
 * loopback interface, and the answers to its DNS queries. */
#pragma once

#include "base/error.h"
#include "base/json.h"
#include "gateway/keeper_link.h"
#include "net/loop.h"

struct egress;

enum { EGRESS_HOSTNAMES_MAX = 1024, EGRESS_HOSTNAME_BYTES = 253 };

/* What PUT /egress says; what it does not say stays as it is. */
struct egress_settings {
    int port;                     /* of the owner's listener on 127.0.0.1; 0: not said */
    int internet;                 /* 0 or 1; -1: not said */
    const char *const *hostnames; /* lower-case globs ("*.example.org", "*"); NULL: not said */
    size_t hostname_count;
};

/* saved: what egress_secret_pem gave to an earlier gateway, so that sandboxes go on trusting us; NULL: a new
 * authority is made. */
int egress_new(struct loop *loop, struct keeper_link *link, const char *saved, struct egress **ret,
               struct error *reterr);
void egress_free(struct egress *e); /* NULL is fine; detaches */

/* Reads the body of PUT /egress and applies it, all or nothing. -EINVAL with a sentence: not JSON, or a
 * member of the wrong type or size. Unknown members are ignored. */
int egress_put(struct egress *e, const char *json, size_t n, struct error *reterr);
/* The same without JSON. -EINVAL: a port or a name that is none, or too many names. */
int egress_change(struct egress *e, const struct egress_settings *s, struct error *reterr);

/* Writes the settings as an object that egress_put reads: to be kept for the next gateway. */
void egress_describe(const struct egress *e, struct json_writer *w);

const char *egress_ca_pem(const struct egress *e);     /* the authority's certificate, for GET /ca */
const char *egress_secret_pem(const struct egress *e); /* certificate and key: for the store only */

/* The sandbox runs: asks the keeper for the sockets inside it. To be called after every start of it, before
 * its own programs run. ready (may be NULL) is called once from the loop with 0 or -errno, unless detached
 * before. Attached to another sandbox or an earlier life: detaches first. */
void egress_attach(struct egress *e, const char *sandbox_id, void (*ready)(void *arg, int err), void *arg);
/* It ended, or is about to: its connections are cut and nothing of its network is held any more. */
void egress_detach(struct egress *e);
size_t egress_connections(const struct egress *e);
