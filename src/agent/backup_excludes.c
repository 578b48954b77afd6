/* SPDX-License-Identifier: Apache-2.0 */
/* backup_excludes.c: from the globs of a request and the paths git ignores to the lines of mksquashfs. */
#include "agent/backup_excludes.h"

#include <errno.h>
#include <string.h>

enum { DEPTH_MAX = 16 }; /* directories above a path that is meant at any depth */

void backup_excludes_init(struct backup_excludes *x)
{
    *x = (struct backup_excludes){.lines = BUF_INIT(BACKUP_EXCLUDES_BYTES)};
}

void backup_excludes_done(struct backup_excludes *x)
{
    for (size_t i = 0; i < x->seen_count; i++)
        free(x->seen[i]);
    free(x->seen);
    buf_done(&x->lines);
    x->seen = NULL;
    x->seen_count = 0;
}

/* In place: leading "**" components go, inner ones vanish, trailing ones go: mksquashfs has no "**", and its
 * "any depth" form says the same. */
static void normalize(char *p)
{
    while (strncmp(p, "**/", 3) == 0)
        memmove(p, p + 3, strlen(p + 3) + 1);
    for (char *inner; (inner = strstr(p, "/**/"));)
        memmove(inner, inner + 3, strlen(inner + 3) + 1);
    for (size_t n; (n = strlen(p)) >= 3 && strcmp(p + n - 3, "/**") == 0;)
        p[n - 3] = '\0';
    for (size_t n = strlen(p); n > 1 && p[n - 1] == '/'; n--)
        p[n - 1] = '\0';
    if (strcmp(p, "**") == 0)
        p[0] = '\0';
}

/* mksquashfs drops leading spaces, takes '#' for a comment and a final backslash for a continued line. */
static int put_line(struct buf *out, const char *prefix, const char *p, size_t n)
{
    int r = buf_puts(out, prefix);
    if (r == 0 && (p[0] == '#' || p[0] == ' ' || p[0] == '\t'))
        r = buf_putc(out, '\\');
    size_t keep = n;
    while (keep > 0 && p[keep - 1] == '\\')
        keep--;
    if (r == 0)
        r = buf_append(out, p, keep);
    if (r == 0 && keep < n)
        r = buf_putc(out, '?');
    return r < 0 ? r : buf_putc(out, '\n');
}

/* At any depth. mksquashfs has "... name" for that, but only for single names: given "... a/b" it leaves out
 * every directory called a, with all that is in it (4.5.1). So paths are written once per depth. */
static int put_any_depth(struct buf *out, const char *p, size_t n)
{
    char prefix[2 * DEPTH_MAX + 1] = "";
    int r = 0;
    if (p[0] == '/')
        return 0; /* from the top only */
    if (!memchr(p, '/', n))
        return put_line(out, "... ", p, n);
    for (int depth = 0; depth < DEPTH_MAX && r == 0; depth++) {
        memcpy(prefix + 2 * depth, "*/", 3);
        r = put_line(out, prefix, p, n);
    }
    return r;
}

int backup_excludes_pattern(struct backup_excludes *x, const char *pattern)
{
    if (strchr(pattern, '\n'))
        return -EINVAL;
    auto_free char *p = strdup(pattern);
    if (!p)
        return -ENOMEM;
    normalize(p);
    if (p[0] == '\0')
        return 0;
    for (size_t i = 0; i < x->seen_count; i++)
        if (strcmp(x->seen[i], p) == 0)
            return 0;
    if (x->seen_count == BACKUP_EXCLUDES_MAX)
        return -E2BIG;
    char **seen = reallocarray(x->seen, x->seen_count + 1, sizeof *seen);
    if (!seen)
        return -ENOMEM;
    x->seen = seen;
    int r = put_line(&x->lines, "", p, strlen(p));
    if (r == 0)
        r = put_any_depth(&x->lines, p, strlen(p));
    if (r == 0)
        x->seen[x->seen_count++] = take_ptr(p);
    return r;
}

int backup_excludes_path(struct backup_excludes *x, const char *path, size_t n)
{
    struct buf escaped = BUF_INIT(2 * n + 1);
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        if (path[i] == '\n') { /* a line cannot hold it: leave out what looks like it */
            r = buf_putc(&escaped, '?');
            continue;
        }
        if (strchr("\\*?[]", path[i]))
            r = buf_putc(&escaped, '\\');
        if (r == 0)
            r = buf_putc(&escaped, path[i]);
    }
    if (r == 0 && buf_len(&escaped) > 0) /* just this one: a file of the same name elsewhere may be tracked */
        r = put_line(&x->lines, "", buf_data(&escaped), buf_len(&escaped));
    buf_done(&escaped);
    return r;
}
