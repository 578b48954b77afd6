/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_socket.h: asking the keeper for a socket, with the right to lose interest. */
#pragma once

#include "gateway/keeper_link.h"

struct keeper_ask;

struct keeper_ask_config {
    struct keeper_link *link;
    const char *id; /* of the sandbox */
    enum keeper_socket kind;
    enum keeper_socket_address address;
    unsigned port;
    /* Once, from the loop: a descriptor that is the callee's, or -errno. The ask is gone then. */
    void (*got)(void *arg, int fd);
    void *arg;
};

struct keeper_ask *keeper_socket_ask(const struct keeper_ask_config *config); /* NULL: out of memory */
void keeper_ask_cancel(struct keeper_ask *a); /* got is not called any more; NULL is fine */
