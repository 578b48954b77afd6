/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_settings.h: what a caller may decide about the inside of a sandbox: who runs its commands, where
 * they start, what it is called and which volumes it has. All of it takes effect when its next life begins.
 */
#pragma once

#include "base/json.h"
#include "gateway/problem.h"
#include "keeper/proto_volume.h"

enum { CONFIG_USER_MAX = 65, CONFIG_WORKDIR_MAX = 255, CONFIG_ID_MAX = 65535 };

/* NULL: as the image says. */
struct sandbox_settings {
    char *user; /* name or number, perhaps with ":" and a group's name or number */
    char *workdir;
    char *hostname;
    char *volumes; /* JSON: [{"name":..,"path":..,"readOnly":..}], in the order of their paths */
};

int sandbox_settings_copy(struct sandbox_settings *dst, const struct sandbox_settings *src); /* 0, -ENOMEM */
void sandbox_settings_done(struct sandbox_settings *s);
bool sandbox_settings_equal(const struct sandbox_settings *a, const struct sandbox_settings *b);

/* The members user, workdir, hostname and volumes of body; absent or null: unchanged; empty: as the image
 * says. 0, or -EINVAL with *p. */
int sandbox_settings_apply(struct sandbox_settings *s, const struct json_value *body, struct problem *p);
void sandbox_settings_put_json(struct json_writer *w, const struct sandbox_settings *s);
/* For the agent (src/agent/control.h): "=user=...\0" and so on. */
int sandbox_settings_put_boot(struct buf *out, const struct sandbox_settings *s);

/* Fills v, whose rest is zero; how many there are. */
size_t sandbox_settings_volumes(const struct sandbox_settings *s,
                                struct keeper_volume_mount v[KEEPER_VOLUMES_MAX]);
