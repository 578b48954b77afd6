/* SPDX-License-Identifier: Apache-2.0 */
/* egress_dns.c: the names a sandbox with a sidecar asks for.
 *
 * A name that the owner serves itself need not exist anywhere: it gets a placeholder address, and the name
 * travels with the connection (egress_conn.c). With the internet on, the host's resolvers are asked first,
 * one after the other, each query on a port and with an id of its own. The sandbox has no IPv6, so no address
 * of it is ever told. Answers come from the address that was asked: to the sandbox every address is a
 * resolver. */
#include "gateway/dns_lookup.h"
#include "gateway/egress_internal.h"

#include <string.h>
#include <sys/socket.h>

enum {
    BATCH = 32, /* queries per event */
    PLACEHOLDER_TTL_S = 60,
    QUESTION_MAX = DNS_HEADER_BYTES + DNS_NAME_MAX + 2 + 4,
};

struct asker {
    struct sockaddr_in from;
    struct in_addr asked;
};

struct egress_lookup {
    struct egress *egress;
    struct egress_lookup *next, **prev;
    struct asker asker;
    struct dns_query query;
    unsigned char packet[QUESTION_MAX]; /* of the query, as far as its question */
    struct dns_lookup *lookup;
};

void egress_lookup_free(struct egress_lookup *l)
{
    struct egress *e = l->egress;
    dns_lookup_cancel(l->lookup);
    *l->prev = l->next;
    if (l->next)
        l->next->prev = l->prev;
    e->lookup_count--;
    free(l);
}

/* ------------------------------------------------------------------ answers */

/* What the socket does not take is lost, as packets are. */
static void answer_send(struct egress *e, const struct asker *to, const void *data, size_t n)
{
    union {
        char space[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)data, n};
    struct sockaddr_in name = to->from;
    struct msghdr msg = {.msg_name = &name,
                         .msg_namelen = sizeof name,
                         .msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof control.space};
    struct in_pktinfo info = {.ipi_spec_dst = to->asked};
    struct cmsghdr *cm = CMSG_FIRSTHDR(&msg);
    cm->cmsg_level = IPPROTO_IP;
    cm->cmsg_type = IP_PKTINFO;
    cm->cmsg_len = CMSG_LEN(sizeof info);
    memcpy(CMSG_DATA(cm), &info, sizeof info);
    if (n)
        (void)sendmsg(e->fds[1], &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void answer_code(struct egress *e, const struct asker *to, const void *packet,
                        const struct dns_query *q, int rcode)
{
    unsigned char out[DNS_PLAIN_MAX];
    answer_send(e, to, out, dns_answer_write(packet, q, rcode, NULL, 0, out, sizeof out));
}

/* The owner knows what to do with the name; the address only has to lead to the catcher. */
static void answer_placeholder(struct egress *e, const struct asker *to, const void *packet,
                               const struct dns_query *q)
{
    static const struct dns_address placeholder = {
        .type = DNS_TYPE_A, .ttl = PLACEHOLDER_TTL_S, .bytes = {11, 0, 0, 1}};
    unsigned char out[DNS_PLAIN_MAX];
    size_t count = q->type == DNS_TYPE_A ? 1 : 0;
    answer_send(e, to, out, dns_answer_write(packet, q, DNS_OK, &placeholder, count, out, sizeof out));
}

static bool owner_serves(const struct egress *e, const char *name)
{
    for (size_t i = 0; i < e->hostname_count; i++)
        if (dns_name_matches(e->hostnames[i], name))
            return true;
    return false;
}

/* ------------------------------------------------------------------ asking the host's resolvers */

static void looked_up(void *arg, struct dns_reply *reply)
{
    struct egress_lookup *l = arg;
    struct egress *e = l->egress;
    bool known = reply && reply->rcode == DNS_OK;
    l->lookup = NULL;
    if (!known && owner_serves(e, l->query.name)) {
        answer_placeholder(e, &l->asker, l->packet, &l->query);
    } else if (!reply || reply->len > l->query.room) {
        answer_code(e, &l->asker, l->packet, &l->query, DNS_SERVER_FAILED);
    } else {
        unsigned char data[DNS_PACKET_MAX];
        memcpy(data, reply->packet, reply->len);
        memcpy(data, l->packet, 2); /* the client's own id */
        answer_send(e, &l->asker, data, reply->len);
    }
    egress_lookup_free(l);
}

static void lookup_new(struct egress *e, const struct asker *asker, const void *packet,
                       const struct dns_query *q)
{
    struct egress_lookup *l = e->lookup_count < EGRESS_LOOKUPS_MAX ? calloc(1, sizeof *l) : NULL;
    if (!l)
        return; /* the client asks again */
    *l = (struct egress_lookup){.egress = e, .asker = *asker, .query = *q};
    memcpy(l->packet, packet, DNS_HEADER_BYTES + q->question_len);
    l->next = e->lookups;
    if (l->next)
        l->next->prev = &l->next;
    l->prev = &e->lookups;
    e->lookups = l;
    e->lookup_count++;
    l->lookup = dns_lookup_new(&(struct dns_lookup_config){.loop = e->loop,
                                                           .link = e->link,
                                                           .id = e->id,
                                                           .packet = packet,
                                                           .query = q,
                                                           .done = looked_up,
                                                           .arg = l});
    if (!l->lookup)
        egress_lookup_free(l);
}

/* ------------------------------------------------------------------ queries */

static void query(struct egress *e, const struct asker *asker, const void *packet, size_t n)
{
    struct dns_query q;
    unsigned char out[DNS_PLAIN_MAX];
    int id;
    if (dns_query_parse(packet, n, &q, &id) < 0) {
        if (id >= 0)
            answer_send(e, asker, out, dns_refusal_write((uint16_t)id, DNS_FORMAT_ERROR, out, sizeof out));
        return;
    }
    bool served = owner_serves(e, q.name);
    if (q.class != DNS_CLASS_IN)
        answer_code(e, asker, packet, &q, DNS_REFUSED);
    else if (!e->internet && !served)
        answer_code(e, asker, packet, &q, DNS_NO_NAME);
    else if (!e->internet)
        answer_placeholder(e, asker, packet, &q);
    else if (q.type == DNS_TYPE_AAAA)
        answer_code(e, asker, packet, &q, DNS_OK); /* it exists, and has no address of this kind */
    else
        lookup_new(e, asker, packet, &q);
}

/* Where the packet was sent to, which is not told by the socket: it has every address. */
static bool find_asked(struct msghdr *msg, struct in_addr *ret)
{
    for (struct cmsghdr *cm = CMSG_FIRSTHDR(msg); cm; cm = CMSG_NXTHDR(msg, cm))
        if (cm->cmsg_level == IPPROTO_IP && cm->cmsg_type == IP_PKTINFO &&
            cm->cmsg_len >= CMSG_LEN(sizeof(struct in_pktinfo))) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(cm), sizeof info);
            *ret = info.ipi_addr;
            return true;
        }
    return false;
}

static void ask_again(struct timer *t)
{
    struct egress *e = container_of(t, struct egress, dns_pause);
    loop_mod(e->loop, &e->dns, EPOLLIN);
}

void egress_dns_ready(struct source *s, uint32_t events)
{
    struct egress *e = container_of(s, struct egress, dns);
    (void)events;
    for (int i = 0; i < BATCH; i++) {
        if (!egress_pace_take(&e->dns_pace, loop_now_us(e->loop), EGRESS_QUERIES_PER_SECOND,
                              EGRESS_QUERIES_BURST)) {
            loop_mod(e->loop, s, 0);
            loop_timer_start(e->loop, &e->dns_pause, EGRESS_PAUSE_MS, ask_again);
            return;
        }
        unsigned char data[DNS_PACKET_MAX];
        union {
            char space[CMSG_SPACE(sizeof(struct in_pktinfo))];
            struct cmsghdr align;
        } control;
        struct asker asker;
        struct iovec iov = {data, sizeof data};
        struct msghdr msg = {.msg_name = &asker.from,
                             .msg_namelen = sizeof asker.from,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
        ssize_t n = recvmsg(e->fds[1], &msg, MSG_DONTWAIT);
        if (n < 0)
            return; /* nothing more, or the complaint about an answer nobody waited for */
        if (!(msg.msg_flags & MSG_TRUNC) && msg.msg_namelen == sizeof asker.from &&
            asker.from.sin_family == AF_INET && find_asked(&msg, &asker.asked))
            query(e, &asker, data, (size_t)n);
    }
}
