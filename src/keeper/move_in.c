/* SPDX-License-Identifier: Apache-2.0 */
/* move_in.c: see move_in.h.
 *
 * Mounts can be changed from inside only, by somebody with rights over them that no process in there has any
 * more: the agent gave them up before its first instruction. So a process of ours goes in for a moment. It
 * has the keeper's memory and descriptors, but for whoever is inside it does not exist: it stays outside of
 * their pid namespace. Nobody is in there yet but the agent and a shell that waits for its first command. */
#include "keeper/move_in.h"
#include "keeper/cloner.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

struct guest {
    const struct child_plan *plan;
    int pidfd, root;
    const int *volumes;
    int step, result; /* written by the guest: the memory is shared */
};

static void go_in(void *arg)
{
    struct guest *g = arg;
    g->result = child_move_in(g->plan, g->pidfd, g->root, g->volumes, &g->step);
    _exit(0);
}

int move_in(const struct child_plan *plan, int pidfd, int root, const int *volumes, int *ret_guest,
            int *ret_step)
{
    struct guest guest = {.plan = plan, .pidfd = pidfd, .root = root, .volumes = volumes, .result = -EINTR};
    struct clone_args args = {.flags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD,
                              .pidfd = (uint64_t)(uintptr_t)ret_guest,
                              .exit_signal = SIGCHLD};
    long r = clone_and_run(&args, go_in, &guest);
    *ret_step = guest.step;
    return r < 0 ? (int)r : guest.result;
}
