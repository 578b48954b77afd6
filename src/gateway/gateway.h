/* SPDX-License-Identifier: Apache-2.0 */
/* gateway.h: the process that talks to strangers: its start and its settings. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"

enum { GATEWAY_LISTEN_MAX = 8, TOKEN_HASH_BYTES = 32 };

struct gateway_config {
    int keeper_fd;                      /* SOCK_SEQPACKET to the keeper */
    int listen_fds[GATEWAY_LISTEN_MAX]; /* bound and listening */
    size_t listen_count;
    int docker_fd;          /* the container engine's socket, listening; -1: none */
    uint32_t tls_listeners; /* bit i: listen_fds[i] speaks TLS */
    int tls_fd;             /* with tls_listeners: a struct gateway_tls */
    int state_dir_fd;       /* the gateway's own directory (state.db); becomes its root directory */
    uid_t uid;              /* what it runs as; 0: stay (tests without root) */
    bool auth_off;          /* loopback and unix listeners only; checked by the caller */
    unsigned char admin_hash[TOKEN_HASH_BYTES]; /* SHA-256 of the admin token */
    const char *default_image;
    struct limits default_limits;
    int shared_fd;              /* what all agents are told (sandbox_config_boot_fd), -1: nothing */
    int64_t sleep_after_ms;     /* default of new sandboxes */
    bool has_network;           /* sandboxes can have one */
    bool listed;                /* ... and those that do not say have an allow-list, this one */
    const char *allow;          /* "host[:port],..." */
    const char *preview_domain; /* "[SCHEME://]DOMAIN[:PORT]"; NULL: localhost */
    int64_t preview_timeout_ms; /* for the head of a service's answer; 0: the default */
    uint64_t preview_bandwidth; /* bytes a second of one preview, each way; 0: no limit */
    int64_t freeze_after_ms;    /* idle time after which nothing is scheduled; 0: never */
    int64_t agent_silence_ms;   /* after so long an agent is asked whether it lives; 0: never */
};

/* Gives up every privilege (uid, capabilities, root directory, seccomp), serves until SIGTERM or until the
 * keeper is gone. Returns the exit code. */
int gateway_main(const struct gateway_config *config);
