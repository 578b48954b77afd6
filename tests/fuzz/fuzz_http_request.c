/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_http_request.c (FUZ-01): requests in arbitrary cuts: the same story, and only well-formed heads. */
#include "http_story.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    story_compare(HTTP_KIND_REQUEST, "GET", data, size);
    return 0;
}
