/* SPDX-License-Identifier: Apache-2.0 */
/* file_path.c: see file_path.h. */
#include "agent/file_path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static size_t utf16_units(const char *s, size_t n)
{
    size_t units = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        units += (c & 0xc0) != 0x80; /* one per character ... */
        units += c >= 0xf0;          /* ... two beyond the BMP */
    }
    return units;
}

unsigned file_path_problems(const char *path, size_t n)
{
    if (!path || n == 0)
        return FILE_PATH_EMPTY;
    unsigned problems = 0;
    if (memchr(path, '\0', n))
        problems |= FILE_PATH_NUL;
    if (utf16_units(path, n) > FILE_PATH_UNITS_MAX)
        problems |= FILE_PATH_LONG;
    return problems;
}

const char *file_path_problem_text(enum file_path_problem problem)
{
    switch (problem) {
    case FILE_PATH_EMPTY:
        return "Path must be a non-empty string";
    case FILE_PATH_NUL:
        return "Path must not contain a null byte";
    case FILE_PATH_LONG:
        return "Path must not be longer than 4096 characters";
    }
    return "Path is invalid";
}

int file_path_join(char out[PATH_MAX], const char *cwd, const char *path)
{
    size_t n = strlen(cwd);
    bool bare = *path == '/' || n == 0;
    const char *slash = bare || cwd[n - 1] == '/' ? "" : "/";
    int len = snprintf(out, PATH_MAX, "%s%s%s", bare ? "" : cwd, slash, path);
    return len >= 0 && len < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int file_path_decode(char out[PATH_MAX], const char *encoded)
{
    size_t n = 0;
    out[n++] = '/';
    for (const char *p = encoded; *p; p++) {
        int c = (unsigned char)*p;
        if (c == '%') {
            int high = hex_digit(p[1]), low = high < 0 ? -1 : hex_digit(p[2]);
            if (low < 0)
                return -EINVAL;
            c = high << 4 | low;
            p += 2;
        }
        if (c == 0)
            return -EINVAL;
        if (n + 1 >= PATH_MAX)
            return -ENAMETOOLONG;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return n > 1 ? 0 : -EINVAL;
}

const char *file_path_last(const char *path, size_t *ret_len)
{
    size_t end = strlen(path);
    while (end && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start && path[start - 1] != '/')
        start--;
    *ret_len = end - start;
    return path + start;
}
