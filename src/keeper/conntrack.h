/* SPDX-License-Identifier: Apache-2.0 */
/* conntrack.h: the kernel's table of connections. */
#pragma once

#include "base/error.h"
#include "net/nlattr.h"

/* Ends the connections of a source address except those that keep wants; keep NULL: all, so
 * that the address's next owner starts with none. */
int conntrack_end(const struct ip *address, bool (*keep)(const struct nl_tuple *f, void *arg), void *arg);
