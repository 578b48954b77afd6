/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_watch_glob.c: the glob matcher agrees with the C library's regular expressions.
 *
 * Input: pattern, newline, path. The pattern is translated the way the protocol describes it. */
#include "agent/watch_glob.h"
#include "base/buf.h"
#include "base/utf8.h"

#include <locale.h>
#include <regex.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void translate(const char *p, struct buf *out)
{
    require(buf_puts(out, "(^|/)") == 0);
    for (; *p; p++) {
        if (p[0] == '*' && p[1] == '*') {
            require(buf_puts(out, ".*") == 0);
            p++;
        } else if (*p == '*') {
            require(buf_puts(out, "[^/]*") == 0);
        } else if (*p == '?') {
            require(buf_puts(out, "[^/]") == 0);
        } else {
            if (strchr(".+(){}[]|^$\\", *p))
                require(buf_putc(out, '\\') == 0);
            require(buf_putc(out, *p) == 0);
        }
    }
    require(buf_puts(out, "(/|$)") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool located;
    if (!located)
        require(setlocale(LC_ALL, "C.UTF-8") != NULL);
    located = true;

    char text[256];
    if (size >= sizeof text || memchr(data, '\0', size) ||
        !utf8_valid(data, size)) /* long ones are slow in regexec */
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    char *path = strchr(text, '\n');
    if (!path || path == text)
        return 0;
    *path++ = '\0';

    const char *pattern = text;
    struct watch_glob *g = NULL;
    require(watch_glob_new(&pattern, 1, &g) == 0);
    bool found = watch_glob_match(g, path);
    watch_glob_free(g);

    struct buf expression = BUF_INIT(4096);
    regex_t re;
    translate(pattern, &expression);
    require(regcomp(&re, buf_cstr(&expression), REG_EXTENDED | REG_NOSUB) == 0);
    require((regexec(&re, path, 0, NULL, 0) == 0) == found);
    regfree(&re);
    buf_done(&expression);
    return 0;
}
