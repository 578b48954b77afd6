/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_serve.c: `silica serve`: settings from flags and environment, the directories and the token, then the
 * keeper. */
#include "base/id.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/serve_sandbox.h"
#include "cli/serve_setup.h"
#include "cli/values.h"
#include "gateway/gateway_boot.h"
#include "gateway/preview.h"
#include "gateway/sandbox_reach.h"
#include "keeper/keeper.h"
#include "keeper/proto.h"
#include "net/socket.h"

#include <assert.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    KEY_RUN = OPTION_KEY_FIRST,
    KEY_TOKEN,
    KEY_NO_AUTH,
    KEY_IMAGE,
    KEY_IMAGES,
    KEY_IMAGE_LIMIT,
    KEY_TYPE,
    KEY_MEMORY,
    KEY_DISK,
    KEY_INODES,
    KEY_CPU,
    KEY_TASKS,
    KEY_POOL,
    KEY_SLEEP,
    KEY_BARE,
    KEY_BERTHS,
    KEY_KEPT_DISKS,
    KEY_KEPT_DISKS_FOR,
    KEY_FREEZE,
    KEY_SILENCE,
    KEY_PREVIEW_DOMAIN,
    KEY_PREVIEW_TIMEOUT,
    KEY_PREVIEW_BANDWIDTH,
    KEY_LISTEN_TLS,
    KEY_TLS_CERT,
    KEY_TLS_KEY,
    KEY_UID_BASE,
    KEY_SLOTS,
    KEY_GATEWAY_UID,
    KEY_NETWORK,
    KEY_NETWORK_POOL,
    KEY_IPV6,
    KEY_ALLOW,
    KEY_DNS,
    KEY_INSTANCE,
    KEY_AGENT,
    KEY_DISK_MARGIN,
    KEY_MEMORY_MARGIN,
    KEY_LOG_LEVEL,
    KEY_LOG_FORMAT,
    KEY_SANDBOX_PROXY,
    KEY_SANDBOX_NO_PROXY,
    KEY_SANDBOX_CA,
    KEY_APT_MIRROR,
    KEY_PIP_INDEX,
    KEY_NPM_REGISTRY,
};

const struct option serve_options[] = {
    {'l', "listen", 'l', "ADDRESS", "SILICA_LISTEN",
     "where to listen: HOST:PORT or unix:PATH; may be repeated (default 127.0.0.1:8787)"},
    {'d', "data", 'd', "DIR", "SILICA_DATA",
     "where images, disks and state are kept (default /var/lib/silica)"},
    {KEY_RUN, "run", 0, "DIR", "SILICA_RUN",
     "where sockets and run-time records are kept (default /run/silica)"},
    {KEY_TOKEN, "token", 0, "TOKEN", "SILICA_TOKEN",
     "the admin token (default: made once and kept in DATA/admin.token, mode 0600)"},
    {KEY_NO_AUTH, "no-auth", 0, NULL, NULL, "ask for no token; only on loopback and unix sockets"},
    {KEY_IMAGES, "images", 0, "DIR", "SILICA_IMAGES", "where images are kept (default DATA/images)"},
    {KEY_IMAGE_LIMIT, "image-limit", 0, "SIZE", "SILICA_IMAGE_LIMIT",
     "the most that the files of one image may take when it is imported or saved (default 16G)"},
    {KEY_IMAGE, "image", 0, "NAME", "SILICA_IMAGE", "default image of new sandboxes (default base)"},
    {KEY_TYPE, "instance-type", 0, "TYPE", "SILICA_INSTANCE_TYPE",
     "default size: lite, basic, standard-1 ... standard-4"},
    {KEY_MEMORY, "memory", 0, "SIZE", "SILICA_MEMORY", "default memory limit, e.g. 512M"},
    {KEY_DISK, "disk", 0, "SIZE", "SILICA_DISK", "default disk limit, e.g. 4G"},
    {KEY_INODES, "inodes", 0, "N", "SILICA_INODES", "default number of files"},
    {KEY_CPU, "cpu", 0, "CORES", "SILICA_CPU", "default cpu limit, e.g. 0.5"},
    {KEY_TASKS, "tasks", 0, "N", "SILICA_TASKS", "default number of processes and threads"},
    {KEY_POOL, "pool", 0, "N", "SILICA_POOL", "sandboxes kept ready (default 8, 0 turns it off)"},
    {KEY_SLEEP, "sleep-after", 0, "TIME", "SILICA_SLEEP_AFTER",
     "idle time after which a sandbox sleeps (default 10m)"},
    {KEY_BARE, "bare", 0, "N", "SILICA_BARE",
     "sandboxes without a disk kept ready for those that wake (default 2, 0 turns it off)"},
    {KEY_BERTHS, "berths", 0, "N", "SILICA_BERTHS",
     "places kept ready for sandboxes with an image or size of their own (default 2)"},
    {KEY_KEPT_DISKS, "kept-disks", 0, "N", "SILICA_KEPT_DISKS",
     "disks of sleeping sandboxes that stay mounted, so that these wake sooner (default 64, 0 turns it off)"},
    {KEY_KEPT_DISKS_FOR, "kept-disks-for", 0, "TIME", "SILICA_KEPT_DISKS_FOR",
     "how long they stay mounted (default 10m)"},
    {KEY_FREEZE, "freeze-after", 0, "TIME", "SILICA_FREEZE_AFTER",
     "idle time after which a sandbox without running processes is frozen until its next use (default 30s, 0 "
     "turns "
     "it off)"},
    {KEY_SILENCE, "agent-silence", 0, "TIME", "SILICA_AGENT_SILENCE",
     "how long an agent may owe an answer in silence before it is asked whether it lives (default 30s, 0: "
     "never)"},
    {KEY_LISTEN_TLS, "listen-tls", 0, "HOST:PORT", "SILICA_LISTEN_TLS",
     "where to listen with TLS; needs a certificate; may be repeated"},
    {KEY_TLS_CERT, "tls-cert", 0, "FILE", "SILICA_TLS_CERT",
     "certificate with its chain, PEM; may be repeated, then the name asked for decides; read again on "
     "SIGHUP"},
    {KEY_TLS_KEY, "tls-key", 0, "FILE", "SILICA_TLS_KEY",
     "the key of the certificate, PEM; one for each, in the same order"},
    {KEY_PREVIEW_DOMAIN, "preview-domain", 0, "DOMAIN", "SILICA_PREVIEW_DOMAIN",
     "below which name previews are served: [http://|https://]DOMAIN[:PORT] (default localhost with the port "
     "of the "
     "first listener; https for any other domain)"},
    {KEY_PREVIEW_TIMEOUT, "preview-timeout", 0, "TIME", "SILICA_PREVIEW_TIMEOUT",
     "how long a service behind a preview may take to begin its answer, then 504 (default 60s)"},
    {KEY_PREVIEW_BANDWIDTH, "preview-bandwidth", 0, "SIZE", "SILICA_PREVIEW_BANDWIDTH",
     "bytes a second of one preview, each way, all its requests together (default: no limit)"},
    {KEY_UID_BASE, "uid-base", 0, "ID", "SILICA_UID_BASE",
     "first id of the ranges given to sandboxes (default 1879048192)"},
    {KEY_SLOTS, "slots", 0, "N", "SILICA_SLOTS", "how many sandboxes may run at once (default 4094)"},
    {KEY_GATEWAY_UID, "gateway-uid", 0, "ID", "SILICA_GATEWAY_UID",
     "what the process that talks to the network runs as (default 1879048190)"},
    {KEY_NETWORK, "network", 0, "MODE", "SILICA_NETWORK",
     "what sandboxes reach: public (the internet, but not this host or private networks), allowlist (what "
     "--allow "
     "says) or none (default public if this host can, else none)"},
    {KEY_ALLOW, "allow", 0, "ENTRY[,ENTRY]", "SILICA_ALLOW",
     "the list of sandboxes that have none of their own; implies --network allowlist: names (*.name: all "
     "below it), "
     "addresses and networks, perhaps with :PORT"},
    {KEY_NETWORK_POOL, "network-pool", 0, "CIDR", "SILICA_NETWORK_POOL",
     "private addresses for the links of sandboxes, two each (default 10.213.0.0/16)"},
    {KEY_IPV6, "ipv6", 0, "on|off|CIDR", "SILICA_IPV6",
     "IPv6 for sandboxes besides IPv4, behind this host's own address; CIDR: the private /64 their addresses "
     "are of (default off)"},
    {KEY_DNS, "dns", 0, "ADDRESS[,ADDRESS]", "SILICA_DNS",
     "name servers of sandboxes, reachable on port 53 even if private (default: those of this host)"},
    {KEY_SANDBOX_PROXY, "sandbox-proxy", 0, "URL", "SILICA_SANDBOX_PROXY",
     "proxy for the programs in sandboxes, as HTTP_PROXY and HTTPS_PROXY; 'host': as in this server's own "
     "environment"},
    {KEY_SANDBOX_NO_PROXY, "sandbox-no-proxy", 0, "LIST", "SILICA_SANDBOX_NO_PROXY",
     "hosts they reach without it, besides their own, as NO_PROXY"},
    {KEY_SANDBOX_CA, "sandbox-ca", 0, "FILE", "SILICA_SANDBOX_CA",
     "certificates, PEM, that sandboxes trust besides those of their image"},
    {KEY_APT_MIRROR, "apt-mirror", 0, "URL", "SILICA_APT_MIRROR",
     "where sandboxes find Debian's and Ubuntu's archives: URL/debian instead of "
     "http://deb.debian.org/debian"},
    {KEY_PIP_INDEX, "pip-index", 0, "URL", "SILICA_PIP_INDEX", "package index for pip and uv in sandboxes"},
    {KEY_NPM_REGISTRY, "npm-registry", 0, "URL", "SILICA_NPM_REGISTRY", "registry for npm in sandboxes"},
    {KEY_INSTANCE, "instance", 0, "NAME", "SILICA_INSTANCE",
     "name that keeps a second daemon on this host apart"},
    {KEY_AGENT, "agent", 0, "FILE", "SILICA_AGENT",
     "the agent's program (default: silica-agent beside this program)"},
    {KEY_DISK_MARGIN, "disk-margin", 0, "SIZE", "SILICA_DISK_MARGIN",
     "refuse new sandboxes when the host has less free disk (default 1G)"},
    {KEY_MEMORY_MARGIN, "memory-margin", 0, "SIZE", "SILICA_MEMORY_MARGIN",
     "refuse new sandboxes when the host has less free memory (default 256M)"},
    {KEY_LOG_LEVEL, "log-level", 0, "LEVEL", "SILICA_LOG_LEVEL", "debug, info, warn or error (default info)"},
    {KEY_LOG_FORMAT, "log-format", 0, "FORMAT", "SILICA_LOG_FORMAT", "text or json (default text)"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct values {
    const char *list[KEEPER_LISTEN_MAX];
    size_t count;
    bool from_env;
};
static_assert((int)KEEPER_LISTEN_MAX == (int)KEEPER_TLS_MAX, "one kind of list");

struct settings {
    struct keeper_config keeper;
    struct values listen, listen_tls, tls_cert, tls_key;
    const char *token;
    struct sandbox_shared shared;
    enum log_level level;
    enum log_format format;
};

/* A setting that may be repeated; flags replace what the environment said. */
static int add_value(struct values *v, const char *source, const char *value, struct error *reterr)
{
    bool env = strncmp(source, "SILICA_", 7) == 0;
    if (v->from_env && !env)
        v->count = 0;
    v->from_env = env;
    if (v->count == ARRAY_SIZE(v->list))
        return error_set(reterr, EINVAL, "%s can be given %zu times", source, ARRAY_SIZE(v->list));
    v->list[v->count++] = value;
    return 0;
}

static int set_number(const char *source, const char *value, int64_t min, int64_t max, int64_t *ret,
                      struct error *reterr)
{
    return value_integer(source, value, min, max, ret, reterr);
}

static int set_network(struct keeper_config *c, const char *source, const char *value, struct error *reterr)
{
    if (strcmp(value, "none") == 0)
        c->network = KEEPER_MODE_NONE;
    else if (strcmp(value, "public") == 0)
        c->network = KEEPER_MODE_PUBLIC;
    else if (strcmp(value, "allowlist") == 0) {
        c->network = KEEPER_MODE_PUBLIC; /* or no start */
        c->allow = c->allow ? c->allow : "";
    } else
        return error_set(reterr, EINVAL, "%s: '%.40s' is not none, public or allowlist", source, value);
    return 0;
}

static int set_allow(struct keeper_config *c, const char *source, const char *value, struct error *reterr)
{
    struct sandbox_reach trial = {0};
    int r = sandbox_reach_allow_words(&trial, value, reterr);
    sandbox_reach_done(&trial);
    if (r == 0 && strlen(value) >= GATEWAY_ALLOW_MAX)
        r = error_set(reterr, E2BIG, "the list is too long");
    if (r < 0)
        return error_prefix(reterr, "%s", source);
    c->allow = value;
    c->network = KEEPER_MODE_PUBLIC; /* a list is of no use without a network: or no start */
    return 0;
}

static int set_resolvers(struct keeper_config *c, const char *source, const char *value, struct error *reterr)
{
    c->resolver_count = 0;
    for (const char *p = value; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char text[INET_ADDRSTRLEN];
        size_t n = strcspn(p, ",");
        if (c->resolver_count == NETWORK_RESOLVERS_MAX)
            return error_set(reterr, EINVAL, "%s: %d name servers at most", source, NETWORK_RESOLVERS_MAX);
        (void)snprintf(text, sizeof text, "%.*s", (int)MIN(n, sizeof text - 1), p);
        if (n >= sizeof text || inet_pton(AF_INET, text, &c->resolvers[c->resolver_count]) != 1)
            return error_set(reterr, EINVAL, "%s: IPv4 addresses with commas between them", source);
        c->resolver_count++;
    }
    return 0;
}

static int set_one(struct settings *s, int key, const char *source, const char *value, struct error *reterr)
{
    struct keeper_config *c = &s->keeper;
    int64_t n = 0;
    int r = 0;
    switch (key) {
    case 'l':
        return add_value(&s->listen, source, value, reterr);
    case 'd':
        c->data_dir = value;
        return 0;
    case KEY_RUN:
        c->run_dir = value;
        return 0;
    case KEY_TOKEN:
        s->token = value;
        return 0;
    case KEY_NO_AUTH:
        c->auth_off = true;
        return 0;
    case KEY_IMAGES:
        c->images_dir = value;
        return 0;
    case KEY_IMAGE:
        if (strlen(value) > IMAGE_NAME_MAX)
            return error_set(reterr, EINVAL, "%s: an image's name has %d characters at most", source,
                             IMAGE_NAME_MAX);
        c->image = value;
        return 0;
    case KEY_TYPE: {
        const struct instance_type *t = instance_type_find(value);
        if (!t)
            return error_set(reterr, EINVAL,
                             "%s: there is no size '%s'; try lite, basic or standard-1 to standard-4", source,
                             value);
        c->limits = t->limits;
        return 0;
    }
    case KEY_MEMORY:
        return value_bytes(source, value, &c->limits.memory_bytes, reterr);
    case KEY_DISK:
        return value_bytes(source, value, &c->limits.disk_bytes, reterr);
    case KEY_IMAGE_LIMIT:
        return value_bytes(source, value, &c->image_limit, reterr);
    case KEY_DISK_MARGIN:
        return value_bytes(source, value, &c->disk_margin, reterr);
    case KEY_MEMORY_MARGIN:
        return value_bytes(source, value, &c->memory_margin, reterr);
    case KEY_INODES:
        r = set_number(source, value, 1024, 1 << 28, &n, reterr);
        c->limits.disk_inodes = (uint64_t)n;
        return r;
    case KEY_CPU:
        return value_cpu_milli(source, value, &c->limits.cpu_milli, reterr);
    case KEY_TASKS:
        r = set_number(source, value, 16, 32768, &n, reterr);
        c->limits.tasks = (uint32_t)n;
        return r;
    case KEY_POOL:
        r = set_number(source, value, 0, KEEPER_POOL_MAX, &n, reterr);
        c->pool = (unsigned)n;
        return r;
    case KEY_SLEEP:
        return value_duration_ms(source, value, &c->sleep_after_ms, reterr);
    case KEY_BARE:
        r = set_number(source, value, 0, KEEPER_POOL_MAX, &n, reterr);
        c->bare = (unsigned)n;
        return r;
    case KEY_BERTHS:
        r = set_number(source, value, 0, KEEPER_BERTHS_MAX, &n, reterr);
        c->berths = (unsigned)n;
        return r;
    case KEY_KEPT_DISKS:
        r = set_number(source, value, 0, KEEPER_KEPT_MAX, &n, reterr);
        c->kept_disks = (unsigned)n;
        return r;
    case KEY_KEPT_DISKS_FOR:
        return value_duration_ms(source, value, &c->kept_disks_ms, reterr);
    case KEY_FREEZE:
        return value_duration_ms(source, value, &c->freeze_after_ms, reterr);
    case KEY_SILENCE:
        return value_duration_ms(source, value, &c->agent_silence_ms, reterr);
    case KEY_LISTEN_TLS:
        return add_value(&s->listen_tls, source, value, reterr);
    case KEY_TLS_CERT:
        return add_value(&s->tls_cert, source, value, reterr);
    case KEY_TLS_KEY:
        return add_value(&s->tls_key, source, value, reterr);
    case KEY_PREVIEW_DOMAIN:
        c->preview_domain = value;
        return preview_site_parse(value, &(struct preview_site){0}, reterr);
    case KEY_PREVIEW_TIMEOUT:
        return value_duration_ms(source, value, &c->preview_timeout_ms, reterr);
    case KEY_PREVIEW_BANDWIDTH:
        return value_bytes(source, value, &c->preview_bandwidth, reterr);
    case KEY_UID_BASE:
        r = set_number(source, value, 65536, INT64_C(0xfffe0000), &n, reterr);
        if (r == 0 && n % 65536 != 0)
            return error_set(reterr, EINVAL, "%s: must be a multiple of 65536", source);
        c->uid_base = (uint32_t)n;
        return r;
    case KEY_SLOTS:
        r = set_number(source, value, 1, 32768, &n, reterr);
        c->slots = (unsigned)n;
        return r;
    case KEY_GATEWAY_UID:
        r = set_number(source, value, 1, INT64_C(0xfffffffe), &n, reterr);
        c->gateway_uid = (uid_t)n;
        return r;
    case KEY_NETWORK:
        return set_network(c, source, value, reterr);
    case KEY_NETWORK_POOL:
        return network_pool_parse(value, &c->network_pool, &c->network_pool_prefix, reterr);
    case KEY_IPV6:
        return network_ipv6_parse(value, &c->ipv6_prefix, reterr);
    case KEY_ALLOW:
        return set_allow(c, source, value, reterr);
    case KEY_DNS:
        return set_resolvers(c, source, value, reterr);
    case KEY_SANDBOX_PROXY:
        s->shared.proxy = value;
        return strcmp(value, "host") == 0 ? 0 : sandbox_url_check(source, value, true, reterr);
    case KEY_SANDBOX_NO_PROXY:
        s->shared.no_proxy = value;
        return 0;
    case KEY_SANDBOX_CA:
        s->shared.ca_file = value;
        return 0;
    case KEY_APT_MIRROR:
        s->shared.apt_mirror = value;
        return sandbox_url_check(source, value, false, reterr);
    case KEY_PIP_INDEX:
        s->shared.pip_index = value;
        return sandbox_url_check(source, value, false, reterr);
    case KEY_NPM_REGISTRY:
        s->shared.npm_registry = value;
        return sandbox_url_check(source, value, false, reterr);
    case KEY_INSTANCE:
        if (value[0] && sandbox_id_check(value, NULL) < 0)
            return error_set(reterr, EINVAL, "%s: letters, digits and '-' only", source);
        c->instance = value;
        return 0;
    case KEY_AGENT:
        c->agent_path = value;
        return 0;
    case KEY_LOG_LEVEL:
        return log_level_parse(value, &s->level)
                   ? 0
                   : error_set(reterr, EINVAL, "%s: debug, info, warn or error", source);
    case KEY_LOG_FORMAT:
        return log_format_parse(value, &s->format) ? 0
                                                   : error_set(reterr, EINVAL, "%s: text or json", source);
    default:
        return error_set(reterr, EINVAL, "%s: not understood", source);
    }
}

static int listen_all(struct settings *s, struct error *reterr)
{
    struct keeper_config *c = &s->keeper;
    size_t plain = s->listen.count;
    if (plain + s->listen_tls.count > KEEPER_LISTEN_MAX)
        return error_set(reterr, EINVAL, "there can be %d listeners", KEEPER_LISTEN_MAX);
    for (size_t i = 0; i < plain + s->listen_tls.count; i++) {
        bool tls = i >= plain;
        const char *where = tls ? s->listen_tls.list[i - plain] : s->listen.list[i];
        int fd = -1;
        c->tls_listeners |= (uint32_t)tls << i;
        if (tls && strncmp(where, "unix:", 5) == 0)
            return error_set(reterr, EINVAL, "--listen-tls needs HOST:PORT");
        int r = socket_listen_patiently(where, &fd, reterr);
        if (r < 0)
            return r;
        c->listen_fds[c->listen_count++] = fd;
        if (c->auth_off && !socket_is_loopback(fd))
            return error_set(reterr, EPERM, "--no-auth is for loopback and unix sockets; %s is neither",
                             where);
    }
    return 0;
}

static int take_certificates(struct settings *s, struct error *reterr)
{
    struct keeper_config *c = &s->keeper;
    if (s->tls_cert.count != s->tls_key.count)
        return error_set(reterr, EINVAL, "every --tls-cert needs its --tls-key");
    if (s->listen_tls.count && !s->tls_cert.count)
        return error_set(reterr, EINVAL, "--listen-tls needs --tls-cert and --tls-key");
    for (c->tls_count = 0; c->tls_count < s->tls_cert.count; c->tls_count++) {
        c->tls_cert[c->tls_count] = s->tls_cert.list[c->tls_count];
        c->tls_key[c->tls_count] = s->tls_key.list[c->tls_count];
    }
    return 0;
}

static void announce(const struct settings *s, bool token_made)
{
    for (size_t i = 0; i < s->keeper.listen_count; i++) {
        char name[128];
        if (socket_local_name(s->keeper.listen_fds[i], name, sizeof name) == 0)
            log_info("serving %s%s",
                     strncmp(name, "unix:", 5) == 0      ? ""
                     : s->keeper.tls_listeners & 1u << i ? "https://"
                                                         : "http://",
                     name);
    }
    if (s->keeper.auth_off)
        log_warn("no token is asked for");
    else if (!s->token)
        log_info("the admin token is in %s/admin.token%s", s->keeper.data_dir,
                 token_made ? " (just made)" : "");
}

int cmd_serve(int argc, char **argv)
{
    static char agent_default[512], images_default[512];
    struct error e = {0};
    struct options o = OPTIONS_INIT(serve_options, NULL, argc, argv);
    struct settings s = {.keeper = {.data_dir = "/var/lib/silica",
                                    .run_dir = "/run/silica",
                                    .instance = "",
                                    .image = "base",
                                    .limits = instance_types[0].limits,
                                    .pool = 8,
                                    .bare = 2,
                                    .berths = 2,
                                    .kept_disks = 64,
                                    .kept_disks_ms = 600000,
                                    .uid_base = 0x70000000,
                                    .slots = 4094,
                                    .gateway_uid = 0x6ffffffe,
                                    .network_pool = htonl(0x0ad50000), /* 10.213.0.0 */
                                    .network_pool_prefix = 16,
                                    .sleep_after_ms = 600000,
                                    .freeze_after_ms = 30000,
                                    .agent_silence_ms = 30000,
                                    .preview_domain = "localhost",
                                    .preview_timeout_ms = PREVIEW_TIMEOUT_MS,
                                    .image_limit = UINT64_C(16) << 30,
                                    .disk_margin = UINT64_C(1) << 30,
                                    .memory_margin = UINT64_C(256) << 20},
                         .level = LOG_INFO,
                         .format = LOG_TEXT};
    const char *value;
    bool token_made = false;
    int key;
    while ((key = options_next(&o, &value, &e)) > 0) {
        if (key == OPTION_HELP)
            return cli_help("serve");
        if (key == OPTION_OPERAND)
            return cli_unexpected("serve", value);
        if (set_one(&s, key, options_source(&o), value, &e) < 0)
            return cli_usage_error("serve", &e);
    }
    if (key < 0 || limits_check(&s.keeper.limits, &e) < 0)
        return cli_usage_error("serve", &e);
    if (!s.listen.count)
        s.listen.list[s.listen.count++] = "127.0.0.1:8787";
    static struct buf shared; /* as long as the keeper */
    shared = BUF_INIT(SANDBOX_SHARED_MAX);
    if (take_certificates(&s, &e) < 0 || sandbox_shared_build(&s.shared, getenv, &shared, &e) < 0)
        return cli_usage_error("serve", &e);
    s.keeper.shared = buf_data(&shared);
    s.keeper.shared_bytes = buf_len(&shared);
    log_init("keeper", s.level, s.format);
    s.keeper.log_level = s.level;
    s.keeper.log_format = s.format;
    if (!s.keeper.agent_path) {
        if (serve_agent_beside(agent_default, sizeof agent_default, &e) < 0)
            return cli_error("serve", "%s", e.msg);
        s.keeper.agent_path = agent_default;
    }
    if (!s.keeper.images_dir) {
        (void)snprintf(images_default, sizeof images_default, "%s/images", s.keeper.data_dir);
        s.keeper.images_dir = images_default;
    }
    if (serve_directories(s.keeper.data_dir, s.keeper.run_dir, s.keeper.images_dir, &e) < 0 ||
        listen_all(&s, &e) < 0 ||
        serve_token(s.keeper.data_dir, s.token, s.keeper.admin_hash, &token_made, &e) < 0)
        return cli_error("serve", "%s", e.msg);
    announce(&s, token_made);
    return keeper_main(&s.keeper);
}
