/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.h: the privileged process: its settings and its start. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "keeper/network.h"

enum {
    KEEPER_TLS_MAX = 8,
    KEEPER_LISTEN_MAX = 8,
    KEEPER_POOL_MAX = 64,
    KEEPER_BERTHS_MAX = 16,
    KEEPER_KEPT_MAX = 1024
};

enum keeper_network_mode {
    KEEPER_MODE_AUTO, /* public where the host can, otherwise none and a warning */
    KEEPER_MODE_NONE,
    KEEPER_MODE_PUBLIC, /* or no start */
};

struct keeper_config {
    const char *data_dir;   /* disks/, keeper.db, gateway/ */
    const char *images_dir; /* one directory per image */
    const char *run_dir;    /* slots/ ; must be gone after a reboot (a tmpfs) */
    const char *agent_path; /* the agent's program file */
    const char *instance;   /* "" or a suffix that keeps two daemons on one host apart ("test1") */
    const char *image;      /* default image */
    struct limits limits;   /* default limits */
    unsigned pool;          /* sandboxes kept ready */
    unsigned bare;          /* and those that wait for a disk only */
    unsigned berths;        /* places kept ready for sandboxes of another image or size */
    unsigned kept_disks;    /* of sleeping sandboxes, mounted ... */
    int64_t kept_disks_ms;  /* ... for so long */
    uint32_t uid_base;      /* first id of the pool of ranges, a multiple of 65536 */
    unsigned slots;         /* ranges in the pool */
    uint64_t image_limit;   /* bytes of one image's files */
    uint64_t disk_margin;   /* refuse new sandboxes when the host has less free disk ... */
    uint64_t memory_margin; /* ... or memory than this */
    enum keeper_network_mode network;
    const char *allow;     /* for the gateway: the list of sandboxes that do not say; NULL: they need none */
    uint32_t network_pool; /* addresses of the links, network order ... */
    unsigned network_pool_prefix;
    struct ip ipv6_prefix;                     /* of their IPv6 addresses; none: they have none */
    uint32_t resolvers[NETWORK_RESOLVERS_MAX]; /* ... and the name servers of sandboxes; none: the host's */
    size_t resolver_count;
    uid_t gateway_uid;
    bool auth_off;
    enum log_level log_level; /* for the gateway; the keeper's own is set */
    enum log_format log_format;
    unsigned char admin_hash[32];
    const char *shared; /* for the gateway: what is the same in all sandboxes (cli/serve_sandbox.h) */
    size_t shared_bytes;
    int64_t sleep_after_ms;
    int64_t freeze_after_ms;    /* for the gateway: see gateway.h */
    int64_t agent_silence_ms;   /* likewise */
    const char *preview_domain; /* likewise; at most 255 characters */
    int64_t preview_timeout_ms;
    uint64_t preview_bandwidth;
    int listen_fds[KEEPER_LISTEN_MAX];
    size_t listen_count;
    uint32_t tls_listeners;                                         /* bit i: listen_fds[i] speaks TLS */
    const char *tls_cert[KEEPER_TLS_MAX], *tls_key[KEEPER_TLS_MAX]; /* PEM files; read again on SIGHUP */
    size_t tls_count;
};

/* Serves until a signal. SIGTERM: sandboxes go on without us and are adopted by the next keeper. SIGINT: they
 * are put to sleep first. Returns the exit code. */
int keeper_main(const struct keeper_config *config);
