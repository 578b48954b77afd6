/* SPDX-License-Identifier: Apache-2.0 */
/* print.h: a JSON object as lines for people. */
#pragma once

#include <stdio.h>

/* "name: value" lines, nested objects as name.name, arrays as JSON; sizes (...Bytes) and times (...At) in
 * words behind the exact value. 0, -EBADMSG when json is no object, -ENOMEM. */
int print_members(FILE *out, const char *json);
/* On stdout, with spaces behind it up to width; what could steer a terminal becomes '?'. NULL is fine. */
void print_cell(const char *s, int width);
