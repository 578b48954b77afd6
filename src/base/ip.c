/* SPDX-License-Identifier: Apache-2.0 */
/* ip.c: see ip.h. */
#include "base/ip.h"

#include <arpa/inet.h>
#include <string.h>

static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct ip ip_from_v4(uint32_t address)
{
    struct ip a;
    memcpy(a.bytes, mapped, sizeof mapped);
    memcpy(a.bytes + sizeof mapped, &address, sizeof address);
    return a;
}

struct ip ip_from_v6(const void *bytes)
{
    struct ip a;
    memcpy(a.bytes, bytes, sizeof a.bytes);
    return a;
}

bool ip_is_v4(const struct ip *a)
{
    return memcmp(a->bytes, mapped, sizeof mapped) == 0;
}

uint32_t ip_v4(const struct ip *a)
{
    uint32_t address;
    memcpy(&address, a->bytes + sizeof mapped, sizeof address);
    return address;
}

bool ip_is_none(const struct ip *a)
{
    static const struct ip none;
    return ip_equal(a, &none);
}

bool ip_equal(const struct ip *a, const struct ip *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool ip_parse(const char *text, struct ip *ret)
{
    struct in_addr v4;
    struct ip a;
    if (inet_pton(AF_INET, text, &v4) == 1)
        a = ip_from_v4(v4.s_addr);
    else if (inet_pton(AF_INET6, text, a.bytes) != 1 || ip_is_v4(&a))
        return false;
    *ret = a;
    return true;
}

const char *ip_text(const struct ip *a, char out[IP_TEXT])
{
    bool v4 = ip_is_v4(a);
    return inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? a->bytes + sizeof mapped : a->bytes, out, IP_TEXT);
}

/* Which bits of byte number i lie behind the prefix. */
static unsigned char tail_of(size_t i, unsigned bits)
{
    if (bits >= (i + 1) * 8)
        return 0;
    return bits <= i * 8 ? 0xff : (unsigned char)(0xff >> (bits - i * 8));
}

bool ip_same_prefix(const struct ip *a, const struct ip *b, unsigned bits)
{
    for (size_t i = 0; i < sizeof a->bytes; i++)
        if ((a->bytes[i] ^ b->bytes[i]) & ~tail_of(i, bits) & 0xff)
            return false;
    return true;
}

struct ip ip_network_last(const struct ip *a, unsigned bits)
{
    struct ip last = *a;
    for (size_t i = 0; i < sizeof last.bytes; i++)
        last.bytes[i] |= tail_of(i, bits);
    return last;
}

bool ip_is_network(const struct ip *a, unsigned bits)
{
    for (size_t i = 0; i < sizeof a->bytes; i++)
        if (a->bytes[i] & tail_of(i, bits))
            return false;
    return true;
}
