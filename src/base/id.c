/* SPDX-License-Identifier: Apache-2.0 */
/* id.c: see id.h. */
#include "base/id.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

static const char *const reserved[] = {"www", "api", "admin", "root", "system", "cloudflare", "workers"};

int sandbox_id_check(const char *id, struct error *reterr)
{
    size_t n = strnlen(id, SANDBOX_ID_MAX + 1);
    if (n == 0)
        return error_set(reterr, EINVAL, "a sandbox id must not be empty");
    if (n > SANDBOX_ID_MAX)
        return error_set(reterr, EINVAL, "a sandbox id has %d characters at most", SANDBOX_ID_MAX);
    for (size_t i = 0; i < n; i++) {
        char c = id[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (!plain && c != '-' && c != '.')
            return error_set(reterr, EINVAL, "a sandbox id is made of letters, digits, '-', '_' and '.'");
        if (!plain && (i == 0 || i == n - 1))
            return error_set(reterr, EINVAL, "a sandbox id must not start or end with '%c'", c);
    }
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
        if (strcasecmp(id, reserved[i]) == 0)
            return error_set(reterr, EINVAL, "'%s' is a reserved word and no sandbox id", id);
    return 0;
}

void random_bytes(void *out, size_t n)
{
    char *p = out;
    while (n) {
        ssize_t r = getrandom(p, MIN(n, (size_t)256), 0);
        if (r < 0) {
            if (errno == EINTR)
                continue;
            abort(); /* no randomness: every token made from here on would be guessable */
        }
        p += r;
        n -= (size_t)r;
    }
}

void random_name(char *out, size_t n)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    for (size_t i = 0; i < n;) {
        unsigned char c;
        random_bytes(&c, 1);
        if (c < 252) /* 252 = 7 * 36: every character equally likely */
            out[i++] = alphabet[c % 36];
    }
    out[n] = '\0';
}

void hex_encode(char *out, const void *data, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * n] = '\0';
}

bool equal_constant_time(const void *a, const void *b, size_t n)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned char diff = 0;
    for (size_t i = 0; i < n; i++)
        diff |= x[i] ^ y[i];
    return diff == 0;
}
