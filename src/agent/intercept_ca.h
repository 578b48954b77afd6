/* SPDX-License-Identifier: Apache-2.0 */
/* intercept_ca.h: trusting the certificate authority of whoever reads the sandbox's HTTPS traffic, when the
 * environment says so (SANDBOX_INTERCEPT_HTTPS=1; SANDBOX_CA_CERT names its file). */
#pragma once

#include "agent/agent.h"

enum { INTERCEPT_CA_WAIT_MS = 5000, INTERCEPT_CA_LOOK_MS = 50 };

bool intercept_ca_wanted(const struct agent *a);
/* Adds the certificate to the image's bundles and tells programs where these are. -ENOENT: it is not there
 * yet; it may come within INTERCEPT_CA_WAIT_MS. */
int intercept_ca_take(struct agent *a, struct error *reterr);
