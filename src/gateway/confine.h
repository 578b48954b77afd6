/* SPDX-License-Identifier: Apache-2.0 */
/* confine.h: giving up every right the gateway does not need. */
#pragma once

#include "gateway/gateway.h"

/* Closes all descriptors but the configured ones, makes state_dir_fd the root directory, becomes config->uid
 * for good and loads the seccomp filter. Single-threaded callers only. With uid 0 (tests) only limits and the
 * working directory are set. The program must not go on when it fails. */
int confine(const struct gateway_config *config, struct error *reterr);
