/* SPDX-License-Identifier: Apache-2.0 */
/* test_serve_sandbox.c: what the operator wants in every sandbox, as the block of strings that agents get. */
#include "cli/serve_sandbox.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

static char *some_env(const char *name)
{
    static char lower[] = "http://lower:1", upper[] = "http://upper:2", list[] = "a,b";
    return strcmp(name, "http_proxy") == 0    ? lower
           : strcmp(name, "HTTP_PROXY") == 0  ? upper
           : strcmp(name, "HTTPS_PROXY") == 0 ? upper
           : strcmp(name, "no_proxy") == 0    ? list
                                              : NULL;
}

/* The value of a string in the block, NULL when it is not there. */
static const char *value_of(const struct buf *b, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = buf_data(b); p && p < buf_data(b) + buf_len(b); p += strlen(p) + 1)
        if (strncmp(p, name, n) == 0 && p[n] == '=')
            return p + n + 1;
    return NULL;
}

TEST(nothing)
{
    struct buf out = BUF_INIT(SANDBOX_SHARED_MAX);
    struct error e;
    CHECK_INT(sandbox_shared_build(&(struct sandbox_shared){0}, some_env, &out, &e), 0);
    CHECK_INT(buf_len(&out), 0);
    buf_done(&out);
}

TEST(proxies)
{
    struct buf out = BUF_INIT(SANDBOX_SHARED_MAX);
    struct error e;
    CHECK_INT(sandbox_shared_build(&(struct sandbox_shared){.proxy = "http://p:1", .no_proxy = "x"}, no_env,
                                   &out, &e),
              0);
    CHECK_STREQ(value_of(&out, "HTTP_PROXY"), "http://p:1");
    CHECK_STREQ(value_of(&out, "http_proxy"), "http://p:1");
    CHECK_STREQ(value_of(&out, "https_proxy"), "http://p:1");
    CHECK_STREQ(value_of(&out, "NO_PROXY"), "localhost,127.0.0.1,::1,x");
    buf_clear(&out);
    CHECK_INT(sandbox_shared_build(&(struct sandbox_shared){.proxy = "host"}, some_env, &out, &e), 0);
    CHECK_STREQ(value_of(&out, "HTTP_PROXY"), "http://lower:1");
    CHECK_STREQ(value_of(&out, "https_proxy"), "http://upper:2");
    CHECK_STREQ(value_of(&out, "no_proxy"), "localhost,127.0.0.1,::1,a,b");
    buf_clear(&out);
    CHECK_INT(sandbox_shared_build(&(struct sandbox_shared){.proxy = "host"}, no_env, &out, &e), 0);
    CHECK_INT(buf_len(&out), 0);
    CHECK_INT(sandbox_shared_build(&(struct sandbox_shared){.no_proxy = "x"}, no_env, &out, &e), -EINVAL);
    buf_done(&out);
}

TEST(mirrors)
{
    struct buf out = BUF_INIT(SANDBOX_SHARED_MAX);
    struct error e;
    struct sandbox_shared s = {.pip_index = "http://u:p@pip:8080/simple",
                               .npm_registry = "https://npm/",
                               .apt_mirror = "http://apt"};
    CHECK_INT(sandbox_shared_build(&s, no_env, &out, &e), 0);
    CHECK_STREQ(value_of(&out, "PIP_INDEX_URL"), "http://u:p@pip:8080/simple");
    CHECK_STREQ(value_of(&out, "PIP_TRUSTED_HOST"), "pip:8080");
    CHECK_STREQ(value_of(&out, "npm_config_registry"), "https://npm/");
    CHECK_STREQ(value_of(&out, "=apt-mirror"), "http://apt");
    buf_clear(&out);
    CHECK_INT(
        sandbox_shared_build(&(struct sandbox_shared){.pip_index = "https://pip/simple"}, no_env, &out, &e),
        0);
    CHECK(!value_of(&out, "PIP_TRUSTED_HOST"));
    buf_done(&out);
}

TEST(urls)
{
    static const char *const good[] = {"http://a", "https://a.b:80/x?y=z", "http://u:p@[::1]:3128"};
    static const char *const bad[] = {"",           "a",          "ftp://a",    "http://",   "http:///x",
                                      "http://a b", "http://a\n", "http://a\"", "socks5://a"};
    struct error e;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK_INT(sandbox_url_check("--x", good[i], false, &e), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(sandbox_url_check("--x", bad[i], false, &e), -EINVAL);
    CHECK_INT(sandbox_url_check("--x", "socks5h://a:1080", true, &e), 0);
}

TEST(certificates)
{
    static const char pem[] = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n";
    static const char key[] = "-----BEGIN CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\n";
    char path[] = "/tmp/test_serve_sandbox.XXXXXX";
    struct buf out = BUF_INIT(SANDBOX_SHARED_MAX);
    struct error e;
    CHECK_INT(sandbox_ca_check("x", pem, sizeof pem - 1, &e), 0);
    CHECK_INT(sandbox_ca_check("x", pem, sizeof pem, &e), -EINVAL); /* a NUL */
    CHECK_INT(sandbox_ca_check("x", key, sizeof key - 1, &e), -EINVAL);
    CHECK_INT(sandbox_ca_check("x", "", 0, &e), -EINVAL);
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    CHECK_INT(write(fd, pem, sizeof pem - 1), sizeof pem - 1);
    CHECK_INT(sandbox_shared_build(&(struct sandbox_shared){.ca_file = path}, no_env, &out, &e), 0);
    CHECK_STREQ(value_of(&out, "=ca"), pem);
    CHECK(value_of(&out, "NODE_EXTRA_CA_CERTS") && value_of(&out, "SSL_CERT_FILE") &&
          value_of(&out, "REQUESTS_CA_BUNDLE"));
    (void)close(fd);
    (void)unlink(path);
    CHECK_INT(sandbox_shared_build(&(struct sandbox_shared){.ca_file = path}, no_env, &out, &e), -ENOENT);
    CHECK_INT(sandbox_shared_build(&(struct sandbox_shared){.ca_file = "/dev/null"}, no_env, &out, &e),
              -EINVAL);
    buf_done(&out);
}
