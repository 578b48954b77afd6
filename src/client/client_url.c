/* SPDX-License-Identifier: Apache-2.0 */
/* client_url.c: where the server is: http://HOST[:PORT][/path] or unix:/path. */
#include "client/client_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

static int bad_url(struct silica_error *reterr, const char *text, const char *why)
{
    return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL, "'%.200s' is not the URL of a server: %s", text,
                       why);
}

static int parse_unix(const char *path, struct client_url *u, struct silica_error *reterr)
{
    struct sockaddr_un address;
    if (strncmp(path, "//", 2) == 0)
        path += 2;
    if (path[0] != '/')
        return bad_url(reterr, u->text, "write unix: and an absolute path, as in unix:/run/silica/api.sock");
    if (strlen(path) >= sizeof address.sun_path)
        return bad_url(reterr, u->text, "the path of a unix socket has at most 107 bytes");
    u->socket = strdup(path);
    u->base = strdup("");
    if (!u->socket || !u->base)
        return client_fail_memory(reterr);
    u->local = true;
    (void)snprintf(u->authority, sizeof u->authority, "localhost");
    return 0;
}

/* host[:port] without brackets or with them around an IPv6 address */
static int parse_authority(const char *s, size_t n, struct client_url *u, struct silica_error *reterr)
{
    const char *end = s + n, *host = s, *port = NULL;
    size_t host_len;
    if (memchr(s, '@', n))
        return bad_url(reterr, "...@...", "it must not contain a name or password; use a token");
    if (n > 0 && *s == '[') {
        const char *close = memchr(s, ']', n);
        if (!close || (close + 1 < end && close[1] != ':'))
            return bad_url(reterr, u->text, "the brackets around its address do not match");
        host = s + 1;
        host_len = (size_t)(close - host);
        if (close + 1 < end)
            port = close + 2;
    } else {
        const char *colon = memchr(s, ':', n);
        host_len = colon ? (size_t)(colon - s) : n;
        if (colon)
            port = colon + 1;
    }
    if (host_len == 0 || host_len >= sizeof u->host)
        return bad_url(reterr, u->text, "it names no host");
    (void)snprintf(u->host, sizeof u->host, "%.*s", (int)host_len, host);

    if (port) {
        size_t digits = (size_t)(end - port);
        bool number = digits >= 1 && digits <= 5 && strspn(port, "0123456789") >= digits;
        unsigned long value = number ? strtoul(port, NULL, 10) : 0; /* ends at the / behind it, or the end */
        if (value < 1 || value > 65535)
            return bad_url(reterr, u->text, "its port is not a number from 1 to 65535");
        (void)snprintf(u->port, sizeof u->port, "%.*s", (int)digits, port);
    } else {
        (void)snprintf(u->port, sizeof u->port, "80");
    }
    (void)snprintf(u->authority, sizeof u->authority, "%.*s", (int)n, s);
    u->local = strcasecmp(u->host, "localhost") == 0 || strcmp(u->host, "::1") == 0 ||
               (strncmp(u->host, "127.", 4) == 0 && strspn(u->host, "0123456789.") == host_len);
    return 0;
}

static int parse_http(const char *s, struct client_url *u, struct silica_error *reterr)
{
    if (s[strcspn(s, "?#")])
        return bad_url(reterr, u->text, "it must not contain ? or #");
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return bad_url(reterr, u->text, "blanks and special characters must be percent-encoded");

    size_t n = strcspn(s, "/");
    int r = parse_authority(s, n, u, reterr);
    if (r < 0)
        return r;
    size_t base = strlen(s + n);
    while (base > 0 && s[n + base - 1] == '/')
        base--;
    u->base = strndup(s + n, base);
    return u->base ? 0 : client_fail_memory(reterr);
}

static int parse(const char *text, struct client_url *u, struct silica_error *reterr)
{
    u->text = strdup(text);
    if (!u->text)
        return client_fail_memory(reterr);
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text + 5, u, reterr);
    if (strncasecmp(text, "http://", 7) == 0)
        return parse_http(text + 7, u, reterr);
    if (strncasecmp(text, "https://", 8) == 0)
        return client_fail(
            reterr, SILICA_ERROR_ARGUMENT, EPROTONOSUPPORT,
            "https is not supported yet: use http on this machine, or a tunnel such as ssh -L");
    return bad_url(reterr, text, "it begins with http:// or unix:, as in " SILICA_DEFAULT_URL);
}

int client_url_parse(const char *text, struct client_url *ret, struct silica_error *reterr)
{
    struct client_url u = {0};
    int r = parse(text, &u, reterr);
    if (r < 0) {
        client_url_done(&u);
        return r;
    }
    *ret = u;
    return 0;
}

void client_url_done(struct client_url *u)
{
    free(u->text);
    free(u->socket);
    free(u->base);
    memset(u, 0, sizeof *u);
}
