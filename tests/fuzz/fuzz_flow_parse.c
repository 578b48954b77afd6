/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_flow_parse.c: whatever a netlink socket says is read within its bounds. */
#include "gateway/flow_parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void found(const struct flow *f, void *arg)
{
    size_t *count = arg;
    if (f->kind > FLOW_REFUSED || ++*count > 100000)
        abort();
}

static void answered(const struct flow_answer *a, void *arg)
{
    size_t *count = arg;
    if (strnlen(a->name, 254) > 253 || ++*count > 100000)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t count = 0;
    flow_parse(data, size, found, &count);
    count = 0;
    flow_parse_answers(data, size, answered, &count);
    return 0;
}
