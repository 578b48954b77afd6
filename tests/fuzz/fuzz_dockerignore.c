/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_dockerignore.c: the matcher agrees with the C library's regular expressions.
 *
 * Input: the pattern, newline, the path. The pattern is translated the way .dockerignore is documented. */
#include "builder/pattern.h"

#include "base/buf.h"

#include <regex.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* false: classes and escapes mean different things to the two. */
static bool translate(const char *p, struct buf *out)
{
    require(buf_putc(out, '^') == 0);
    for (; *p; p++) {
        if (strchr("[]\\", *p) || (unsigned char)*p >= 0x80)
            return false;
        if (p[0] == '*' && p[1] == '*') {
            while (p[1] == '*')
                p++;
            if (p[1] == '/')
                p++;
            require(buf_puts(out, p[1] ? "(.*/)?" : ".*") == 0);
        } else if (*p == '*') {
            require(buf_puts(out, "[^/]*") == 0);
        } else if (*p == '?') {
            require(buf_puts(out, "[^/]") == 0);
        } else {
            if (strchr(".+(){}|^$", *p))
                require(buf_putc(out, '\\') == 0);
            require(buf_putc(out, *p) == 0);
        }
    }
    require(buf_putc(out, '$') == 0);
    return buf_cstr(out) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[200];
    struct ignore *ig = NULL;
    if (ignore_parse((const char *)data, size, &ig, NULL) == 0) {
        (void)ignore_excludes(ig, "a/b/c");
        ignore_free(ig);
    }
    if (size >= sizeof text || memchr(data, '\0', size)) /* long ones are slow in regexec */
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    char *path = strchr(text, '\n');
    if (!path)
        return 0;
    *path++ = '\0';
    if (strchr(path, '\n'))
        return 0;
    for (const char *c = path; *c; c++)
        if ((unsigned char)*c >= 0x80)
            return 0;
    struct pattern *p = NULL;
    struct buf regex = BUF_INIT(4096);
    regex_t re;
    if (pattern_compile(text, true, &p, NULL) == 0) {
        bool match = pattern_match(p, path);
        if (translate(text, &regex) && regcomp(&re, buf_data(&regex), REG_EXTENDED | REG_NOSUB) == 0) {
            require(match == (regexec(&re, path, 0, NULL, 0) == 0));
            regfree(&re);
        }
        pattern_free(p);
    }
    buf_done(&regex);
    char *clean = path_clean(path);
    require(clean && strlen(clean) <= strlen(path));
    free(clean);
    return 0;
}
