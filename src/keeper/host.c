/* SPDX-License-Identifier: Apache-2.0 */
/* host.c: see host.h. */
#include "keeper/host.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

enum {
    AGENT_MAX_BYTES = 16 << 20,
    OPEN_FILE_BYTES = 128, /* what the kernel keeps of an open file is somewhat larger */
};

const struct host_device host_devices[HOST_DEVICE_COUNT] = {
    {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};

/* Everything is mounted in a namespace of the keeper's own: nothing we do shows on the host, and all of it is
 * gone when the keeper is. */
static int enter_private_namespace(struct host *h, const char *run_dir, struct error *reterr)
{
    if (unshare(CLONE_NEWNS) < 0)
        return error_sys(reterr, errno, "enter a private mount namespace (root is needed)");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return error_sys(reterr, errno, "make the mount tree private");
    int n = snprintf(h->scratch, sizeof h->scratch, "%s/scratch", run_dir);
    if (n < 0 || (size_t)n >= sizeof h->scratch)
        return error_set(reterr, ENAMETOOLONG, "the run directory's path is too long");
    if (mkdir(h->scratch, 0700) < 0 && errno != EEXIST)
        return error_sys(reterr, errno, "make %s", h->scratch);
    if (mount("silica", h->scratch, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0700,size=1m,nr_inodes=65536") < 0)
        return error_sys(reterr, errno, "mount %s", h->scratch);
    h->scratch_fd = open(h->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (h->scratch_fd < 0)
        return error_sys(reterr, errno, "open %s", h->scratch);
    return 0;
}

static int open_devices(struct host *h, struct error *reterr)
{
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++) {
        const struct host_device *d = &host_devices[i];
        char path[32];
        struct stat st;
        (void)snprintf(path, sizeof path, "/dev/%s", d->name);
        h->device_fds[i] = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (h->device_fds[i] < 0 || fstat(h->device_fds[i], &st) < 0)
            return error_sys(reterr, errno, "open %s", path);
        if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(d->major, d->minor))
            return error_set(reterr, EINVAL, "%s is not the character device %u:%u", path, d->major,
                             d->minor);
    }
    return 0;
}

static int load_agent(struct host *h, const char *path, struct error *reterr)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_sys(reterr, errno, "open the agent %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size < 64 || st.st_size > AGENT_MAX_BYTES)
        return error_set(reterr, ENOEXEC, "the agent %s is not a program", path);
    h->agent_len = (size_t)st.st_size;
    h->agent = malloc(h->agent_len);
    if (!h->agent)
        return error_sys(reterr, ENOMEM, "load the agent");
    ssize_t n = read(fd, h->agent, h->agent_len);
    if (n != (ssize_t)h->agent_len || memcmp(h->agent, "\177ELF", 4) != 0)
        return error_set(reterr, ENOEXEC, "the agent %s is not a program", path);
    return 0;
}

int host_prepare(struct host *h, const char *run_dir, const char *agent_path, struct error *reterr)
{
    int r;
    h->scratch_fd = -1;
    h->agent = NULL;
    h->filter = (struct seccomp_program){0};
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++)
        h->device_fds[i] = -1;
    if ((r = enter_private_namespace(h, run_dir, reterr)) < 0 || (r = open_devices(h, reterr)) < 0 ||
        (r = load_agent(h, agent_path, reterr)) < 0 ||
        (r = seccomp_build(SECCOMP_PROFILE_SANDBOX, &h->filter, reterr)) < 0) {
        host_done(h);
        return r;
    }
    return 0;
}

void host_done(struct host *h)
{
    if (h->scratch_fd >= 0)
        (void)umount2(h->scratch, MNT_DETACH);
    close_fd(&h->scratch_fd);
    (void)rmdir(h->scratch);
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++)
        close_fd(&h->device_fds[i]);
    seccomp_program_done(&h->filter);
    free(h->agent);
    h->agent = NULL;
}

int host_agent_memfd(const struct host *h, int *ret_fd, struct error *reterr)
{
    /* kernels that know MFD_EXEC may be configured to make memfds without it not executable */
    auto_close int fd = memfd_create("agent", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("agent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || write(fd, h->agent, h->agent_len) != (ssize_t)h->agent_len)
        return error_sys(reterr, errno, "copy the agent");
    int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (fcntl(fd, F_ADD_SEALS, seals | F_SEAL_EXEC) < 0 && fcntl(fd, F_ADD_SEALS, seals) < 0)
        return error_sys(reterr, errno, "seal the agent");
    *ret_fd = take_fd(fd);
    return 0;
}

void host_raise_file_max(void)
{
    static const char setting[] = "/proc/sys/fs/file-max";
    uint64_t enough = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / OPEN_FILE_BYTES;
    char text[32];
    auto_close int fd = open(setting, O_RDWR | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    if (n > 0 && strtoull(text, NULL, 10) >= enough)
        return;
    int len = snprintf(text, sizeof text, "%" PRIu64, enough);
    if (n > 0 && pwrite(fd, text, (size_t)len, 0) == len)
        log_info("%s is %s now: memory bounds the number of open files", setting, text);
    else
        log_warn("%s cannot be raised to %s: one sandbox may take all files that the host can open", setting,
                 text);
}

int host_worker_start(const struct host *h, struct error *reterr)
{
    if (unshare(CLONE_FS) < 0 || fchdir(h->scratch_fd) < 0)
        return error_sys(reterr, errno, "give a worker its own working directory");
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
        return error_sys(reterr, errno, "keep capabilities across a change of uid");
    return 0;
}

/* Raw calls: credentials are per thread in the kernel, and the C library's wrappers would change all threads.
 */
int host_become(uint32_t id)
{
    if (syscall(SYS_setresgid, -1, id, -1) < 0 || syscall(SYS_setresuid, -1, id, -1) < 0) {
        int err = errno;
        host_become_root();
        return -err;
    }
    return 0;
}

void host_become_root(void)
{
    if (syscall(SYS_setresuid, -1, 0, -1) < 0 || syscall(SYS_setresgid, -1, 0, -1) < 0)
        abort(); /* cannot happen with CAP_SETUID; going on with a sandbox's uid would be worse */
}
