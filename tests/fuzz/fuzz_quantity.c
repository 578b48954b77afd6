/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_quantity.c: what is read begins with a digit and is in range; what is not moves nothing. */
#include "base/quantity.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[128];
    uint64_t bytes = 0, whole = 0;
    uint32_t millionths = 0;
    int64_t ms = 0;
    if (size >= sizeof text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    bool digit = text[0] >= '0' && text[0] <= '9';
    if (quantity_bytes(text, &bytes) == 0)
        require(digit && bytes < UINT64_C(1) << 53);
    if (quantity_duration_ms(text, &ms) == 0)
        require(digit && ms >= 0);
    const char *p = text;
    if (quantity_decimal(&p, &whole, &millionths) == 0)
        require(digit && millionths < 1000000 && p > text && p <= text + strlen(text));
    else
        require(p == text);
    return 0;
}
