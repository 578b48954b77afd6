/* SPDX-License-Identifier: Apache-2.0 */
/* exec_stream.h: a connection joined with a process: its input as it comes, its outputs in frames (or as they
 * come, when it has a terminal). */
#pragma once

#include "agent/agent.h"

#include <sys/ioctl.h>
#include <sys/uio.h>

struct exec_stream;

struct exec_stream_config {
    struct agent *agent;
    int line;           /* the connection; taken over */
    struct iovec first; /* sent before everything else; needed during the call only */
    struct buf *input;  /* what the peer sent already; taken over */
    int ends[3];        /* the process's input, output and error output (-1: none); taken over */
    bool tty;           /* ends[1] is the terminal's master, for input, too */
    /* The connection is closed, the stream is gone. Not called by exec_stream_free. */
    void (*over)(void *arg);
    void *arg;
};

/* NULL: out of memory; everything is closed. */
struct exec_stream *exec_stream_new(const struct exec_stream_config *config);
/* The stream ends when its outputs have ended, too. All of these take NULL. */
void exec_stream_process_ended(struct exec_stream *s);
void exec_stream_resize(struct exec_stream *s, const struct winsize *size);
void exec_stream_free(struct exec_stream *s);

/* Nobody listens: outputs are read and thrown away, the input is at its end. */
void exec_stream_discard(struct agent *a, const int ends[3]);
