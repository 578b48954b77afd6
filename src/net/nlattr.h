/* SPDX-License-Identifier: Apache-2.0 */
/* nlattr.h: finding attributes in what netlink sends, and the one kind of nest that two of us read. No I/O.
 */
#pragma once

#include "base/ip.h"

/* The attribute of this type among those in data; NULL when it is missing or shorter than min. */
const void *nl_attr(const void *data, size_t n, uint16_t type, size_t min, size_t *ret_len);
/* One attribute after the other: the value of the next, NULL at the end; *at begins with 0. */
const void *nl_attr_next(const void *data, size_t n, size_t *at, size_t *ret_len);

/* A connection by its first packet. */
struct nl_tuple {
    struct ip source, destination;
    uint16_t port; /* of the destination; 0: the protocol has none */
    uint8_t protocol;
};
/* The inside of CTA_TUPLE_ORIG; false when it is not whole. */
bool nl_tuple_read(const void *tuple, size_t n, struct nl_tuple *ret);
