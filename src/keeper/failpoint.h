/* SPDX-License-Identifier: Apache-2.0 */
/* failpoint.h: making a named step fail or the keeper die there, for tests. Compiled to nothing in release
 * builds.
 *
 * SILICA_FAIL=start:3 makes step 3 of every start fail; SILICA_CRASH=start:3 kills the process there. A count
 * behind a further colon (start:3:2) lets the first two pass. */
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
