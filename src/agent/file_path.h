/* SPDX-License-Identifier: Apache-2.0 */
/* file_path.h: paths as clients send them: checking, decoding, joining. Pure. */
#pragma once

#include "base/util.h"

#include <limits.h>

enum { FILE_PATH_UNITS_MAX = 4096 }; /* UTF-16 code units, as the protocol counts */

enum file_path_problem {
    FILE_PATH_EMPTY = 1, /* or no string at all */
    FILE_PATH_NUL = 2,
    FILE_PATH_LONG = 4,
};

/* The problems of a path of n bytes, or-ed; 0: none. path NULL: FILE_PATH_EMPTY. */
unsigned file_path_problems(const char *path, size_t n);
/* The sentence for one problem. */
const char *file_path_problem_text(enum file_path_problem problem);

/* out = path, or cwd/path when it is relative. 0 or -ENAMETOOLONG (the kernel would say so, too). */
int file_path_join(char out[PATH_MAX], const char *cwd, const char *path);

/* A path in a URL: "/" and the percent-decoded text, any bytes but NUL. 0, -EINVAL (broken escape, NUL,
 * nothing) or -ENAMETOOLONG. */
int file_path_decode(char out[PATH_MAX], const char *encoded);

/* Where the last part of the path begins, not counting slashes behind it, and its length (0 for "/"). */
const char *file_path_last(const char *path, size_t *ret_len);
