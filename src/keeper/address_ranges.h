/* SPDX-License-Identifier: Apache-2.0 */
/* address_ranges.h: the ranges of addresses that the packet filter is made from. */
#pragma once

#include "base/ip.h"

struct address_range {
    uint32_t first, end; /* host order; end is excluded, 0: the end of the address space */
};

struct address_network { /* of IPv6 */
    struct ip first;
    uint8_t prefix;
};

extern const struct address_range ranges_not_public[], ranges_never[];
extern const size_t ranges_not_public_count, ranges_never_count;
extern const struct address_network networks_not_public[], networks_never[];
extern const size_t networks_not_public_count, networks_never_count;
