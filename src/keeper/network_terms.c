/* SPDX-License-Identifier: Apache-2.0 */
/* network_terms.c: see network_terms.h. */
#include "keeper/network_terms.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { TERMS_MAGIC = 0x53494c4e, TERMS_VERSION = 2, TERMS_IPV4 = 1 /* before there was IPv6 */ };

struct terms_file {
    uint32_t magic, version;
    uint32_t listed, reserved;
    struct keeper_policy policy;
};

/* The same as written by a keeper that knew of no IPv6: its sandboxes run on when the daemon is replaced. */
struct terms_file_ipv4 {
    uint32_t magic, version;
    uint32_t listed, reserved;
    uint64_t bytes_per_second;
    uint32_t connections, seconds, rule_count, keep;
    struct {
        uint32_t address;
        uint16_t port;
        uint8_t prefix, reserved;
    } rules[KEEPER_RULES_MAX];
};

static bool translate(const struct terms_file_ipv4 *old, struct terms_file *ret)
{
    if (old->version != TERMS_IPV4 || old->rule_count > KEEPER_RULES_MAX)
        return false;
    *ret = (struct terms_file){.magic = old->magic, .version = TERMS_VERSION, .listed = old->listed};
    ret->policy = (struct keeper_policy){.bytes_per_second = old->bytes_per_second,
                                         .connections = old->connections,
                                         .seconds = old->seconds,
                                         .rule_count = old->rule_count};
    for (size_t i = 0; i < old->rule_count; i++) {
        if (old->rules[i].prefix > IP_BITS - IP_V4_BITS)
            return false;
        ret->policy.rules[i] = (struct keeper_rule){.address = ip_from_v4(old->rules[i].address),
                                                    .port = old->rules[i].port,
                                                    .prefix = (uint8_t)(IP_V4_BITS + old->rules[i].prefix)};
    }
    return true;
}

bool network_terms_plain(const struct network_terms *t)
{
    return !t->listed && keeper_policy_empty(&t->policy);
}

int network_terms_write(int slot_dir_fd, const struct network_terms *t, struct error *reterr)
{
    struct terms_file f = {
        .magic = TERMS_MAGIC, .version = TERMS_VERSION, .listed = t->listed, .policy = t->policy};
    f.policy.keep = 0;
    auto_close int fd = openat(slot_dir_fd, "network.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &f, sizeof f) != (ssize_t)sizeof f ||
        renameat(slot_dir_fd, "network.new", slot_dir_fd, "network") < 0)
        return error_sys(reterr, errno, "write a slot's terms of the network");
    return 0;
}

void network_terms_read(int slots_fd, unsigned slot, struct network_terms *ret)
{
    char path[32];
    struct terms_file f;
    struct terms_file_ipv4 old;
    (void)snprintf(path, sizeof path, "%u/network", slot);
    *ret = (struct network_terms){.listed = true};
    auto_close int fd = openat(slots_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        ret->listed = errno != ENOENT;
        return;
    }
    ssize_t n = read(fd, &f, sizeof f);
    if (n == (ssize_t)sizeof old) {
        memcpy(&old, &f, sizeof old);
        n = translate(&old, &f) ? (ssize_t)sizeof f : 0;
    }
    if (n != (ssize_t)sizeof f || f.magic != TERMS_MAGIC || f.version != TERMS_VERSION || f.listed > 1 ||
        !keeper_policy_ok(&f.policy) || f.policy.seconds)
        return;
    ret->listed = f.listed;
    ret->policy = f.policy;
}
