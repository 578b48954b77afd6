/* SPDX-License-Identifier: Apache-2.0 */
/* gateway_internal.h: the parts of the running gateway, and the handlers the router knows. */
#pragma once

#include "gateway/auth.h"
#include "gateway/gateway.h"
#include "gateway/images.h"
#include "gateway/lifecycle.h"
#include "gateway/preview.h"
#include "gateway/tls.h"
#include "gateway/metrics.h"
#include "gateway/volumes.h"
#include "net/http.h"
#include "net/mover.h"

#ifndef SILICA_VERSION
#define SILICA_VERSION "0.1.0"
#endif

struct gateway {
    const struct gateway_config *config;
    struct loop *loop;
    struct keeper_link *link;
    struct store *store;
    struct auth *auth;
    struct lifecycle *lifecycle;
    struct networks *networks;
    struct volumes *volumes;
    struct images *images;
    bool images_known, sandboxes_known; /* both: requests may come */
    char *shared;                       /* what all agents are told */
    size_t shared_bytes;
    struct events *events;
    struct metrics metrics;
    struct mover mover; /* for uploads */
    struct http_server *server;
    struct ports *ports;
    struct docker *docker;
    struct ws_proxy *ws_proxies;
    struct tls_contexts *certificates; /* until the TLS server has them */
    struct tls_server *tls;            /* NULL: no TLS */
    struct preview_site site;
    int64_t preview_timeout_ms;
    uint64_t preview_bandwidth;
    struct throttle preview_misses;
    struct timer drain;
    int64_t drain_until_us;
    int exit_code;
};

/* What the router found out about a request. */
struct route_match {
    const char
        *id; /* decoded and checked, "" when the route has none; valid during the handler's call only */
    const char *target; /* as sent, without the prefix that names the sandbox: "/api/execute?x=y" */
    struct auth_identity who;
};

/* http_server_config.request; arg is the gateway. */
void router_request(struct http_request *req, void *arg);
/* http_server_config.over. */
void router_over(struct http_request *req, int status, void *arg);
/* This request goes on, even when its token is revoked. */
void router_let_finish(struct http_request *req);

/* api_health.c */
void api_health(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_list.c */
void api_sandbox_list(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_sandbox.c */
void api_sandbox_get(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_sandbox_put(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_sandbox_delete(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_network.c */
void api_network_get(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_network_log(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_life.c */
void api_sandbox_sleep(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_sandbox_wake(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_events.c, api_metrics.c */
void api_events(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_metrics(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_tokens.c */
void api_token_list(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_token_create(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_token_delete(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_ports.c */
void api_port_expose(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_port_list(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_port_listening(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_port_unexpose(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_volumes.c */
void api_volume_list(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_volume_create(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_volume_get(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_volume_delete(struct gateway *g, struct http_request *req, const struct route_match *m);
/* api_images.c, api_image_stream.c */
void api_image_list(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_image_get(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_image_delete(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_image_tag(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_image_save(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_image_prune(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_image_import(struct gateway *g, struct http_request *req, const struct route_match *m);
void api_image_export(struct gateway *g, struct http_request *req, const struct route_match *m);
/* ws_proxy.c */
void ws_proxy_request(struct gateway *g, struct http_request *req, const struct route_match *m);
void ws_proxies_free(struct gateway *g);
/* proxy.c */
void proxy_request(struct gateway *g, struct http_request *req, const struct route_match *m);
