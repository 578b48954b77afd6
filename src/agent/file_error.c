/* SPDX-License-Identifier: Apache-2.0 */
/* file_error.c: see file_error.h. */
#include "agent/file_error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int err;
    const char *name, *code;
} table[] = {
    {ENOENT, "ENOENT", "FILE_NOT_FOUND"},
    {EACCES, "EACCES", "PERMISSION_DENIED"},
    {EPERM, "EPERM", "PERMISSION_DENIED"},
    {EEXIST, "EEXIST", "FILE_EXISTS"},
    {ENOTEMPTY, "ENOTEMPTY", "FILE_EXISTS"},
    {EISDIR, "EISDIR", "IS_DIRECTORY"},
    {ENOTDIR, "ENOTDIR", "NOT_DIRECTORY"},
    {EFBIG, "EFBIG", "FILE_TOO_LARGE"},
    {ENOSPC, "ENOSPC", "NO_SPACE"},
    {EDQUOT, "EDQUOT", "NO_SPACE"},
    {EMFILE, "EMFILE", "TOO_MANY_FILES"},
    {ENFILE, "ENFILE", "TOO_MANY_FILES"},
    {EBUSY, "EBUSY", "RESOURCE_BUSY"},
    {ETXTBSY, "ETXTBSY", "RESOURCE_BUSY"},
    {EROFS, "EROFS", "READ_ONLY"},
    {ENAMETOOLONG, "ENAMETOOLONG", "NAME_TOO_LONG"},
    {ELOOP, "ELOOP", "TOO_MANY_LINKS"},
    {EMLINK, "EMLINK", "TOO_MANY_LINKS"},
    {EINVAL, "EINVAL", NULL},
    {EIO, "EIO", NULL},
    {ENOMEM, "ENOMEM", NULL},
    {ENXIO, "ENXIO", NULL},
    {ENODEV, "ENODEV", NULL},
    {EXDEV, "EXDEV", NULL},
    {EOPNOTSUPP, "EOPNOTSUPP", NULL},
    {ESTALE, "ESTALE", NULL},
};

const char *file_error_code(int err)
{
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].err == abs(err) && table[i].code)
            return table[i].code;
    return "FILESYSTEM_ERROR";
}

void file_error_text(char *out, size_t cap, int err, const char *verb, const char *path)
{
    char number[16];
    const char *name = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(table) && !name; i++)
        if (table[i].err == abs(err))
            name = table[i].name;
    (void)snprintf(number, sizeof number, "E%d", abs(err));
    (void)snprintf(out, cap, "%s: %s, %s '%s'", name ? name : number, strerror(abs(err)), verb, path);
}

bool file_error_absent(int err)
{
    err = abs(err);
    return err == ENOENT || err == ENOTDIR || err == ELOOP;
}
