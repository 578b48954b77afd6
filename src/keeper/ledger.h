/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.h: the sandboxes that exist on this host, whether running or not: one SQLite file, one writer. */
#pragma once

#include "keeper/proto.h"
#include "net/loop.h"

struct ledger;

struct ledger_row {
    char id[SANDBOX_ID_MAX + 1];
    char image[IMAGE_NAME_MAX + 1];
    uint64_t disk;
    struct limits limits;
};

int ledger_open(struct loop *loop, const char *path, struct ledger **ret, struct error *reterr);
/* There was no ledger, or an empty file: either this is the first start, or it was lost. */
bool ledger_is_fresh(const struct ledger *l);
/* Finishes what is under way (the callbacks are called), then closes. */
void ledger_free(struct ledger *l);
int ledger_load(struct ledger *l, void (*found)(const struct ledger_row *row, void *arg), void *arg,
                struct error *reterr);

/* On disk for good when done(arg, NULL) is called from the loop; e says why it is not. Written by a thread of
 * its own: an fsync takes longer than a start. */
void ledger_put(struct ledger *l, const struct ledger_row *row,
                void (*done)(void *arg, const struct error *e), void *arg);
void ledger_delete(struct ledger *l, const char *id, void (*done)(void *arg, const struct error *e),
                   void *arg);
