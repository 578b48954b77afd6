/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: bytes from a descriptor, unpacked when they are gzip or zstd, with the digests of both sides. */
#pragma once

#include "image/sha256.h"

struct source;

/* Reads fd (which stays the caller's) from where it is. limit: of the unpacked bytes; beyond: -E2BIG. plain:
 * do not look for a compression. */
int source_new(int fd, uint64_t limit, bool plain, struct source **ret, struct error *reterr);
void source_free(struct source *s); /* NULL is fine */

/* A tar_source: arg is the source. 0 at the end; -EBADMSG: the compressed data is damaged or cut off. */
ssize_t source_read(void *arg, void *data, size_t n, struct error *reterr);
/* Reads what is left, then tells the digests of the bytes as they came and of what they were unpacked to. */
int source_finish(struct source *s, unsigned char ret_raw[SHA256_BYTES],
                  unsigned char ret_plain[SHA256_BYTES], struct error *reterr);
uint64_t source_raw_bytes(const struct source *s);
uint64_t source_plain_bytes(const struct source *s);
