/* SPDX-License-Identifier: Apache-2.0 */
/* preview_site.c: where previews are reached: the operator's setting, and the URLs made from it. */
#include "gateway/preview.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool parse_port(const char *text, int *ret)
{
    int port = 0;
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 5 || text[n])
        return false;
    for (size_t i = 0; i < n; i++)
        port = port * 10 + (text[i] - '0');
    *ret = port;
    return port >= 1 && port <= 65535;
}

int preview_site_parse(const char *text, struct preview_site *ret, struct error *reterr)
{
    struct preview_site site = {.port = -1};
    static const char *const schemes[] = {"http", "https"};
    const char *rest = text;
    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
        size_t n = strlen(schemes[i]);
        if (strncmp(text, schemes[i], n) == 0 && strncmp(text + n, "://", 3) == 0) {
            site.scheme = schemes[i];
            rest = text + n + 3;
        }
    }
    size_t n = strcspn(rest, ":");
    if (n > PREVIEW_DOMAIN_MAX)
        return error_set(reterr, EINVAL, "a domain has 1 to %d characters", PREVIEW_DOMAIN_MAX);
    memcpy(site.domain, rest, n);
    if (rest[n] == ':' && !parse_port(rest + n + 1, &site.port))
        return error_set(reterr, EINVAL, "'%s' is not a port", rest + n + 1);
    int r = preview_domain_check(site.domain, reterr);
    if (r < 0)
        return r;
    if (!site.scheme)
        site.scheme = strcmp(site.domain, "localhost") == 0 ? "http" : "https";
    *ret = site;
    return 0;
}

void preview_site_listener(struct preview_site *site, const char *name)
{
    const char *port = strrchr(name, ':');
    int number;
    if (strcmp(site->domain, "localhost") == 0 && site->port < 0 && name[0] != '/' && port &&
        parse_port(port + 1, &number))
        site->port = number;
}

int preview_site_url(const struct preview_site *site, const struct exposed_port *e, struct buf *out)
{
    char port[16] = "";
    if (site->port > 0)
        (void)snprintf(port, sizeof port, ":%d", site->port);
    return buf_printf(out, "%s://%d-%s-%s.%s%s/", site->scheme, e->port, e->id, e->token, site->domain, port);
}
