/* SPDX-License-Identifier: Apache-2.0 */
/* file_routes.h: the handlers of the file routes; all of them read the body themselves. */
#pragma once

#include "agent/routes.h"

route_handler route_read, route_read_stream, route_write, route_delete, route_rename, route_move, route_mkdir,
    route_list_files, route_exists, route_resolve;

/* Plain bodies instead of JSON: /file/<absolute path without its first slash, percent-encoded>. */
route_handler route_file_get, route_file_put, route_file_delete;
