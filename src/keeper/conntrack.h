/* SPDX-License-Identifier: Apache-2.0 */
/* conntrack.h: the kernel's table of connections. */
#pragma once

#include "base/error.h"

/* Forgets the connections of a source address, so that its next owner starts with none; network order. */
int conntrack_forget(uint32_t address);
