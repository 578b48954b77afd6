/* SPDX-License-Identifier: Apache-2.0 */
/* dial.h: connecting to a port of this sandbox: 127.0.0.1, then ::1. */
#pragma once

#include "net/loop.h"

/* Embedded in its owner; zero-initialised is idle. */
struct dial {
    /* Once, from the loop: fd is the callee's, or -errno of the last address. */
    void (*done)(struct dial *d, int fd);

    /* private */
    struct loop *loop;
    struct source source;
    struct deferred later;
    int port, fd, result;
    bool six; /* the second address is being tried */
};

void dial_start(struct loop *loop, struct dial *d, int port, void (*done)(struct dial *d, int fd));
void dial_stop(struct dial *d); /* no callback any more; fine when idle */
