/* SPDX-License-Identifier: Apache-2.0 */
/* failpoint.h: making a named step fail or the process die there, for tests. Compiled to nothing in release
 * builds.
 *
 * SILICA_FAIL=start:3 makes step 3 of every start fail; SILICA_CRASH=start:3 kills the process there. A count
 * behind a further colon (start:3:2) lets the first two pass.
 *
 *   start   the steps of a sandbox's creation (sandbox.c) ...
 *   berth   ... and of its first half (berth.c)
 *   move    the steps of moving into a bare one (sandbox.c)
 *   orphan  the process of a berth or bare sandbox that is being taken is killed (only a failure) ...
 *   claim   ... or that of a sandbox that is to be given to the first who asks (only a failure)
 *   lift    the move of an agent out of the workload's groups (only a crash)
 *   end     its removal: 0 asked for, 1 out of the ledger, 2 without processes, 3 without disk (only a crash)
 *   adopt   a sandbox found at start: 0 it runs, 1 it has its box (only a crash)
 *   image   the messages of an image worker (imager_run.c)
 *   store   the gateway's writes: 0 before a transaction, 1 behind it, before anybody is told (only a crash)
 */
#pragma once

#include "base/error.h"

#ifdef SILICA_FAILPOINTS
int failpoint_hit(const char *area, int step, struct error *reterr);
#else
static inline int failpoint_hit(const char *area, int step, struct error *reterr)
{
    (void)area;
    (void)step;
    (void)reterr;
    return 0;
}
#endif
