/* SPDX-License-Identifier: Apache-2.0 */
/* failpoint.c: see failpoint.h. */
#include "base/failpoint.h"

#ifdef SILICA_FAILPOINTS
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static bool armed(const char *variable, const char *area, int step, atomic_int *passed)
{
    const char *text = getenv(variable);
    char name[32];
    int at, skip = 0;
    if (!text || sscanf(text, "%31[a-z]:%d:%d", name, &at, &skip) < 2 || strcmp(name, area) != 0 ||
        at != step)
        return false;
    return atomic_fetch_add(passed, 1) >= skip;
}

int failpoint_hit(const char *area, int step, struct error *reterr)
{
    static atomic_int crash_passed, fail_passed;
    if (armed("SILICA_CRASH", area, step, &crash_passed))
        (void)raise(SIGKILL);
    if (armed("SILICA_FAIL", area, step, &fail_passed))
        return error_set(reterr, EIO, "made to fail by a test");
    return 0;
}
#endif
