/* SPDX-License-Identifier: Apache-2.0 */
/* step.h: what is measured: one line of the plan is one program run or one HTTP request. */
#pragma once

#include "http.h"

#include <stdio.h>

enum { STEP_MAX = 32, STEP_ARGS_MAX = 64, STEP_CONNECTIONS_MAX = 4 };

/* Lines of a plan, fields separated by tabs:
 *   spawn NAME PROGRAM ARGUMENT...                           run to its end, exit status 0 expected
 *   http  NAME ADDRESS METHOD PATH BODY EXPECT MARK          status 200 and EXPECT in the answer expected
 * In arguments, paths and bodies {n} is the number of the round and {t} that of the thread. BODY is text,
 * "@FILE" or
 * "+BYTES" (made up). A name that starts with "-" is not timed and belongs to the step before it. */
struct step {
    bool spawn;
    char *line; /* holds all texts below */
    const char *name;
    const char *argv[STEP_ARGS_MAX + 1];
    const char *address, *method, *path, *expect, *mark;
    char *body;
    size_t body_len;
    uint64_t fill;
    bool body_template;
};

struct plan {
    struct step steps[STEP_MAX];
    size_t count;
};

struct sample {
    const char *name;
    int64_t at_ns;                       /* when it began */
    int64_t total_ns, first_ns, mark_ns; /* since then; 0: did not happen */
    uint64_t bytes;
};

/* What one thread owns. */
struct runner {
    struct http connections[STEP_CONNECTIONS_MAX];
    size_t connection_count;
    struct http_answer *answer;
    char *path, *body; /* room for what is filled in */
    char error[512];   /* why step_run failed */
    struct sample *samples;
    size_t sample_count, sample_room;
};

int plan_read(struct plan *p, FILE *in);
void plan_done(struct plan *p);

int runner_init(struct runner *r);
void runner_done(struct runner *r);
/* Runs one step and appends its sample unless its name starts with "-". */
int step_run(struct runner *r, const struct step *s, unsigned n, unsigned t);
/* The runner's connection to an address, made when there is none yet; NULL when there are too many. */
struct http *runner_connection(struct runner *r, const char *address);
void runner_print(const struct runner *r, int64_t zero_ns);
