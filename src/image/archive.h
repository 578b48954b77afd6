/* SPDX-License-Identifier: Apache-2.0 */
/* archive.h: an image archive (the tar around everything) taken apart: its files are written to numbered
 * files in the working directory, its names stay in memory. */
#pragma once

#include "base/buf.h"
#include "image/sha256.h"

enum { ARCHIVE_FILES_MAX = 16384, ARCHIVE_JSON_MAX = 8 * 1024 * 1024 };

struct archive;

/* Reads fd to its end: tar, perhaps compressed. limit: of all its bytes. progress may be NULL. */
int archive_read(int fd, uint64_t limit, void (*progress)(void *arg, uint64_t bytes), void *arg,
                 struct archive **ret, struct error *reterr);
void archive_free(struct archive *a); /* and removes the files; NULL is fine */

bool archive_has(const struct archive *a, const char *name);
/* -EBADMSG: there is no such file. *ret_size may be NULL. */
int archive_open(const struct archive *a, const char *name, int *ret_fd, uint64_t *ret_size,
                 struct error *reterr);
/* A whole small file. */
int archive_text(const struct archive *a, const char *name, struct buf *ret, struct error *reterr);
/* The same for "blobs/sha256/<hex>", whose content is checked against its name. */
int archive_blob(const struct archive *a, const unsigned char digest[SHA256_BYTES], struct buf *ret,
                 struct error *reterr);
void archive_blob_name(const unsigned char digest[SHA256_BYTES], char ret[16 + SHA256_HEX]);
