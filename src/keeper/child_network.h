/* SPDX-License-Identifier: Apache-2.0 */
/* child_network.h: the sandbox's side of its link. */
#pragma once

#include "keeper/child.h"

/* System calls only, both of them. Gives eth0 its address and the way out; /proc is on the stage. */
int child_network_link(const struct child_plan *p, int stage);
/* Whatever else leads out, and /etc/resolv.conf beneath root. */
int child_network_make(const struct child_plan *p, int root);
