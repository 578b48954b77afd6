/* SPDX-License-Identifier: Apache-2.0 */
/* base_images.h: which image of the server a FROM means. */
#pragma once

#include "builder/plan.h"
#include "client/silica.h"

/* An image of that name, else what stands for a well-known name (image_alias.h), else a sentence that names
 * what there is. client: a struct silica_client, as plan_input.user. */
int base_images_find(const char *reference, struct base_image *ret, void *client, struct error *reterr);
