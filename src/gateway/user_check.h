/* SPDX-License-Identifier: Apache-2.0 */
/* user_check.h: whether the agent of a running sandbox found the user it was told: only the agent can look
 * into the image's files, and refuses every request when there is no such user. */
#pragma once

#include "gateway/keeper_link.h"

struct user_check;

/* done is called once from the loop: false when the agent refuses. What cannot be found out counts as true:
 * then the first command tells. NULL: no memory. */
struct user_check *user_check_start(struct loop *loop, struct keeper_link *link, const char *id,
                                    void (*done)(void *arg, bool ok), void *arg);
void user_check_forget(struct user_check *c); /* done is not called any more; NULL is fine */
