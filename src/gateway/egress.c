/* SPDX-License-Identifier: Apache-2.0 */
/* egress.c: see egress.h: the settings of a sidecar, and its sockets inside the sandbox. What comes through
 * them is in egress_conn.c and egress_dns.c. */
#include "base/log.h"
#include "gateway/egress_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { ACCEPT_BATCH = 32, PORT_DNS = 53, JSON_BYTES_MAX = 1 << 20 };

/* ------------------------------------------------------------------ settings */

static void names_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static bool is_glob(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.*");
    return n > 0 && n <= EGRESS_HOSTNAME_BYTES && !s[n];
}

static int names_copy(const struct egress_settings *s, char ***ret, struct error *reterr)
{
    if (s->hostname_count > EGRESS_HOSTNAMES_MAX)
        return error_set(reterr, EINVAL, "dns.allowHostnames has more than %d names", EGRESS_HOSTNAMES_MAX);
    char **names = calloc(s->hostname_count + 1, sizeof *names);
    if (!names)
        return error_sys(reterr, ENOMEM, "keep the settings");
    for (size_t i = 0; i < s->hostname_count; i++) {
        bool ok = is_glob(s->hostnames[i]);
        if (ok && (names[i] = strdup(s->hostnames[i])))
            continue;
        names_free(names, s->hostname_count);
        return ok ? error_sys(reterr, ENOMEM, "keep the settings")
                  : error_set(reterr, EINVAL, "dns.allowHostnames: '%.64s' is not a host name in lower case",
                              s->hostnames[i]);
    }
    *ret = names;
    return 0;
}

int egress_change(struct egress *e, const struct egress_settings *s, struct error *reterr)
{
    char **names = NULL;
    if (s->port && (s->port < KEEPER_HOST_PORT_MIN || s->port > 65535))
        return error_set(reterr, EINVAL, "port must be a number from %d to 65535", KEEPER_HOST_PORT_MIN);
    int r = s->hostnames ? names_copy(s, &names, reterr) : 0;
    if (r < 0)
        return r;
    if (names) {
        names_free(e->hostnames, e->hostname_count);
        e->hostnames = names;
        e->hostname_count = s->hostname_count;
    }
    if (s->port)
        e->port = (unsigned)s->port;
    if (s->internet >= 0)
        e->internet = s->internet;
    return 0;
}

static int read_names(const struct json_value *v, const char **names, struct egress_settings *s,
                      struct error *reterr)
{
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (json_type_of(v) != JSON_ARRAY || json_count(v) > EGRESS_HOSTNAMES_MAX)
        return error_set(reterr, EINVAL, "dns.allowHostnames must be a list of up to %d names",
                         EGRESS_HOSTNAMES_MAX);
    json_for_each (child, v) {
        const char *name = json_string(child, NULL);
        if (!name)
            return error_set(reterr, EINVAL, "dns.allowHostnames must be a list of strings");
        names[s->hostname_count++] = name;
    }
    s->hostnames = names;
    return 0;
}

static int read_settings(const struct json_value *body, const char **names, struct egress_settings *s,
                         struct error *reterr)
{
    const struct json_value *port = json_get(body, "port"), *internet = json_get(body, "internet"),
                            *dns = json_get(body, "dns"), *enabled = json_get(internet, "enabled");
    int64_t number = 0;
    if (json_type_of(body) != JSON_OBJECT)
        return error_set(reterr, EINVAL, "the body must be an object");
    if (json_type_of(port) != JSON_NULL && !json_integer(port, KEEPER_HOST_PORT_MIN, 65535, &number))
        return error_set(reterr, EINVAL, "port must be a number from %d to 65535", KEEPER_HOST_PORT_MIN);
    if ((json_type_of(internet) != JSON_NULL && json_type_of(internet) != JSON_OBJECT) ||
        (json_type_of(enabled) != JSON_NULL && json_type_of(enabled) != JSON_BOOL))
        return error_set(reterr, EINVAL, "internet must be an object such as {\"enabled\": true}");
    if (json_type_of(dns) != JSON_NULL && json_type_of(dns) != JSON_OBJECT)
        return error_set(reterr, EINVAL, "dns must be an object such as {\"allowHostnames\": [\"*\"]}");
    s->port = (int)number;
    s->internet = json_type_of(enabled) == JSON_BOOL ? json_bool(enabled, false) : -1;
    return read_names(json_get(dns, "allowHostnames"), names, s, reterr);
}

int egress_put(struct egress *e, const char *json, size_t n, struct error *reterr)
{
    auto_json struct json_doc *doc = NULL;
    auto_free char *text = n <= JSON_BYTES_MAX ? malloc(n + 1) : NULL;
    auto_free const char **names = calloc(EGRESS_HOSTNAMES_MAX, sizeof *names);
    struct egress_settings s = {0};
    if (n > JSON_BYTES_MAX)
        return error_set(reterr, EINVAL, "the body is too large");
    if (!text || !names)
        return error_sys(reterr, ENOMEM, "read the settings");
    memcpy(text, json, n); /* the parser changes it */
    int r = json_parse(text, n, 0, &doc, reterr);
    if (r < 0)
        return r == -EBADMSG ? -EINVAL : r;
    r = read_settings(json_root(doc), names, &s, reterr);
    return r < 0 ? r : egress_change(e, &s, reterr);
}

void egress_describe(const struct egress *e, struct json_writer *w)
{
    json_object_begin(w);
    if (e->port)
        json_member_int(w, "port", e->port);
    json_put_key(w, "internet");
    json_object_begin(w);
    json_member_bool(w, "enabled", e->internet);
    json_object_end(w);
    json_put_key(w, "dns");
    json_object_begin(w);
    json_put_key(w, "allowHostnames");
    json_array_begin(w);
    for (size_t i = 0; i < e->hostname_count; i++)
        json_put_string(w, e->hostnames[i]);
    json_array_end(w);
    json_object_end(w);
    json_object_end(w);
}

/* ------------------------------------------------------------------ the sockets inside */

bool egress_pace_take(struct egress_pace *p, int64_t now_us, int per_second, int burst)
{
    int64_t step_us = 1000000 / per_second, gained = (now_us - p->since_us) / step_us;
    if (gained > 0) {
        p->left = MIN(p->left + gained, (int64_t)burst);
        p->since_us = p->left == burst ? now_us : p->since_us + gained * step_us;
    }
    if (p->left <= 0)
        return false;
    p->left--;
    return true;
}

static void accept_again(struct timer *t)
{
    struct egress *e = container_of(t, struct egress, catcher_pause);
    loop_mod(e->loop, &e->catcher, EPOLLIN);
}

static void catcher_ready(struct source *s, uint32_t events)
{
    struct egress *e = container_of(s, struct egress, catcher);
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        bool may =
            egress_pace_take(&e->catcher_pace, loop_now_us(e->loop), EGRESS_NEW_PER_SECOND, EGRESS_NEW_BURST);
        int fd = may ? accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
        if (fd >= 0) {
            egress_conn_new(e, fd);
        } else if (may && errno == EAGAIN) {
            return;
        } else if (!may || errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            loop_mod(e->loop, s, 0);
            loop_timer_start(e->loop, &e->catcher_pause, EGRESS_PAUSE_MS, accept_again);
            return;
        }
    }
}

static void tell_ready(struct egress *e, int err)
{
    void (*ready)(void *, int) = e->ready;
    e->ready = NULL;
    if (err)
        log_warn("sandbox %s: its sidecar cannot catch its connections: %s", e->id, strerror(-err));
    if (ready)
        ready(e->ready_arg, err);
}

static void socket_got(struct egress *e, int which, int fd)
{
    struct source *s = which ? &e->dns : &e->catcher;
    e->asks[which] = NULL;
    int r = fd < 0 ? fd : loop_add(e->loop, s, fd, EPOLLIN, which ? egress_dns_ready : catcher_ready);
    if (fd >= 0)
        e->fds[which] = fd;
    if (r < 0) { /* the other one is no use either */
        keeper_ask_cancel(take_ptr(e->asks[!which]));
        tell_ready(e, r);
    } else if (e->fds[!which] >= 0) {
        tell_ready(e, 0);
    }
}

static void catcher_got(void *arg, int fd)
{
    socket_got(arg, 0, fd);
}

static void dns_got(void *arg, int fd)
{
    socket_got(arg, 1, fd);
}

void egress_attach(struct egress *e, const char *sandbox_id, void (*ready)(void *arg, int err), void *arg)
{
    egress_detach(e);
    (void)snprintf(e->id, sizeof e->id, "%s", sandbox_id);
    e->ready = ready;
    e->ready_arg = arg;
    /* where the rule inside sends everything: a loopback address, so that nothing else reaches it */
    e->asks[0] = keeper_socket_ask(&(struct keeper_ask_config){.link = e->link,
                                                               .id = e->id,
                                                               .kind = KEEPER_SOCKET_LISTEN,
                                                               .address = KEEPER_ADDRESS_LOOPBACK,
                                                               .port = KEEPER_PORT_CATCHER,
                                                               .got = catcher_got,
                                                               .arg = e});
    e->asks[1] = keeper_socket_ask(&(struct keeper_ask_config){.link = e->link,
                                                               .id = e->id,
                                                               .kind = KEEPER_SOCKET_UDP,
                                                               .address = KEEPER_ADDRESS_ANY,
                                                               .port = PORT_DNS,
                                                               .got = dns_got,
                                                               .arg = e});
    if (!e->asks[0] || !e->asks[1]) {
        keeper_ask_cancel(take_ptr(e->asks[0]));
        keeper_ask_cancel(take_ptr(e->asks[1]));
        tell_ready(e, -ENOMEM);
    }
}

void egress_detach(struct egress *e)
{
    e->ready = NULL;
    loop_timer_stop(e->loop, &e->catcher_pause);
    loop_timer_stop(e->loop, &e->dns_pause);
    loop_del(e->loop, &e->catcher);
    loop_del(e->loop, &e->dns);
    for (int i = 0; i < 2; i++) {
        keeper_ask_cancel(take_ptr(e->asks[i]));
        close_fd(&e->fds[i]);
    }
    while (e->conns)
        egress_conn_free(e->conns);
    while (e->lookups)
        egress_lookup_free(e->lookups);
    e->id[0] = '\0';
}

/* ------------------------------------------------------------------ life */

int egress_new(struct loop *loop, struct keeper_link *link, const char *saved, struct egress **ret,
               struct error *reterr)
{
    struct egress *e = calloc(1, sizeof *e);
    if (!e)
        return error_sys(reterr, ENOMEM, "make a sidecar");
    *e = (struct egress){
        .loop = loop, .link = link, .fds = {-1, -1}, .catcher.fd = -1, .dns.fd = -1, .internet = true};
    int r = authority_new(saved, &e->authority, reterr);
    if (r < 0) {
        free(e);
        return r;
    }
    *ret = e;
    return 0;
}

void egress_free(struct egress *e)
{
    if (!e)
        return;
    egress_detach(e);
    authority_free(e->authority);
    names_free(e->hostnames, e->hostname_count);
    free(e);
}

const char *egress_ca_pem(const struct egress *e)
{
    return authority_ca_pem(e->authority);
}

const char *egress_secret_pem(const struct egress *e)
{
    return authority_secret_pem(e->authority);
}

size_t egress_connections(const struct egress *e)
{
    return e->conn_count;
}
