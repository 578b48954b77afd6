/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.h: forwarding a request to a service inside the sandbox. */
#pragma once

#include "net/http.h"

/* Forwards req, whose body has not been read, to a local port as `target`, and its answer back; both bodies
 * are streamed. refuse is called instead of an answer when the service cannot be reached or breaks off before
 * its answer begins: it ends req. */
void proxy_request(struct loop *loop, struct http_request *req, int port, const char *target,
                   void (*refuse)(struct http_request *req, int port, const char *why, void *arg), void *arg);
