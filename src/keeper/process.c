/* SPDX-License-Identifier: Apache-2.0 */
/* process.c: see process.h. */
#include "keeper/process.h"
#include "keeper/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int read_proc(pid_t pid, const char *name, char *out, size_t cap)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t n = 0;
    while (n < cap - 1) {
        ssize_t r = read(fd, out + n, cap - 1 - n);
        if (r < 0)
            return -errno;
        if (r == 0)
            break;
        n += (size_t)r;
    }
    out[n] = '\0';
    return 0;
}

int process_start_time(pid_t pid, uint64_t *ret)
{
    char text[1024];
    int r = read_proc(pid, "stat", text, sizeof text);
    if (r < 0)
        return r;
    char *p = strrchr(text, ')'); /* the name may contain anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p && sscanf(p, " %" SCNu64, ret) == 1 ? 0 : -EBADMSG;
}

bool process_alive(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

int process_namespace(pid_t pid, const char *name, ino_t *ret)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name);
    if (stat(path, &st) < 0)
        return -errno;
    *ret = st.st_ino;
    return 0;
}

static int expect(const char *status, const char *key, uint64_t expected, int base, struct error *reterr)
{
    const char *p = strstr(status, key);
    if (!p)
        return error_set(reterr, EPERM, "the sandbox does not show %s", key);
    uint64_t value = strtoull(p + strlen(key), NULL, base);
    if (value != expected)
        return error_set(reterr, EPERM, "%s of the sandbox is %#" PRIx64 ", expected %#" PRIx64, key + 1,
                         value, expected);
    return 0;
}

int posture_check(pid_t pid, uint32_t uid, struct error *reterr)
{
    static const char *const namespaces[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    char status[4096], map[128];
    int r = read_proc(pid, "status", status, sizeof status);
    if (r < 0)
        return error_sys(reterr, -r, "read the sandbox's status");
    if ((r = expect(status, "\nUid:", uid, 10, reterr)) < 0 ||
        (r = expect(status, "\nGid:", uid, 10, reterr)) < 0 ||
        (r = expect(status, "\nSeccomp:", 2, 10, reterr)) < 0 ||
        (r = expect(status, "\nNoNewPrivs:", 1, 10, reterr)) < 0 ||
        (r = expect(status, "\nCapInh:", 0, 16, reterr)) < 0 ||
        (r = expect(status, "\nCapAmb:", 0, 16, reterr)) < 0 ||
        (r = expect(status, "\nCapPrm:", child_agent_caps, 16, reterr)) < 0 ||
        (r = expect(status, "\nCapEff:", child_agent_caps, 16, reterr)) < 0 ||
        (r = expect(status, "\nCapBnd:", child_agent_caps, 16, reterr)) < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(namespaces); i++) {
        ino_t own = 0, theirs = 0;
        r = process_namespace(getpid(), namespaces[i], &own);
        if (r == 0)
            r = process_namespace(pid, namespaces[i], &theirs);
        if (r < 0)
            return error_sys(reterr, -r, "read the sandbox's %s namespace", namespaces[i]);
        if (own == theirs)
            return error_set(reterr, EPERM, "the sandbox shares the host's %s namespace", namespaces[i]);
    }
    static const char *const maps[] = {"uid_map", "gid_map"};
    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
        unsigned inside = 1, outside = 0, count = 0, rest = 0;
        r = read_proc(pid, maps[i], map, sizeof map);
        if (r < 0 || sscanf(map, "%u %u %u %u", &inside, &outside, &count, &rest) != 3 || inside != 0 ||
            outside != uid || count != 65536)
            return error_set(reterr, EPERM, "the sandbox's %s is not what was written", maps[i]);
    }
    return 0;
}
