/* SPDX-License-Identifier: Apache-2.0 */
/* layer_path.c: see layer_path.h. */
#include "image/layer_path.h"

#include <errno.h>
#include <string.h>

const char *layer_path_show(const char *name, char out[LAYER_SHOWN + 1])
{
    size_t n = strnlen(name, TAR_PATH_MAX);
    const char *from =
        n > LAYER_SHOWN ? name + n - LAYER_SHOWN : name; /* the end tells more than the beginning */
    size_t i = 0;
    for (; from[i] && i < LAYER_SHOWN; i++)
        out[i] = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
    out[i] = '\0';
    return out;
}

int layer_path_clean(const char *name, char ret[TAR_PATH_MAX], struct error *reterr)
{
    char shown[LAYER_SHOWN + 1];
    size_t out = 0, depth = 0;
    if (name[0] == '/')
        return error_set(reterr, EBADMSG, "the archive has the absolute name '%s'",
                         layer_path_show(name, shown));
    for (const char *p = name; *p;) {
        size_t len = strcspn(p, "/");
        bool dot = len == 1 && p[0] == '.';
        if (len == 2 && p[0] == '.' && p[1] == '.')
            return error_set(reterr, EBADMSG, "the archive has a name with '..': '%s'",
                             layer_path_show(name, shown));
        if (len > 255)
            return error_set(reterr, EBADMSG, "the archive has a name of more than 255 bytes: '%s'",
                             layer_path_show(name, shown));
        if (len && !dot) {
            if (++depth > LAYER_DEPTH_MAX || out + len + 2 > TAR_PATH_MAX)
                return error_set(reterr, EBADMSG, "the archive has directories nested too deep: '%s'",
                                 layer_path_show(name, shown));
            if (out)
                ret[out++] = '/';
            memcpy(ret + out, p, len);
            out += len;
        }
        p += len;
        p += *p == '/';
    }
    ret[out] = '\0';
    return 0;
}

const char *layer_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

enum layer_mark layer_mark_of(const char *base, const char **ret_name)
{
    static const char prefix[] = LAYER_WHITEOUT_PREFIX;
    if (strncmp(base, prefix, sizeof prefix - 1) != 0)
        return LAYER_MARK_NONE;
    if (strcmp(base, LAYER_OPAQUE_NAME) == 0)
        return LAYER_MARK_OPAQUE;
    *ret_name = base + sizeof prefix - 1;
    /* ".wh..wh.*" is the book-keeping of a file system nobody uses any more */
    if (strncmp(*ret_name, prefix, sizeof prefix - 1) == 0 || !**ret_name || strcmp(*ret_name, ".") == 0 ||
        strcmp(*ret_name, "..") == 0)
        return LAYER_MARK_IGNORED;
    return LAYER_MARK_WHITEOUT;
}
