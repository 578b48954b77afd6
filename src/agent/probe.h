/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h: does anybody answer on a port of this sandbox? One try, tcp or http. */
#pragma once

#include "base/error.h"
#include "net/loop.h"

enum { PROBE_TIMEOUT_MS = 5000, PROBE_REDIRECTS_MAX = 5 };

struct probe;

struct probe_target {
    int port;
    bool http;
    const char *path; /* begins with '/' */
};

/* Once, from the loop, last: status is the final http status, 0 for a tcp connection, or -errno with a
 * sentence in why. */
typedef void probe_done(struct probe *p, int status, const char *why, void *arg);

/* localhost means 127.0.0.1, then ::1. NULL when memory is short. */
struct probe *probe_start(struct loop *loop, const struct probe_target *target, probe_done *done, void *arg);
void probe_free(struct probe *p); /* NULL is fine; also from inside done, which must call it */

/* Where a redirect leads: false when it leaves this host or is not http. path has room for cap bytes. base is
 * the path that was asked for. */
bool probe_redirect(const char *location, const char *base, int *port, char *path, size_t cap);
