/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h: listening and connected sockets by name, descriptors over unix sockets. */
#pragma once

#include "base/error.h"

#include <poll.h>

/* "HOST:PORT" with a numeric HOST ("127.0.0.1:8787", "[::1]:8787", "0.0.0.0:80"); port 0 lets the kernel
 * choose. */
int socket_listen_tcp(const char *address, int *ret_fd, struct error *reterr);
/* Path socket, mode 0600; an existing socket file that nobody listens on is replaced. type: SOCK_STREAM or
 * SOCK_SEQPACKET. */
int socket_listen_unix(const char *path, int type, int *ret_fd, struct error *reterr);
/* "unix:PATH" (SOCK_STREAM) or as for socket_listen_tcp. An address that is taken is tried again for two
 * seconds: of a server that was killed some process may hold it for a moment longer. Blocking. */
int socket_listen_patiently(const char *where, int *ret_fd, struct error *reterr);
int socket_connect_unix(const char *path, int type, int *ret_fd,
                        struct error *reterr); /* blocking connect, then non-blocking */
/* "HOST:PORT" as above, or a name that getaddrinfo knows (CLI only); blocking. */
int socket_connect_tcp(const char *host, const char *port, int timeout_ms, int *ret_fd, struct error *reterr);
/* The bound address as "127.0.0.1:8787". */
int socket_local_name(int fd, char *out, size_t cap);
bool socket_is_loopback(int fd); /* bound to 127/8, ::1 or a unix path */
/* As poll(2), but no signal ends it before its time. */
int poll_patiently(struct pollfd *fds, nfds_t n, int timeout_ms);

/* One message with at most one descriptor (fd < 0: none). */
ssize_t socket_send_fd(int sock, const void *data, size_t n, int fd);
/* *ret_fd is -1 when none came; more than one descriptor: all closed, -EBADMSG. A truncated message:
 * -EMSGSIZE. 0 = end. */
ssize_t socket_recv_fd(int sock, void *data, size_t n, int *ret_fd);
