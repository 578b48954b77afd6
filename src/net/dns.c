/* SPDX-License-Identifier: Apache-2.0 */
/* dns.c: see dns.h.
 *
 * Names on the wire are labels with a length before each; in answers the rest of a name may be a pointer to
 * an earlier place. A pointer is followed only backwards, to before the place where this name began, so that
 * no name can run in circles, and a name has at most DNS_NAME_MAX characters however it is written. */
#include "net/dns.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    FLAG_RESPONSE = 0x8000,
    FLAG_TRUNCATED = 0x0200,
    FLAG_RECURSION_DESIRED = 0x0100,
    FLAG_RECURSION_AVAILABLE = 0x0080,
    OPCODE_MASK = 0x7800,
    RCODE_MASK = 0x000f,
    TYPE_OPT = 41,
    OPT_BYTES = 11,
    LABEL_MAX = 63,
    RECORD_HEAD = 10, /* type, class, ttl, length */
};

static unsigned get16(const unsigned char *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

/* ---- reading */

static bool label_char(unsigned char c, char *ret)
{
    if (c >= 'A' && c <= 'Z')
        c = (unsigned char)(c - 'A' + 'a');
    *ret = (char)c;
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* The name at `at`; returns where what follows it begins, or -EBADMSG. */
static ssize_t name_read(const unsigned char *p, size_t n, size_t at, bool pointers,
                         char out[DNS_NAME_MAX + 1])
{
    size_t len = 0, limit = n, begin = at, after = 0;
    for (;;) {
        if (at >= limit)
            return -EBADMSG;
        size_t label = p[at];
        if (label == 0) {
            out[len] = '\0';
            return (ssize_t)(after ? after : at + 1);
        }
        if ((label & 0xc0) == 0xc0) {
            if (!pointers || at + 2 > n)
                return -EBADMSG;
            size_t to = get16(p + at) & 0x3fff;
            if (to < DNS_HEADER_BYTES || to >= begin)
                return -EBADMSG;
            if (!after)
                after = at + 2;
            limit = begin; /* the earlier name ends before this one begins */
            at = begin = to;
            continue;
        }
        if (label > LABEL_MAX || label > limit - at - 1 || len + (len > 0) + label > DNS_NAME_MAX)
            return -EBADMSG;
        if (len)
            out[len++] = '.';
        for (size_t i = 0; i < label; i++)
            if (!label_char(p[at + 1 + i], &out[len++]))
                return -EBADMSG;
        at += 1 + label;
    }
}

/* The one record that may follow the question. */
static int read_opt(const unsigned char *p, size_t n, size_t at, struct dns_query *q)
{
    if (n - at < OPT_BYTES || p[at] != 0 || get16(p + at + 1) != TYPE_OPT ||
        get16(p + at + 9) != n - at - OPT_BYTES)
        return -EBADMSG;
    q->edns = true;
    unsigned room = get16(p + at + 3);
    q->room = (uint16_t)(room < DNS_PLAIN_MAX ? DNS_PLAIN_MAX : MIN(room, (unsigned)DNS_PACKET_MAX));
    return 0;
}

int dns_query_parse(const void *packet, size_t n, struct dns_query *ret, int *ret_id)
{
    const unsigned char *p = packet;
    struct dns_query q = {.room = DNS_PLAIN_MAX};
    *ret_id = -1;
    if (n < DNS_HEADER_BYTES || n > DNS_PACKET_MAX)
        return -EBADMSG;
    unsigned flags = get16(p + 2);
    if (flags & FLAG_RESPONSE) /* answering answers is how two servers talk for ever */
        return -EBADMSG;
    *ret_id = (int)get16(p);
    q.id = (uint16_t)get16(p);
    q.recursion_desired = flags & FLAG_RECURSION_DESIRED;
    if (flags & OPCODE_MASK || get16(p + 4) != 1 || get16(p + 6) || get16(p + 8) || get16(p + 10) > 1)
        return -EBADMSG;
    ssize_t end = name_read(p, n, DNS_HEADER_BYTES, false, q.name);
    if (end < 0 || n - (size_t)end < 4)
        return -EBADMSG;
    q.type = (uint16_t)get16(p + end);
    q.class = (uint16_t)get16(p + end + 2);
    q.question_len = (size_t)end + 4 - DNS_HEADER_BYTES;
    size_t at = (size_t)end + 4;
    if (get16(p + 10) ? read_opt(p, n, at, &q) < 0 : at != n)
        return -EBADMSG;
    *ret = q;
    return 0;
}

static bool same_letters(const unsigned char *a, const unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char x = a[i], y = b[i];
        if (x != y && !((x | 0x20) == (y | 0x20) && (x | 0x20) >= 'a' && (x | 0x20) <= 'z'))
            return false;
    }
    return true;
}

int dns_reply_open(const void *packet, size_t n, const void *sent, size_t sent_len, struct dns_reply *ret)
{
    const unsigned char *p = packet, *s = sent;
    char name[DNS_NAME_MAX + 1];
    if (n < DNS_HEADER_BYTES || sent_len < DNS_HEADER_BYTES || get16(p) != get16(s))
        return -EBADMSG;
    unsigned flags = get16(p + 2);
    if (!(flags & FLAG_RESPONSE) || flags & OPCODE_MASK || get16(p + 4) != 1)
        return -EBADMSG;
    ssize_t end = name_read(s, sent_len, DNS_HEADER_BYTES, false, name);
    if (end < 0 || sent_len - (size_t)end < 4 || n < (size_t)end + 4 ||
        !same_letters(p + DNS_HEADER_BYTES, s + DNS_HEADER_BYTES, (size_t)end - DNS_HEADER_BYTES) ||
        memcmp(p + end, s + end, 4) != 0)
        return -EBADMSG;
    *ret = (struct dns_reply){.packet = p,
                              .len = n,
                              .at = (size_t)end + 4,
                              .left = get16(p + 6),
                              .rcode = (int)(flags & RCODE_MASK),
                              .truncated = flags & FLAG_TRUNCATED};
    return 0;
}

int dns_reply_overhear(const void *packet, size_t n, struct dns_query *ret_query, struct dns_reply *ret)
{
    int r = dns_reply_open(packet, n, packet, n, ret);
    if (r < 0)
        return r;
    *ret_query = (struct dns_query){.question_len = ret->at - DNS_HEADER_BYTES};
    const unsigned char *behind = ret->packet + ret->at - 4;
    ret_query->type = (uint16_t)get16(behind);
    ret_query->class = (uint16_t)get16(behind + 2);
    return name_read(packet, n, DNS_HEADER_BYTES, false, ret_query->name) < 0 ? -EBADMSG : 0;
}

int dns_reply_next(struct dns_reply *r, struct dns_record *ret)
{
    if (!r->left)
        return 0;
    const unsigned char *p = r->packet;
    ssize_t end = name_read(p, r->len, r->at, true, ret->name);
    if (end < 0 || r->len - (size_t)end < RECORD_HEAD)
        return -EBADMSG;
    const unsigned char *head = p + end;
    size_t data = (size_t)end + RECORD_HEAD;
    ret->type = (uint16_t)get16(head);
    ret->class = (uint16_t)get16(head + 2);
    ret->ttl = get32(head + 4);
    ret->data_len = get16(head + 8);
    ret->data = p + data;
    ret->target[0] = '\0';
    if (ret->data_len > r->len - data)
        return -EBADMSG;
    if (ret->type == DNS_TYPE_CNAME &&
        name_read(p, data + ret->data_len, data, true, ret->target) != (ssize_t)(data + ret->data_len))
        return -EBADMSG;
    r->at = data + ret->data_len;
    r->left--;
    return 1;
}

bool dns_name_matches(const char *glob, const char *name)
{
    const char *star = NULL, *retry = NULL; /* behind the last '*', and where it stops matching next time */
    while (*name) {
        if (*glob == '*') {
            star = ++glob;
            retry = name;
        } else if (*glob == *name) {
            glob++;
            name++;
        } else if (star) {
            glob = star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return !*glob;
}

/* ---- writing */

struct writer {
    unsigned char *out;
    size_t len, cap;
    bool overflow;
};

static void put(struct writer *w, const void *data, size_t n)
{
    if (n > w->cap - w->len) {
        w->overflow = true;
        return;
    }
    memcpy(w->out + w->len, data, n);
    w->len += n;
}

static void put8(struct writer *w, unsigned v)
{
    put(w, &(unsigned char){(unsigned char)v}, 1);
}

static void put16(struct writer *w, unsigned v)
{
    put8(w, v >> 8);
    put8(w, v & 0xff);
}

static void put_header(struct writer *w, unsigned id, unsigned flags, unsigned questions, unsigned answers,
                       unsigned additional)
{
    put16(w, id);
    put16(w, flags);
    put16(w, questions);
    put16(w, answers);
    put16(w, 0);
    put16(w, additional);
}

static void put_opt(struct writer *w, unsigned room)
{
    put8(w, 0);
    put16(w, TYPE_OPT);
    put16(w, room);
    put16(w, 0);
    put16(w, 0);
    put16(w, 0);
}

static size_t written(const struct writer *w)
{
    return w->overflow ? 0 : w->len;
}

size_t dns_query_forward(const void *packet, const struct dns_query *q, uint16_t id, void *out, size_t cap)
{
    struct writer w = {.out = out, .cap = cap};
    put_header(&w, id, FLAG_RECURSION_DESIRED, 1, 0, q->edns);
    put(&w, (const unsigned char *)packet + DNS_HEADER_BYTES, q->question_len);
    if (q->edns) /* what the client takes is what the answer may have */
        put_opt(&w, MIN((unsigned)q->room, (unsigned)DNS_EDNS_MAX));
    return written(&w);
}

size_t dns_query_write(uint16_t id, const char *name, uint16_t type, void *out, size_t cap)
{
    struct writer w = {.out = out, .cap = cap};
    if (strnlen(name, DNS_NAME_MAX + 1) > DNS_NAME_MAX)
        return 0;
    put_header(&w, id, FLAG_RECURSION_DESIRED, 1, 0, 1);
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, ".");
        if (n == 0 || n > LABEL_MAX || (p[n] == '.' && !p[n + 1]))
            return 0;
        put8(&w, (unsigned)n);
        put(&w, p, n);
        p += n + (p[n] == '.');
    }
    put8(&w, 0);
    put16(&w, type);
    put16(&w, DNS_CLASS_IN);
    put_opt(&w, DNS_EDNS_MAX);
    return written(&w);
}

size_t dns_answer_write(const void *packet, const struct dns_query *q, int rcode,
                        const struct dns_address *addresses, size_t count, void *out, size_t cap)
{
    unsigned flags = FLAG_RESPONSE | FLAG_RECURSION_AVAILABLE | (unsigned)rcode |
                     (q->recursion_desired ? FLAG_RECURSION_DESIRED : 0);
    size_t room = MIN(cap, (size_t)q->room), size = DNS_HEADER_BYTES + q->question_len;
    size_t fit = 0;
    size += q->edns ? OPT_BYTES : 0;
    for (; fit < count; fit++) {
        size_t record = 2 + RECORD_HEAD + (addresses[fit].type == DNS_TYPE_A ? 4 : 16);
        if (size + record > room)
            break;
        size += record;
    }
    if (fit < count)
        flags |= FLAG_TRUNCATED;
    struct writer w = {.out = out, .cap = cap};
    put_header(&w, q->id, flags, 1, (unsigned)fit, q->edns);
    put(&w, (const unsigned char *)packet + DNS_HEADER_BYTES, q->question_len);
    for (size_t i = 0; i < fit; i++) {
        const struct dns_address *a = &addresses[i];
        size_t len = a->type == DNS_TYPE_A ? 4 : 16;
        put16(&w, 0xc000 | DNS_HEADER_BYTES); /* the name of the question */
        put16(&w, a->type);
        put16(&w, DNS_CLASS_IN);
        put16(&w, a->ttl >> 16);
        put16(&w, a->ttl & 0xffff);
        put16(&w, (unsigned)len);
        put(&w, a->bytes, len);
    }
    if (q->edns)
        put_opt(&w, DNS_EDNS_MAX);
    return written(&w);
}

size_t dns_refusal_write(uint16_t id, int rcode, void *out, size_t cap)
{
    struct writer w = {.out = out, .cap = cap};
    put_header(&w, id, FLAG_RESPONSE | (unsigned)rcode, 0, 0, 0);
    return written(&w);
}

/* ---- addresses */

static bool record_address(const struct dns_record *rec, uint16_t type, struct ip *ret)
{
    uint32_t v4;
    if (rec->type != type || rec->data_len != (type == DNS_TYPE_A ? sizeof v4 : sizeof ret->bytes))
        return false;
    if (type == DNS_TYPE_AAAA) {
        *ret = ip_from_v6(rec->data);
        return !ip_is_v4(ret);
    }
    memcpy(&v4, rec->data, sizeof v4);
    *ret = ip_from_v4(v4);
    return true;
}

int dns_reply_addresses(struct dns_reply *r, const struct dns_addresses *wanted, uint32_t *ttl)
{
    char owner[DNS_NAME_MAX + 1];
    struct dns_record rec;
    struct ip address;
    int more = 0, links = 0;
    (void)snprintf(owner, sizeof owner, "%s", wanted->name);
    while (links <= DNS_CHAIN_MAX && (more = dns_reply_next(r, &rec)) > 0) {
        if (rec.class != DNS_CLASS_IN || strcmp(rec.name, owner) != 0)
            continue;
        if (rec.type == DNS_TYPE_CNAME) {
            (void)snprintf(owner, sizeof owner, "%s", rec.target);
            *ttl = MIN(*ttl, rec.ttl);
            links++;
        } else if (record_address(&rec, wanted->type, &address)) {
            wanted->found(wanted->arg, &address, rec.ttl);
        }
    }
    return more < 0 ? more : 0;
}
