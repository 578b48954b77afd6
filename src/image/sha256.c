/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c: see sha256.h. */
#include "image/sha256.h"
#include "base/id.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

struct sha256 {
    EVP_MD_CTX *ctx;
};

/* Cannot fail once the context and the algorithm are there. */
static void begin(struct sha256 *d)
{
    if (EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1)
        abort();
}

int sha256_new(struct sha256 **ret, struct error *reterr)
{
    struct sha256 *d = calloc(1, sizeof *d);
    if (d)
        d->ctx = EVP_MD_CTX_new();
    if (!d || !d->ctx || EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1) {
        sha256_free(d);
        return error_sys(reterr, ENOMEM, "compute a digest");
    }
    *ret = d;
    return 0;
}

void sha256_free(struct sha256 *d)
{
    if (!d)
        return;
    EVP_MD_CTX_free(d->ctx);
    free(d);
}

void sha256_add(struct sha256 *d, const void *data, size_t n)
{
    if (EVP_DigestUpdate(d->ctx, data, n) != 1)
        abort();
}

void sha256_take(struct sha256 *d, unsigned char ret[SHA256_BYTES])
{
    if (EVP_DigestFinal_ex(d->ctx, ret, NULL) != 1)
        abort();
    begin(d);
}

void sha256_hex(const unsigned char sum[SHA256_BYTES], char ret[SHA256_HEX + 1])
{
    hex_encode(ret, sum, SHA256_BYTES);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sha256_parse(const char *text, unsigned char ret[SHA256_BYTES])
{
    if (strncmp(text, "sha256:", 7) != 0 || strlen(text) != 7 + SHA256_HEX)
        return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        int high = digit(text[7 + 2 * i]), low = digit(text[8 + 2 * i]);
        if (high < 0 || low < 0)
            return false;
        ret[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}
