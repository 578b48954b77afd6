/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the gateway process: confine, open, serve, drain, end; see gateway.h.
 *
 * It listens only when the keeper has said what runs, so that no request ever meets a table that is half
 * filled. */
#include "gateway/confine.h"
#include "gateway/docker.h"
#include "gateway/events.h"
#include "gateway/gateway_boot.h"
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum {
    DRAIN_MS = 3000, /* how long requests in flight may hold up the end */
    DRAIN_LOOK_MS = 20,
    PATIENCE_US = 200, /* about two wakes on another cpu, of a slow machine */
    CONNECTIONS_MAX = 16384,
};

static const struct http_header common_headers[] = {{"X-Content-Type-Options", "nosniff"}};

static void give_up(struct gateway *g)
{
    g->exit_code = EXIT_FAILURE;
    loop_stop(g->loop);
}

static void keeper_gone(void *arg)
{
    give_up(arg); /* nothing can be started any more; whoever runs us starts us again */
}

static void keeper_event(void *arg, const struct keeper_reply *event)
{
    struct gateway *g = arg;
    lifecycle_keeper_event(g->lifecycle, event);
}

static void sandbox_event(void *arg, const struct sandbox *sb, enum sandbox_event event, const char *reason)
{
    struct gateway *g = arg;
    events_add(g->events, sb, event, reason);
    docker_sandbox_event(g->docker, sb, event);
    if (event == SANDBOX_EVENT_DESTROYED)
        ports_sandbox_removed(g->ports, sb->id);
    else if (event == SANDBOX_EVENT_ASLEEP || event == SANDBOX_EVENT_EXITED || event == SANDBOX_EVENT_FAILED)
        ports_sandbox_ended(g->ports, sb->id);
}

static int load_token(const struct token_row *row, void *arg)
{
    struct gateway *g = arg;
    int r = tokens_add(auth_tokens(g->auth), row, NULL);
    if (r == -EINVAL || r == -ENOSPC) /* of a newer release, or too many: it opens nothing, which is safe */
        log_warn("token %s is not used: %s", row->id, strerror(-r));
    return r == -ENOMEM ? r : 0;
}

static void drain_look(struct timer *t)
{
    struct gateway *g = container_of(t, struct gateway, drain);
    if (http_server_connections(g->server) == 0 || clock_mono_us() >= g->drain_until_us)
        loop_stop(g->loop);
    else
        loop_timer_start(g->loop, &g->drain, DRAIN_LOOK_MS, drain_look);
}

static void terminate(int sig, void *arg)
{
    struct gateway *g = arg;
    (void)sig;
    if (loop_timer_running(&g->drain))
        return;
    log_info("ending");
    http_server_stop_listening(g->server);
    tls_server_stop_listening(g->tls);
    docker_stop_listening(g->docker);
    g->drain_until_us = clock_mono_us() + (int64_t)DRAIN_MS * 1000;
    drain_look(&g->drain);
}

static void listen_all(void *arg)
{
    struct gateway *g = arg;
    struct error e;
    for (size_t i = 0; i < g->config->listen_count; i++) {
        int fd = g->config->listen_fds[i];
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
            (g->config->tls_listeners & 1u << i ? tls_server_listen(g->tls, fd, &e)
                                                : http_server_listen(g->server, fd, &e)) < 0) {
            log_error("a listening socket cannot be used");
            give_up(g);
            return;
        }
    }
    docker_begin(g->docker, g->config->docker_fd);
}

static void images_ready(void *arg)
{
    struct gateway *g = arg;
    g->images_known = true;
    if (g->sandboxes_known)
        listen_all(g);
}

static void sandboxes_ready(void *arg)
{
    struct gateway *g = arg;
    g->sandboxes_known = true;
    if (g->images_known)
        listen_all(g);
}

/* The keeper has new certificates for us. Connections that are there keep theirs. */
static void reload(int sig, void *arg)
{
    struct gateway *g = arg;
    struct tls_contexts *contexts;
    struct error e;
    (void)sig;
    if (tls_contexts_read(g->config->tls_fd, &contexts, &e) < 0) {
        log_error("the TLS certificates stay as they are: %s", e.msg);
        return;
    }
    tls_server_use(g->tls, contexts);
    log_info("the TLS certificates were read again");
}

static int tls_open(struct gateway *g, struct error *reterr)
{
    if (!g->config->tls_listeners)
        return 0;
    int r = tls_server_new(g->loop, g->server, g->certificates, &g->tls, reterr);
    if (r < 0)
        return r;
    g->certificates = NULL;
    return loop_signal(g->loop, SIGHUP, reload, g, reterr);
}

static int server_open(struct gateway *g, struct error *reterr)
{
    struct rlimit files;
    struct http_server_config config = {
        .loop = g->loop,
        .limits = http_limits_default,
        .request = router_request,
        .error_body = reply_server_error,
        .over = router_over,
        .arg = g,
        .common_headers = common_headers,
        .common_count = ARRAY_SIZE(common_headers),
        .send_date = true,
    };
    config.limits.connections_max = CONNECTIONS_MAX;
    /* a request needs two descriptors, and the agents' idle connections want some too */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / 3 < CONNECTIONS_MAX)
        config.limits.connections_max = files.rlim_cur / 3;
    return http_server_new(&config, &g->server, reterr);
}

static int lifecycle_open(struct gateway *g, struct error *reterr)
{
    struct lifecycle_config config = {
        .loop = g->loop,
        .link = g->link,
        .store = g->store,
        .networks = g->networks,
        .has_network = g->config->has_network,
        .freeze_after_ms = g->config->freeze_after_ms,
        .silence_ms = g->config->agent_silence_ms,
        .shared = g->shared,
        .shared_bytes = g->shared_bytes,
        .event = sandbox_event,
        .ready = sandboxes_ready,
        .arg = g,
    };
    const struct instance_type *t = instance_types;
    config.defaults.limits = g->config->default_limits;
    config.defaults.sleep_after_ms = g->config->sleep_after_ms;
    if (g->config->listed) {
        config.defaults.reach.network = KEEPER_NETWORK_ALLOWLIST;
        int r = sandbox_reach_allow_words(&config.defaults.reach, g->config->allow, reterr);
        if (r < 0)
            return r;
    }
    (void)snprintf(config.defaults.image, sizeof config.defaults.image, "%s", g->config->default_image);
    while (t->name && memcmp(&t->limits, &config.defaults.limits, sizeof t->limits) != 0)
        t++;
    if (t->name)
        (void)snprintf(config.defaults.instance_type, sizeof config.defaults.instance_type, "%s", t->name);
    int r = lifecycle_new(&config, &g->lifecycle, reterr);
    sandbox_reach_done(&config.defaults.reach);
    return r;
}

/* Where URLs of previews lead: without a port of its own the site has that of our first TCP listener. */
static int previews_open(struct gateway *g, struct error *reterr)
{
    const struct gateway_config *config = g->config;
    int r =
        preview_site_parse(config->preview_domain ? config->preview_domain : "localhost", &g->site, reterr);
    if (r < 0)
        return r;
    g->preview_timeout_ms = config->preview_timeout_ms > 0 ? config->preview_timeout_ms : PREVIEW_TIMEOUT_MS;
    g->preview_bandwidth = config->preview_bandwidth;
    throttle_init(&g->preview_misses);
    char name[128];
    for (size_t i = 0; i < config->listen_count && g->site.port < 0; i++)
        if (socket_local_name(config->listen_fds[i], name, sizeof name) == 0)
            preview_site_listener(&g->site, name);
    return ports_new(g->loop, g->link, g->store, &g->ports, reterr);
}

static int read_shared(struct gateway *g, struct error *reterr)
{
    struct stat st;
    if (g->config->shared_fd < 0)
        return 0;
    if (fstat(g->config->shared_fd, &st) < 0 || st.st_size > GATEWAY_SHARED_MAX)
        return error_set(reterr, EMSGSIZE, "the settings of all sandboxes are too long");
    g->shared = malloc((size_t)st.st_size + 1);
    if (!g->shared || pread(g->config->shared_fd, g->shared, (size_t)st.st_size, 0) != st.st_size)
        return error_set(reterr, EIO, "the settings of all sandboxes cannot be read");
    g->shared_bytes = (size_t)st.st_size;
    return 0;
}

static int gateway_open(struct gateway *g, struct error *reterr)
{
    const struct gateway_config *config = g->config;
    struct keeper_link_ops link_ops = {.event = keeper_event, .gone = keeper_gone, .arg = g};
    int r;
    /* libcrypto looks for its files now, while there are files */
    if ((r = auth_new(config->auth_off, &g->auth, reterr)) < 0)
        return r;
    if ((r = auth_add_admin(g->auth, config->admin_hash)) < 0)
        return error_sys(reterr, -r, "set up authentication");
    if (config->tls_listeners && (r = tls_contexts_read(config->tls_fd, &g->certificates, reterr)) < 0)
        return r;
    if ((r = read_shared(g, reterr)) < 0)
        return r;
    if ((r = confine(config, reterr)) < 0 || (r = loop_new(&g->loop, reterr)) < 0 ||
        (r = mover_init(&g->mover, reterr)) < 0 ||
        (r = loop_signal(g->loop, SIGTERM, terminate, g, reterr)) < 0 ||
        (r = keeper_link_new(g->loop, config->keeper_fd, &link_ops, &g->link, reterr)) < 0 ||
        (r = networks_new(g->loop, g->link, &g->networks, reterr)) < 0 ||
        (r = volumes_new(g->link, &g->volumes, reterr)) < 0 ||
        (r = images_new(g->link, images_ready, g, &g->images, reterr)) < 0 ||
        (r = store_open("state.db", &g->store, reterr)) < 0 ||
        (r = store_load_tokens(g->store, load_token, g, reterr)) < 0 ||
        (r = events_new(g->loop, &g->events, reterr)) < 0 || (r = previews_open(g, reterr)) < 0 ||
        (r = server_open(g, reterr)) < 0 || (r = tls_open(g, reterr)) < 0 ||
        (r = lifecycle_open(g, reterr)) < 0 || (r = docker_new(g, &g->docker, reterr)) < 0 ||
        (r = store_start(g->store, g->loop, reterr)) < 0)
        return r;
    tokens_start(auth_tokens(g->auth), g->loop);
    return 0;
}

static void gateway_close(struct gateway *g)
{
    if (g->loop)
        loop_timer_stop(g->loop, &g->drain);
    tls_server_free(g->tls);
    tls_contexts_free(g->certificates);
    http_server_free(g->server); /* its requests leave their sandboxes */
    docker_free(g->docker);
    ports_close(g->ports); /* tunnels, too */
    ws_proxies_free(g);
    lifecycle_free(g->lifecycle);
    events_free(g->events);
    store_free(g->store);
    ports_free(g->ports);
    networks_free(g->networks);
    keeper_link_free(g->link);
    volumes_free(g->volumes);
    images_free(g->images);
    free(g->shared);
    auth_free(g->auth);
    mover_done(&g->mover);
    loop_free(g->loop);
}

int gateway_main(const struct gateway_config *config)
{
    struct gateway g = {.config = config, .mover = {-1, -1}};
    struct error e;

    log_rename("gateway");
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN); /* of a terminal: the keeper decides and tells us */
    int r = gateway_open(&g, &e);
    if (r == 0) {
        loop_watch(g.loop, PATIENCE_US);
        r = loop_run(g.loop);
    } else
        log_error("%s", e.msg);
    gateway_close(&g);
    return r < 0 ? EXIT_FAILURE : g.exit_code;
}
