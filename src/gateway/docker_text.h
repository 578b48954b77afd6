/* SPDX-License-Identifier: Apache-2.0 */
/* docker_text.h: the words of the engine's API: names, signals, filters. */
#pragma once

#include "base/json.h"

enum { DOCKER_NAME_MAX = 255 };

/* [A-Za-z0-9][A-Za-z0-9_.-]*, at most DOCKER_NAME_MAX. */
bool docker_name_ok(const char *name);
/* "SIGTERM", "TERM" or "15"; 0: none of them. */
int docker_signal(const char *text);
/* Percent-decodes n bytes; NULL: malformed, with a NUL, or no memory. */
char *docker_decode(const char *text, size_t n);
/* "/v1.47/containers/json" -> "/containers/json"; paths without a version as they are. */
const char *docker_without_version(const char *path);

/* Whether the name of an image in a filter or in a container means this reference: without a tag it is
 * :latest, and "docker.io/", "library/" in front count for nothing. */
bool docker_same_image(const char *a, const char *b);
/* "cloudflare/proxy-everything...", with or without a host in front. */
bool docker_is_sidecar_image(const char *image);

/* filters: {"label":["a=b"],"name":{"x":true}}. True when there is no filter of that kind, or `matches` says
 * yes to one of its values. */
bool docker_filter(const struct json_value *filters, const char *kind,
                   bool (*matches)(const char *value, void *arg), void *arg);
/* As above, where every value must match. */
bool docker_filter_all(const struct json_value *filters, const char *kind,
                       bool (*matches)(const char *value, void *arg), void *arg);
/* Whether an object of strings has "key" or "key=value". */
bool docker_label_matches(const struct json_value *labels, const char *wanted);
