/* SPDX-License-Identifier: Apache-2.0 */
/* tap.h: the reading end of a command's output, and what becomes of it when the command is over. */
#pragma once

#include "agent/agent.h"

struct tap {
    struct agent *agent;
    struct source source; /* source.fd is -1 while not followed */
    int fd;               /* -1: closed */
    bool grown;
    /* A piece of output; the callee may pause or close the tap. */
    void (*data)(struct tap *t, const char *data, size_t n);
    /* The last writer is gone and all was read; the descriptor is closed already. */
    void (*end)(struct tap *t);
};

/* Takes over fd, the non-blocking reading end of a pipe or FIFO; nothing is read yet. */
void tap_init(struct tap *t, struct agent *a, int fd, void (*data)(struct tap *t, const char *data, size_t n),
              void (*end)(struct tap *t));
int tap_follow(struct tap *t); /* read as data comes; fine when followed or closed */
void tap_pause(struct tap *t); /* the writer will have to wait */
/* Reads what is in the pipe at this moment, without calling `end`; true when the last writer is gone (then
 * closed). */
bool tap_drain(struct tap *t);
void tap_close(struct tap *t);

/* Hands the rest of a pipe over to nobody: it is read and thrown away until its last writer is gone, so that
 * a process left behind neither blocks nor dies of SIGPIPE. Beyond LEFTOVER_OWNER_MAX of one owner (0:
 * nobody's) and LEFTOVER_MAX in all the oldest is closed. */
enum { LEFTOVER_OWNER_MAX = 64, LEFTOVER_MAX = 1024 };
void tap_leave(struct tap *t, unsigned owner);
void leftovers_free(struct agent *a);
