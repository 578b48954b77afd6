/* SPDX-License-Identifier: Apache-2.0 */
/* byte_tunnel.h: two sockets joined: what one sends the other gets, byte for byte. */
#pragma once

#include "base/buf.h"
#include "gateway/pace.h"
#include "net/loop.h"

enum {
    BYTE_TUNNEL_IDLE_MS = 60 * 60 * 1000, /* no byte in either direction; then both are closed */
    BYTE_TUNNEL_HALF_MS = 60 * 1000,      /* the same when one direction has ended */
};

struct byte_tunnel;

struct byte_tunnel_config {
    struct loop *loop;
    int fds[2];           /* taken over */
    bool patient;         /* silence never ends it */
    struct pace *pace[2]; /* for what is sent to fds[0] and fds[1]; NULL: as fast as it goes */
    struct buf *firsts;   /* of two: bytes to be sent to fds[0] and fds[1] before all others; taken over */
    /* Both directions have ended, or the tunnel broke: the tunnel is gone. Not called by byte_tunnel_free. */
    void (*done)(void *arg);
    void *arg;
};

/* NULL: out of memory; then nothing was taken over. */
struct byte_tunnel *byte_tunnel_new(const struct byte_tunnel_config *config);
void byte_tunnel_free(struct byte_tunnel *t); /* NULL is fine; closes both */
