/* SPDX-License-Identifier: Apache-2.0 */
/* test_image_alias.c: which names stand for our base image. */
#include "base/image_alias.h"
#include "test.h"

TEST(names)
{
    static const struct {
        const char *reference;
        int known; /* 2: with the server */
    } rows[] = {
        {"cloudflare/sandbox", 2},
        {"cloudflare/sandbox:0.12.10", 2},
        {"docker.io/cloudflare/sandbox:0.12.10-python", 2},
        {"docker.io/cloudflare/sandbox-python:1@sha256:abc", 2},
        {"ghcr.io/cloudflare/sandbox-runtime:main", 2},
        {"python:3.12-slim", 1},
        {"docker.io/library/node:22", 1},
        {"node", 1},
        {"debian@sha256:0123", 1},
        {"ubuntu:24.04", 1},
        {"scratch", 1},
        {"alpine:3", 0},
        {"mypython:3", 0},
        {"python/tools", 0},
        {"registry:5000/python", 0},
        {"example.org/cloudflare/sandbox", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct image_alias *a = image_alias_find(rows[i].reference);
        int known = !a ? 0 : a->server ? 2 : 1;
        if (known != rows[i].known) {
            printf("    %s: %d\n", rows[i].reference, known);
            CHECK(!"as in the table");
        }
    }
}
