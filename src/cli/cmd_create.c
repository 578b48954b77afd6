/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_create.c: silica create: a sandbox with an image, limits, variables or labels of its own. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/suggest.h"
#include "cli/values.h"

#include "base/id.h"
#include "base/limits.h"
#include "keeper/proto_network.h"

#include <errno.h>
#include <string.h>

enum {
    KEY_IMAGE = OPTION_KEY_FIRST,
    KEY_SIZE,
    KEY_MEMORY,
    KEY_DISK,
    KEY_CPUS,
    KEY_TASKS,
    KEY_LABEL,
    KEY_SLEEP_AFTER,
    KEY_KEEP_ALIVE,
    KEY_USER,
    KEY_WORKDIR,
    KEY_HOSTNAME,
    KEY_VOLUME,
    KEY_NETWORK,
    KEY_ALLOW,
    KEY_BANDWIDTH,
    KEY_CONNECTIONS,
    KEY_JSON,
};

const struct option create_options[] = {
    {KEY_IMAGE, "image", 'i', "NAME", NULL, "the files to start from"},
    {KEY_SIZE, "size", 0, "NAME", NULL, "a named set of limits: lite, basic, standard-1 to standard-4"},
    {KEY_MEMORY, "memory", 'm', "SIZE", NULL, "memory (512M, 2G)"},
    {KEY_DISK, "disk", 0, "SIZE", NULL, "room for files (2G)"},
    {KEY_CPUS, "cpus", 0, "N", NULL, "processor cores (0.5, 2)"},
    {KEY_TASKS, "tasks", 0, "N", NULL, "processes and threads"},
    {'e', "env", 'e', "NAME=VALUE", NULL, "a variable for every command in it; may be repeated"},
    {KEY_LABEL, "label", 'l', "KEY=VALUE", NULL, "a label to find it by; may be repeated"},
    {KEY_SLEEP_AFTER, "sleep-after", 0, "TIME", NULL, "falls asleep when unused for TIME (10m); files stay"},
    {KEY_KEEP_ALIVE, "keep-alive", 0, NULL, NULL, "never falls asleep"},
    {KEY_USER, "user", 'u', "NAME[:GROUP]", NULL, "who runs its commands: a user of the image, or a number"},
    {KEY_WORKDIR, "workdir", 'w', "PATH", NULL,
     "where its commands start (default /workspace, or the image's)"},
    {KEY_HOSTNAME, "hostname", 0, "NAME", NULL, "what it calls itself (default sandbox)"},
    {KEY_VOLUME, "volume", 'v', "NAME:/PATH[:ro]", NULL,
     "a volume and where it is in the sandbox; may be repeated"},
    {KEY_NETWORK, "network", 'n', "MODE", NULL, "what it reaches: none, public, or allowlist with --allow"},
    {KEY_ALLOW, "allow", 0, "ENTRY", NULL,
     "a name (*.name: all below it), address or network it may reach, perhaps with :PORT; may be repeated"},
    {KEY_BANDWIDTH, "bandwidth", 0, "SIZE", NULL, "bytes a second, each way (10M)"},
    {KEY_CONNECTIONS, "connections", 0, "N", NULL, "connections at a time (default 1024)"},
    {KEY_JSON, "json", 0, NULL, NULL, "print everything about it as JSON instead of its id"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct create_settings {
    struct connect_settings connect;
    struct silica_sandbox_config config;
    const char **env, **labels, **volumes, **allow;
    size_t env_count, label_count, volume_count, allow_count;
    const char *id;
    bool json;
};

static int check_size(const char *source, const char *name, struct error *reterr)
{
    if (instance_type_find(name))
        return 0;
    struct suggestion s = SUGGESTION_INIT(name);
    for (const struct instance_type *t = instance_types; t->name; t++)
        suggestion_offer(&s, t->name);
    return error_set(
        reterr, EINVAL, "%s: there is no size '%.60s'%s%s%s; sizes are lite, basic, standard-1 to standard-4",
        source, name, s.best ? " (did you mean '" : "", s.best ? s.best : "", s.best ? "'?)" : "");
}

static int create_limit(struct create_settings *s, const char *source, int key, const char *value,
                        struct error *reterr)
{
    struct silica_sandbox_config *k = &s->config;
    int64_t n = 0;
    int r;
    switch (key) {
    case KEY_MEMORY:
        return value_bytes(source, value, &k->memory_bytes, reterr);
    case KEY_DISK:
        return value_bytes(source, value, &k->disk_bytes, reterr);
    case KEY_CPUS:
        return value_cpu_milli(source, value, &k->cpu_milli, reterr);
    case KEY_TASKS:
        r = value_integer(source, value, 1, UINT32_MAX, &n, reterr);
        k->tasks = (uint32_t)n;
        return r;
    default:
        k->instance_type = value;
        return check_size(source, value, reterr);
    }
}

static int create_option(struct create_settings *s, const char *source, int key, const char *value,
                         struct error *reterr)
{
    int r = 0;
    switch (key) {
    case KEY_IMAGE:
        s->config.image = value;
        break;
    case 'e':
        s->env[s->env_count++] = value;
        s->config.env = s->env;
        return value_env(source, value, reterr);
    case KEY_LABEL:
        s->labels[s->label_count++] = value;
        s->config.labels = s->labels;
        return value_label(source, value, reterr);
    case KEY_SLEEP_AFTER:
        r = value_duration_ms(source, value, &s->config.sleep_after_ms, reterr);
        if (r == 0 && s->config.sleep_after_ms == 0)
            r = error_set(reterr, ERANGE, "%s: must be more than 0; --keep-alive means never", source);
        return r;
    case KEY_KEEP_ALIVE:
        s->config.set_keep_alive = s->config.keep_alive = true;
        break;
    case KEY_USER:
        s->config.user = value;
        break;
    case KEY_WORKDIR:
        s->config.workdir = value;
        break;
    case KEY_HOSTNAME:
        s->config.hostname = value;
        break;
    case KEY_NETWORK:
        s->config.network = value;
        break;
    case KEY_ALLOW:
        s->allow[s->allow_count++] = value;
        s->config.allow = s->allow;
        if (!s->config.network)
            s->config.network = "allowlist";
        break;
    case KEY_BANDWIDTH:
        return value_bytes(source, value, &s->config.network_bps, reterr);
    case KEY_CONNECTIONS: {
        int64_t n = 0;
        r = value_integer(source, value, 1, KEEPER_CONNECTIONS_MAX, &n, reterr);
        s->config.connections = (uint32_t)n;
        return r;
    }
    case KEY_VOLUME:
        s->volumes[s->volume_count++] = value;
        s->config.volumes = s->volumes;
        return value_volume(source, value, reterr);
    case KEY_JSON:
        s->json = true;
        break;
    default:
        return create_limit(s, source, key, value, reterr);
    }
    return 0;
}

static int create(const struct create_settings *s)
{
    /* 12 letters and digits: a name that is taken would take 2^62 tries */
    char name[13];
    random_name(name, sizeof name - 1);
    const char *id = s->id ? s->id : name;

    auto_client struct silica_client *c = NULL;
    int r = connect_open("create", &s->connect, &c);
    if (r != 0)
        return r;
    struct silica_sandbox sandbox;
    struct silica_error e;
    if (silica_sandbox_put(c, id, &s->config, &sandbox, &e) < 0)
        return connect_failed("create", c, &e);
    printf("%s\n", s->json ? sandbox.json : sandbox.id);
    silica_sandbox_done(&sandbox);
    return 0;
}

int cmd_create(int argc, char **argv)
{
    /* the lists end with NULL; there are fewer values than words */
    auto_free const char **env = calloc((size_t)argc + 1, sizeof *env);
    auto_free const char **labels = calloc((size_t)argc + 1, sizeof *labels);
    auto_free const char **volumes = calloc((size_t)argc + 1, sizeof *volumes);
    auto_free const char **allow = calloc((size_t)argc + 1, sizeof *allow);
    if (!env || !labels || !volumes || !allow)
        return cli_error("create", "out of memory");
    struct create_settings s = {.env = env, .labels = labels, .volumes = volumes, .allow = allow};

    struct command_line line = command_line_of("create", create_options, &s.connect, argc, argv);
    command_line_collect(&line, &s.id, 1);
    const char *value;
    struct error e;
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        if (create_option(&s, options_source(&line.options), key, value, &e) < 0)
            return cli_usage_error("create", &e);
    if (key < 0)
        return line.exit_code;
    return s.id && sandbox_id_check(s.id, &e) < 0 ? cli_usage_error("create", &e) : create(&s);
}
