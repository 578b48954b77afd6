/* SPDX-License-Identifier: Apache-2.0 */
/* spawner_internal.h: the messages between the agent (spawner.c) and its spawner (spawner_child.c). */
#pragma once

#include "agent/spawner.h"

enum {
    SPAWN_MAGIC = 0x53504157,
    SPAWN_INLINE_MAX = 32 * 1024,     /* longer blobs travel in a memfd */
    SPAWN_BLOB_MAX = 8 * 1024 * 1024, /* beyond what execve takes */
    SPAWN_FDS_MAX = 4,
    SPAWN_HAS_MEMFD = 8, /* flag; bits 0-2 say which descriptors are attached, in that order */
    SPAWN_TERMINAL = 16, /* flag */
};

/* Followed by the blob unless it is in a memfd: path, cwd, argv, env, each string NUL-terminated. */
struct spawn_message {
    uint32_t magic;
    uint32_t seq; /* 0: the go of the agent, nothing else is set */
    uint32_t flags;
    uint32_t argc, envc;
    uint32_t blob_len;
    uint64_t tag; /* 0: none */
    uint32_t uid, gid;
    uint32_t group_count, groups[ACCOUNT_GROUPS_MAX];
};

struct spawn_answer {
    uint32_t magic;
    uint32_t seq;
    int32_t pid; /* 0: failed */
    int32_t err;
    uint32_t stage;
};

/* The spawner's life; `sock` and `control_fd` (-1: none) are the only descriptors it keeps. */
_Noreturn void spawner_main(int sock, int control_fd, const struct spawner_config *config);
