/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: see settings.h. */
#include "agent/settings.h"
#include "agent/account.h"
#include "agent/agent.h"
#include "agent/settings_files.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

int settings_take(struct settings *s, const char *string)
{
    const struct {
        const char *name;
        char **slot;
    } known[] = {
        {"=user=", &s->user},
        {"=workdir=", &s->workdir},
        {"=hostname=", &s->hostname},
        {"=ca=", &s->ca},
        {"=apt-mirror=", &s->apt_mirror},
        {"=volume=", s->volume_count < SETTINGS_VOLUMES_MAX ? &s->volumes[s->volume_count] : NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        size_t n = strlen(known[i].name);
        if (!known[i].slot || strncmp(string, known[i].name, n) != 0 || !string[n])
            continue;
        char *copy = strdup(string + n);
        if (!copy)
            return -ENOMEM;
        s->volume_count += known[i].slot == &s->volumes[s->volume_count];
        free(*known[i].slot);
        *known[i].slot = copy;
        return 0;
    }
    return 0;
}

int settings_take_all(struct settings *s, char *const *strings)
{
    int r = 0;
    for (; strings && *strings && r == 0; strings++)
        r = settings_take(s, *strings);
    return r;
}

int settings_take_block(struct settings *s, const char *block, size_t n)
{
    int r = 0;
    while (n && r == 0) {
        const char *end = memchr(block, '\0', n);
        if (!end)
            break; /* an unterminated rest is nothing */
        s->has_home |= strncmp(block, "HOME=", 5) == 0;
        r = settings_take(s, block);
        n -= (size_t)(end - block) + 1;
        block = end + 1;
    }
    return r;
}

void settings_done(struct settings *s)
{
    char *const texts[] = {s->user, s->workdir, s->hostname, s->ca, s->apt_mirror};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        free(texts[i]);
    for (size_t i = 0; i < s->volume_count; i++)
        free(s->volumes[i]);
    *s = (struct settings){0};
}

/* ------------------------------------------------------------------ directories */

static bool is_empty(int fd)
{
    DIR *d = fdopendir(fd);
    bool empty = true;
    for (struct dirent *e; d && empty && (e = readdir(d));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    if (d)
        (void)closedir(d);
    else
        (void)close(fd);
    return d && empty;
}

/* An empty directory that is root's becomes the user's: nobody's files change hands. */
static void give(const char *path, const struct account *user)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != 0 || user->uid == 0)
        return;
    int list = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (list >= 0 && is_empty(list) && fchown(fd, user->uid, user->gid) < 0)
        log_warn("%s stays root's: %s", path, strerror(errno));
}

/* Like mkdir -p; what is made belongs to the user. */
static void make_workdir(const char *path, const struct account *user)
{
    char part[4096];
    size_t n = strlen(path);
    if (n >= sizeof part)
        return;
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char end = part[i];
        part[i] = '\0';
        if (mkdir(part, 0755) == 0 && chown(part, user->uid, user->gid) < 0)
            log_warn("%s stays root's: %s", part, strerror(errno));
        part[i] = end;
    }
}

/* ------------------------------------------------------------------ the user */

static int set_variables(struct agent *a, const struct account *user)
{
    int r;
    if ((!a->settings.has_home && (r = env_set(&a->env, "HOME", user->home)) < 0) ||
        (r = env_set(&a->env, "USER", user->name)) < 0 || (r = env_set(&a->env, "LOGNAME", user->name)) < 0)
        return r;
    return 0;
}

static int become(struct agent *a, const struct account *user, struct error *reterr)
{
    int r = set_variables(a, user);
    if (r < 0)
        return error_sys(reterr, -r, "set the user's variables");
    if (chown(a->fifo_dir, user->uid, user->gid) < 0)
        return error_sys(reterr, errno, "hand over the directory of the FIFOs");
    spawner_use(a->spawner, user);
    r = account_assume(user);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0,
                0); /* a change of ids sets what the host has chosen for such programs */
    return r < 0 ? error_sys(reterr, -r, "become the user") : 0;
}

int settings_apply(struct agent *a, struct error *reterr)
{
    const struct settings *s = &a->settings;
    struct account user = {.name = "root", .home = "/root"};
    if (s->hostname)
        settings_write_hostname(s->hostname);
    if (s->ca)
        settings_write_ca(s->ca);
    if (s->apt_mirror)
        settings_write_apt(s->apt_mirror);
    int r = s->user ? account_read(s->user, &user, reterr) : 0;
    if (r < 0)
        return r;
    if (s->workdir)
        make_workdir(s->workdir, &user);
    if (!s->user)
        return 0;
    give(agent_workdir(a), &user);
    for (size_t i = 0; i < s->volume_count; i++)
        give(s->volumes[i], &user);
    return become(a, &user, reterr);
}
