/* SPDX-License-Identifier: Apache-2.0 */
/* proto.h: the messages between gateway and keeper: fixed structs over one SOCK_SEQPACKET socketpair.
 *
 * Every message is exactly one struct, with at most one descriptor attached. The receiver checks version,
 * size, enum ranges and string termination as if an enemy had sent it (keeper_request_check). Every request
 * gets exactly one reply with its seq, in any order; events have seq 0. */
#pragma once

#include "base/id.h"
#include "base/limits.h"

enum { KEEPER_PROTO_VERSION = 1, IMAGE_NAME_MAX = 63 };

enum keeper_type {
    KEEPER_START =
        1,          /* create or wake: image, limits; attached: env memfd ("K=V\0K=V\0", sealed) or none.
                     * Reply: attached a connected agent socket. Already running: same, generation unchanged */
    KEEPER_CONNECT, /* reply: attached one more connected agent socket */
    KEEPER_STOP,    /* end all processes, keep the files (sleep) */
    KEEPER_DESTROY, /* end everything, remove the files; fine when unknown */
    KEEPER_STATS,   /* reply: state and usage */
    KEEPER_FREEZE,  /* stop scheduling, keep memory */
    KEEPER_THAW,
    KEEPER_LIST, /* one reply of type KEEPER_ITEM per known sandbox (same seq), then the KEEPER_REPLY */
    KEEPER_KILL, /* as STOP, without asking the agent first: it does not answer */
    KEEPER_TYPE_COUNT,

    KEEPER_REPLY = 100,
    KEEPER_ITEM,
    KEEPER_EVENT_EXIT,    /* a running sandbox ended by itself: id, generation */
    KEEPER_EVENT_DURABLE, /* the record of a sandbox whose START was answered with durable == 0 is on disk now
                           * (error: it is not, and the sandbox is being removed). Until then no caller may
                           * hear of it */
};

enum keeper_state {
    KEEPER_STATE_ABSENT,
    KEEPER_STATE_STOPPED, /* files only */
    KEEPER_STATE_RUNNING,
    KEEPER_STATE_FROZEN,
    KEEPER_STATE_COUNT,
};

enum keeper_network {
    KEEPER_NETWORK_DEFAULT, /* what the daemon gives */
    KEEPER_NETWORK_NONE,    /* the loopback interface only */
    KEEPER_NETWORK_PUBLIC,  /* public addresses; refused with ENONET where there is no network */
    KEEPER_NETWORK_COUNT,
};

struct keeper_request {
    uint32_t version;
    uint32_t type;
    uint64_t seq;
    char id[SANDBOX_ID_MAX + 1];
    char image[IMAGE_NAME_MAX + 1];
    struct limits limits; /* START of an unknown id only */
    uint32_t network;     /* every START: a sandbox that sleeps has no link */
    uint32_t reserved;    /* 0 */
};

struct keeper_usage {
    uint64_t memory_bytes, memory_peak_bytes;
    uint64_t oom_kills;
    uint64_t cpu_us;
    uint64_t disk_bytes;
    uint32_t tasks;
    uint32_t reserved;
};

struct keeper_reply {
    uint32_t version;
    uint32_t type;
    uint64_t seq;
    int32_t error; /* 0 or a positive errno: EAGAIN/ENOSPC/ENOMEM = the host is full, ENOENT = unknown id or
                    * image, EOPNOTSUPP = the kernel lacks a layer, ETIMEDOUT, EIO = anything else */
    uint32_t state;
    uint64_t generation; /* differs for every start of an id; 0 when not running */
    uint32_t durable;    /* START: the sandbox's record is on disk; else KEEPER_EVENT_DURABLE follows */
    uint32_t reserved;
    char id[SANDBOX_ID_MAX + 1];
    char message[256]; /* a sentence without host paths when error != 0 */
    struct keeper_usage usage;
};

/* 0 or -EBADMSG: everything about the request that does not depend on the keeper's state. */
int keeper_request_check(const void *data, size_t n);
int keeper_reply_check(const void *data, size_t n);

/* 1-63 of [A-Za-z0-9._-], not starting with '.' or '-': safe as the name of a directory. */
bool keeper_image_name_ok(const char *name);
