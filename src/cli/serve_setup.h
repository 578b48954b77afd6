/* SPDX-License-Identifier: Apache-2.0 */
/* serve_setup.h: what `silica serve` needs on disk before it can serve. */
#pragma once

#include "base/error.h"

/* The data directory (0711: the gateway's own directory lies below it), the run directory (0700), the
 * images'. */
int serve_directories(const char *data_dir, const char *run_dir, const char *images_dir,
                      struct error *reterr);
/* The hash of the token: of the one given, of the one in <data>/admin.token, or of a new one written there.
 */
int serve_token(const char *data_dir, const char *given, unsigned char hash[32], bool *ret_made,
                struct error *reterr);
/* The path of silica-agent in this program's own directory. */
int serve_agent_beside(char *out, size_t cap, struct error *reterr);
