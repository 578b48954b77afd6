/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h: what this host offers for sandboxes, layer by layer, found by trying it. */
#pragma once

#include "keeper/cgroup.h"

enum doctor_verdict {
    DOCTOR_OK,
    DOCTOR_WARN,    /* an extra layer or a comfort is missing */
    DOCTOR_MISSING, /* sandboxes cannot be made without it */
};

struct doctor_line {
    const char *layer;
    enum doctor_verdict verdict;
    char detail[320]; /* what was found, or why it is missing and what to do */
};

struct doctor_config {
    const char *data_dir, *agent_path, *image;
};

/* Calls report for every layer; the last one builds and ends a real sandbox, if everything it needs is there.
 * Leaves nothing behind. Returns the number of missing layers. */
int doctor_run(const struct doctor_config *config, void (*report)(const struct doctor_line *line, void *arg),
               void *arg);

/* The controllers without which no sandbox is made: -EOPNOTSUPP with a sentence that names what is missing
 * and what to do. */
int doctor_controllers(const struct cgroup_host *h, struct error *reterr);
