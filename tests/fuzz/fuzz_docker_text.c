/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, names, signals and filters of the container engine's API. The first line is a path, the rest
 * filters. */
#include "gateway/docker_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const char *value, void *arg)
{
    return docker_same_image(value, arg) || docker_label_matches(NULL, value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct json_doc *doc = NULL;
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    size_t line = strcspn(text, "\n");
    char *rest = text + line + (text[line] == '\n');
    text[line] = '\0';
    char *name = docker_decode(text, line);
    if (name) {
        (void)docker_name_ok(name);
        (void)docker_signal(name);
        (void)docker_is_sidecar_image(name);
        if (strlen(name) > line)
            abort(); /* decoding never grows */
    }
    const char *path = docker_without_version(text);
    if (path < text || path > text + line)
        abort();
    if (json_parse(rest, strlen(rest), 0, &doc, NULL) == 0) {
        (void)docker_filter(json_root(doc), "ancestor", same, name ? name : text);
        (void)docker_filter_all(json_root(doc), "label", same, name ? name : text);
    }
    json_free(doc);
    free(name);
    free(text);
    return 0;
}
