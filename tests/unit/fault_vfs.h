/* SPDX-License-Identifier: Apache-2.0 */
/* fault_vfs.h: a disk for SQLite that fails when it is told to, and that forgets what was not synced when the
 * power goes.
 *
 * It is as bad as a disk may be: a sync that fails makes nothing durable, and the bytes it was about count as
 * written from then on (so a second sync without a second write does not help). */
#pragma once

#include <stdbool.h>

/* Before SQLite's first use; every file is in memory from here on. Allocations of SQLite can fail, too. */
void fault_vfs_install(void);
/* No files, no faults. */
void fault_vfs_reset(void);
/* The nth change of a file (write, truncation, sync; from now on, beginning at 1) fails with this code of
 * SQLite, or it and all that follow. 0: none. */
void fault_vfs_fail(int nth, int code, bool and_all_that_follow);
/* The nth allocation of SQLite from now on fails. 0: none. */
void fault_vfs_fail_malloc(int nth);
/* The fault that was asked for has happened. */
bool fault_vfs_hit(void);
/* Files are what was synced; faults are gone. */
void fault_vfs_power_loss(void);
