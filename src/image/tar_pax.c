/* SPDX-License-Identifier: Apache-2.0 */
/* tar_pax.c: the records of a pax header: "LENGTH KEY=VALUE\n", where LENGTH counts the whole record. */
#include "image/tar_internal.h"

#include <errno.h>
#include <string.h>

static const char bad_value[] = "the archive has a pax header with a value that is none";

bool tar_decimal(const char **p, const char *end, uint64_t *ret)
{
    uint64_t v = 0;
    const char *s = *p;
    for (; s < end && *s >= '0' && *s <= '9'; s++) {
        if (v > (INT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    bool any = s > *p;
    *p = s;
    *ret = v;
    return any;
}

/* The whole value is one number. */
static bool whole_number(const char *value, size_t n, uint64_t *ret)
{
    const char *p = value;
    return tar_decimal(&p, value + n, ret) && p == value + n;
}

/* "[-]SECONDS[.FRACTION]" */
static bool time_value(const char *value, size_t n, int64_t *ret_s, uint32_t *ret_ns)
{
    const char *p = value, *end = value + n;
    uint64_t s;
    uint32_t ns = 0, digit = 100000000;
    bool negative = p < end && *p == '-';
    p += negative;
    if (!tar_decimal(&p, end, &s))
        return false;
    if (p < end && *p == '.')
        for (p++; p < end && *p >= '0' && *p <= '9'; p++, digit /= 10)
            ns += (uint32_t)(*p - '0') * digit;
    if (p != end)
        return false;
    *ret_s = negative ? -(int64_t)s : (int64_t)s;
    if (negative && ns) { /* the nanoseconds count forwards */
        *ret_s -= 1;
        ns = 1000000000 - ns;
    }
    *ret_ns = ns;
    return true;
}

static int path_value(const char *value, size_t n, const char **ret, struct error *reterr)
{
    if (memchr(value, '\0', n))
        return error_set(reterr, EBADMSG, "a name in the archive contains a NUL");
    if (n >= TAR_PATH_MAX)
        return error_set(reterr, E2BIG, "a name in the archive has more than %d bytes", TAR_PATH_MAX - 1);
    *ret = value;
    return 0;
}

/* "o,n,o,n,..." */
static int sparse_map(struct tar_reader *r, const char *value, size_t n, struct error *reterr)
{
    const char *p = value, *end = value + n;
    r->sparse_count = 0;
    r->pax.has_sparse = true;
    while (p < end) {
        uint64_t offset, len;
        if (!tar_decimal(&p, end, &offset) || p == end || *p++ != ',' || !tar_decimal(&p, end, &len) ||
            (p < end && *p++ != ','))
            return error_set(reterr, EBADMSG, "%s", bad_value);
        int k = tar_sparse_add(r, offset, len, reterr);
        if (k < 0)
            return k;
    }
    return 0;
}

static int sparse_record(struct tar_reader *r, const char *key, const char *value, size_t n,
                         struct error *reterr)
{
    struct tar_pax *x = &r->pax;
    uint64_t v = 0;
    if (strcmp(key, "name") == 0)
        return path_value(value, n, &x->path, reterr);
    if (strcmp(key, "map") == 0)
        return sparse_map(r, value, n, reterr);
    if (!whole_number(value, n, &v))
        return error_set(reterr, EBADMSG, "%s", bad_value);
    if (strcmp(key, "major") == 0) {
        x->sparse_major = v > 99 ? 99 : (unsigned)v;
    } else if (strcmp(key, "minor") == 0) {
        x->sparse_minor = v > 99 ? 99 : (unsigned)v;
    } else if (strcmp(key, "size") == 0 || strcmp(key, "realsize") == 0) {
        x->sparse_size = v;
        x->has_sparse_size = true;
    } else if (strcmp(key, "offset") == 0) {
        x->has_sparse = x->half_piece = true;
        return tar_sparse_add(r, v, 0, reterr);
    } else if (strcmp(key, "numbytes") == 0) {
        if (!x->half_piece)
            return error_set(reterr, EBADMSG, "%s", bad_value);
        x->half_piece = false;
        r->sparse[r->sparse_count - 1].len = v;
    } else if (strcmp(key, "numblocks") == 0) {
        x->has_sparse = true;
    }
    return 0;
}

static int record(struct tar_reader *r, const char *key, const char *value, size_t n, struct error *reterr)
{
    static const char xattr[] = "SCHILY.xattr.", sparse[] = "GNU.sparse.";
    struct tar_pax *x = &r->pax;
    bool ok = true;
    if (strncmp(key, xattr, sizeof xattr - 1) == 0) {
        if (r->xattr_count == TAR_XATTRS_MAX)
            return error_set(reterr, E2BIG, "the archive has an entry with more than %d attributes",
                             TAR_XATTRS_MAX);
        r->xattrs[r->xattr_count++] = (struct tar_xattr){key + sizeof xattr - 1, value, n};
        return 0;
    }
    if (strncmp(key, sparse, sizeof sparse - 1) == 0)
        return sparse_record(r, key + sizeof sparse - 1, value, n, reterr);
    if (strcmp(key, "path") == 0)
        return path_value(value, n, &x->path, reterr);
    if (strcmp(key, "linkpath") == 0)
        return path_value(value, n, &x->link, reterr);
    if (strcmp(key, "size") == 0)
        ok = x->has_size = whole_number(value, n, &x->size);
    else if (strcmp(key, "uid") == 0)
        ok = x->has_uid = whole_number(value, n, &x->uid);
    else if (strcmp(key, "gid") == 0)
        ok = x->has_gid = whole_number(value, n, &x->gid);
    else if (strcmp(key, "mtime") == 0)
        ok = x->has_mtime = time_value(value, n, &x->mtime_s, &x->mtime_ns);
    return ok ? 0 : error_set(reterr, EBADMSG, "%s", bad_value); /* keys we do not know say nothing we need */
}

int tar_pax_read(struct tar_reader *r, char *text, size_t n, struct error *reterr)
{
    char *p = text, *end = text + n;
    while (p < end) {
        const char *digits = p;
        uint64_t len;
        if (!tar_decimal(&digits, end, &len) || digits == end || *digits != ' ' ||
            len > (uint64_t)(end - p) || p + len <= digits + 1 || p[len - 1] != '\n')
            return error_set(reterr, EBADMSG, "the archive has a damaged pax header");
        char *key = p + (digits - p) + 1, *last = p + len - 1;
        char *equals = memchr(key, '=', (size_t)(last - key));
        if (!equals || equals == key)
            return error_set(reterr, EBADMSG, "the archive has a damaged pax header");
        *equals = *last = '\0';
        int k = record(r, key, equals + 1, (size_t)(last - equals - 1), reterr);
        if (k < 0)
            return k;
        p += len;
    }
    return 0;
}
