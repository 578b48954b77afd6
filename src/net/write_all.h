/* SPDX-License-Identifier: Apache-2.0 */
/* write_all.h: writing for programs that have nothing else to do meanwhile; not for a loop. */
#pragma once

#include <stddef.h>

/* All n bytes, also where somebody made the descriptor non-blocking: then it waits. 0 or -errno. */
int write_all(int fd, const void *data, size_t n);
