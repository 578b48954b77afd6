/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c: see digest.h. */
#include "builder/digest.h"

#include <endian.h>
#include <string.h>

void digest_number(struct sha256 *d, uint64_t v)
{
    v = htole64(v);
    sha256_add(d, &v, sizeof v);
}

void digest_field(struct sha256 *d, const char *text)
{
    digest_number(d, text ? strlen(text) : UINT64_MAX);
    if (text)
        sha256_add(d, text, strlen(text));
}

void digest_end(struct sha256 *d, char out[DIGEST_HEX + 1])
{
    unsigned char sum[SHA256_BYTES];
    sha256_take(d, sum);
    sha256_hex(sum, out);
    sha256_free(d);
}
