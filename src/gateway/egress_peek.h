/* SPDX-License-Identifier: Apache-2.0 */
/* egress_peek.h: what a connection is for, read off its first bytes. No I/O. */
#pragma once

#include "net/dns.h"

enum { PEEK_MAX = 16 * 1024 }; /* more than any client's first flight */

enum peek {
    PEEK_MORE,  /* it may be one of the others: look again when there are more bytes */
    PEEK_TLS,   /* a ClientHello; name: what it asks for, "" when it does not say */
    PEEK_HTTP,  /* a request head; name: its host without the port, "" when that is no name */
    PEEK_OTHER, /* anything else */
};

/* http: look for HTTP, too. Not more than PEEK_MAX bytes. The name is lower case and safe in a header. */
enum peek egress_peek(const void *data, size_t n, bool http, char name[DNS_NAME_MAX + 1]);
