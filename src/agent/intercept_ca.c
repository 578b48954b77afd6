/* SPDX-License-Identifier: Apache-2.0 */
/* intercept_ca.c: see intercept_ca.h. */
#include "agent/intercept_ca.h"
#include "agent/settings_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { PEM_MAX = 1 << 20 };

static const char default_file[] = "/etc/cloudflare/certs/cloudflare-containers-ca.crt";

/* The first one settings_write_ca makes when it is missing. */
static const char *const bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
};

bool intercept_ca_wanted(const struct agent *a)
{
    const char *text = agent_getenv(a, "SANDBOX_INTERCEPT_HTTPS");
    return text && strcmp(text, "1") == 0;
}

static int read_file(const char *path, struct buf *out)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    for (;;) {
        char *room = buf_reserve(out, 4096);
        ssize_t n = room ? read(fd, room, 4096) : -1;
        if (!room)
            return -EFBIG;
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        buf_commit(out, (size_t)n);
    }
}

static int set_variables(struct agent *a, const char *file)
{
    static const char *const names[] = {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
                                        "GIT_SSL_CAINFO"};
    const char *bundle = bundles[0];
    for (size_t i = 0; i < ARRAY_SIZE(bundles); i++)
        if (access(bundles[i], R_OK) == 0) {
            bundle = bundles[i];
            break;
        }
    int r = env_set(&a->env, "NODE_EXTRA_CA_CERTS", file);
    for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++)
        r = env_set(&a->env, names[i], bundle);
    return r;
}

int intercept_ca_take(struct agent *a, struct error *reterr)
{
    const char *chosen = agent_getenv(a, "SANDBOX_CA_CERT");
    auto_free char *file = strdup(chosen ? chosen : default_file); /* the variables move when one is set */
    struct buf pem = BUF_INIT(PEM_MAX);
    int r = file ? 0 : -ENOMEM;
    if (r == 0 && a->settings.ca && (r = buf_puts(&pem, a->settings.ca)) == 0) /* both, in one block */
        r = buf_puts(&pem, "\n");
    size_t before = buf_len(&pem);
    if (r == 0)
        r = read_file(file, &pem);
    if (r == 0 && buf_len(&pem) == before)
        r = -ENOENT; /* it is being written */
    const char *text = r == 0 ? buf_cstr(&pem) : NULL;
    if (r == 0 && (!text || strlen(text) != buf_len(&pem)))
        r = -EBADMSG;
    if (r == 0) {
        settings_write_ca(text);
        r = set_variables(a, file);
    }
    buf_done(&pem);
    return r < 0 ? error_sys(reterr, -r, "read the certificate %s", file ? file : "") : 0;
}
