/* SPDX-License-Identifier: Apache-2.0 */
/* build_cache.h: what builds have kept, for those who list and remove images. */
#pragma once

#include "client/silica.h"

bool build_cache_is_name(const char *name); /* of a result, which is nobody's choice */
/* Takes the names of all results away; images without another one are for the next prune. Best effort. */
void build_cache_forget(struct silica_client *c);
