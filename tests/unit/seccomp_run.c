/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp_run.c: `seccomp_run PROGRAM ARGS...` runs a program under the sandbox's system call filter and
 * nothing else. */
#include "keeper/seccomp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

int main(int argc, char **argv)
{
    struct seccomp_program p;
    struct error e;

    if (argc < 2) {
        (void)fprintf(stderr, "usage: seccomp_run PROGRAM ARGS...\n");
        return 2;
    }
    if (seccomp_build(SECCOMP_PROFILE_SANDBOX, &p, &e) < 0) {
        (void)fprintf(stderr, "seccomp_run: %s\n", e.msg);
        return 125;
    }
    int r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : seccomp_load(&p);
    seccomp_program_done(&p);
    if (r < 0) {
        (void)fprintf(stderr, "seccomp_run: load the filter: %s\n", strerror(-r));
        return 125;
    }
    (void)execvp(argv[1], argv + 1);
    (void)fprintf(stderr, "seccomp_run: %s: %s\n", argv[1], strerror(errno));
    return 127;
}
