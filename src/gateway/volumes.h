/* SPDX-License-Identifier: Apache-2.0 */
/* volumes.h: which volumes there are, as the gateway knows it: the keeper's list, asked for at the start and
 * followed through every change, all of which go through here. So whether a sandbox may name a volume is
 * known at once, and a volume that is being removed can be given to nobody. */
#pragma once

#include "gateway/keeper_link.h"
#include "gateway/lifecycle.h"
#include "gateway/problem.h"

struct volumes;

/* Sends the question before anybody else's: when the keeper has answered a later one, this is answered. */
int volumes_new(struct keeper_link *link, struct volumes **ret, struct error *reterr);
void volumes_free(struct volumes *v); /* NULL is fine; after the link */

bool volumes_known(const struct volumes *v, const char *name); /* and not being made or removed */
/* 0, or -EINVAL and *p: a volume of s is not known. */
int volumes_check(const struct volumes *v, const struct sandbox_settings *s, struct problem *p);

/* done is called once, from the loop; p NULL: it is made (tell says more), or removed. */
typedef void volumes_done(void *arg, const struct keeper_volume_tell *tell, const struct problem *p);
void volumes_create(struct volumes *v, const char *name, uint64_t bytes, volumes_done *done, void *arg);
void volumes_remove(struct volumes *v, const char *name, volumes_done *done, void *arg);
