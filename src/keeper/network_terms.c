/* SPDX-License-Identifier: Apache-2.0 */
/* network_terms.c: see network_terms.h. */
#include "keeper/network_terms.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { TERMS_MAGIC = 0x53494c4e, TERMS_VERSION = 1 };

struct terms_file {
    uint32_t magic, version;
    uint32_t listed, reserved;
    struct keeper_policy policy;
};

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
    (void)snprintf(path, sizeof path, "%u/network", slot);
    *ret = (struct network_terms){.listed = true};
    auto_close int fd = openat(slots_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        ret->listed = errno != ENOENT;
        return;
    }
    if (read(fd, &f, sizeof f) != (ssize_t)sizeof f || f.magic != TERMS_MAGIC || f.version != TERMS_VERSION ||
        f.listed > 1 || !keeper_policy_ok(&f.policy) || f.policy.seconds)
        return;
    ret->listed = f.listed;
    ret->policy = f.policy;
}
