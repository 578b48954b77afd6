/* SPDX-License-Identifier: Apache-2.0 */
/* imager_confine.c: how the image worker gives up its rights, before it reads a single foreign byte.
 *
 * It starts as root in mount, pid, network, ipc and uts namespaces of its own. The staging directory becomes
 * all the files it has; then it moves into the user namespace whose ids own nothing on the host, keeps the
 * four capabilities that writing other people's files takes, and loads a filter that kills it for any call
 * but those on files. The staging mount maps ids, so what it writes as user 0 is stored as user 0. */
#include "image/imager_internal.h"
#include "keeper/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { FILES_MAX = 1024 };

/* Any directory of the host's tree will do to attach the mount to: our copy of the tree is thrown away at
 * once. */
static const char somewhere[] = "/proc";

static int enter_staging(struct error *reterr)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        move_mount(IMAGER_FD_STAGING, "", AT_FDCWD, somewhere, MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
        fchdir(IMAGER_FD_STAGING) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return error_sys(reterr, errno, "make the staging directory the root");
    return 0;
}

static int drop_rights(struct error *reterr)
{
    const uint32_t kept = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID;
    if (setns(IMAGER_FD_USERNS, CLONE_NEWUSER) < 0)
        return error_sys(reterr, errno, "enter the user namespace");
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return error_sys(reterr, errno, "become root inside");
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            return error_sys(reterr, errno, "drop capabilities");
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = kept, .permitted = kept}};
    if (syscall(SYS_capset, &head, data) < 0)
        return error_sys(reterr, errno, "drop capabilities");
    return 0;
}

static int set_limits(struct error *reterr)
{
    const struct rlimit none = {0, 0}, files = {FILES_MAX, FILES_MAX};
    if (setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_NOFILE, &files) < 0)
        return error_sys(reterr, errno, "set limits");
    return 0;
}

int imager_confine(const struct imager_boot *boot, struct error *reterr)
{
    struct seccomp_program filter = {0};
    int r = seccomp_build(SECCOMP_PROFILE_IMAGER, &filter, reterr);
    if (r < 0)
        return r;
    (void)umask(0);
    (void)signal(SIGPIPE, SIG_IGN);
    if (close_range(IMAGER_FD_TREE + boot->trees, ~0U, 0) < 0)
        r = error_sys(reterr, errno, "close inherited descriptors");
    if (r == 0)
        r = set_limits(reterr);
    if (r == 0)
        r = enter_staging(reterr);
    if (r == 0)
        r = drop_rights(reterr);
    (void)close(IMAGER_FD_STAGING);
    (void)close(IMAGER_FD_USERNS);
    /* the end with the keeper comes late: a change of ids would have undone it */
    if (r == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
                   prctl(PR_SET_PDEATHSIG, SIGKILL) < 0))
        r = error_sys(reterr, errno, "forbid new privileges");
    if (r == 0 && (r = seccomp_load(&filter)) < 0)
        (void)error_sys(reterr, -r, "load the filter of system calls");
    seccomp_program_done(&filter);
    return r;
}
