/* SPDX-License-Identifier: Apache-2.0 */
/* file_range.h: conditional and partial requests for a file (RFC 9110, sections 8.8, 13 and 14). */
#pragma once

#include "net/http.h"

#include <sys/stat.h>

struct file_validators {
    char etag[64];     /* quoted; changes with inode, size and time */
    char modified[32]; /* IMF-fixdate */
    int64_t second;
};
void file_validators_make(struct file_validators *v, const struct stat *st);

/* True when the client has this very file: the answer is 304. */
bool file_not_modified(const struct http_request *req, const struct file_validators *v);

enum file_range_kind {
    FILE_RANGE_WHOLE, /* no range, several, an unknown unit, or If-Range says no: the whole file */
    FILE_RANGE_PART,
    FILE_RANGE_NONE, /* 416 */
};

struct file_range {
    enum file_range_kind kind;
    uint64_t first, len;
};
struct file_range file_range_of(const struct http_request *req, const struct file_validators *v,
                                uint64_t size);

/* The value of a Range header alone; pure. */
struct file_range file_range_parse(const char *value, uint64_t size);
