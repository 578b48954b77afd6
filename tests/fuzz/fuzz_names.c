/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_names.c: what makes paths, queries and cookies harmless (FUZ-08): doing it twice changes nothing,
 * nothing grows, nothing leaves its root, and no cookie for another host gets through, by a slow and obvious
 * rule.
 *
 * Input: the text, as a name in an archive, a path of a URL, a query and a cookie. */
#include "agent/file_path.h"
#include "gateway/preview_headers.h"
#include "image/layer_path.h"
#include "net/http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check_layer(const char *text)
{
    char clean[TAR_PATH_MAX], again[TAR_PATH_MAX];
    if (strlen(text) >= TAR_PATH_MAX || layer_path_clean(text, clean, NULL) < 0)
        return;
    require(strlen(clean) <= strlen(text) && clean[0] != '/');
    require(layer_path_clean(clean, again, NULL) == 0 && strcmp(clean, again) == 0);
    for (const char *p = clean; *p; p += strcspn(p, "/"), p += *p == '/') {
        size_t n = strcspn(p, "/");
        require(n > 0 && !(n == 1 && *p == '.') && !(n == 2 && memcmp(p, "..", 2) == 0));
    }
}

static void check_url(const char *text)
{
    char path[PATH_MAX], joined[PATH_MAX], again[PATH_MAX], value[512];
    if (file_path_decode(path, text) == 0) {
        require(path[0] == '/' && strlen(path) <= strlen(text) + 1);
        size_t n;
        const char *last = file_path_last(path, &n);
        require(last >= path && last + n <= path + strlen(path) && !memchr(last, '/', n));
    }
    if (strlen(text) < PATH_MAX && file_path_join(joined, "/workspace", text) == 0) {
        require(joined[0] == '/');
        require(file_path_join(again, "/elsewhere", joined) == 0 && strcmp(joined, again) == 0);
    }
    if (http_query_get(text, "a", value, sizeof value))
        require(strlen(value) <= strlen(text));
}

/* Every part behind a semicolon that is called Domain has nothing or this host as its value. */
static bool cookie_is_ours(const char *text, const char *host)
{
    const char *p = strchr(text, ';');
    for (; p; p = strchr(p, ';')) {
        p++;
        const char *end = p + strcspn(p, ";");
        while (p < end && (*p == ' ' || *p == '\t'))
            p++;
        if (strncasecmp(p, "domain", 6) != 0)
            continue;
        const char *v = p + 6;
        while (v < end && (*v == ' ' || *v == '\t'))
            v++;
        if (v == end || *v != '=')
            continue;
        for (v++; v < end && (*v == ' ' || *v == '\t'); v++)
            ;
        while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        v += v < end && *v == '.';
        if (v < end && ((size_t)(end - v) != strlen(host) || strncasecmp(v, host, strlen(host)) != 0))
            return false;
    }
    return true;
}

static void check_cookie(const char *text)
{
    static const char host[] = "8080-box-token.localhost";
    const struct http_header in[] = {{"Set-Cookie", text}};
    static struct proxy_headers out, again;
    require(preview_headers_from_service(in, 1, host, false, &out) && out.count <= 1);
    require((out.count == 1) == cookie_is_ours(text, host));
    require(preview_headers_from_service(out.list, out.count, host, false, &again) &&
            again.count == out.count);
    require(!out.count || strcmp(again.list[0].value, text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* of exactly this size: reading beyond it is seen */
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    check_layer(text);
    check_url(text);
    check_cookie(text);
    free(text);
    return 0;
}
