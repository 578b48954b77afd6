/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_settings_files.c: files of an image are changed once: doing it again changes nothing.
 *
 * Input: the value, newline, the file. */
#include "agent/settings_files.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void twice(int (*fn)(const char *text, size_t n, const char *value, struct buf *out), const char *text,
                  size_t n, const char *value)
{
    struct buf once = BUF_INIT(1 << 20), again = BUF_INIT(1 << 20);
    require(fn(text, n, value, &once) == 0);
    require(fn(buf_data(&once), buf_len(&once), value, &again) == 0);
    require(buf_len(&once) == buf_len(&again));
    require(!buf_len(&once) || memcmp(buf_data(&once), buf_data(&again), buf_len(&once)) == 0);
    buf_done(&once);
    buf_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char value[256];
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t n = end ? (size_t)(end - data) : 0;
    if (!n || n >= sizeof value || size > 16384 || memchr(data, '\0', n))
        return 0;
    memcpy(value, data, n);
    value[n] = '\0';
    const char *text = (const char *)data + n + 1;
    size -= n + 1;
    if (value[0] != '#') /* no certificate */
        twice(settings_bundle_text, text, size, value);
    if (value[strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789.-")])
        return 0; /* no host */
    twice(settings_hosts_text, text, size, value);
    char url[sizeof value + 8] = "http://";
    memcpy(url + 7, value, n + 1);
    twice(settings_sources_text, text, size, url);
    return 0;
}
