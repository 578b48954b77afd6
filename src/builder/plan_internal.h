/* SPDX-License-Identifier: Apache-2.0 */
/* plan_internal.h: what the files that make a plan share. */
#pragma once

#include "builder/plan.h"

struct planner {
    const struct plan_input *in;
    struct plan *plan;
    struct stage *stage;  /* being read */
    struct words global;  /* ARGs in front of the first FROM */
    struct words *args;   /* ARGs of each stage: later stages may go on from it */
    struct words used;    /* names of build arguments that some ARG asked for */
    struct words servers; /* where this stage has put the container protocol's server */
    bool cmd_set;         /* this stage has a CMD of its own */
    const struct instruction *at;
    struct error *reterr;
};

/* "line N: " and a sentence. */
int plan_fail(struct planner *p, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4);
int plan_memory(struct planner *p);
int plan_note(struct planner *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A word of the current stage with its variables replaced. */
int plan_expand(struct planner *p, const char *word, char **ret);
const char *plan_lookup(const char *name, size_t n, void *planner); /* for expand.h */
/* The stage called so (by name or number) in front of the current one, or -1. */
int plan_find_stage(const struct planner *p, const char *name);
struct words *plan_args(struct planner *p); /* of the current stage */

/* plan_settings.c: instructions that only change the configuration. */
int plan_env(struct planner *p);
int plan_label(struct planner *p);
int plan_expose(struct planner *p);
int plan_user(struct planner *p);
int plan_command(struct planner *p, struct words *to); /* CMD, ENTRYPOINT */
int plan_shell(struct planner *p);

/* plan_steps.c: instructions that change files. */
int plan_run(struct planner *p);
int plan_workdir(struct planner *p);
/* plan_copy.c */
int plan_copy(struct planner *p);
/* Where a copy comes from: a stage, an image, or (name NULL) the context; then what it takes. */
int plan_copy_from(struct planner *p, struct step *s, const char *name);
int plan_copy_select(struct planner *p, struct step *s);
/* Everything its result depends on. */
int plan_copy_digest(struct planner *p, const struct step *s, struct sha256 *d);
/* plan_mounts.c: the flags --mount of RUN. */
int plan_mounts(struct planner *p, struct step *s);
int plan_mounts_digest(struct planner *p, const struct step *s, struct sha256 *d);

/* A new step of the current stage, NULL: no memory (told). */
struct step *plan_add_step(struct planner *p, enum step_kind kind);
/* The digest of a step, begun with what is before it; plan_end_key stores the result. NULL: no memory (told).
 */
struct sha256 *plan_begin_key(struct planner *p, const char *what);
void plan_end_key(struct planner *p, struct sha256 *d);
void plan_digest_words(struct sha256 *d, const struct words *w);
/* Absolute, clean, relative to the stage's directory. */
char *plan_absolute(const struct planner *p, const char *path);
