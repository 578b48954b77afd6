/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_flow_parse.c: whatever a netlink socket says is read within its bounds. */
#include "gateway/flow_parse.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void found(const struct flow *f, void *arg)
{
    size_t *count = arg;
    if (f->kind > FLOW_REFUSED || ++*count > 100000)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t count = 0;
    flow_parse(data, size, found, &count);
    return 0;
}
