/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/docker_text.h"
#include "test.h"

#include <string.h>

TEST(docker_names)
{
    char name[DOCKER_NAME_MAX + 2];
    memset(name, 'a', sizeof name);
    name[DOCKER_NAME_MAX + 1] = '\0';
    CHECK(!docker_name_ok(name));
    name[DOCKER_NAME_MAX] = '\0';
    CHECK(docker_name_ok(name));
    CHECK(docker_name_ok("workerd-demo-Sandbox_1.2-proxy"));
    CHECK(!docker_name_ok(""));
    CHECK(!docker_name_ok("-a"));
    CHECK(!docker_name_ok("a/b"));
    CHECK(!docker_name_ok("a b"));
    CHECK(!docker_name_ok("\xc3\xa4"));
}

TEST(docker_signals)
{
    CHECK(docker_signal("SIGTERM") == 15);
    CHECK(docker_signal("sigkill") == 9);
    CHECK(docker_signal("HUP") == 1);
    CHECK(docker_signal("SYS") == 31);
    CHECK(docker_signal("15") == 15);
    CHECK(docker_signal("64") == 64);
    CHECK(docker_signal("65") == 0);
    CHECK(docker_signal("0") == 0);
    CHECK(docker_signal("15x") == 0);
    CHECK(docker_signal("SIG") == 0);
    CHECK(docker_signal("") == 0);
}

static bool decodes(const char *in, const char *out)
{
    auto_free char *text = docker_decode(in, strlen(in));
    return out ? text && strcmp(text, out) == 0 : !text;
}

TEST(docker_decoding)
{
    CHECK(decodes("a%2Fb%41", "a/bA"));
    CHECK(decodes("a+b", "a+b"));
    CHECK(decodes("", ""));
    CHECK(decodes("%", NULL));
    CHECK(decodes("%4", NULL));
    CHECK(decodes("%4g", NULL));
    CHECK(decodes("a%00b", NULL));
}

TEST(docker_versions)
{
    CHECK_STREQ(docker_without_version("/v1.47/containers/json"), "/containers/json");
    CHECK_STREQ(docker_without_version("/containers/json"), "/containers/json");
    CHECK_STREQ(docker_without_version("/version"), "/version");
    CHECK_STREQ(docker_without_version("/v1.47"), "/v1.47");
    CHECK_STREQ(docker_without_version("/v1x/y"), "/v1x/y");
    CHECK_STREQ(docker_without_version("/"), "/");
    CHECK_STREQ(docker_without_version(""), "");
}

TEST(docker_images_have_many_names)
{
    CHECK(docker_same_image("app", "docker.io/library/app:latest"));
    CHECK(docker_same_image("cloudflare-dev/sandbox:1a", "docker.io/cloudflare-dev/sandbox:1a"));
    CHECK(!docker_same_image("app:1", "app"));
    CHECK(!docker_same_image("app:1", "app:12"));
    CHECK(docker_same_image("host:5000/app", "host:5000/app:latest"));
    CHECK(docker_is_sidecar_image("cloudflare/proxy-everything:3cb1195@sha256:0ef6716c"));
    CHECK(docker_is_sidecar_image("docker.io/cloudflare/proxy-everything"));
    CHECK(!docker_is_sidecar_image("cloudflare/sandbox"));
}

static bool equals(const char *value, void *arg)
{
    return strcmp(value, arg) == 0;
}

static bool has_label(const char *value, void *arg)
{
    return docker_label_matches(arg, value);
}

TEST(docker_filters)
{
    char text[] = "{\"name\":[\"a\",\"b\"],\"status\":{\"running\":true,\"exited\":false},\"odd\":[1,null],"
                  "\"label\":[\"k\",\"x=y\"],\"labels\":{\"k\":\"v\",\"x\":\"y\"}}";
    struct json_doc *doc;
    CHECK(json_parse(text, strlen(text), 0, &doc, NULL) == 0);
    const struct json_value *f = json_root(doc);
    CHECK(docker_filter(f, "name", equals, "a"));
    CHECK(docker_filter(f, "name", equals, "b"));
    CHECK(!docker_filter(f, "name", equals, "c"));
    CHECK(docker_filter(f, "status", equals, "running"));
    CHECK(!docker_filter(f, "status", equals, "exited"));
    CHECK(docker_filter(f, "odd", equals, "c")); /* nothing in it is a value */
    CHECK(docker_filter(f, "missing", equals, "c"));
    CHECK(docker_filter(NULL, "name", equals, "c"));
    const struct json_value *labels = json_get(f, "labels");
    CHECK(docker_filter_all(f, "label", has_label, (void *)(uintptr_t)labels));
    CHECK(!docker_label_matches(labels, "k=w"));
    CHECK(!docker_label_matches(labels, "kk"));
    CHECK(!docker_label_matches(NULL, "k"));
    json_free(doc);
}
