/* SPDX-License-Identifier: Apache-2.0 */
/* ports.c: exposed ports of a sandbox, and which are open inside. */
#include "client/client_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BODY_MAX = 4096 };

static int port_read(const struct json_value *v, struct silica_port *ret, struct silica_error *reterr)
{
    struct silica_port p = {0};
    int64_t number;
    if (!json_integer(json_get(v, "port"), 1, 65535, &number))
        return client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG,
                           "the server describes a port without a number");
    p.port = (int)number;
    if (!client_copy_member(v, "url", &p.url) || !client_copy_member(v, "name", &p.name) ||
        !client_copy_member(v, "exposedAt", &p.exposed_at) || !client_copy_member(v, "address", &p.address) ||
        !client_copy_member(v, "process", &p.process)) {
        silica_port_done(&p);
        return client_fail_memory(reterr);
    }
    *ret = p;
    return 0;
}

int silica_port_expose(struct silica_client *c, const char *id, int port, const char *name, const char *token,
                       struct silica_port *ret, struct silica_error *reterr)
{
    struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w;
    struct client_answer a;
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_member_int(&w, "port", port);
    if (name)
        json_member_string(&w, "name", name);
    if (token)
        json_member_string(&w, "token", token);
    json_object_end(&w);
    int r = w.err < 0 ? client_fail(reterr, SILICA_ERROR_ARGUMENT, -w.err, "the name is too long")
                      : client_sandbox_call(c, "POST", id, "/ports", &body, &a, reterr);
    buf_done(&body);
    if (r < 0)
        return r;
    r = port_read(json_root(a.doc), ret, reterr);
    client_answer_done(&a);
    return r;
}

int silica_port_close(struct silica_client *c, const char *id, int port, struct silica_error *reterr)
{
    char tail[32];
    (void)snprintf(tail, sizeof tail, "/ports/%d", port);
    return client_sandbox_call(c, "DELETE", id, tail, NULL, NULL, reterr);
}

static int list(struct silica_client *c, const char *id, const char *tail, struct silica_port_list *ret,
                struct silica_error *reterr)
{
    struct silica_port_list l = {0};
    struct client_answer a;
    int r = client_sandbox_call(c, "GET", id, tail, NULL, &a, reterr);
    if (r < 0)
        return r;
    const struct json_value *ports;
    r = client_answer_list(c, &a, "ports", &ports, reterr);
    if (r == 0 && !(l.items = calloc(json_count(ports) + 1, sizeof *l.items)))
        r = client_fail_memory(reterr);
    for (const struct json_value *v = json_first(ports); r == 0 && v; v = json_next(v))
        if ((r = port_read(v, &l.items[l.count], reterr)) == 0)
            l.count++;
    if (r == 0) {
        l.json = take_ptr(a.json);
        *ret = l;
    } else {
        silica_port_list_done(&l);
    }
    client_answer_done(&a);
    return r;
}

int silica_port_list(struct silica_client *c, const char *id, struct silica_port_list *ret,
                     struct silica_error *reterr)
{
    return list(c, id, "/ports", ret, reterr);
}

int silica_port_listening(struct silica_client *c, const char *id, struct silica_port_list *ret,
                          struct silica_error *reterr)
{
    return list(c, id, "/ports/listening", ret, reterr);
}

void silica_port_done(struct silica_port *p)
{
    char *const strings[] = {p->url, p->name, p->exposed_at, p->address, p->process};
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
        free(strings[i]);
    *p = (struct silica_port){0};
}

void silica_port_list_done(struct silica_port_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        silica_port_done(&l->items[i]);
    free(l->items);
    free(l->json);
    *l = (struct silica_port_list){0};
}
