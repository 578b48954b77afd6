/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_config.h: what a caller may decide about a sandbox, and reading it from JSON. */
#pragma once

#include "base/json.h"
#include "base/limits.h"
#include "gateway/problem.h"
#include "gateway/sandbox_reach.h"
#include "gateway/sandbox_settings.h"
#include "keeper/proto.h"

enum {
    INSTANCE_TYPE_MAX = 31,
    CONFIG_ENV_MAX = 512,             /* variables */
    CONFIG_ENV_BYTES = 256 * 1024,    /* all names and values: half of what exec(2) has room for */
    CONFIG_ENV_VALUE = 64 * 1024,     /* one of them; exec(2) takes 128 KiB */
    CONFIG_SETTINGS_BYTES = 8 * 1024, /* what sandbox_settings_put_boot needs at most */
    CONFIG_LABELS_MAX = 64,
    CONFIG_LABEL_KEY = 63,
    CONFIG_LABEL_VALUE = 255,
};

struct sandbox_config {
    char image[IMAGE_NAME_MAX + 1];
    char instance_type[INSTANCE_TYPE_MAX + 1]; /* "" when the limits were given one by one */
    struct limits limits;
    char *env;    /* JSON object of strings without repeated names; NULL = {} */
    char *labels; /* the same */
    int64_t sleep_after_ms;
    bool keep_alive; /* never sleeps */
    bool ephemeral;  /* forgets its files when it sleeps */
    struct sandbox_reach reach;
    struct sandbox_settings settings;
};

int sandbox_config_copy(struct sandbox_config *dst,
                        const struct sandbox_config *src); /* dst: uninitialised; 0, -ENOMEM */
void sandbox_config_done(struct sandbox_config *c);

/* Lays the members of body over *c. Members that are absent or null change nothing, unknown ones are ignored,
 * except inside `limits` and `network`, where a misspelt limit would be no limit. 0, or -EINVAL with *p; then
 * *c is partly changed and only good for sandbox_config_done. */
int sandbox_config_apply(struct sandbox_config *c, const struct json_value *body, struct problem *p);

/* Same image and limits (but those of the network): what cannot change while the sandbox exists. */
bool sandbox_config_same_machine(const struct sandbox_config *a, const struct sandbox_config *b);
bool sandbox_config_equal(const struct sandbox_config *a, const struct sandbox_config *b);

/* What the agent is told when a life begins (src/agent/control.h), as a sealed memfd: what all sandboxes of
 * this server get (shared, which may be empty), then this one's own variables and settings. *ret_fd is -1
 * when there is nothing to tell. */
int sandbox_config_boot_fd(const struct sandbox_config *c, const char *shared, size_t shared_bytes,
                           int *ret_fd, struct error *reterr);
/* True when labels has key with exactly this value. */
bool sandbox_config_has_label(const struct sandbox_config *c, const char *key, const char *value);
