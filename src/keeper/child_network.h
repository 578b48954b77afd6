/* SPDX-License-Identifier: Apache-2.0 */
/* child_network.h: the sandbox's side of its link. */
#pragma once

#include "keeper/child.h"

/* Gives eth0 its address and the way out, and writes /etc/resolv.conf beneath root. System calls only. */
int child_network_make(const struct child_plan *p, int root);
