/* SPDX-License-Identifier: Apache-2.0 */
/* file_error.h: what a failed system call means in the words of the protocol. Pure. */
#pragma once

#include "base/util.h"

/* The error code for -errno or errno, e.g. "NO_SPACE"; what has no code of its own is "FILESYSTEM_ERROR". */
const char *file_error_code(int err);
/* "ENOSPC: No space left on device, write '/workspace/x'", cut to fit. */
void file_error_text(char *out, size_t cap, int err, const char *verb, const char *path);
/* True when err says that there is nothing (that could be a file) at the path. */
bool file_error_absent(int err);
