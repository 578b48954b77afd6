/* SPDX-License-Identifier: Apache-2.0 */
/* proto_image.c: see proto_image.h. */
#include "keeper/proto_image.h"

#include <string.h>

static bool is_lower(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_alnum(char c)
{
    return is_lower(c) || (c >= 'A' && c <= 'Z');
}

/* Parts of lower-case letters and digits with single separators between them; one colon with a port in the
 * first. */
static bool path_ok(const char *s, size_t n)
{
    bool first = true;
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && s[end] != '/')
            end++;
        const char *colon = memchr(s + i, ':', end - i);
        size_t name_end = colon ? (size_t)(colon - s) : end;
        if (colon && (!first || end == n || name_end + 1 == end))
            return false;
        for (size_t k = name_end + 1; colon && k < end; k++)
            if (s[k] < '0' || s[k] > '9')
                return false;
        if (name_end == i || !is_lower(s[i]) || !is_lower(s[name_end - 1]))
            return false;
        for (size_t k = i; k < name_end; k++)
            if (!is_lower(s[k]) && !strchr("._-", s[k]))
                return false;
        first = false;
        i = end + 1;
        if (end < n && i == n)
            return false; /* ends with a slash */
    }
    return n > 0;
}

bool keeper_image_reference_ok(const char *reference)
{
    size_t n = strnlen(reference, IMAGE_REFERENCE_MAX + 1);
    if (n > IMAGE_REFERENCE_MAX)
        return false;
    const char *colon = strrchr(reference, ':');
    if (!colon || strchr(colon, '/') || !path_ok(reference, (size_t)(colon - reference)))
        return false;
    const char *tag = colon + 1;
    size_t tag_len = n - (size_t)(tag - reference);
    if (tag_len == 0 || tag_len > 128 || tag[0] == '.' || tag[0] == '-')
        return false;
    for (size_t i = 0; i < tag_len; i++)
        if (!is_alnum(tag[i]) && !strchr("._-", tag[i]))
            return false;
    return true;
}

bool keeper_image_ask_ok(const struct keeper_image_ask *a, bool about_images)
{
    static const struct keeper_image_ask none;
    if (!about_images)
        return memcmp(a, &none, sizeof none) == 0;
    if (!memchr(a->reference, '\0', sizeof a->reference) || a->plain > 1 || a->reserved)
        return false;
    return !a->reference[0] || keeper_image_reference_ok(a->reference);
}

bool keeper_image_tell_ok(const struct keeper_image_tell *t)
{
    if (!memchr(t->image, '\0', sizeof t->image))
        return false;
    if (t->image[0] && !keeper_image_name_ok(t->image))
        return false;
    return t->why < IMAGE_WHY_COUNT;
}
