/* SPDX-License-Identifier: Apache-2.0 */
/* http_head.h: from the bytes of one complete head to a struct http_head. For http_parse.c only. */
#pragma once

#include "net/http_parse.h"

/* Both return 0, or the status to answer with a reason. */
int http_first_line_check(enum http_kind kind, const char *line, size_t n, const char **ret_reason);
/* data: n bytes that the scanner accepted, from the first line to the empty line, with `lines` header lines.
 */
int http_head_read(const struct http_parser *p, const char *data, size_t n, size_t lines,
                   struct http_head **ret, const char **ret_reason);
