/* SPDX-License-Identifier: Apache-2.0 */
/* build_internal.h: what the files that carry a plan out share. */
#pragma once

#include "builder/build.h"
#include "builder/interrupt.h"
#include "builder/remote.h"
#include "builder/report.h"

/* A sandbox of this build; no id: there is none. */
struct box {
    char id[BOX_ID_SIZE];
    char image[IMAGE_TEXT_MAX]; /* it was made from */
};

struct stage_state {
    bool needed;
    size_t resume;              /* the first step that must run */
    char image[IMAGE_TEXT_MAX]; /* with the files of all steps before `resume`, finally of all */
};

struct build {
    struct silica_client *client;
    const struct build_options *options;
    struct plan *plan;
    struct context *context;
    struct stage_state *stages;
    struct box box;      /* where the steps of the current stage run */
    struct box source;   /* what COPY --from reads */
    const char *network; /* of the next sandbox, see remote_box */
    struct report report;
    struct interrupt *interrupt;
    struct error *reterr;
};

/* A sandbox made from image, unless it is that already. */
int box_open(struct build *b, struct box *box, const char *image);
void box_close(struct build *b, struct box *box);
/* Shell text with arguments, in a box; its output to *ret (malloc'ed; may be NULL). Exit codes other than 0
 * are errors, told with what it printed. */
int box_shell(struct build *b, const struct box *box, const char *script, const struct words *args,
              char **ret);

/* build_copy.c */
int build_copy(struct build *b, const struct step *s);
/* build_run.c */
int build_run_step(struct build *b, const struct step *s, int *ret_exit_code);

/* Shell text that finds uid, gid, home and name of "$1" (USER or USER:GROUP, names or numbers) in the image's
 * own files, and takes it off the arguments. */
#define FIND_USER                                                                                          \
    "spec=$1; shift; u=${spec%%:*}; g=; case $spec in *:*) g=${spec#*:};; esac; uid=; gid=; home=/; "      \
    "name=$u\n"                                                                                            \
    "case $u in *[!0-9]*) numeric=;; *) numeric=1;; esac\n"                                                \
    "if [ -r /etc/passwd ]; then while IFS=: read -r n x i j x h x; do\n"                                  \
    "  if [ \"$numeric\" ] && [ \"$i\" = \"$u\" ] || [ ! \"$numeric\" ] && [ \"$n\" = \"$u\" ]; then\n"    \
    "    uid=$i; gid=$j; home=$h; name=$n; break; fi; done </etc/passwd; fi\n"                             \
    "if [ ! \"$uid\" ]; then [ \"$numeric\" ] || { echo \"the image has no user '$u'\" >&2; exit 125; }\n" \
    "  uid=$u; gid=0; fi\n"                                                                                \
    "if [ \"$g\" ]; then case $g in *[!0-9]*) gid=; while IFS=: read -r n x i x; do\n"                     \
    "    if [ \"$n\" = \"$g\" ]; then gid=$i; break; fi; done </etc/group\n"                               \
    "    [ \"$gid\" ] || { echo \"the image has no group '$g'\" >&2; exit 125; };; *) gid=$g;; esac; fi\n"
