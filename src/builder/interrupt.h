/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h: Ctrl-C in the middle of a build removes the build's sandboxes before the process ends.
 *
 * The build itself may be waiting for a silent command. So signals go to a thread of their own, which has a
 * connection of its own. */
#pragma once

#include "builder/build.h"

struct interrupt;

int interrupt_new(const struct build_options *o, struct interrupt **ret, struct error *reterr);
void interrupt_free(struct interrupt *i); /* NULL is fine; signals are as before */
/* Which sandboxes exist just now; the strings are copied. */
void interrupt_add(struct interrupt *i, const char *id);
void interrupt_remove(struct interrupt *i, const char *id);
