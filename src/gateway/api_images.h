/* SPDX-License-Identifier: Apache-2.0 */
/* api_images.h: what the files of /v1/images share. */
#pragma once

#include "gateway/gateway_internal.h"
#include "gateway/images.h"

/* The IMAGE object, with the number of its sandboxes. */
void api_image_put(struct json_writer *w, struct gateway *g, const char *id);
/* CONFIG of docs/images.md for a KEEPER_IMAGE_SAVE: a memfd, or -1 when it is null. 0, or -EINVAL and *p. */
int api_image_changes(const struct json_value *config, int *ret_fd, struct problem *p);
