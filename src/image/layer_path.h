/* SPDX-License-Identifier: Apache-2.0 */
/* layer_path.h: the names in a layer's archive, made harmless. */
#pragma once

#include "base/error.h"
#include "image/tar_read.h"

enum { LAYER_DEPTH_MAX = 255, LAYER_SHOWN = 80 };

/* "./a//b/" becomes "a/b", the archive's root becomes "". -EBADMSG: absolute, "..", a part longer than a
 * file's name can be, or too deep. */
int layer_path_clean(const char *name, char ret[TAR_PATH_MAX], struct error *reterr);
/* A name for a sentence: printable ASCII, shortened. Returns out. */
const char *layer_path_show(const char *name, char out[LAYER_SHOWN + 1]);
/* Where the last part of a clean path begins. */
const char *layer_path_base(const char *path);

/* What a name means in a layer: deletions are files with special names. */
enum layer_mark { LAYER_MARK_NONE, LAYER_MARK_WHITEOUT, LAYER_MARK_OPAQUE, LAYER_MARK_IGNORED };
/* base: the last part; *ret_name: for a whiteout, what is deleted. */
enum layer_mark layer_mark_of(const char *base, const char **ret_name);
#define LAYER_WHITEOUT_PREFIX ".wh."
#define LAYER_OPAQUE_NAME     ".wh..wh..opq"
