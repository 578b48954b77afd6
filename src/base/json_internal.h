/* SPDX-License-Identifier: Apache-2.0 */
/* json_internal.h: what a parsed value is, for json_read.c and json_write.c. */
#pragma once

#include "base/json.h"

#include <assert.h>

/* Values lie in the order of the text, a container right before its first child. Siblings are found by
 * distance, so a value needs no pointer to its document and the array may move while it grows. */
struct json_value {
    uint64_t type : 3;
    uint64_t next : 21;    /* distance to the next sibling, 0 = the last one */
    uint64_t key_len : 40; /* may count NULs, so strlen(key) would not do */
    const char *key;       /* NULL for the root and in arrays */
    union {
        double number;
        const char *string;
        bool boolean;
    };
    size_t len; /* bytes of a string, children of a container */
};

static_assert(sizeof(struct json_value) <= 32, "json.h promises 32 bytes a value");
static_assert(JSON_MAX_VALUES < 1 << 21, "next must hold every distance");

#define JSON_MAX_TEXT ((1ULL << 40) - 1) /* what key_len can hold */
