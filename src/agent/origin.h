/* SPDX-License-Identifier: Apache-2.0 */
/* origin.h: the files that a process consists of, and whether their names still lead to them.
 *
 * A shell that was started on the image's own tree finds itself on a sandbox's disk later, where its program
 * or a library of it may have been replaced: then it is not the shell that would be started there. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct origin;

/* NULL: it cannot be told. */
struct origin *origin_of(pid_t pid);
/* pristine: that is known of /usr, /bin, /lib* and of what the dynamic linker adds. false if o is NULL. */
bool origin_unchanged(const struct origin *o, bool pristine);
void origin_free(struct origin *o);
