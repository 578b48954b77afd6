/* SPDX-License-Identifier: Apache-2.0 */
/* process_tag.c: see process_tag.h.
 *
 * Bits of a tag: 62 is always set, 40-61 are the agent's pid (several plain agents may share a pid
 * namespace), the 20 below count sessions and the last 20 the processes of one. */
#include "agent/process_tag.h"
#include "agent/agent.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { MEMBER_BITS = 20, SESSION_BITS = 20 };

#define TAG_MARK (1ULL << 62)

void process_tags_init(struct agent *a)
{
    struct rlimit now;
    /* a limit means that this agent runs inside a session of another one: its tags would not be its own */
    if (getrlimit(RLIMIT_LOCKS, &now) == 0 && now.rlim_max == RLIM_INFINITY)
        a->tag_base = TAG_MARK | (uint64_t)getpid() << (SESSION_BITS + MEMBER_BITS);
}

struct process_tag process_tags_all(const struct agent *a)
{
    uint64_t last = a->tag_base ? a->tag_base | ((1ULL << (SESSION_BITS + MEMBER_BITS)) - 1) : 0;
    return (struct process_tag){a->tag_base, last};
}

struct process_tag process_tag_new(struct agent *a)
{
    if (!a->tag_base || a->tag_next >> SESSION_BITS)
        return (struct process_tag){0};
    uint64_t first = a->tag_base | (uint64_t)a->tag_next++ << MEMBER_BITS;
    return (struct process_tag){first, first | ((1U << MEMBER_BITS) - 1)};
}

struct process_tag process_tag_member(const struct process_tag *session, unsigned n)
{
    if (!session->last || n >> MEMBER_BITS)
        return (struct process_tag){0};
    return (struct process_tag){session->last - n, session->last - n};
}

uint64_t process_tag_read(pid_t pid)
{
    char path[32], text[2048];
    (void)snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    unsigned long long hard;
    const char *line = strstr(text, "Max file locks");
    if (!line || sscanf(line, "Max file locks %*s %llu", &hard) != 1 || !(hard & TAG_MARK))
        return 0; /* "unlimited", or a limit of somebody else's */
    return hard;
}
