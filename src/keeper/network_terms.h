/* SPDX-License-Identifier: Apache-2.0 */
/* network_terms.h: on what terms a sandbox with a link goes out, and the file in its slot's directory that
 * tells a restarted keeper. */
#pragma once

#include "keeper/proto_network.h"

struct network_terms {
    bool listed; /* only where the policy's rules say; otherwise to public addresses */
    struct keeper_policy policy;
};

bool network_terms_plain(const struct network_terms *t); /* everywhere, without limits */
/* Written before the terms take effect. */
int network_terms_write(int slot_dir_fd, const struct network_terms *t, struct error *reterr);
/* What cannot be read is taken for the strictest: a list of nothing. No file: public, without limits. */
void network_terms_read(int slots_fd, unsigned slot, struct network_terms *ret);
