/* SPDX-License-Identifier: Apache-2.0 */
/* ip.h: one type for addresses of both families: IPv4 has its place in IPv6's, ::ffff:a.b.c.d, where no
 * packet of IPv6 ever goes. No I/O. */
#pragma once

#include "base/util.h"

struct ip {
    unsigned char bytes[16]; /* all zero: none */
};

enum { IP_BITS = 128, IP_V4_BITS = 96 /* in front of an IPv4 address */, IP_TEXT = 46 };

struct ip ip_from_v4(uint32_t address); /* network order */
struct ip ip_from_v6(const void *bytes);
bool ip_is_v4(const struct ip *a);
uint32_t ip_v4(const struct ip *a); /* its last four bytes; network order */
bool ip_is_none(const struct ip *a);
bool ip_equal(const struct ip *a, const struct ip *b);

/* An address in the usual words of either family; ::ffff:1.2.3.4 is nobody's way to write one. */
bool ip_parse(const char *text, struct ip *ret);
const char *ip_text(const struct ip *a, char out[IP_TEXT]);

/* Are the first bits (of IP_BITS) of both the same? */
bool ip_same_prefix(const struct ip *a, const struct ip *b, unsigned bits);
/* The last address of the network that begins with a; bits behind its prefix in a itself do not matter. */
struct ip ip_network_last(const struct ip *a, unsigned bits);
/* Are there no bits behind the prefix? */
bool ip_is_network(const struct ip *a, unsigned bits);
