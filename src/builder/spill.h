/* SPDX-License-Identifier: Apache-2.0 */
/* spill.h: temporary files without a name, for what is on its way to or from a sandbox. */
#pragma once

#include "base/error.h"

int spill_open(struct error *reterr); /* the descriptor, or negative; in $TMPDIR, else /tmp */
/* All n bytes; fd points to the descriptor. A tar_sink. */
int spill_write(void *fd, const void *data, size_t n, struct error *reterr);
