/* SPDX-License-Identifier: Apache-2.0 */
/* address_ranges.h: the ranges of IPv4 addresses that the packet filter is made from. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct address_range {
    uint32_t first, end; /* host order; end is excluded, 0: the end of the address space */
};

extern const struct address_range ranges_not_public[], ranges_never[];
extern const size_t ranges_not_public_count, ranges_never_count;
