/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_base64.c: what is encoded decodes to itself; what decodes encodes to the same text, but for missing
 * padding and the unused bits of its last character. */
#include "base/base64.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check_text(const char *text, size_t n)
{
    unsigned char *plain = malloc(n / 4 * 3 + 2);
    require(plain);
    ssize_t len = base64_decode(plain, text, n);
    if (len < 0) {
        require(len == -EBADMSG);
    } else {
        require((size_t)len <= n / 4 * 3 + 2);
        char *again = malloc(base64_encoded_len((size_t)len) + 1);
        require(again);
        size_t again_len = base64_encode(again, plain, (size_t)len);
        size_t certain = (size_t)len / 3 * 4;
        require(again_len >= n && again_len - n <= 2 && memcmp(again, text, certain) == 0);
        free(again);
    }
    free(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_text((const char *)data, size);

    size_t n = base64_encoded_len(size);
    char *text = malloc(n + 1), *copy = malloc(n + 1);
    require(text && copy);
    require(base64_encode(text, data, size) == n);
    memcpy(copy, text, n);
    require(base64_decode(copy, copy, n) == (ssize_t)size);
    require(size == 0 || memcmp(copy, data, size) == 0);
    check_text(text, n);
    free(text);
    free(copy);
    return 0;
}
