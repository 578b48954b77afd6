/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_dockerfile.c: no Dockerfile crashes the parser, and everything a plan is made of fits together. */
#include "builder/plan.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static int find_image(const char *reference, struct base_image *ret, void *user, struct error *reterr)
{
    (void)user;
    (void)reterr;
    *ret = (struct base_image){.name = strdup(reference), .identity = strdup("i")};
    ret->server = strchr(reference, 's') != NULL;
    return ret->name && ret->identity ? 0 : -ENOMEM;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dockerfile d;
    struct plan plan;
    struct words none = {0};
    struct error e = {0};
    if (dockerfile_parse((const char *)data, size, &d, &e) < 0) {
        require(e.msg[0] && e.code > 0);
        return 0;
    }
    for (size_t i = 0; i < d.count; i++)
        require(d.items[i].line > 0 && d.items[i].text && d.items[i].rest);
    struct plan_input in = {
        .dockerfile = &d, .args = &none, .architecture = "amd64", .find_image = find_image};
    e = (struct error){0};
    if (plan_make(&in, &plan, &e) == 0) {
        require(plan.count > 0 && plan.target < plan.count);
        for (size_t i = 0; i < plan.stages[plan.target].count; i++)
            require(strlen(plan.stages[plan.target].steps[i].key) == DIGEST_HEX);
        plan_done(&plan);
    } else {
        require(e.msg[0]);
    }
    dockerfile_done(&d);
    return 0;
}
