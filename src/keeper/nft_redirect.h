/* SPDX-License-Identifier: Apache-2.0 */
/* nft_redirect.h: the one rule inside a sandbox whose network is its sidecar. */
#pragma once

#include <stdint.h>

/* In the network namespace of the caller: every TCP connection made here that does not go to 127.0.0.0/8 goes
 * to 127.0.0.1:port, where SO_ORIGINAL_DST tells what was meant. Allocates nothing. 0 or -errno. */
int nft_redirect_add(uint16_t port);
/* For the doctor, in a process that ends with the trial: it enters a network namespace of its own. 0 or an
 * errno. */
int nft_redirect_try(void *unused);
