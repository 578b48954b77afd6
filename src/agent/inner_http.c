/* SPDX-License-Identifier: Apache-2.0 */
/* inner_http.c: see inner_http.h. A connection is a socket pair whose other end the agent's server has
 * adopted. */
#include "agent/inner_http.h"

#include <sys/socket.h>

void inner_http_idle_closed(struct http_client *client)
{
    struct inner_http *in = http_client_user(client);
    for (size_t i = 0; i < in->idle_count; i++)
        if (in->idle[i] == client) {
            in->idle[i] = in->idle[--in->idle_count];
            break;
        }
    http_client_free(client);
}

struct http_client *inner_http_get(struct inner_http *in)
{
    struct http_client *client;
    struct error e;
    int pair[2];
    if (in->idle_count)
        return in->idle[--in->idle_count];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return NULL;
    if (http_server_adopt(in->agent->server, pair[1], &e) < 0) {
        (void)close(pair[0]);
        (void)close(pair[1]);
        return NULL;
    }
    if (http_client_new(in->agent->loop, pair[0], &client, &e) < 0) {
        (void)close(pair[0]); /* the server notices */
        return NULL;
    }
    return client;
}

void inner_http_put(struct inner_http *in, struct http_client *client)
{
    if (!http_client_reusable(client) || in->idle_count == INNER_IDLE_MAX) {
        http_client_free(client);
        return;
    }
    http_client_set_user(client, in);
    in->idle[in->idle_count++] = client;
}

void inner_http_done(struct inner_http *in)
{
    while (in->idle_count)
        http_client_free(in->idle[--in->idle_count]);
}
