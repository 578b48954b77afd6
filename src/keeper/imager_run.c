/* SPDX-License-Identifier: Apache-2.0 */
/* imager_run.c: see imager_run.h.
 *
 * Theory of operation
 * The worker's ids come from a slot, as a sandbox's do: a user namespace is made for it by a child that does
 * nothing and ends at once. The staging directory and the trees to read are mounted through that namespace,
 * so that what the worker calls user 0 is user 0 on the disk and nobody on the host. Then this binary is
 * executed again, in namespaces of its own, with just these descriptors; it confines itself further
 * (src/image/imager_confine.c). Afterwards this thread is a small server: the worker asks, it answers, until
 * the worker's last word. */
#include "keeper/imager_run.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "keeper/image.h"
#include "keeper/mount_util.h"
#include "keeper/sandbox_internal.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

enum { RANGE = 65536, FIXED_FDS = IMAGER_FD_TREE - IMAGER_FD_BOOT };

/* Everything that lives while the worker does. */
struct work {
    struct imager_run *run;
    struct image_store *store;
    struct image image;
    struct image_pins *pins;
    struct cgroup *cgroup;
    char staging[STAGING_NAME];
    int staging_fd;
    dev_t staging_dev;
    int userns, control, pidfd, disk_mount;
    unsigned loop_index;
    int trees[IMAGER_TREES_MAX];
    size_t tree_count;
    char list[(IMAGE_LAYERS_MAX + 1) * (IMAGE_LAYER_HEX + 16) +
              IMAGE_NAME_MAX]; /* of the image being described */
    size_t list_start;         /* behind the plain image, which stays */
    char names[IMAGER_NAMES_MAX][IMAGE_REFERENCE_MAX + 1];
    size_t name_count;
    int step; /* counts messages, for tests */
    bool done;
    struct error failure;
};

static int write_map(pid_t pid, const char *name, uint32_t first)
{
    char path[64], map[48];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    (void)snprintf(map, sizeof map, "0 %u %d", first, RANGE);
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, map, strlen(map)) < 0 ? -errno : 0;
}

/* A user namespace with the slot's ids, owned by its first one; by a child that only waits for its end. */
static int make_userns(struct work *w, struct error *reterr)
{
    uint32_t uid = sandbox_uid(w->run->env, w->run->slot);
    char path[64];
    int pidfd = -1;
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&pidfd, .exit_signal = SIGCHLD};
    int r = host_become(uid);
    if (r < 0)
        return error_sys(reterr, -r, "take the worker's id");
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void)pause();
    }
    int err = errno;
    host_become_root();
    if (pid < 0)
        return error_sys(reterr, err, "make a user namespace");
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    r = write_map((pid_t)pid, "uid_map", uid);
    if (r == 0)
        r = write_map((pid_t)pid, "gid_map", uid);
    if (r == 0 && (w->userns = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        r = -errno;
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    while (waitid(P_PIDFD, (id_t)pidfd, &(siginfo_t){0}, WEXITED) < 0 && errno == EINTR)
        ;
    (void)close(pidfd);
    return r < 0 ? error_sys(reterr, -r, "make a user namespace") : 0;
}

/* A detached copy of a directory's mount with the worker's ids. */
static int map_dir(const struct work *w, int dir_fd, bool writable, int *ret, struct error *reterr)
{
    auto_close int mnt = open_tree(dir_fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (mnt < 0)
        return error_sys(reterr, errno, "copy a mount");
    uint64_t attr =
        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | (writable ? 0 : MOUNT_ATTR_RDONLY);
    int r = mount_idmap(mnt, w->userns, attr, reterr);
    if (r == 0)
        *ret = take_fd(mnt);
    return r;
}

static int add_tree(struct work *w, int fd, struct error *reterr)
{
    if (fd < 0 || w->tree_count == IMAGER_TREES_MAX)
        return error_sys(reterr, fd < 0 ? -fd : E2BIG, "open a layer");
    w->trees[w->tree_count++] = fd;
    return 0;
}

/* EXPORT: every layer of the image from the bottom up. */
static int open_layers(struct work *w, struct error *reterr)
{
    auto_close int root = -1;
    auto_close int layers = -1;
    int r = 0;
    if (w->image.root_fd >= 0) {
        r = map_dir(w, w->image.root_fd, false, &root, reterr);
        if (r == 0)
            r = add_tree(w, open_beneath(root, ".", O_RDONLY | O_DIRECTORY), reterr);
    }
    if (r == 0 && w->image.layer_count)
        r = map_dir(w, image_store_layers_fd(w->store), false, &layers, reterr);
    for (size_t i = 0; r == 0 && i < w->image.layer_count; i++) {
        char path[IMAGE_LAYER_HEX + 8];
        (void)snprintf(path, sizeof path, "%s/tree", w->image.layers[i]);
        r = add_tree(w, open_beneath(layers, path, O_RDONLY | O_DIRECTORY), reterr);
    }
    return r;
}

/* SAVE: what the sandbox has written. Its disk may be mounted already: then this is the same file system
 * again. */
static int open_upper(struct work *w, struct error *reterr)
{
    struct disk_device device = {.fd = -1};
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
    int r = disk_attach_again(w->run->env->disks, w->run->disk, &device, reterr);
    if (r == 0)
        r = disk_mount(&device, w->userns, false, false, &w->disk_mount, reterr);
    close_fd(&device.fd);
    w->loop_index = device.index;
    if (r == 0 && mount_setattr(w->disk_mount, "", AT_EMPTY_PATH, &read_only, sizeof read_only) < 0)
        r = error_sys(reterr, errno, "mount the sandbox's disk for reading");
    return r < 0 ? r : add_tree(w, open_beneath(w->disk_mount, "upper", O_RDONLY | O_DIRECTORY), reterr);
}

/* Where the list of a saved image begins: with what the sandbox's own image stands on. */
static int begin_list(struct work *w, struct error *reterr)
{
    char identity[IMAGE_IDENTITY + 1];
    if (w->image.root_fd < 0)
        return 0;
    int r = image_identity(w->image.root_fd, identity, reterr);
    if (r < 0)
        return r;
    w->list_start = (size_t)snprintf(w->list, sizeof w->list, "image:%s@%s\n", w->image.bottom, identity);
    return 0;
}

static int open_inputs(struct work *w, struct error *reterr)
{
    struct imager_run *run = w->run;
    if (run->boot.operation == IMAGER_IMPORT)
        return 0;
    int r = image_open(w->store, run->env->images_fd, run->image, &w->image, reterr);
    if (r < 0) {
        run->why = r == -ESTALE ? IMAGE_WHY_STALE : r == -ENOENT ? IMAGE_WHY_NONE : IMAGE_WHY_OTHER;
        return r;
    }
    for (size_t i = 0; i < w->image.layer_count; i++) {
        uint64_t bytes;
        (void)image_layer_have(w->pins, w->image.layers[i], &bytes);
    }
    if (run->boot.operation == IMAGER_EXPORT)
        return open_layers(w, reterr);
    r = begin_list(w, reterr);
    return r < 0 || !run->disk ? r : open_upper(w, reterr);
}

/* ---- the process */

/* After clone3: system calls only. from[i] becomes descriptor IMAGER_FD_BOOT + i. */
static _Noreturn void become_worker(const int *from, size_t count)
{
    static char *argv[] = {"silica", "image-worker", NULL};
    int high[FIXED_FDS + IMAGER_TREES_MAX];
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < count; i++)
        if ((high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 512)) < 0)
            _exit(126);
    for (size_t i = 0; i < count; i++)
        if (dup2(high[i], IMAGER_FD_BOOT + (int)i) < 0)
            _exit(126);
    if (close_range(IMAGER_FD_BOOT + (unsigned)count, ~0U, 0) < 0)
        _exit(126);
    (void)execv("/proc/self/exe", argv);
    _exit(127);
}

static int boot_memfd(struct work *w, struct error *reterr)
{
    struct imager_boot *b = &w->run->boot;
    b->version = IMAGER_VERSION;
    b->trees = (uint32_t)w->tree_count;
    auto_close int fd = memfd_create("imager", MFD_CLOEXEC);
    if (fd < 0 || pwrite(fd, b, sizeof *b, 0) != (ssize_t)sizeof *b)
        return error_sys(reterr, errno, "hand over the worker's orders");
    return take_fd(fd);
}

static int start(struct work *w, struct error *reterr)
{
    struct imager_run *run = w->run;
    int from[FIXED_FDS + IMAGER_TREES_MAX], pair[2], pidfd = -1;
    auto_close int staging = -1;
    int r = map_dir(w, w->staging_fd, true, &staging, reterr);
    if (r < 0)
        return r;
    auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    auto_close int boot = boot_memfd(w, reterr);
    if (boot < 0)
        return boot;
    if (null < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_sys(reterr, errno, "make the line to the image worker");
    w->control = pair[0];
    auto_close int theirs = pair[1];
    size_t n = 0;
    from[n++] = boot;
    from[n++] = theirs;
    from[n++] = staging;
    from[n++] = w->userns;
    from[n++] = run->stream_fd >= 0 ? run->stream_fd : null;
    from[n++] = run->doc_fd >= 0 ? run->doc_fd : null;
    from[n++] = run->changes_fd >= 0 ? run->changes_fd : null;
    for (size_t i = 0; i < w->tree_count; i++)
        from[n++] = w->trees[i];

    struct clone_args args = {
        .flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal = SIGCHLD,
    };
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        become_worker(from, n);
    if (pid < 0)
        return error_sys(reterr, errno, "start the image worker");
    w->pidfd = pidfd;
    (void)pthread_mutex_lock(run->lock);
    run->pidfd = pidfd;
    (void)pthread_mutex_unlock(run->lock);
    return cgroup_attach(w->cgroup, (pid_t)pid, reterr);
}

/* ---- its questions */

/* A directory of the staging directory is marked: nothing else can be reached through the worker's
 * descriptors. */
static int mark_opaque(const struct work *w, int fd, struct error *reterr)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_dev != w->staging_dev)
        return error_set(reterr, EBADMSG, "the worker gave something that is no directory of its own");
    return fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0) < 0
               ? error_sys(reterr, errno, "mark a directory")
               : 0;
}

static int is_opaque(int fd, uint32_t *ret, struct error *reterr)
{
    struct stat st;
    char value[2];
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
        return error_set(reterr, EBADMSG, "the worker gave something that is no directory");
    *ret = fgetxattr(fd, "trusted.overlay.opaque", value, sizeof value) == 1 && value[0] == 'y';
    return 0;
}

static int take_image(struct work *w, const char *id, struct error *reterr)
{
    struct imager_run *run = w->run;
    if (run->made_count == IMAGER_MADE_MAX)
        return error_set(reterr, E2BIG, "an archive can have %d images", IMAGER_MADE_MAX);
    int r = image_put(w->store, w->staging_fd, id, w->list, reterr);
    if (r == 0 && run->reference[0] && run->made_count == 0)
        r = image_name_set(w->store, run->reference, id, reterr);
    for (size_t i = 0; r == 0 && !run->reference[0] && i < w->name_count; i++)
        r = image_name_set(w->store, w->names[i], id, reterr);
    (void)snprintf(run->made[run->made_count++], sizeof run->made[0], "%s", id);
    w->name_count = 0;
    w->list[w->list_start] = '\0';
    return r;
}

static int stack_layer(struct work *w, const char *hex, struct error *reterr)
{
    uint64_t bytes;
    size_t n = strlen(w->list);
    if (!image_layer_have(w->pins, hex, &bytes))
        return error_set(reterr, ENOENT, "a layer is not in the store");
    if (n + IMAGE_LAYER_HEX + 16 > sizeof w->list)
        return error_set(reterr, E2BIG, "an image can have %d layers", IMAGE_LAYERS_MAX);
    (void)snprintf(w->list + n, sizeof w->list - n, "sha256:%s\n", hex);
    return 0;
}

static int add_name(struct work *w, const struct imager_message *m, struct error *reterr)
{
    if (w->name_count == IMAGER_NAMES_MAX || !keeper_image_reference_ok(m->text))
        return error_set(reterr, EBADMSG, "the worker gave a name that is none");
    (void)snprintf(w->names[w->name_count++], sizeof w->names[0], "%s", m->text);
    return 0;
}

static int answer(struct work *w, const struct imager_message *m, int fd, struct imager_answer *ret,
                  struct error *reterr)
{
    struct imager_run *run = w->run;
    char hex[IMAGE_LAYER_HEX + 1];
    hex_encode(hex, m->digest, sizeof m->digest);
    switch (m->type) {
    case IMAGER_HAVE:
        ret->yes = image_layer_have(w->pins, hex, &ret->bytes);
        return 0;
    case IMAGER_LAYER:
        return image_layer_take(w->pins, w->staging_fd, hex, m->bytes, reterr);
    case IMAGER_STACK:
        return stack_layer(w, hex, reterr);
    case IMAGER_NAME:
        return add_name(w, m, reterr);
    case IMAGER_IMAGE:
        return take_image(w, hex, reterr);
    case IMAGER_OPAQUE:
        return mark_opaque(w, fd, reterr);
    case IMAGER_IS_OPAQUE:
        return is_opaque(fd, &ret->yes, reterr);
    case IMAGER_PROGRESS:
        atomic_store(&run->bytes, m->bytes);
        atomic_store(&run->layer, m->index);
        atomic_store(&run->layers, m->count);
        return 0;
    case IMAGER_FAILED:
        run->why = m->why < IMAGE_WHY_COUNT ? m->why : IMAGE_WHY_OTHER;
        if (!w->failure.code)
            (void)error_set(&w->failure, m->err > 0 && m->err < 4096 ? m->err : EIO, "%.255s", m->text);
        w->done = true;
        return 0;
    case IMAGER_DONE:
        w->done = true;
        return 0;
    default:
        return error_set(reterr, EBADMSG, "the worker asked something that is no question");
    }
}

static int serve(struct work *w, struct error *reterr)
{
    for (;;) {
        struct imager_message m;
        struct imager_answer a = {0};
        auto_close int fd = -1;
        ssize_t n = socket_recv_fd(w->control, &m, sizeof m, &fd);
        if (n == -EINTR)
            continue;
        if (n == 0) /* the end of the process */
            break;
        if (n != (ssize_t)sizeof m || !memchr(m.text, '\0', sizeof m.text))
            return error_set(reterr, EBADMSG, "the image worker sent a message of the wrong shape");
        int r = m.type == IMAGER_PROGRESS ? 0 : failpoint_hit("image", w->step++, reterr);
        if (r == 0)
            r = answer(w, &m, fd, &a, reterr);
        if (m.type == IMAGER_PROGRESS || w->done)
            continue;
        a.error = -r;
        if (r < 0)
            w->failure = *reterr; /* says more than the worker can know */
        if (send(w->control, &a, sizeof a, MSG_NOSIGNAL) != (ssize_t)sizeof a)
            break;
    }
    if (w->failure.code) {
        *reterr = w->failure;
        return -w->failure.code;
    }
    return w->done ? 0 : error_set(reterr, EIO, "the image worker ended unexpectedly");
}

static void finish(struct work *w)
{
    struct imager_run *run = w->run;
    siginfo_t si = {0};
    close_fd(&w->control);
    if (w->pidfd >= 0) {
        (void)pthread_mutex_lock(run->lock);
        run->pidfd = -1;
        (void)pthread_mutex_unlock(run->lock);
        (void)syscall(SYS_pidfd_send_signal, w->pidfd, SIGKILL, NULL, 0);
        while (waitid(P_PIDFD, (id_t)w->pidfd, &si, WEXITED) < 0 && errno == EINTR)
            ;
        if (si.si_code != CLD_EXITED && !w->done)
            log_warn("the image worker was ended by signal %d", si.si_status);
    }
    close_fd(&w->pidfd);
    cgroup_end(w->cgroup);
    for (size_t i = 0; i < w->tree_count; i++)
        close_fd(&w->trees[i]);
    if (w->disk_mount >= 0) {
        close_fd(&w->disk_mount);
        if (!run->disk_shared)
            disk_wait_unused(run->env->disks, w->loop_index);
    }
    close_fd(&w->userns);
    close_fd(&w->staging_fd);
    if (w->staging[0])
        image_staging_remove(w->store, w->staging);
    image_done(&w->image);
    image_pins_free(w->pins);
}

int imager_run(struct imager_run *run, struct error *reterr)
{
    /* archives with large windows and directories with many names take memory; files do not count, they can
     * be written back */
    const struct limits limits = {.memory_bytes = UINT64_C(768) << 20,
                                  .disk_bytes = UINT64_C(1) << 30,
                                  .disk_inodes = 1 << 16,
                                  .cpu_milli = 4000,
                                  .tasks = 16};
    struct stat st;
    auto_free struct work *w = calloc(1, sizeof *w);
    if (!w)
        return error_sys(reterr, ENOMEM, "begin an image operation");
    *w = (struct work){.run = run,
                       .store = run->env->images,
                       .image = {.root_fd = -1, .layers_fd = -1},
                       .staging_fd = -1,
                       .userns = -1,
                       .control = -1,
                       .pidfd = -1,
                       .disk_mount = -1};
    int r = image_pins_new(w->store, &w->pins, reterr);
    if (r == 0)
        r = image_staging_make(w->store, w->staging, &w->staging_fd, reterr);
    if (r == 0 && fstat(w->staging_fd, &st) == 0)
        w->staging_dev = st.st_dev;
    if (r == 0)
        r = make_userns(w, reterr);
    if (r == 0)
        r = open_inputs(w, reterr);
    if (r == 0)
        r = cgroup_create(run->env->cgroups, run->slot, &limits, 0, &w->cgroup, reterr);
    if (r == 0)
        r = start(w, reterr);
    if (r == 0)
        r = serve(w, reterr);
    finish(w);
    return r;
}
