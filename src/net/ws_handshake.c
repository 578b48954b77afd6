/* SPDX-License-Identifier: Apache-2.0 */
/* ws_handshake.c: how an HTTP request becomes a WebSocket (RFC 6455 section 4). */
#include "base/base64.h"
#include "base/sha1.h"
#include "net/websocket.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>

enum { KEY_BYTES = 16, REST_MAX = 256 * 1024 };

static bool any_lists(const struct http_request *req, const char *name, const char *token)
{
    for (size_t i = 0; i < req->header_count; i++)
        if (strcasecmp(req->headers[i].name, name) == 0 && http_list_has(req->headers[i].value, token))
            return true;
    return false;
}

/* The only value of a header, NULL when it is missing or repeated. */
static const char *single(const struct http_request *req, const char *name)
{
    return http_header_occurs(req->headers, req->header_count, name) == 1 ? http_request_header(req, name)
                                                                          : NULL;
}

static bool key_valid(const char *key)
{
    char bytes[WS_KEY_SIZE];
    return key && strlen(key) == WS_KEY_SIZE - 1 && base64_decode(bytes, key, strlen(key)) == KEY_BYTES;
}

int ws_handshake_check(const struct http_request *req, const char **why)
{
    const char *version = single(req, "Sec-WebSocket-Version");
    *why = NULL;
    if (strcmp(req->method, "GET") != 0)
        *why = "a WebSocket begins with GET";
    else if (req->minor < 1)
        *why = "a WebSocket needs HTTP/1.1";
    else if (req->has_body)
        *why = "a WebSocket begins without a body";
    else if (!any_lists(req, "Upgrade", "websocket") || !any_lists(req, "Connection", "Upgrade"))
        *why = "a WebSocket needs Upgrade: websocket and Connection: Upgrade";
    else if (!version)
        *why = "a WebSocket needs one Sec-WebSocket-Version";
    else if (!key_valid(single(req, "Sec-WebSocket-Key")))
        *why = "a WebSocket needs one Sec-WebSocket-Key of 16 bytes";
    if (*why)
        return 400;
    if (strcmp(version, "13") != 0) {
        *why = "only version 13 of the WebSocket protocol is spoken here";
        return 426;
    }
    return 0;
}

void ws_handshake_refuse(struct http_request *req, int status, const char *why)
{
    const struct http_header headers[] = {{"Content-Type", "text/plain;charset=utf-8"},
                                          {"Sec-WebSocket-Version", "13"},
                                          {"Upgrade", "websocket"}};
    http_response_close_after(req);
    http_respond_headers(req, status, headers, status == 426 ? 3 : 1, why, strlen(why));
}

void ws_accept_of(const char *key, char out[WS_ACCEPT_SIZE])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[WS_KEY_SIZE + sizeof guid];
    unsigned char hash[SHA1_BYTES];
    size_t n = MIN(strlen(key), (size_t)WS_KEY_SIZE - 1);
    memcpy(text, key, n);
    memcpy(text + n, guid, sizeof guid - 1);
    sha1(text, n + sizeof guid - 1, hash);
    out[base64_encode(out, hash, sizeof hash)] = '\0';
}

int ws_make_key(char out[WS_KEY_SIZE])
{
    unsigned char bytes[KEY_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return -errno;
    out[base64_encode(out, bytes, sizeof bytes)] = '\0';
    return 0;
}

int ws_accept(const struct ws_config *config, struct http_request *req, struct ws **ret)
{
    char accept[WS_ACCEPT_SIZE];
    struct buf head = BUF_INIT(1024), rest = BUF_INIT(REST_MAX);
    ws_accept_of(http_request_header(req, "Sec-WebSocket-Key"), accept);
    int r = buf_printf(&head,
                       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       "Sec-WebSocket-Accept: %s\r\n\r\n",
                       accept);
    auto_close int fd = http_hijack(req, &rest);
    if (fd < 0)
        r = fd;
    /* an empty send buffer takes so little at once; whoever filled it has not read our answers before */
    if (r == 0 &&
        send(fd, buf_data(&head), buf_len(&head), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)buf_len(&head))
        r = -EPIPE;
    if (r == 0)
        r = ws_new(config, take_fd(fd), &rest, ret);
    buf_done(&head);
    buf_done(&rest);
    return r;
}
