/* SPDX-License-Identifier: Apache-2.0 */
/* tls_pipe.h: a TLS connection that ends here, joined with a plain socket. */
#pragma once

#include "net/loop.h"

struct tls_pipe;

struct tls_pipe_config {
    struct loop *loop;
    void *ssl;    /* an SSL on outer_fd that waits for a client's hello; taken over */
    int outer_fd; /* taken over */
    /* Hands are shaken: the plain socket, which is taken over, or -errno. */
    int (*shaken)(void *arg);
    /* Both directions have ended, or the pipe broke: it is gone. Not called by tls_pipe_free. */
    void (*done)(void *arg);
    void *arg;
};

/* NULL: out of memory; then nothing was taken over. */
struct tls_pipe *tls_pipe_new(const struct tls_pipe_config *config);
void tls_pipe_free(struct tls_pipe *p); /* NULL is fine; closes both */
