/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.c: the privileged process from start to end: prepare the host, find what an earlier keeper left,
 * serve, leave.
 *
 * The order at start matters: nothing is swept before everything that still runs has been adopted, and
 * nothing is served before the sweep, so that a slot, a disk or a control group is never two sandboxes'. */
#include "keeper/keeper.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "keeper/doctor.h"
#include "keeper/image_store.h"
#include "keeper/keeper_internal.h"
#include "keeper/record.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { BUILDERS = 4, ENDERS = 4, HOST_CHECK_MS = 200, SLOTS_FEW = 8 };

/* ---- slots and admission */

int keeper_slot_take(struct keeper *k, unsigned *ret, struct error *reterr)
{
    /* in turn: the kernel takes a moment to clear away the namespaces and links of a slot's last owner */
    for (unsigned i = 0; i < k->config->slots; i++) {
        unsigned slot = (k->next_slot + i) % k->config->slots;
        if (k->slot_used[slot])
            continue;
        k->slot_used[slot] = 1;
        k->next_slot = slot + 1;
        *ret = slot;
        return 0;
    }
    return error_set(reterr, EAGAIN, "all %u places for running sandboxes are taken", k->config->slots);
}

bool keeper_slots_scarce(const struct keeper *k)
{
    unsigned vacant = 0;
    for (unsigned i = 0; i < k->config->slots; i++)
        vacant += !k->slot_used[i];
    return vacant <= MAX(k->config->slots / 8, (unsigned)SLOTS_FEW);
}

void keeper_slot_release(struct keeper *k, unsigned slot)
{
    k->slot_used[slot] = 0;
}

static uint64_t read_field(const char *path, const char *format)
{
    char text[2048];
    unsigned long long v = 0;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return UINT64_MAX; /* cannot be told: do not refuse because of it */
    text[n] = '\0';
    const char *key = strchr(format, '%');
    char name[32];
    (void)snprintf(name, sizeof name, "%.*s", (int)(key - format), format);
    const char *p = strstr(text, name);
    return p && sscanf(p + strlen(name), "%llu", &v) == 1 ? v : UINT64_MAX;
}

static void check_host(struct keeper *k)
{
    uint64_t disk = UINT64_MAX;
    uint64_t memory_kib = read_field("/proc/meminfo", "MemAvailable:%llu");
    uint64_t pid_max = read_field("/proc/sys/kernel/pid_max", "%llu");
    uint64_t tasks = read_field("/proc/loadavg", "/%llu");
    (void)disk_store_free_bytes(k->env.disks, &disk);
    k->host_full = true;
    if (disk < k->config->disk_margin)
        (void)snprintf(k->host_full_why, sizeof k->host_full_why, "the host's disk is nearly full");
    else if (failpoint_hit("memory", 0, NULL) < 0 ||
             (memory_kib != UINT64_MAX && memory_kib * 1024 < k->config->memory_margin)) {
        (void)snprintf(k->host_full_why, sizeof k->host_full_why, "the host's memory is nearly used up");
        kept_release(k, 0); /* not much, but nobody needs it */
        spare_disks_release(k);
    } else if (tasks != UINT64_MAX && tasks > pid_max / 10 * 8)
        (void)snprintf(k->host_full_why, sizeof k->host_full_why,
                       "the host runs nearly as many tasks as it can");
    else
        k->host_full = false;
}

int keeper_admit(struct keeper *k, struct error *reterr)
{
    int64_t now = clock_mono_ms();
    if (now - k->meminfo_ms >= HOST_CHECK_MS) {
        check_host(k);
        k->meminfo_ms = now;
    }
    return k->host_full ? error_set(reterr, EAGAIN, "%s", k->host_full_why) : 0;
}

/* ---- ending sandboxes */

struct end_job {
    struct job job;
    struct keeper *keeper;
    struct sandbox *sb;
    unsigned slot;
    bool has_slot, network;
    struct network_terms terms;
    int polite_ms;
    uint64_t remove_disk;
    struct disk_hold *hold;   /* the box's, which is busy meanwhile, or the last of these: */
    struct disk_hold removed; /* what was held of a disk that is removed ... */
    struct disk_hold renewed; /* ... or made anew */
    void (*done)(void *arg);
    void *arg;
};

static void end_run(struct job *j)
{
    struct end_job *job = container_of(j, struct end_job, job);
    struct keeper_env *env = &job->keeper->env;
    struct error e;
    if (job->sb)
        sandbox_stop(env, job->sb, job->polite_ms, !job->remove_disk, job->hold);
    else if (job->hold && job->remove_disk)
        job->removed = (struct disk_hold){take_fd(job->hold->fd), job->hold->index};
    else if (job->hold)
        disk_let_go(env->disks, job->hold);
    (void)failpoint_hit("end", 2, NULL);
    /* here and not on the loop: giving back the blocks of a large image takes milliseconds */
    if (job->remove_disk && job->renewed.fd < 0 && disk_remove(env->disks, job->remove_disk, &e) < 0)
        log_warn("%s; the next start sweeps it", e.msg);
    (void)failpoint_hit("end", 3, NULL);
}

/* Takes 20 ms, and nobody waits for it: but the slot's next owner for the network, and none for the disk. */
static void rest_run(struct job *j)
{
    struct end_job *job = container_of(j, struct end_job, job);
    struct keeper_env *env = &job->keeper->env;
    if (job->network)
        network_disconnect(env->network, job->slot, &job->terms);
    disk_let_go(env->disks, &job->removed);
}

static void rest_done(struct job *j)
{
    struct end_job *job = container_of(j, struct end_job, job);
    struct keeper *k = job->keeper;
    k->jobs--;
    if (job->has_slot)
        keeper_slot_release(k, job->slot);
    free(job);
    trim_later(k);
    keeper_idle(k);
}

static void end_done(struct job *j)
{
    struct end_job *job = container_of(j, struct end_job, job);
    if (job->renewed.fd >= 0)
        spare_disks_put(job->keeper, job->remove_disk, &job->renewed);
    job->done(job->arg);
    if (job->network || job->removed.fd >= 0) {
        job->job = (struct job){.run = rest_run, .done = rest_done};
        workers_submit(job->keeper->enders, &job->job, false);
        return;
    }
    rest_done(j);
}

void keeper_end_sandbox(struct keeper *k, struct sandbox *sb, int polite_ms, uint64_t remove_disk,
                        struct disk_hold *hold, void (*done)(void *arg), void *arg)
{
    struct end_job *job = calloc(1, sizeof *job);
    if (!job)
        abort(); /* the sandbox would be lost to us but alive; the next keeper adopts it */
    *job = (struct end_job){.job = {.run = end_run, .done = end_done},
                            .keeper = k,
                            .sb = sb,
                            .slot = sb ? sb->spec.slot : 0,
                            .has_slot = sb != NULL,
                            .network = sb && sb->spec.network && k->env.network,
                            .terms = sb ? sb->spec.terms : (struct network_terms){0},
                            .polite_ms = polite_ms,
                            .remove_disk = remove_disk,
                            .hold = hold,
                            .removed = {.fd = -1},
                            .renewed = {.fd = -1},
                            .done = done,
                            .arg = arg};
    if (sb && remove_disk && spare_disks_wanted(k, &sb->spec.limits))
        job->hold = &job->renewed;
    k->jobs++;
    workers_submit(k->enders, &job->job, true);
}

void keeper_idle(struct keeper *k)
{
    if (k->stopping) {
        if (k->jobs == 0)
            loop_stop(k->loop);
        return;
    }
    pool_refill(k);
}

/* ---- start */

static int open_dir(const char *parent, const char *name, mode_t mode, int *ret, struct error *reterr)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", parent, name);
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return error_sys(reterr, errno, "make %s", path);
    *ret = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? error_sys(reterr, errno, "open %s", path) : 0;
}

/* Held for the keeper's life; the kernel lets go of it when we die, however we die. */
static int take_lock(const char *data_dir, struct error *reterr)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/lock", data_dir);
    auto_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(reterr, errno, "open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(reterr, EBUSY, "another silica already serves %s", data_dir);
    return take_fd(fd);
}

/* The container engine's socket (docs/docker.md): whoever can open it rules all containers. */
static int listen_docker(struct keeper *k, struct error *reterr)
{
    char where[512];
    if ((size_t)snprintf(where, sizeof where, "unix:%s/docker.sock", k->config->run_dir) >= sizeof where)
        return error_set(reterr, ENAMETOOLONG, "%s is too long", k->config->run_dir);
    return socket_listen_patiently(where, &k->docker_fd, reterr);
}

static void row_found(const struct ledger_row *row, void *arg)
{
    struct keeper *k = arg;
    if (box_restore(k, row) < 0)
        log_error("out of memory: sandbox %s is left alone", row->id);
    if (row->disk >= k->next_disk)
        k->next_disk = row->disk + 1;
}

static void slot_found(unsigned slot, void *arg)
{
    struct keeper *k = arg;
    struct sandbox *sb;
    struct error e = {0};
    if (slot >= k->config->slots || k->slot_used[slot])
        return;
    if (sandbox_adopt(&k->env, slot, &sb, &e) < 0) {
        sandbox_sweep(&k->env, slot);
        return;
    }
    k->slot_used[slot] = 1;
    (void)failpoint_hit("adopt", 0, NULL);
    if (box_adopt(k, sb)) {
        (void)failpoint_hit("adopt", 1, NULL);
        log_info("adopted sandbox %s in slot %u", sb->id, slot);
        return;
    }
    if (sb->spec.network)
        network_disconnect(k->env.network, slot, &sb->spec.terms);
    sandbox_stop(&k->env, sb, 0, true, NULL); /* prepared but nobody's, or destroyed in the ledger */
    k->slot_used[slot] = 0;
}

static void group_found(unsigned slot, void *arg)
{
    struct keeper *k = arg;
    if (slot < k->config->slots && !k->slot_used[slot])
        sandbox_sweep(&k->env, slot);
}

static void disk_found(uint64_t disk, void *arg)
{
    struct keeper *k = arg;
    if (disk >= k->next_disk)
        k->next_disk = disk + 1;
    if (!box_knows_disk(k, disk) && disk_remove(k->env.disks, disk, NULL) == 0)
        log_info("removed disk image %llu, which belongs to no sandbox", (unsigned long long)disk);
}

static bool disk_runs(uint64_t disk, void *arg)
{
    return box_runs_on(arg, disk);
}

static void disk_counted(uint64_t disk, void *arg)
{
    size_t *count = arg;
    (void)disk;
    (*count)++;
}

/* Disks that no row names are swept, so a lost ledger must not look like an empty one. */
static int ledger_matches_disks(struct keeper *k, struct error *reterr)
{
    size_t disks = 0;
    if (!ledger_is_fresh(k->ledger))
        return 0;
    (void)disk_store_scan(k->env.disks, disk_counted, &disks);
    if (disks == 0)
        return 0;
    return error_set(
        reterr, ENOENT,
        "keeper.db is missing or empty, but there are %zu disks of sandboxes; restore it from a copy, "
        "or remove the directory disks to begin anew",
        disks);
}

static int builder_start(void *arg, struct error *reterr)
{
    return host_worker_start(arg, reterr);
}

/* What this daemon's settings say about the network, in the network's words. */
static struct network_config network_settings(const struct keeper *k)
{
    const struct keeper_config *c = k->config;
    struct network_config n = {.instance = c->instance,
                               .run_dir = c->run_dir,
                               .pool = c->network_pool,
                               .pool_prefix = c->network_pool_prefix,
                               .prefix6 = c->ipv6_prefix,
                               .slots = c->slots,
                               .slots_fd = k->env.slots_fd,
                               .resolver_count = c->resolver_count};
    memcpy(n.resolvers, c->resolvers, sizeof n.resolvers);
    return n;
}

/* 0, or an error only if the operator insists on a network, or on IPv6 in it. */
static int network_give_up(struct keeper *k, struct error *e, struct error *reterr)
{
    network_close(k->env.network, k->slot_used);
    k->env.network = NULL;
    if (k->config->network == KEEPER_MODE_PUBLIC || !ip_is_none(&k->config->ipv6_prefix)) {
        *reterr = *e;
        return -e->code;
    }
    log_warn("sandboxes have no network: %s", e->msg);
    return 0;
}

static int network_prepare(struct keeper *k, struct error *reterr)
{
    struct network_config n = network_settings(k);
    struct error e = {0};
    if (k->config->network == KEEPER_MODE_NONE)
        return 0;
    return network_open(&n, &k->env.network, &e) < 0 ? network_give_up(k, &e, reterr) : 0;
}

/* After the adoption: what is in no adopted sandbox goes. */
static int network_take_up(struct keeper *k, struct error *reterr)
{
    struct network_config n = network_settings(k);
    struct error e = {0};
    int r = 0;
    if (k->env.network && network_begin(k->env.network, k->slot_used, &e) < 0)
        r = network_give_up(k, &e, reterr);
    if (r == 0 && !k->env.network)
        network_remove_all(&n);
    return r;
}

static int prepare(struct keeper *k, struct error *reterr)
{
    const struct keeper_config *c = k->config;
    char path[512], prefix[64];
    int r;
    k->env.host.uid_base = c->uid_base;
    k->env.host.slot_count = c->slots;
    (void)snprintf(prefix, sizeof prefix, "silica%s%s", c->instance[0] ? "-" : "", c->instance);
    (void)snprintf(path, sizeof path, "%s/keeper.db", c->data_dir);
    /* the private mount namespace first: directories opened earlier would belong to the host's */
    if ((r = host_prepare(&k->env.host, c->run_dir, c->agent_path, reterr)) < 0 ||
        (r = open_dir(c->images_dir, ".", 0755, &k->env.images_fd, reterr)) < 0 ||
        (r = image_store_open(c->data_dir, k->env.images_fd, &k->env.images, reterr)) < 0 ||
        (r = open_dir(c->data_dir, "disks", 0700, &k->disks_fd, reterr)) < 0 ||
        (r = open_dir(c->data_dir, "volumes", 0700, &k->volumes_fd, reterr)) < 0 ||
        (r = open_dir(c->run_dir, "slots", 0700, &k->env.slots_fd, reterr)) < 0 ||
        (r = cgroup_host_open(prefix, &k->env.cgroups, reterr)) < 0 ||
        (r = doctor_controllers(k->env.cgroups, reterr)) < 0 ||
        (r = disk_store_open(k->disks_fd, k->env.host.scratch_fd, &k->env.disks, reterr)) < 0 ||
        (r = volume_store_open(k->volumes_fd, k->env.host.scratch_fd, &k->env.volumes, reterr)) < 0 ||
        (r = ledger_open(k->loop, path, &k->ledger, reterr)) < 0 ||
        (r = ledger_matches_disks(k, reterr)) < 0 || (r = ledger_load(k->ledger, row_found, k, reterr)) < 0 ||
        (r = network_prepare(k, reterr)) < 0)
        return r;
    host_raise_file_max();
    (void)slot_dir_scan(k->env.slots_fd, slot_found, k);
    (void)cgroup_host_scan(k->env.cgroups, group_found, k);
    (void)disk_store_scan(k->env.disks, disk_found, k);
    disk_wait_let_go(k->env.disks, disk_runs, k);
    if ((r = network_take_up(k, reterr)) < 0)
        return r;
    r = workers_new(k->loop, BUILDERS, builder_start, &k->env.host, &k->builders, reterr);
    if (r == 0)
        r = workers_new(k->loop, ENDERS, NULL, NULL, &k->enders, reterr);
    if (r == 0)
        r = workers_new(k->loop, 1, NULL, NULL, &k->settlers, reterr);
    return r < 0 ? r : keeper_images_start(k, builder_start, reterr);
}

static void on_signal(int sig, void *arg)
{
    struct keeper *k = arg;
    if (k->stopping)
        return;
    log_info(sig == SIGINT ? "stopping; sandboxes are put to sleep" : "stopping; sandboxes go on");
    k->stopping = true;
    link_stop(k);
    pool_stop(k);
    keeper_images_stop(k);
    kept_release(k, 0);
    if (sig == SIGINT)
        box_stop_all(k);
    if (k->jobs == 0)
        loop_stop(k->loop);
}

static void on_reload(int sig, void *arg)
{
    (void)sig;
    link_reload(arg);
}

static void on_child(int sig, void *arg)
{
    (void)sig;
    (void)arg; /* every child has a pidfd that is watched; the signal only must not be lost on the default
                  action */
}

int keeper_main(const struct keeper_config *config)
{
    struct error e = {0};
    struct keeper *k = calloc(1, sizeof *k);
    int lock = -1, r = -ENOMEM;
    if (!k)
        return 1;
    k->config = config;
    k->next_disk = 1;
    k->outbox_last = &k->outbox;
    k->tls_fd = k->docker_fd = k->filter_fd = k->filter.fd = -1;
    k->gateway_fd = k->gateway_pidfd = k->gateway.fd = k->gateway_exit.fd = -1;
    k->disks_fd = k->volumes_fd = k->env.images_fd = k->env.slots_fd = k->env.host.scratch_fd = -1;
    k->slot_used = calloc(config->slots, 1);
    if (k->slot_used && (r = lock = take_lock(config->data_dir, &e)) >= 0 &&
        (r = listen_docker(k, &e)) == 0 && (r = loop_new(&k->loop, &e)) == 0 &&
        (r = loop_signal(k->loop, SIGTERM, on_signal, k, &e)) == 0 &&
        (r = loop_signal(k->loop, SIGINT, on_signal, k, &e)) == 0 &&
        (!config->tls_listeners || (r = loop_signal(k->loop, SIGHUP, on_reload, k, &e)) == 0) &&
        (r = loop_signal(k->loop, SIGCHLD, on_child, k, &e)) == 0 && (r = prepare(k, &e)) == 0 &&
        (r = link_start(k, &e)) == 0) {
        keeper_images_clean(k);
        keeper_filter_watch(k);
        pool_refill(k);
        r = loop_run(k->loop);
    }
    if (r < 0)
        log_error("%s", e.code ? e.msg : strerror(-r));
    if (k->loop)
        link_stop(k);
    workers_free(k->builders);
    workers_free(k->enders);
    workers_free(k->settlers);
    workers_free(k->imagers);
    ledger_free(k->ledger);
    if (k->loop) {
        box_forget_all(k);
        keeper_filter_forget(k);
    }
    network_close(k->env.network, k->slot_used);
    if (k->env.disks)
        disk_trim_all(k->env.disks);
    disk_store_free(k->env.disks);
    volume_store_free(k->env.volumes);
    if (k->env.cgroups)
        (void)cgroup_host_remove(k->env.cgroups); /* refused while sandboxes go on */
    cgroup_host_free(k->env.cgroups);
    if (k->env.host.scratch_fd >= 0)
        host_done(&k->env.host);
    close_fd(&k->env.slots_fd);
    image_store_free(k->env.images);
    close_fd(&k->env.images_fd);
    close_fd(&k->disks_fd);
    close_fd(&k->volumes_fd);
    close_fd(&k->tls_fd);
    close_fd(&k->docker_fd);
    loop_free(k->loop);
    free(k->slot_used);
    free(k);
    close_fd(&lock);
    return r < 0 ? 1 : 0;
}
