/* SPDX-License-Identifier: Apache-2.0 */
/* tls.h: HTTPS: TLS connections, ended here, whose plain bytes the HTTP server gets through a pair of
 * sockets.
 *
 * The HTTP server knows nothing of TLS: it is handed one end of a socketpair as if it had accepted it, and
 * everything it can do with a connection (back pressure, taking the socket away for a tunnel) works as ever.
 */
#pragma once

#include "gateway/gateway_boot.h"
#include "net/http.h"

struct tls_contexts;
struct tls_server;

/* tls_context.c: an SSL_CTX for HTTP/1.1 servers without a certificate yet; NULL: out of memory. */
void *tls_http_context(void);
/* tls_context.c: certificates with their keys, chosen by the name that the client asks for; the first is for
 * all others. */
int tls_contexts_new(const void *files, size_t n, struct tls_contexts **ret, struct error *reterr);
/* The same from a descriptor with a struct gateway_tls and the texts behind it. */
int tls_contexts_read(int fd, struct tls_contexts **ret, struct error *reterr);
void tls_contexts_free(struct tls_contexts *t); /* NULL is fine; connections that use them go on */
void *tls_contexts_session(struct tls_contexts *t, int fd); /* an SSL for a connection, NULL: out of memory */

/* tls_server.c. Takes the contexts. */
int tls_server_new(struct loop *loop, struct http_server *http, struct tls_contexts *contexts,
                   struct tls_server **ret, struct error *reterr);
int tls_server_listen(struct tls_server *s, int listen_fd,
                      struct error *reterr); /* takes a non-blocking listening socket */
void tls_server_use(struct tls_server *s,
                    struct tls_contexts *contexts); /* for new connections; takes them */
void tls_server_stop_listening(struct tls_server *s);
void tls_server_free(struct tls_server *s); /* NULL is fine; before the HTTP server */
