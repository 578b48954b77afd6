/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c: see doctor.h. A layer is tried, not looked up: version numbers and configuration files lie more
 * often than system calls do. Whatever a try changes, it changes in a child process that ends with it. */
#include "keeper/doctor.h"
#include "base/clock.h"
#include "keeper/bandwidth.h"
#include "keeper/network.h"
#include "keeper/network_inside.h"
#include "keeper/nft_redirect.h"
#include "keeper/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { TRIAL_SLOT = 4093 };

struct doctor {
    const struct doctor_config *config;
    void (*report)(const struct doctor_line *line, void *arg);
    void *arg;
    int missing;
};

static void tell(struct doctor *d, const char *layer, enum doctor_verdict verdict, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
static void tell(struct doctor *d, const char *layer, enum doctor_verdict verdict, const char *fmt, ...)
{
    struct doctor_line line = {.layer = layer, .verdict = verdict};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line.detail, sizeof line.detail, fmt, ap);
    va_end(ap);
    d->missing += verdict == DOCTOR_MISSING;
    d->report(&line, d->arg);
}

/* Runs attempt in a child; its errno, 0 for success. */
static int in_child(int (*attempt)(void *arg), void *arg)
{
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        int err = attempt(arg);
        _exit(err > 0 && err < 255 ? err : err ? 255 : 0);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static void check_rights(struct doctor *d)
{
    static const struct {
        int cap;
        const char *name;
    } needed[] = {
        {CAP_SYS_ADMIN, "SYS_ADMIN"},   {CAP_SETUID, "SETUID"},   {CAP_SETGID, "SETGID"},
        {CAP_CHOWN, "CHOWN"},           {CAP_MKNOD, "MKNOD"},     {CAP_KILL, "KILL"},
        {CAP_SYS_CHROOT, "SYS_CHROOT"}, {CAP_SETPCAP, "SETPCAP"}, {CAP_DAC_OVERRIDE, "DAC_OVERRIDE"}};
    char lacking[200] = "";
    size_t n = 0;
    if (geteuid() != 0) {
        tell(d, "rights", DOCTOR_MISSING,
             "not root: run `sudo silica doctor`; the daemon needs root as well");
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
        if (prctl(PR_CAPBSET_READ, needed[i].cap, 0, 0, 0) != 1)
            n += (size_t)snprintf(lacking + n, sizeof lacking - n, " CAP_%s", needed[i].name);
    if (n)
        tell(d, "rights", DOCTOR_MISSING, "root without%s: give the container or service these capabilities",
             lacking);
    else
        tell(d, "rights", DOCTOR_OK, "root with the capabilities the keeper needs");
}

static int try_namespaces(void *arg)
{
    struct clone_args args = {.flags = *(uint64_t *)arg, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        _exit(0);
    if (pid < 0)
        return errno;
    (void)waitpid((pid_t)pid, NULL, 0);
    return 0;
}

static void check_namespaces(struct doctor *d)
{
    static const struct {
        const char *name;
        uint64_t flag;
    } kinds[] = {{"user namespace", CLONE_NEWUSER},    {"mount namespace", CLONE_NEWNS},
                 {"pid namespace", CLONE_NEWPID},      {"network namespace", CLONE_NEWNET},
                 {"ipc namespace", CLONE_NEWIPC},      {"uts namespace", CLONE_NEWUTS},
                 {"cgroup namespace", CLONE_NEWCGROUP}};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        uint64_t flag = kinds[i].flag;
        int err = in_child(try_namespaces, &flag);
        if (err == 0)
            tell(d, kinds[i].name, DOCTOR_OK, "can be made");
        else
            tell(d, kinds[i].name, DOCTOR_MISSING,
                 "cannot be made (%s): see sysctl user.max_*_namespaces and the kernel's configuration",
                 strerror(err));
    }
}

/* A mount with mapped ids on the very file system the images are on. */
static int try_idmap(void *arg)
{
    int ready[2];
    char go = 0, path[64];
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        pipe2(ready, O_CLOEXEC) < 0)
        return errno;
    struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        (void)close(ready[1]);
        (void)!read(ready[0], &go, 1);
        _exit(0);
    }
    if (pid < 0)
        return errno;
    int err = 0;
    static const char *const maps[] = {"uid_map", "gid_map"};
    for (size_t i = 0; i < ARRAY_SIZE(maps) && !err; i++) {
        (void)snprintf(path, sizeof path, "/proc/%ld/%s", pid, maps[i]);
        auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0 1879048192 65536", 18) < 0)
            err = errno;
    }
    (void)snprintf(path, sizeof path, "/proc/%ld/ns/user", pid);
    auto_close int userns = open(path, O_RDONLY | O_CLOEXEC);
    auto_close int tree = open_tree(AT_FDCWD, arg, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    if (!err && (userns < 0 || tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0))
        err = errno;
    (void)close(ready[1]);
    (void)waitpid((pid_t)pid, NULL, 0);
    return err;
}

static int try_filesystem(void *arg)
{
    int fs = fsopen(arg, FSOPEN_CLOEXEC);
    return fs < 0 ? errno : 0;
}

static void check_storage(struct doctor *d)
{
    static const char *const kinds[] = {"overlay", "ext4", "tmpfs", "devpts", "mqueue"};
    struct stat st;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        int err = in_child(try_filesystem, (void *)(uintptr_t)kinds[i]);
        if (err)
            tell(d, kinds[i], DOCTOR_MISSING, "file system not available (%s): try `modprobe %s`",
                 strerror(err), kinds[i]);
        else
            tell(d, kinds[i], DOCTOR_OK, "file system available");
    }
    int err = in_child(
        try_idmap, (void *)(uintptr_t)(stat(d->config->data_dir, &st) == 0 ? d->config->data_dir : "/var"));
    if (err)
        tell(d, "id-mapped mounts", DOCTOR_MISSING,
             "refused for %s (%s): Linux 5.19 or newer is needed, and a file system such as ext4, xfs or "
             "btrfs",
             d->config->data_dir, strerror(err));
    else
        tell(d, "id-mapped mounts", DOCTOR_OK, "work where the images are");
    auto_close int loop = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (loop < 0)
        tell(d, "loop devices", DOCTOR_MISSING, "/dev/loop-control: %s; try `modprobe loop`",
             strerror(errno));
    else
        tell(d, "loop devices", DOCTOR_OK, "quota disks can be attached");
    if (access("/usr/sbin/mkfs.ext4", X_OK) < 0 && access("/sbin/mkfs.ext4", X_OK) < 0)
        tell(d, "mkfs.ext4", DOCTOR_MISSING, "not found: apt-get install e2fsprogs");
    else
        tell(d, "mkfs.ext4", DOCTOR_OK, "found");
}

static int try_seccomp(void *arg)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return errno;
    return -seccomp_load(arg);
}

static void check_seccomp(struct doctor *d)
{
    struct seccomp_program p = {0};
    struct error e = {0};
    if (seccomp_build(SECCOMP_PROFILE_SANDBOX, &p, &e) < 0) {
        tell(d, "seccomp", DOCTOR_MISSING, "%s", e.msg);
        return;
    }
    int err = in_child(try_seccomp, &p);
    if (err)
        tell(d, "seccomp", DOCTOR_MISSING,
             "the filter cannot be loaded (%s): CONFIG_SECCOMP_FILTER is needed", strerror(err));
    else
        tell(d, "seccomp", DOCTOR_OK, "allow-list of %u instructions loads", p.len);
    seccomp_program_done(&p);
}

static bool mandatory(enum cgroup_controller c)
{
    return c == CGROUP_MEMORY || c == CGROUP_PIDS || c == CGROUP_CPU;
}

int doctor_controllers(const struct cgroup_host *h, struct error *reterr)
{
    for (int c = 0; c < CGROUP_CONTROLLER_COUNT; c++)
        if (mandatory((enum cgroup_controller)c) &&
            cgroup_version_of(h, (enum cgroup_controller)c) == CGROUP_MISSING)
            return error_set(reterr, EOPNOTSUPP,
                             "this host has no control group controller '%s'; mount it, or enable it on the "
                             "kernel command line "
                             "(see `silica doctor`)",
                             cgroup_controller_name((enum cgroup_controller)c));
    return 0;
}

static void check_cgroups(struct doctor *d)
{
    static const char *const versions[] = {
        [CGROUP_MISSING] = "missing", [CGROUP_V1] = "version 1", [CGROUP_V2] = "version 2"};
    static const char *const layers[] = {
        [CGROUP_MEMORY] = "memory limit", [CGROUP_PIDS] = "tasks limit",     [CGROUP_CPU] = "cpu limit",
        [CGROUP_IO] = "disk I/O limit",   [CGROUP_DEVICES] = "devices rule", [CGROUP_FREEZER] = "freezer"};
    struct cgroup_host *h;
    struct error e = {0};
    char prefix[40];
    (void)snprintf(prefix, sizeof prefix, "silica-doctor-%d", (int)getpid());
    if (cgroup_host_open(prefix, &h, &e) < 0) {
        tell(d, "control groups", DOCTOR_MISSING, "%s", e.msg);
        return;
    }
    for (int c = 0; c < CGROUP_CONTROLLER_COUNT; c++) {
        enum cgroup_version v = cgroup_version_of(h, (enum cgroup_controller)c);
        enum doctor_verdict verdict = v != CGROUP_MISSING                    ? DOCTOR_OK
                                      : mandatory((enum cgroup_controller)c) ? DOCTOR_MISSING
                                                                             : DOCTOR_WARN;
        tell(d, layers[c], verdict, "control group controller '%s': %s",
             cgroup_controller_name((enum cgroup_controller)c), versions[v]);
    }
    (void)cgroup_host_remove(h);
    cgroup_host_free(h);
}

/* What some sandboxes' networks need and others do not. */
static void check_network_extras(struct doctor *d)
{
    static const struct {
        const char *layer, *good, *modules, *without;
        int (*attempt)(void *arg);
    } rows[] = {
        {"allow-lists", "names can be answered inside sandboxes", "nft_chain_nat nft_redir",
         "sandboxes with an allow-list do not start", network_try_resolver},
        {"network log", "connections and refused packets are told",
         "nf_conntrack_netlink nfnetlink_log nft_log", "`silica net log` lacks them", network_try_log},
        {"bandwidth limit", "links can be shaped", "sch_tbf",
         "sandboxes with a limit of bandwidth do not start", bandwidth_try},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int err = in_child(rows[i].attempt, NULL);
        if (err)
            tell(d, rows[i].layer, DOCTOR_WARN, "not available (%s): try `modprobe -a %s`; until then %s",
                 strerror(err), rows[i].modules, rows[i].without);
        else
            tell(d, rows[i].layer, DOCTOR_OK, "%s", rows[i].good);
    }
}

/* Off unless configured, so that a host without it lacks nothing. */
static void check_ipv6(struct doctor *d)
{
    char uplink[IFNAMSIZ] = "";
    bool both = true;
    int err = in_child(network_try_filter, &both);
    int r = err ? 0 : network_uplink(NFT_V6, uplink);
    if (err == EAFNOSUPPORT)
        tell(d, "IPv6", DOCTOR_OK, "this kernel has none: `silica serve --ipv6` is refused, IPv4 needs none");
    else if (err)
        tell(d, "IPv6", DOCTOR_WARN,
             "its packet filter cannot be made (%s): `silica serve --ipv6` is refused, IPv4 needs none",
             strerror(err));
    else if (r == 0 || r == 1)
        tell(d, "IPv6", DOCTOR_OK, "can be given to sandboxes with `silica serve --ipv6 on`, out through %s",
             uplink);
    else if (r == -ENOENT)
        tell(d, "IPv6", DOCTOR_OK,
             "off for %s, and this kernel forwards it for the whole host only: before `silica serve --ipv6 "
             "on` "
             "set net.ipv6.conf.all.forwarding=1",
             uplink);
    else
        tell(d, "IPv6", DOCTOR_OK,
             "no way to the internet (%s): `silica serve --ipv6` is refused, IPv4 needs none", strerror(-r));
}

/* All of it is wanted, none of it needed: without a network, sandboxes run in mode `none`. */
static void check_network(struct doctor *d)
{
    static const char without[] = "until then sandboxes have no network";
    uint32_t resolvers[NETWORK_RESOLVERS_MAX];
    char uplink[IFNAMSIZ] = "";
    int err = in_child(network_try_link, NULL);
    if (err)
        tell(d, "network links", DOCTOR_WARN, "a veth pair cannot be made (%s): try `modprobe veth`; %s",
             strerror(err), without);
    else
        tell(d, "network links", DOCTOR_OK, "veth pairs can be made");
    err = in_child(network_try_filter, NULL);
    if (err)
        tell(d, "packet filter", DOCTOR_WARN,
             "the table cannot be made (%s): try `modprobe -a nf_tables nft_ct nft_masq nft_limit "
             "nft_connlimit`; %s",
             strerror(err), without);
    else
        tell(d, "packet filter", DOCTOR_OK,
             "nf_tables with masquerading, connection tracking, counts and rates");
    check_network_extras(d);
    err = in_child(nft_redirect_try, NULL);
    if (err)
        tell(d, "sidecars", DOCTOR_WARN,
             "connections cannot be redirected (%s): try `modprobe -a nft_chain_nat nft_redir`; until then "
             "containers with a sidecar do not start",
             strerror(err));
    else
        tell(d, "sidecars", DOCTOR_OK, "connections of containers can be redirected");
    int r = network_uplink(NFT_V4, uplink);
    if (r == 1)
        tell(d, "forwarding", DOCTOR_OK, "on for %s", uplink);
    else if (r == 0)
        tell(d, "forwarding", DOCTOR_OK, "off for %s: the daemon turns it on for sandboxes' answers only",
             uplink);
    else if (r == -EROFS)
        tell(d, "forwarding", DOCTOR_WARN,
             "off for %s, and /proc/sys is read-only: set net.ipv4.ip_forward=1 outside; %s", uplink,
             without);
    else
        tell(d, "forwarding", DOCTOR_WARN, "no way to the internet (%s): set a default route", strerror(-r));
    check_ipv6(d);
    if (network_host_resolvers(false, resolvers))
        tell(d, "name servers", DOCTOR_OK, "this host's can be given to sandboxes");
    else
        tell(d, "name servers", DOCTOR_WARN,
             "none in /etc/resolv.conf that a sandbox could reach: `silica serve --dns ADDRESS` sets one");
}

static void check_extras(struct doctor *d)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi > 0)
        tell(d, "landlock", DOCTOR_OK, "ABI %ld (not used yet)", abi);
    else
        tell(d, "landlock", DOCTOR_WARN, "not available (%s); an optional third layer", strerror(errno));
}

static void check_files(struct doctor *d)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/images/%s/rootfs", d->config->data_dir, d->config->image);
    if (access(path, X_OK) < 0)
        tell(d, "image", DOCTOR_MISSING, "no image '%s' in %s: `scripts/image --data %s` makes it",
             d->config->image, d->config->data_dir, d->config->data_dir);
    else
        tell(d, "image", DOCTOR_OK, "'%s' is there", d->config->image);
    if (access(d->config->agent_path, R_OK) < 0)
        tell(d, "agent", DOCTOR_MISSING, "%s: %s", d->config->agent_path, strerror(errno));
    else
        tell(d, "agent", DOCTOR_OK, "%s", d->config->agent_path);
}

/* ---- the proof: one whole sandbox, built by the same plan as any other */

static int open_trial_dirs(const char *dir, const struct doctor_config *config, struct keeper_env *env,
                           int *disks)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/slots", dir);
    if (mkdir(path, 0700) < 0 || (env->slots_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -errno;
    (void)snprintf(path, sizeof path, "%s/disks", dir);
    if (mkdir(path, 0700) < 0 || (*disks = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -errno;
    (void)snprintf(path, sizeof path, "%s/images", config->data_dir);
    env->images_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return env->images_fd < 0 ? -errno : 0;
}

static int trial(const char *dir, const struct doctor_config *config, int64_t *ret_us, struct error *e)
{
    struct keeper_env env = {.images_fd = -1, .slots_fd = -1};
    struct sandbox_spec spec = {
        .slot = TRIAL_SLOT, .disk = 1, .fresh_disk = true, .limits = instance_types[0].limits};
    struct sandbox *sb;
    char prefix[40];
    int disks = -1, r;
    env.host.uid_base = 0x70000000;
    (void)snprintf(spec.image, sizeof spec.image, "%s", config->image);
    (void)snprintf(prefix, sizeof prefix, "silica-doctor-%d", (int)getpid());
    r = host_prepare(&env.host, dir, config->agent_path, e);
    if (r < 0)
        return r;
    if ((r = open_trial_dirs(dir, config, &env, &disks)) < 0)
        (void)error_sys(e, -r, "make directories for the trial");
    if (r == 0 && (r = cgroup_host_open(prefix, &env.cgroups, e)) == 0 &&
        (r = disk_store_open(disks, env.host.scratch_fd, &env.disks, e)) == 0 &&
        (r = host_worker_start(&env.host, e)) == 0) {
        int64_t start = clock_mono_us();
        r = sandbox_start(&env, &spec, &sb, e);
        if (r == 0) {
            *ret_us = clock_mono_us() - start;
            sandbox_stop(&env, sb, 0, true, NULL);
            (void)disk_remove(env.disks, spec.disk, NULL);
        }
    }
    disk_store_free(env.disks);
    if (env.cgroups)
        (void)cgroup_host_remove(env.cgroups);
    cgroup_host_free(env.cgroups);
    host_done(&env.host);
    close_fd(&env.images_fd);
    close_fd(&env.slots_fd);
    close_fd(&disks);
    return r;
}

struct trial_result {
    int64_t us;
    struct error error;
};

static void check_trial(struct doctor *d)
{
    char dir[] = "/run/silica-doctor-XXXXXX", path[64];
    struct trial_result result = {0};
    int channel[2];
    if (!mkdtemp(dir) || pipe2(channel, O_CLOEXEC) < 0) {
        tell(d, "a whole sandbox", DOCTOR_MISSING, "no place for a trial: %s", strerror(errno));
        return;
    }
    pid_t pid = fork(); /* the trial changes its process for good: namespace, working directory, securebits */
    if (pid == 0) {
        (void)trial(dir, d->config, &result.us, &result.error);
        (void)!write(channel[1], &result, sizeof result);
        _exit(0);
    }
    (void)close(channel[1]);
    if (pid < 0 || read(channel[0], &result, sizeof result) != (ssize_t)sizeof result)
        (void)error_set(&result.error, EIO, "the trial died");
    (void)close(channel[0]);
    (void)waitpid(pid, NULL, 0);
    static const char *const left[] = {"slots", "disks"};
    for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, left[i]);
        (void)rmdir(path);
    }
    (void)rmdir(dir);
    if (result.error.code)
        tell(d, "a whole sandbox", DOCTOR_MISSING, "%s", result.error.msg);
    else
        tell(d, "a whole sandbox", DOCTOR_OK, "made, checked and ended; made in %.1f ms",
             (double)result.us / 1000);
}

int doctor_run(const struct doctor_config *config, void (*report)(const struct doctor_line *line, void *arg),
               void *arg)
{
    struct doctor d = {.config = config, .report = report, .arg = arg};
    check_rights(&d);
    if (d.missing)
        return d.missing; /* every further try would fail for the same reason */
    check_namespaces(&d);
    check_storage(&d);
    check_seccomp(&d);
    check_cgroups(&d);
    check_network(&d);
    check_extras(&d);
    check_files(&d);
    if (!d.missing)
        check_trial(&d);
    return d.missing;
}
