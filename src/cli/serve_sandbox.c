/* SPDX-License-Identifier: Apache-2.0 */
/* serve_sandbox.c: see serve_sandbox.h.
 *
 * All of it becomes one block of strings before the keeper starts, which passes it on without a look: what is
 * wrong is said here, to the operator, and not in every sandbox. */
#include "cli/serve_sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define EXTRA  "/usr/local/share/ca-certificates/silica-extra.crt"

/* Services inside are reached without the proxy. */
static const char own_hosts[] = "localhost,127.0.0.1,::1";

int sandbox_url_check(const char *source, const char *value, bool socks, struct error *reterr)
{
    static const char *const schemes[] = {"http://", "https://", "socks5://", "socks5h://"};
    const char *host = NULL;
    for (size_t i = 0; i < (socks ? ARRAY_SIZE(schemes) : 2) && !host; i++)
        if (strncmp(value, schemes[i], strlen(schemes[i])) == 0)
            host = value + strlen(schemes[i]);
    bool ok = host && strcspn(host, "/?#") > 0 && strlen(value) <= 2048;
    for (const char *p = value; ok && *p; p++)
        ok = *p > 0x20 && *p < 0x7f && !strchr("\"'\\<>`{}|^", *p);
    return ok ? 0
              : error_set(reterr, EINVAL, "%s: a URL such as http://HOST:PORT%s is needed", source,
                          socks ? " or socks5://HOST:PORT" : "/path");
}

int sandbox_ca_check(const char *path, const char *text, size_t n, struct error *reterr)
{
    if (memchr(text, '\0', n) || !memmem(text, n, "-----BEGIN CERTIFICATE-----", 27))
        return error_set(reterr, EINVAL, "%s has no certificates in PEM", path);
    if (memmem(text, n, "PRIVATE KEY-----", 16))
        return error_set(reterr, EINVAL, "%s has a private key in it, which sandboxes must not see", path);
    return 0;
}

static int put(struct buf *out, const char *name, const char *value)
{
    int r = buf_puts(out, name);
    r = r < 0 ? r : buf_putc(out, '=');
    return r < 0 ? r : buf_append(out, value, strlen(value) + 1);
}

/* Programs disagree on the case: both. */
static int put_both(struct buf *out, const char *upper, const char *lower, const char *value)
{
    int r = put(out, upper, value);
    return r < 0 ? r : put(out, lower, value);
}

static const char *from_host(char *(*getenv_host)(const char *name), const char *upper, const char *lower)
{
    const char *value = getenv_host(lower);
    if (!value || !*value)
        value = getenv_host(upper);
    return value && *value ? value : NULL;
}

static int put_proxy(const struct sandbox_shared *s, char *(*getenv_host)(const char *name), struct buf *out,
                     struct error *reterr)
{
    static const char *const names[][2] = {{"HTTP_PROXY", "http_proxy"}, {"HTTPS_PROXY", "https_proxy"}};
    bool host = s->proxy && strcmp(s->proxy, "host") == 0;
    const char *exceptions = s->no_proxy;
    bool any = false;
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++) {
        const char *value = host ? from_host(getenv_host, names[i][0], names[i][1]) : s->proxy;
        if (!value)
            continue;
        if (sandbox_url_check(host ? names[i][0] : "--sandbox-proxy", value, true, reterr) < 0)
            return -EINVAL;
        any = true;
        r = put_both(out, names[i][0], names[i][1], value);
    }
    if (host && !exceptions)
        exceptions = from_host(getenv_host, "NO_PROXY", "no_proxy");
    if (r == 0 && any) {
        struct buf list = BUF_INIT(8192);
        r = buf_puts(&list, own_hosts);
        if (r == 0 && exceptions)
            r = buf_printf(&list, ",%s", exceptions);
        const char *text = r == 0 ? buf_cstr(&list) : NULL;
        r = r < 0 ? r : !text ? -ENOMEM : put_both(out, "NO_PROXY", "no_proxy", text);
        buf_done(&list);
    }
    return r < 0 ? error_sys(reterr, -r, "prepare the proxy's variables") : 0;
}

static int put_ca(const char *path, struct buf *out, struct error *reterr)
{
    static const char *const bundle_names[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                                               "PIP_CERT", "GIT_SSL_CAINFO"};
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_sys(reterr, errno, "open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > SANDBOX_CA_MAX)
        return error_set(reterr, EINVAL, "%s is no file of at most %d bytes", path, SANDBOX_CA_MAX);
    auto_free char *text = malloc((size_t)st.st_size + 1);
    ssize_t n = text ? read(fd, text, (size_t)st.st_size) : -1;
    if (n < 0)
        return error_sys(reterr, text ? errno : ENOMEM, "read %s", path);
    text[n] = '\0';
    int r = sandbox_ca_check(path, text, (size_t)n, reterr);
    if (r < 0)
        return r;
    r = put(out, "=ca", text);
    if (r == 0)
        r = put(out, "NODE_EXTRA_CA_CERTS", EXTRA);
    for (size_t i = 0; i < ARRAY_SIZE(bundle_names) && r == 0; i++)
        r = put(out, bundle_names[i], BUNDLE);
    return r < 0 ? error_sys(reterr, -r, "prepare the certificates") : 0;
}

/* pip takes an index without TLS only from hosts it is told to trust. */
static int put_pip(const char *url, struct buf *out)
{
    int r = put(out, "PIP_INDEX_URL", url);
    if (r == 0)
        r = put(out, "UV_DEFAULT_INDEX", url);
    if (r < 0 || strncmp(url, "http://", 7) != 0)
        return r;
    size_t n = strcspn(url + 7, "/?#");
    const char *host = memrchr(url + 7, '@', n);
    host = host ? host + 1 : url + 7;
    auto_free char *copy = strndup(host, n - (size_t)(host - (url + 7)));
    return copy ? put(out, "PIP_TRUSTED_HOST", copy) : -ENOMEM;
}

static int put_mirrors(const struct sandbox_shared *s, struct buf *out, struct error *reterr)
{
    const struct {
        const char *flag, *url;
    } urls[] = {
        {"--apt-mirror", s->apt_mirror}, {"--pip-index", s->pip_index}, {"--npm-registry", s->npm_registry}};
    for (size_t i = 0; i < ARRAY_SIZE(urls); i++)
        if (urls[i].url && sandbox_url_check(urls[i].flag, urls[i].url, false, reterr) < 0)
            return -EINVAL;
    int r = s->apt_mirror ? put(out, "=apt-mirror", s->apt_mirror) : 0;
    if (r == 0 && s->pip_index)
        r = put_pip(s->pip_index, out);
    if (r == 0 && s->npm_registry)
        r = put(out, "npm_config_registry", s->npm_registry);
    if (r == 0 && s->npm_registry)
        r = put(out, "COREPACK_NPM_REGISTRY", s->npm_registry);
    return r < 0 ? error_sys(reterr, -r, "prepare the mirrors") : 0;
}

int sandbox_shared_build(const struct sandbox_shared *s, char *(*getenv_host)(const char *name),
                         struct buf *out, struct error *reterr)
{
    int r;
    if (s->no_proxy && !s->proxy)
        return error_set(reterr, EINVAL, "--sandbox-no-proxy needs --sandbox-proxy");
    if ((r = put_proxy(s, getenv_host, out, reterr)) < 0 ||
        (s->ca_file && (r = put_ca(s->ca_file, out, reterr)) < 0) || (r = put_mirrors(s, out, reterr)) < 0)
        return r;
    return 0;
}
