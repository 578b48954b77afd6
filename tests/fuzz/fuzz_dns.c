/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_dns.c: a query that is read has a name that is one, can be passed on and answered, and what we write
 * we read back the same; records of an answer lie inside it. */
#include "net/dns.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check_name(const char *name)
{
    size_t n = strlen(name);
    require(n <= DNS_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == n);
    require(!strstr(name, "..") && name[0] != '.' && (n == 0 || name[n - 1] != '.'));
}

static void check_query(const uint8_t *data, size_t size)
{
    unsigned char out[DNS_PACKET_MAX];
    struct dns_query q, again;
    struct dns_reply reply;
    struct dns_record record;
    struct dns_address a = {.type = DNS_TYPE_A, .ttl = 1, .bytes = {11, 0, 0, 1}};
    int id;
    if (dns_query_parse(data, size, &q, &id) < 0)
        return;
    check_name(q.name);
    require(id == q.id && q.room >= DNS_PLAIN_MAX && DNS_HEADER_BYTES + q.question_len <= size);
    size_t n = dns_query_forward(data, &q, 77, out, sizeof out);
    require(n && dns_query_parse(out, n, &again, &id) == 0);
    require(again.id == 77 && strcmp(again.name, q.name) == 0 && again.type == q.type);
    n = dns_answer_write(data, &q, DNS_OK, &a, 1, out, sizeof out);
    require(n && n <= q.room && dns_reply_open(out, n, data, size, &reply) == 0);
    require(dns_reply_next(&reply, &record) == 1 && strcmp(record.name, q.name) == 0);
    require(dns_reply_next(&reply, &record) == 0);
}

/* The first bytes are the question that was sent: the packet up to its answers. */
static void check_reply(const uint8_t *data, size_t size)
{
    struct dns_reply r;
    struct dns_record record;
    if (dns_reply_open(data, size, data, size, &r) < 0)
        return;
    while (dns_reply_next(&r, &record) == 1) {
        check_name(record.name);
        check_name(record.target);
        require(record.data >= data && record.data + record.data_len <= data + size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_query(data, size);
    check_reply(data, size);
    return 0;
}
