/* SPDX-License-Identifier: Apache-2.0 */
/* remote.h: what a build asks the server for: images, and sandboxes to run its steps in. */
#pragma once

#include "base/buf.h"
#include "builder/plan.h"
#include "client/silica.h"

enum { BOX_ID_SIZE = 32, IMAGE_TEXT_MAX = 256 };

/* Where a sandbox keeps what a step needs for a moment; on its disk, and gone before it is saved. */
#define BOX_SCRATCH "/.silica-build"

/* The name of images that are results of builds and their steps; the tag is a key. */
#define BUILD_CACHE_NAME "silica-build"

/* All return 0 or negative with a sentence. */

/* 1: there is such an image, and *ret (not NULL) is what the server says about it; 0: there is none. */
int remote_image(struct silica_client *c, const char *name, char **ret_json, struct error *reterr);
/* An image of what a sandbox is now (sandbox not NULL), or of another image's files; config may be NULL. name
 * may be NULL. *ret_id is the new image's. */
int remote_save(struct silica_client *c, const char *sandbox, const char *image, const char *name,
                const struct image_config *config, char ret_id[IMAGE_TEXT_MAX], struct error *reterr);
int remote_tag(struct silica_client *c, const char *image, const char *name, struct error *reterr);
/* Takes the names that begin with prefix away from all but the `keep` newest images that have one. The image
 * called spare (may be NULL) does not count. Best effort. */
void remote_forget(struct silica_client *c, const char *prefix, const char *spare, size_t keep);

/* network: "none", "public" or NULL for the server's default. -ENONET: the server has none to give. */
int remote_box(struct silica_client *c, const char *id, const char *image, const char *network,
               struct error *reterr);
void remote_box_end(struct silica_client *c, const char *id); /* best effort */
/* Ends sandboxes that builds have left behind; best effort. */
void remote_sweep(struct silica_client *c);
/* Runs words in a sandbox; what they print goes to `output` (NULL: nowhere). */
int remote_run(struct silica_client *c, const char *id, const struct words *argv, const struct words *env,
               const char *directory, silica_output output, void *user, int *ret_exit_code,
               struct error *reterr);
/* fd is read from its beginning / appended to. */
int remote_upload(struct silica_client *c, const char *id, const char *path, int fd, struct error *reterr);
int remote_download(struct silica_client *c, const char *id, const char *path, int fd, struct error *reterr);
