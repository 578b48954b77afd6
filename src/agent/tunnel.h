/* SPDX-License-Identifier: Apache-2.0 */
/* tunnel.h: how the gateway reaches a port inside the sandbox. */
#pragma once

#include "agent/agent.h"

/* Takes a CONNECT that came over a unix socket; false: the request is none. */
bool tunnel_request(struct agent *a, struct http_request *req);
