/* SPDX-License-Identifier: Apache-2.0 */
/* dns.h: DNS packets, read strictly and written: queries of sandboxes, answers of resolvers. No I/O. */
#pragma once

#include "base/ip.h"

enum {
    DNS_NAME_MAX = 253,    /* as text without the last dot */
    DNS_PACKET_MAX = 4096, /* of the UDP packets we take */
    DNS_PLAIN_MAX = 512,   /* what a client takes that says nothing else */
    DNS_EDNS_MAX = 1232,   /* what we say we take: never fragmented */
    DNS_CHAIN_MAX = 12,    /* CNAME upon CNAME */

    DNS_TYPE_A = 1,
    DNS_TYPE_CNAME = 5,
    DNS_TYPE_AAAA = 28,
    DNS_CLASS_IN = 1,

    DNS_OK = 0,
    DNS_FORMAT_ERROR = 1,
    DNS_SERVER_FAILED = 2,
    DNS_NO_NAME = 3,
    DNS_NOT_IMPLEMENTED = 4,
    DNS_REFUSED = 5,
};

struct dns_query {
    uint16_t id;
    uint16_t type, class;
    bool recursion_desired;
    bool edns;                   /* the client sent an OPT record ... */
    uint16_t room;               /* ... and takes answers of so many bytes */
    size_t question_len;         /* of the question, which begins at DNS_HEADER_BYTES in its packet */
    char name[DNS_NAME_MAX + 1]; /* lower case, without the last dot; "": the root */
};
enum { DNS_HEADER_BYTES = 12 };

/* One question and nothing else but EDNS; labels of letters, digits, '-' and '_'. 0, or -EBADMSG; then
 * *ret_id is the id to answer DNS_FORMAT_ERROR to, or -1 when the packet deserves no answer (not a query). */
int dns_query_parse(const void *packet, size_t n, struct dns_query *ret, int *ret_id);
/* The same question under another id, with an EDNS record of our own if the client sent one. 0: does not fit.
 */
size_t dns_query_forward(const void *packet, const struct dns_query *q, uint16_t id, void *out, size_t cap);
/* A question of our own. 0: not a name, or does not fit. */
size_t dns_query_write(uint16_t id, const char *name, uint16_t type, void *out, size_t cap);

struct dns_address {
    uint16_t type; /* DNS_TYPE_A or _AAAA: 4 or 16 bytes */
    uint32_t ttl;
    unsigned char bytes[16];
};
/* The answer to a query (its packet and what was parsed of it): a code and addresses, cut off (TC) where the
 * client's room ends. 0: does not fit. */
size_t dns_answer_write(const void *packet, const struct dns_query *q, int rcode,
                        const struct dns_address *addresses, size_t count, void *out, size_t cap);
/* To a query that could not be read: a header. */
size_t dns_refusal_write(uint16_t id, int rcode, void *out, size_t cap);

/* '*' stands for any characters, dots among them, or none; everything else for itself. */
bool dns_name_matches(const char *glob, const char *name);

/* ---- answers of resolvers */

struct dns_reply {
    const unsigned char *packet;
    size_t len, at;
    unsigned left; /* records of the answer section that dns_reply_next has not given yet */
    int rcode;
    bool truncated;
};
struct dns_record {
    uint16_t type, class;
    uint32_t ttl;
    const unsigned char *data;
    size_t data_len;
    char name[DNS_NAME_MAX + 1];
    char target[DNS_NAME_MAX + 1]; /* of a CNAME */
};

/* Does the packet answer the question that was sent (with this id)? 0, or -EBADMSG. */
int dns_reply_open(const void *packet, size_t n, const void *sent, size_t sent_len, struct dns_reply *ret);
/* 1 and the next record of the answer section, 0 at its end, or -EBADMSG. Names as in struct dns_query. */
int dns_reply_next(struct dns_reply *r, struct dns_record *ret);
/* The same for an answer to somebody else: *ret_query has the name, type and class that were asked for. */
int dns_reply_overhear(const void *packet, size_t n, struct dns_query *ret_query, struct dns_reply *ret);

/* The addresses of a type (DNS_TYPE_A, _AAAA) at the end of the chain that begins with the name. Records that
 * belong to neither are ignored; so is an IPv4 address that is written as one of IPv6: no packet can go
 * there. *ttl becomes the least of those on the way. 0, or -EBADMSG. */
struct dns_addresses {
    const char *name;
    uint16_t type;
    void (*found)(void *arg, const struct ip *address, uint32_t ttl);
    void *arg;
};
int dns_reply_addresses(struct dns_reply *r, const struct dns_addresses *wanted, uint32_t *ttl);
