/* SPDX-License-Identifier: Apache-2.0 */
/* spare_shell.h: a shell started before anybody asks, in a sandbox that waits for its owner.
 *
 * The first command of a new sandbox spends most of its time starting bash. A prepared sandbox has time, so
 * it starts one; the first session whose shell would have the same environment and directory takes it over.
 * One that is woken and is built for that has none, but starts bash while the keeper is still busy with it.
 * One that moves into a bare sandbox finds one on the image's tree, which changes directory before its first
 * command, if the disk has not made another shell of it. */
#pragma once

#include "agent/shell.h"

struct spare_shell;

/* The sandbox can start processes now, and has no owner yet. */
void spare_shell_prepare(struct agent *a);
/* It has one: a spare that nobody takes within a moment is let go, so that an idle sandbox stays small. */
void spare_shell_owned(struct agent *a);
/* The spare if it is as good as a new shell (env as shell_new takes it), NULL otherwise; then there is none
 * any more. */
struct shell *spare_shell_take(struct agent *a, char *const *env, const char *cwd,
                               const struct shell_ops *ops, void *arg);
void spare_shell_free(struct agent *a);
