/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_egress_peek.c: a name that is found is safe in a header and in a certificate, and what was decided
 * does not change when more bytes come. */
#include "gateway/egress_peek.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static enum peek look(const uint8_t *data, size_t n, bool http, char name[DNS_NAME_MAX + 1])
{
    enum peek kind = egress_peek(data, n, http, name);
    size_t len = strnlen(name, DNS_NAME_MAX + 1);
    require(len <= DNS_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == len);
    require(kind == PEEK_TLS || kind == PEEK_HTTP || !len);
    return kind;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[DNS_NAME_MAX + 1], later[DNS_NAME_MAX + 1];
    if (size > PEEK_MAX)
        return 0;
    for (int http = 0; http < 2; http++) {
        enum peek whole = look(data, size, http, later);
        enum peek half = look(data, size / 2, http, name);
        require(half == PEEK_MORE || (half == whole && strcmp(name, later) == 0));
    }
    return 0;
}
