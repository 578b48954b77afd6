/* SPDX-License-Identifier: Apache-2.0 */
/* image_files.h: an image's archive from a file, a directory or standard input, as a body to send. */
#pragma once

#include "base/error.h"
#include "client/silica.h"

struct image_files;

/* path: a tar archive, a directory with an OCI layout, or "-". */
int image_files_open(const char *path, struct image_files **ret, struct error *reterr);
void image_files_free(struct image_files *f); /* NULL is fine */

int64_t image_files_bytes(const struct image_files *f); /* all of it; -1: not known */
int64_t image_files_sent(const struct image_files *f);
/* For struct silica_upload: user is the struct image_files. */
long image_files_read(void *data, size_t n, void *user);
const char *image_files_problem(const struct image_files *f); /* why a read failed */
