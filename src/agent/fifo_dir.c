/* SPDX-License-Identifier: Apache-2.0 */
/* fifo_dir.c: see fifo_dir.h.
 *
 * A directory of our own is named after its owner: pid namespace, pid and the time at which that process
 * started. So the next agent can tell a directory whose owner is dead from one that is in use, also by an
 * agent in another container that shares the file system. */
#include "agent/fifo_dir.h"
#include "agent/control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX ".s"

static bool use_dir(struct agent *a, const char *dir)
{
    struct stat st;
    if (!shell_dir_valid(dir) || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || access(dir, W_OK | X_OK) < 0)
        return false;
    (void)snprintf(a->fifo_dir, sizeof a->fifo_dir, "%s", dir);
    return true;
}

/* In clock ticks since boot; 0: there is no such process. */
static unsigned long long start_time(int pid)
{
    char path[32], text[1024];
    unsigned long long ticks;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *p = strrchr(text, ')'); /* the name may contain anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p && sscanf(p, " %llu", &ticks) == 1 ? ticks : 0;
}

static unsigned pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (unsigned)st.st_ino : 0;
}

static void remove_dir(int base_fd, const char *name)
{
    int fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        close_fd(&fd);
        return;
    }
    for (struct dirent *d; (d = readdir(dir));)
        (void)unlinkat(dirfd(dir), d->d_name, 0); /* "." and ".." refuse */
    (void)closedir(dir);
    (void)unlinkat(base_fd, name, AT_REMOVEDIR);
}

/* True for a directory of ours whose owner was in this pid namespace and is dead. */
static bool is_stale(int base_fd, const char *name, unsigned ns)
{
    struct stat st;
    unsigned owner_ns;
    int pid, used = 0;
    unsigned long long start;
    return sscanf(name, PREFIX "%x-%d-%llx%n", &owner_ns, &pid, &start, &used) == 3 && !name[used] &&
           owner_ns == ns && pid > 0 && start_time(pid) != start &&
           fstatat(base_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid();
}

static void sweep(const char *base, unsigned ns)
{
    DIR *dir = opendir(base);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (is_stale(dirfd(dir), d->d_name, ns))
            remove_dir(dirfd(dir), d->d_name);
    if (dir)
        (void)closedir(dir);
}

int fifo_dir_choose(struct agent *a, struct error *reterr)
{
    const char *const bases[] = {"/dev/shm", agent_getenv(a, "TMPDIR"), "/tmp"};
    if (a->sandbox && use_dir(a, AGENT_FIFO_DIR))
        return 0;
    unsigned ns = pid_namespace();
    unsigned long long start = start_time(getpid());
    for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
        char dir[SHELL_DIR_MAX + 1];
        if (!bases[i])
            continue;
        if (ns && start)
            sweep(bases[i], ns);
        if (snprintf(dir, sizeof dir, "%s/" PREFIX "%x-%d-%llx", bases[i], ns, (int)getpid(), start) >=
                (int)sizeof dir ||
            mkdir(dir, 0700) < 0)
            continue;
        if (use_dir(a, dir)) {
            a->own_fifo_dir = true;
            return 0;
        }
        (void)rmdir(dir);
    }
    return error_set(reterr, ENOENT, "no directory for FIFOs: tried /dev/shm, $TMPDIR and /tmp");
}

void fifo_dir_remove(struct agent *a)
{
    if (a->own_fifo_dir)
        remove_dir(AT_FDCWD, a->fifo_dir);
}
