/* SPDX-License-Identifier: Apache-2.0 */
/* duration.c: see duration.h. */
#include "gateway/duration.h"
#include "base/quantity.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int in_range(int64_t ms, int64_t *ret_ms)
{
    if (ms < DURATION_MIN_MS || ms > DURATION_MAX_MS)
        return -ERANGE;
    *ret_ms = ms;
    return 0;
}

int duration_parse(const char *s, int64_t *ret_ms)
{
    int64_t ms;
    if (!s[strcspn(s, "dhms")])
        return -EINVAL; /* in a text a bare number could be anything */
    int r = quantity_duration_ms(s, &ms);
    return r < 0 ? r : in_range(ms, ret_ms);
}

int duration_from_seconds(double seconds, int64_t *ret_ms)
{
    if (!(seconds >= 0) || seconds > (double)(DURATION_MAX_MS / 1000))
        return -ERANGE;
    return in_range((int64_t)llround(seconds * 1000), ret_ms);
}
