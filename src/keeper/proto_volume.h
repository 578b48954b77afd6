/* SPDX-License-Identifier: Apache-2.0 */
/* proto_volume.h: the part of the messages between gateway and keeper that is about volumes and the name of a
 * sandbox's machine; see proto.h. */
#pragma once

#include "base/error.h"

enum { KEEPER_VOLUMES_MAX = 8, VOLUME_NAME_MAX = 63, VOLUME_PATH_MAX = 255, MACHINE_NAME_MAX = 63 };
#define VOLUME_BYTES_MIN (UINT64_C(16) << 20)
#define VOLUME_BYTES_MAX (UINT64_C(1) << 40)

/* Volumes outlive sandboxes, and several may have the same one at the same time. */
struct keeper_volume_mount {
    char name[VOLUME_NAME_MAX + 1]; /* "": none, and none behind it */
    char path[VOLUME_PATH_MAX + 1]; /* see volume_path_check */
    uint32_t read_only;
    uint32_t reserved; /* 0 */
};

struct keeper_volume_tell {
    char name[VOLUME_NAME_MAX + 1];
    uint64_t bytes, used_bytes;
    int64_t created_ms; /* wall time */
};

/* 1-63 of [A-Za-z0-9._-], not starting with '.' or '-': safe as the name of a file. */
bool volume_name_ok(const char *name);
/* Absolute, without empty parts, '.' or '..', and not where a sandbox's own file systems or the agent's files
 * are. -EINVAL with a sentence. */
int volume_path_check(const char *path, struct error *reterr);
/* Letters, digits and '-', in parts with dots between them, as RFC 1123 says. */
bool machine_name_ok(const char *name);

/* How many of v are used, with names and paths (or names alone) that can be relied on; -EBADMSG. */
int keeper_volumes_count(const struct keeper_volume_mount v[KEEPER_VOLUMES_MAX], bool paths);
