/* SPDX-License-Identifier: Apache-2.0 */
/* gateway_boot.h: how the keeper hands settings and descriptors to the gateway's fresh program image. */
#pragma once

#include "gateway/gateway.h"
#include "keeper/proto.h"

enum {
    GATEWAY_BOOT_VERSION = 2,
    GATEWAY_FD_FIRST = 3, /* a memfd with the struct below */
    GATEWAY_FD_KEEPER,    /* socketpair */
    GATEWAY_FD_STATE,     /* its directory */
    GATEWAY_FD_LISTEN,    /* listeners from here on */
    GATEWAY_FD_COUNT_MAX =
        3 + GATEWAY_LISTEN_MAX + 3, /* behind them: a memfd with a struct gateway_tls; docker.sock; a
                                     * memfd with what is the same in all sandboxes */
    GATEWAY_SHARED_MAX = 2 << 20,
    GATEWAY_ALLOW_MAX = 8192,
    TLS_PAIRS_MAX = 8,
    TLS_FILE_MAX = 64 * 1024,
};

/* Behind it: certificate, key, certificate, key, ... as the operator's files have them. The keeper writes it
 * again, and sends SIGHUP, when they have changed. */
struct gateway_tls {
    uint32_t pair_count;
    uint32_t lengths[2 * TLS_PAIRS_MAX];
};

struct gateway_boot {
    uint32_t version;
    uint32_t listen_count;
    uint32_t uid;
    uint32_t auth_off;
    uint32_t tls_listeners; /* bit i: listener i speaks TLS; 0: there is no struct gateway_tls */
    uint32_t docker;        /* the descriptor behind those is docker.sock */
    uint32_t shared;        /* the last one: a memfd with what is the same in all sandboxes */
    uint32_t log_level, log_format;
    unsigned char admin_hash[TOKEN_HASH_BYTES];
    struct limits limits;
    int64_t sleep_after_ms;
    int64_t freeze_after_ms, agent_silence_ms;
    int64_t preview_timeout_ms;
    uint64_t preview_bandwidth;
    uint32_t has_network, listed; /* see struct gateway_config */
    char allow[GATEWAY_ALLOW_MAX];
    char image[IMAGE_NAME_MAX + 1];
    char preview_domain[256];
};
