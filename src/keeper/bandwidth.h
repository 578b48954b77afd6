/* SPDX-License-Identifier: Apache-2.0 */
/* bandwidth.h: how fast a link sends. */
#pragma once

#include "base/error.h"

/* Link of the calling thread's namespace, by index; what is over the rate waits, and what finds no room to
 * wait is dropped. 0 bytes a second: no limit. Cheapest before the link is up. */
int bandwidth_set(unsigned index, uint64_t bytes_per_second);
/* For the doctor, in a process that ends with the trial. 0 or an errno. */
int bandwidth_try(void *unused);
