/* SPDX-License-Identifier: Apache-2.0 */
/* docker_text.c: see docker_text.h. */
#include "gateway/docker_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const signals[] = {
    NULL,   "HUP",  "INT",  "QUIT", "ILL",    "TRAP", "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
    "SEGV", "USR2", "PIPE", "ALRM", "TERM",   NULL,   "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
    "TTOU", "URG",  "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",   "PWR",  "SYS",
};

bool docker_name_ok(const char *name)
{
    size_t n = strnlen(name, DOCKER_NAME_MAX + 1);
    if (n == 0 || n > DOCKER_NAME_MAX || !isalnum((unsigned char)name[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_.-", name[i]))
            return false;
    return true;
}

int docker_signal(const char *text)
{
    if (isdigit((unsigned char)*text)) {
        char *end;
        long n = strtol(text, &end, 10);
        return *end == '\0' && n >= 1 && n <= 64 ? (int)n : 0;
    }
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 1; i < ARRAY_SIZE(signals); i++)
        if (signals[i] && strcasecmp(signals[i], text) == 0)
            return (int)i;
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *docker_decode(const char *text, size_t n)
{
    auto_free char *out = malloc(n + 1);
    size_t len = 0;
    if (!out)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '%') {
            int high = i + 2 < n ? hex_digit(text[i + 1]) : -1, low = i + 2 < n ? hex_digit(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return NULL;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (c == '\0')
            return NULL;
        out[len++] = c;
    }
    out[len] = '\0';
    return take_ptr(out);
}

const char *docker_without_version(const char *path)
{
    const char *p = path + 2;
    if (path[0] != '/' || path[1] != 'v' || !isdigit((unsigned char)*p))
        return path;
    p += strspn(p, "0123456789.");
    return *p == '/' ? p : path;
}

/* What is left when everything that says nothing is gone, and where its tag begins (its end: none). */
static const char *bare_image(const char *image, size_t *ret_name)
{
    static const char *const fronts[] = {"docker.io/", "index.docker.io/", "library/"};
    for (size_t i = 0; i < ARRAY_SIZE(fronts); i++)
        if (strncmp(image, fronts[i], strlen(fronts[i])) == 0)
            image += strlen(fronts[i]);
    const char *slash = strrchr(image, '/');
    const char *colon = strchr(slash ? slash : image, ':');
    *ret_name = colon ? (size_t)(colon - image) : strlen(image);
    return image;
}

bool docker_same_image(const char *a, const char *b)
{
    size_t n, m;
    a = bare_image(a, &n);
    b = bare_image(b, &m);
    return n == m && memcmp(a, b, n) == 0 && strcmp(a[n] ? a + n : ":latest", b[m] ? b + m : ":latest") == 0;
}

bool docker_is_sidecar_image(const char *image)
{
    static const char name[] = "cloudflare/proxy-everything";
    size_t n;
    return strncmp(bare_image(image, &n), name, sizeof name - 1) == 0;
}

static const char *filter_value(const struct json_value *v)
{
    return json_key(v) ? json_key(v)
                       : json_string(v, NULL); /* {"x":true} of newer clients, ["x"] of older ones */
}

bool docker_filter(const struct json_value *filters, const char *kind,
                   bool (*matches)(const char *value, void *arg), void *arg)
{
    const struct json_value *list = json_get(filters, kind);
    bool any = false;
    json_for_each (v, list) {
        const char *value = filter_value(v);
        if (!value || (json_key(v) && !json_bool(v, false)))
            continue;
        if (matches(value, arg))
            return true;
        any = true;
    }
    return !any;
}

bool docker_filter_all(const struct json_value *filters, const char *kind,
                       bool (*matches)(const char *value, void *arg), void *arg)
{
    json_for_each (v, json_get(filters, kind)) {
        const char *value = filter_value(v);
        if (value && (!json_key(v) || json_bool(v, false)) && !matches(value, arg))
            return false;
    }
    return true;
}

bool docker_label_matches(const struct json_value *labels, const char *wanted)
{
    size_t n = strcspn(wanted, "=");
    json_for_each (label, labels) {
        const char *key = json_key(label), *value = json_string(label, NULL);
        if (key && value && strlen(key) == n && memcmp(key, wanted, n) == 0)
            return !wanted[n] || strcmp(value, wanted + n + 1) == 0;
    }
    return false;
}
