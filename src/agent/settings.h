/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h: what a sandbox is told about itself besides its variables, and doing it before anything else
 * runs.
 *
 * Settings travel among the variables as strings that no variable can be, because they begin with '=':
 *
 *     =user=NAME[:GROUP]   who runs commands          =volume=PATH    a volume that can be written to, may be
 * repeated =workdir=PATH        where they start           =ca=PEM         certificates to trust besides the
 * image's =hostname=NAME       as the machine is called   =apt-mirror=URL where Debian's and Ubuntu's
 * archives are
 *
 * The image's defaults are in the agent's first environment, the sandbox's own come with BOOT and win.
 * Unknown ones are ignored: a newer gateway may meet an older agent. */
#pragma once

#include "base/error.h"

struct agent;

enum { SETTINGS_VOLUMES_MAX = 8 };

struct settings {
    char *user, *workdir, *hostname, *ca, *apt_mirror;
    char *volumes[SETTINGS_VOLUMES_MAX];
    size_t volume_count;
    bool has_home; /* the sandbox's own variables say where HOME is */
};

/* One string; those that are no settings are left alone. 0 or -ENOMEM. */
int settings_take(struct settings *s, const char *string);
/* The same for a vector (environ) and for a block of NUL-terminated strings. */
int settings_take_all(struct settings *s, char *const *strings);
int settings_take_block(struct settings *s, const char *block, size_t n);
void settings_done(struct settings *s);

/* Writes the files, finds the user and becomes him as far as files go. Fails only when the user cannot be
 * had: then nothing may be run. What else does not work is logged. */
int settings_apply(struct agent *a, struct error *reterr);
