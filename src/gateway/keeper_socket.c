/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_socket.c: see keeper_socket.h. The keeper's reply comes in any case; what is cancelled is freed when
 * it does. */
#include "gateway/keeper_socket.h"

#include <errno.h>
#include <stdio.h>

struct keeper_ask {
    void (*got)(void *arg, int fd); /* NULL: cancelled */
    void *arg;
};

static void replied(void *arg, const struct keeper_reply *reply, int fd)
{
    struct keeper_ask a = *(struct keeper_ask *)arg;
    auto_close int owned = fd;
    free(arg);
    if (!a.got)
        return;
    if (reply->error)
        a.got(a.arg, -reply->error);
    else
        a.got(a.arg, fd < 0 ? -EBADMSG : take_fd(owned));
}

struct keeper_ask *keeper_socket_ask(const struct keeper_ask_config *config)
{
    struct keeper_ask *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct keeper_ask){.got = config->got, .arg = config->arg};
    struct keeper_request q = {
        .type = KEEPER_SOCKET,
        .socket = {.kind = config->kind, .address = config->address, .port = config->port}};
    (void)snprintf(q.id, sizeof q.id, "%s", config->id);
    keeper_link_send(config->link, &q, -1, replied, a);
    return a;
}

void keeper_ask_cancel(struct keeper_ask *a)
{
    if (a)
        a->got = NULL;
}
