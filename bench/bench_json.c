/* SPDX-License-Identifier: Apache-2.0 */
/* bench_json.c: bytes per second through json_parse, utf8_decode and utf8_valid; prints one line per text.
 *
 * Each number is the best of ROUNDS: the question is what the code costs, not what else the machine did. The
 * output buffer is filled once before, so that page faults of its growth are not counted. */
#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { SIZE = 64 << 20, ROUNDS = 5 };

static void fill(char *text, size_t n, const char *pattern)
{
    size_t len = strlen(pattern);
    for (size_t i = 0; i + len <= n; i += len)
        memcpy(text + i, pattern, len);
    memset(text + n / len * len, 'x', n % len);
}

static double rate(size_t bytes, int64_t us)
{
    return (double)bytes / (double)MAX(us, (int64_t)1);
}

static int bench(const char *name, const char *pattern)
{
    auto_free char *text = malloc(SIZE);
    auto_free char *json = malloc(2 * (size_t)SIZE + 2);
    struct buf out = BUF_INIT((size_t)SIZE * 6);
    double decode = 0, valid = 0, parse = 0;
    int r = text && json ? 0 : -1;

    if (r == 0)
        fill(text, SIZE, pattern);
    for (int i = 0; r == 0 && i <= ROUNDS; i++) {
        struct utf8_stream st = {0};
        int64_t t0 = clock_mono_us();
        buf_clear(&out);
        r = utf8_decode(&st, text, SIZE, true, UTF8_JSON, &out);
        int64_t t1 = clock_mono_us();
        if (!utf8_valid(text, SIZE))
            r = -1;
        int64_t t2 = clock_mono_us();
        if (i) { /* the first round warms up */
            decode = MAX(decode, rate(SIZE, t1 - t0));
            valid = MAX(valid, rate(SIZE, t2 - t1));
        }
    }
    size_t len = buf_len(&out) + 2;
    if (r == 0 && len > 2 * (size_t)SIZE + 2)
        r = -1;
    for (int i = 0; r == 0 && i < ROUNDS; i++) {
        json[0] = json[len - 1] = '"';
        memcpy(json + 1, buf_data(&out), len - 2);
        auto_json struct json_doc *doc = NULL;
        int64_t t0 = clock_mono_us();
        r = json_parse(json, len, 0, &doc, NULL);
        parse = MAX(parse, rate(len, clock_mono_us() - t0));
    }
    buf_done(&out);
    if (r == 0)
        printf("%-20s json_parse %6.0f MB/s   utf8_decode %6.0f MB/s   utf8_valid %6.0f MB/s\n", name, parse,
               decode, valid);
    else
        printf("%-20s failed\n", name);
    return r;
}

int main(void)
{
    int r = bench("plain ASCII", "The quick brown fox jumps over the lazy dog. ");
    r |= bench("source code",
               "    for (size_t i = 0; i < n; i++)\n        sum += value[i] * \"weights\"[i];\n\n");
    r |= bench("accented text",
               "\xc3\x89t\xc3\xa9 \xc3\xa0 la plage, no\xc3\xabl \xe2\x80\x94 gar\xc3\xa7on ");
    r |= bench("Chinese", "\xe4\xb8\xad\xe6\x96\x87\xe5\xad\x97\xe7\xac\xa6");
    return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
