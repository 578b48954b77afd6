/* SPDX-License-Identifier: Apache-2.0 */
/* file_mime.h: MIME types of files, by name and by content; which of them are text. */
#pragma once

#include "base/util.h"

enum { FILE_MIME_SAMPLE = 64 * 1024 }; /* how much of a file is looked at */

/* By the extension of the last part of the path (case-sensitive, none in ".profile"); NULL when it is
 * unknown. */
const char *file_mime_by_name(const char *path);

/* By the first n bytes (FILE_MIME_SAMPLE are enough); whole: there are no more. The names are those that
 * file(1) gives. Text is what is valid UTF-8 without control characters that have no place in a text: in any
 * other encoding it is application/octet-stream, so that nothing is lost by decoding it. */
const char *file_mime_by_content(const void *data, size_t n, bool whole);

/* True when a file of this type is read as text. */
bool file_mime_is_text(const char *mime);
