/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c: one try to reach a service, with one deadline for everything: both addresses and all redirects.
 *
 * A redirect is followed as long as it stays on this host and speaks plain http. One that leads elsewhere is
 * an answer of its own: the service is up, and its status counts. */
#include "agent/probe.h"
#include "agent/dial.h"
#include "net/http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct probe {
    struct loop *loop;
    probe_done *done;
    void *arg;
    int port;
    bool http;
    char path[4096];
    int redirects;
    struct dial dial;
    struct http_client *client;
    struct timer deadline;
    struct deferred later;
    int status; /* to be told later */
    const char *why;
};

static void tell(struct deferred *d)
{
    struct probe *p = container_of(d, struct probe, later);
    p->done(p, p->status, p->why, p->arg);
}

static void drop_connection(struct probe *p)
{
    dial_stop(&p->dial);
    http_client_free(p->client);
    p->client = NULL;
}

/* The end, told from the loop: we may be inside a callback of the client. */
static void finish(struct probe *p, int status, const char *why)
{
    p->status = status;
    p->why = why;
    loop_timer_stop(p->loop, &p->deadline);
    loop_defer(p->loop, &p->later, tell);
}

static void expired(struct timer *t)
{
    struct probe *p = container_of(t, struct probe, deadline);
    drop_connection(p);
    finish(p, -ETIMEDOUT, "no answer within 5 seconds");
}

static void dialled(struct dial *d, int fd);

/* ------------------------------------------------------------------ http */

static bool host_is_local(const char *host, size_t n)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]", "0.0.0.0"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strlen(names[i]) == n && strncasecmp(names[i], host, n) == 0)
            return true;
    return false;
}

bool probe_redirect(const char *location, const char *base, int *port, char *path, size_t cap)
{
    const char *rest = location;
    int new_port = *port, n;
    if (strncasecmp(location, "http://", 7) == 0 || (location[0] == '/' && location[1] == '/')) {
        const char *host = location + (location[0] == '/' ? 2 : 7);
        size_t len = host[0] == '[' ? strcspn(host, "]/") + 1 : strcspn(host, ":/?#");
        if (len > strlen(host) || !host_is_local(host, len))
            return false;
        rest = host + len;
        new_port = 80;
        if (*rest == ':') {
            char *end;
            long v = strtol(rest + 1, &end, 10);
            if (v < 1 || v > 65535 || !strchr("/?#", *end))
                return false;
            new_port = (int)v;
            rest = end;
        }
        n = snprintf(path, cap, "%s%.*s", *rest == '/' ? "" : "/", (int)strcspn(rest, "#"), rest);
    } else if (strcspn(location, ":") < strcspn(location, "/?#")) {
        return false; /* another scheme */
    } else if (*location == '/') {
        n = snprintf(path, cap, "%.*s", (int)strcspn(location, "#"), location);
    } else { /* relative: replaces what is behind the last slash, or only the query */
        size_t keep = strcspn(base, "?#");
        while (*location != '?' && keep > 0 && base[keep - 1] != '/')
            keep--;
        n = snprintf(path, cap, "%.*s%.*s", (int)keep, base, (int)strcspn(location, "#"), location);
    }
    if (n < 0 || (size_t)n >= cap)
        return false;
    for (const char *s = path; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f)
            return false;
    *port = new_port;
    return true;
}

static bool status_redirects(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static void reconnect(struct deferred *d)
{
    struct probe *p = container_of(d, struct probe, later);
    dial_start(p->loop, &p->dial, p->port, dialled);
}

/* Only the head counts: the body is not waited for. */
static void on_head(struct http_client *c, int status, const struct http_header *headers, size_t count,
                    int64_t content_length)
{
    struct probe *p = http_client_user(c);
    const char *location = http_header_find(headers, count, "Location");
    char path[sizeof p->path];
    (void)content_length;
    bool follow = status_redirects(status) && location && p->redirects < PROBE_REDIRECTS_MAX &&
                  probe_redirect(location, p->path, &p->port, path, sizeof path);
    drop_connection(p); /* with the headers */
    if (!follow) {
        finish(p, status, NULL);
        return;
    }
    p->redirects++;
    memcpy(p->path, path, sizeof path);
    loop_defer(p->loop, &p->later, reconnect);
}

static void on_data(struct http_client *c, const char *data, size_t n)
{
    (void)c;
    (void)data;
    (void)n;
}

static void on_end(struct http_client *c, int err)
{
    struct probe *p = http_client_user(c);
    drop_connection(p);
    finish(p, err ? err : -EBADMSG, "the service closed the connection without an http answer");
}

static void ask(struct probe *p, int fd)
{
    static const struct http_client_ops ops = {.on_head = on_head, .on_data = on_data, .on_end = on_end};
    char host[32];
    (void)snprintf(host, sizeof host, "localhost:%d", p->port);
    const struct http_header headers[] = {
        {"Host", host}, {"Accept", "*/*"}, {"User-Agent", "silica-port-watch"}, {"Connection", "close"}};
    struct error e;
    int r = http_client_new(p->loop, fd, &p->client, &e);
    if (r == 0) {
        http_client_set_user(p->client, p);
        r = http_client_send(p->client, "GET", p->path, headers, ARRAY_SIZE(headers), 0, &ops);
    }
    if (r < 0) {
        drop_connection(p);
        finish(p, r, "the request could not be sent");
    }
}

/* ------------------------------------------------------------------ connecting */

static void dialled(struct dial *d, int fd)
{
    struct probe *p = container_of(d, struct probe, dial);
    if (fd < 0) {
        finish(p, fd, fd == -ECONNREFUSED ? "connection refused" : "cannot connect");
    } else if (p->http) {
        ask(p, fd);
    } else {
        (void)close(fd);
        finish(p, 0, NULL);
    }
}

struct probe *probe_start(struct loop *loop, const struct probe_target *target, probe_done *done, void *arg)
{
    struct probe *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (struct probe){.loop = loop, .done = done, .arg = arg, .port = target->port, .http = target->http};
    int n = snprintf(p->path, sizeof p->path, "%s", target->path);
    loop_timer_start(loop, &p->deadline, PROBE_TIMEOUT_MS, expired);
    if (n < 0 || (size_t)n >= sizeof p->path)
        finish(p, -ENAMETOOLONG, "the path is too long");
    else
        loop_defer(loop, &p->later, reconnect);
    return p;
}

void probe_free(struct probe *p)
{
    if (!p)
        return;
    drop_connection(p);
    loop_timer_stop(p->loop, &p->deadline);
    loop_undefer(p->loop, &p->later);
    free(p);
}
