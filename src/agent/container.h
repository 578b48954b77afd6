/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* container.h: what makes a container of a sandbox: a main program, processes beside it, files in and out as tar.
 *
 * The gateway's engine (src/gateway/docker_*.c) is the only caller: requests below /container/ are served on the unix
 * socket alone. Answers are those of the engine's API, so that the gateway need not look at them:
 *
 *     POST /container/start    {"argv":["/sandbox"],"cwd":"/"}     200, 400 the program cannot be run; twice is fine
 *     POST /container/signal?n=15                                  204, 409 nothing runs
 *     GET  /container/logs?stdout=1&stderr=1&follow=1              200, what the program wrote last, in frames
 *     POST /container/exec?id=ID   the body of /containers/N/exec  201
 *     POST /container/exec/ID/start | /resize?h=&w=, GET /container/exec/ID/json
 *     PUT  /container/archive?path=/etc    a tar                   200, 404 no such directory
 *     GET  /container/archive?path=/etc                            200 a tar, 404 */
/* clang-format on */
#pragma once

#include "agent/agent.h"
#include "base/json.h"

/* Takes a request below /container/ that came over a unix socket; false: it is none. */
bool container_request(struct agent *a, struct http_request *req);

/* {"message":"..."} */
void container_refuse(struct http_request *req, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* main_command.c */
void main_command_start(struct agent *a, struct http_request *req, const struct json_value *body);
void main_command_signal(struct agent *a, struct http_request *req);
void main_command_logs(struct agent *a, struct http_request *req);
void main_command_logs(struct agent *a, struct http_request *req);
const char *main_command_cwd(const struct agent *a); /* where its programs start; "/" before it is known */
void main_command_free(struct agent *a);

/* container_exec.c */
void container_exec_create(struct agent *a, struct http_request *req, const struct json_value *body);
/* what: "/start", "/resize" or "/json" */
void container_exec_request(struct agent *a, struct http_request *req, const char *id, const char *what,
                            const struct json_value *body);
void container_execs_free(struct agent *a);

/* container_archive.c */
void container_archive_put(struct agent *a, struct http_request *req);
void container_archive_get(struct agent *a, struct http_request *req);

/* A NULL-terminated copy of a list of strings, to be freed with strings_free. -EINVAL: it is none, or empty.
 */
int strings_from_json(const struct json_value *list, char ***ret);
void strings_free(char **list); /* NULL is fine */
