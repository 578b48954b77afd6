/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: what the gateway counts about itself. Never by id, token or path: the number of series is fixed.
 */
#pragma once

#include "base/util.h"

enum route_class {
    CLASS_OTHER, /* also unknown paths */
    CLASS_HEALTH,
    CLASS_SANDBOX, /* sandboxes as things */
    CLASS_API,     /* passed on to an agent */
    CLASS_EVENTS,
    CLASS_TOKEN,
    CLASS_METRICS,
    CLASS_PREVIEW,
    CLASS_VOLUME,
    CLASS_IMAGE,
    CLASS_COUNT,
};

struct metrics {
    uint64_t requests[CLASS_COUNT][6]; /* by the first digit of the status; 0: no answer */
    uint64_t in_flight;
    uint64_t bytes_to_agents, bytes_from_agents; /* bodies */
    uint64_t auth_failures, auth_throttled;
};
