/* SPDX-License-Identifier: Apache-2.0 */
/* listening.h: one line of the kernel's table of TCP sockets. */
#pragma once

#include "base/util.h"

struct listening {
    char address[46];
    char process[32]; /* "" when not known */
    unsigned long inode;
    uint16_t port;
};

/* A line of /proc/net/tcp or tcp6; false unless it is a listening socket. */
bool listening_parse(const char *line, struct listening *ret);
