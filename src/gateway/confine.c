/* SPDX-License-Identifier: Apache-2.0 */
/* confine.c: see confine.h. Each step says what it takes away; their order matters: what needs a right
 * comes before the step that gives the right up. */
#include "gateway/confine.h"
#include "keeper/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Whoever starts a gateway without a uid of its own must say so. */
#define UNCONFINED_VARIABLE "SILICA_GATEWAY_UNCONFINED"

enum { FILES_WANTED = 1 << 20 }; /* the kernel's own default ceiling, fs.nr_open */

static int by_number(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The keeper's other descriptors came along with the fork. */
static int close_others(const struct gateway_config *config, struct error *reterr)
{
    int keep[GATEWAY_LISTEN_MAX + 7];
    size_t n = 0;
    keep[n++] = 0;
    keep[n++] = 1;
    keep[n++] = 2;
    keep[n++] = config->keeper_fd;
    keep[n++] = config->state_dir_fd;
    keep[n++] = config->docker_fd;
    if (config->tls_listeners)
        keep[n++] = config->tls_fd;
    for (size_t i = 0; i < config->listen_count && i < GATEWAY_LISTEN_MAX; i++)
        keep[n++] = config->listen_fds[i];
    qsort(keep, n, sizeof keep[0], by_number);

    unsigned from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned fd = (unsigned)keep[i];
        if (keep[i] >= 0 && fd > from && close_range(from, fd - 1, 0) < 0)
            return error_sys(reterr, errno, "close inherited descriptors");
        if (keep[i] >= 0)
            from = fd + 1;
    }
    if (close_range(from, ~0U, 0) < 0)
        return error_sys(reterr, errno, "close inherited descriptors");

    auto_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0)
        return error_sys(reterr, errno, "close standard input");
    return 0;
}

static int set_limits(struct error *reterr)
{
    struct rlimit none = {0, 0}, files = {FILES_WANTED, FILES_WANTED};
    (void)umask(0077); /* the database is nobody else's to read */
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return error_sys(reterr, errno, "forbid core dumps");
    if (setrlimit(RLIMIT_NOFILE, &files) == 0)
        return 0;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return error_sys(reterr, errno, "read the limit of open files");
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        return error_sys(reterr, errno, "raise the limit of open files");
    return 0;
}

static int enter_state_dir(const struct gateway_config *config, struct error *reterr)
{
    if (fchdir(config->state_dir_fd) < 0)
        return error_sys(reterr, errno, "enter the gateway's directory");
    if (config->uid == 0)
        return 0;
    if (chroot(".") < 0)
        return error_sys(reterr, errno, "make the gateway's directory its root");
    /* a directory that lies outside of the new root is a way out of it */
    if (chdir("/") < 0)
        return error_sys(reterr, errno, "enter the new root");
    return 0;
}

static int drop_bounding_set(struct error *reterr)
{
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                return 0; /* the kernel knows no more */
            return error_sys(reterr, errno, "drop capability %d from the bounding set", cap);
        }
    return 0;
}

static int become(uid_t uid, struct error *reterr)
{
    if (setgroups(0, NULL) < 0)
        return error_sys(reterr, errno, "leave all groups");
    if (setresgid(uid, uid, uid) < 0)
        return error_sys(reterr, errno, "become group %u", uid);
    if (setresuid(uid, uid, uid) < 0)
        return error_sys(reterr, errno, "become user %u", uid);

    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    if (syscall(SYS_capset, &header, none) < 0)
        return error_sys(reterr, errno, "drop all capabilities");
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* empty anyway without permitted ones */

    if (geteuid() != uid || getegid() != uid || setresuid(0, 0, 0) == 0)
        return error_set(reterr, EPERM, "the change to user %u did not last", uid);
    return 0;
}

int confine(const struct gateway_config *config, struct error *reterr)
{
    struct seccomp_program filter = {0};
    int r;

    if (config->uid == 0) {
        const char *allowed = getenv(UNCONFINED_VARIABLE);
        if (!allowed || strcmp(allowed, "1") != 0)
            return error_set(reterr, EPERM, "the gateway does not run as root");
        r = set_limits(reterr);
        return r < 0 ? r : enter_state_dir(config, reterr);
    }

    r = seccomp_build(SECCOMP_PROFILE_GATEWAY, &filter, reterr);
    if (r < 0)
        return r;
    if ((r = close_others(config, reterr)) < 0 || (r = set_limits(reterr)) < 0 ||
        (r = enter_state_dir(config, reterr)) < 0 || (r = drop_bounding_set(reterr)) < 0 ||
        (r = become(config->uid, reterr)) < 0)
        goto out;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) {
        r = error_sys(reterr, errno, "forbid new privileges and dumps");
        goto out;
    }
    r = seccomp_load(&filter);
    if (r < 0)
        (void)error_sys(reterr, -r, "load the gateway's system call filter");
out:
    seccomp_program_done(&filter);
    return r;
}
