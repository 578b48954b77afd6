/* SPDX-License-Identifier: Apache-2.0 */
/* cloudflared_log.c: what the log of cloudflared tells; see cloudflared.h. */
#include "agent/cloudflared.h"

#include <ctype.h>
#include <string.h>

int cloudflared_metrics_port(const char *line)
{
    static const char text[] = "metrics server on 127.0.0.1:";
    const char *p = strstr(line, text);
    if (!p || !isdigit((unsigned char)p[sizeof text - 1]))
        return 0;
    long port = strtol(p + sizeof text - 1, NULL, 10);
    return port > 0 && port < 65536 ? (int)port : 0;
}

bool cloudflared_url(const char *line, char *out, size_t cap)
{
    static const char scheme[] = "https://", domain[] = ".trycloudflare.com", service[] = "api";
    for (const char *p = line; (p = strstr(p, scheme)); p += sizeof scheme - 1) {
        const char *host = p + sizeof scheme - 1;
        size_t n = strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-.");
        size_t name = n > sizeof domain - 1 ? n - (sizeof domain - 1) : 0;
        if (!name || memcmp(host + name, domain, sizeof domain - 1) != 0)
            continue;
        if (name == sizeof service - 1 && memcmp(host, service, name) == 0)
            continue; /* whom it asks for a tunnel, named in its complaints */
        size_t len = n + sizeof scheme - 1;
        if (len >= cap)
            return false;
        memcpy(out, p, len);
        out[len] = '\0';
        return true;
    }
    return false;
}
