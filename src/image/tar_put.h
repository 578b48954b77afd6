/* SPDX-License-Identifier: Apache-2.0 */
/* tar_put.h: writing tar archives, the same bytes for the same entries: ustar, with pax headers where it is
 * not enough. Times are cut to seconds. */
#pragma once

#include "image/tar_read.h"

/* Takes all n bytes or fails. */
typedef int tar_sink(void *arg, const void *data, size_t n, struct error *reterr);

/* The header of an entry; e->size bytes of content must follow for files, then tar_put_pad. */
int tar_put_header(const struct tar_entry *e, tar_sink *sink, void *arg, struct error *reterr);
int tar_put_pad(uint64_t size, tar_sink *sink, void *arg, struct error *reterr); /* up to a whole block */
int tar_put_end(tar_sink *sink, void *arg, struct error *reterr);
