/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_http_response.c (FUZ-07): responses in arbitrary cuts, to different requests: the same story, and only
 * well-formed heads. */
#include "http_story.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    story_compare(HTTP_KIND_RESPONSE, "GET", data, size);
    story_compare(HTTP_KIND_RESPONSE, "HEAD", data, size);
    story_compare(HTTP_KIND_RESPONSE, "CONNECT", data, size);
    return 0;
}
