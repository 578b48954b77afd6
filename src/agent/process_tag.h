/* SPDX-License-Identifier: Apache-2.0 */
/* process_tag.h: telling whose processes are whose, also those that have left their parents, group and
 * session.
 *
 * A tag is the hard limit of "file locks" (RLIMIT_LOCKS), which the kernel has kept since 2.4 without giving
 * it a meaning: every descendant inherits it, nobody can raise it again, and /proc/PID/limits shows it. A
 * session has a range of tags, of which its shell has the highest; each of its background processes lowers
 * its own. Whoever lowers it on purpose leaves its session: a process can get rid of its tag, but not take
 * another one's. */
#pragma once

#include "base/util.h"

struct agent;

struct process_tag {
    uint64_t first, last; /* inclusive; 0, 0: none */
};

/* Once, at the start: whether tags can be had, and which are this agent's. */
void process_tags_init(struct agent *a);
/* All of them. */
struct process_tag process_tags_all(const struct agent *a);
/* The tags of a new session or sessionless process; none when tags cannot be had. */
struct process_tag process_tag_new(struct agent *a);
/* The tag of the n-th (1, 2, ...) background process of a session; none beyond the range. */
struct process_tag process_tag_member(const struct process_tag *session, unsigned n);

/* The tag of a process, 0: it has none, or is gone. */
uint64_t process_tag_read(pid_t pid);
