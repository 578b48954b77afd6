/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h: a limit of bytes a second that several transfers share.
 *
 * Bytes are paid for after they have moved: whoever moved them waits until the debt is paid before he moves
 * more. Short bursts are free, so that small things are as quick as without a limit. */
#pragma once

#include "base/util.h"

enum { PACE_BURST_US = 100 * 1000 };

struct pace {
    uint64_t rate;   /* bytes a second, each way; 0: none */
    int64_t paid_us; /* until when what has moved is paid for */
};

/* How long to wait before the next bytes, in milliseconds; 0: not at all. */
static inline int64_t pace_spend(struct pace *p, size_t bytes, int64_t now_us)
{
    if (!p->rate)
        return 0;
    p->paid_us = MAX(p->paid_us, now_us - PACE_BURST_US) + (int64_t)(bytes * 1000000 / p->rate);
    return p->paid_us > now_us ? (p->paid_us - now_us + 999) / 1000 : 0;
}
