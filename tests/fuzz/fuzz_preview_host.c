/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_preview_host.c (FUZ-08): a host name that is taken for a preview's reads back as the same name.
 *
 * Input: the host, for a domain of one label and one of three. */
#include "gateway/preview_host.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check(const char *host, const char *domain)
{
    struct preview_host h, again;
    char name[512];
    struct error e;
    if (preview_host_parse(host, domain, &h) != PREVIEW_HOST_NAMED)
        return;
    require(h.port >= PREVIEW_PORT_MIN && h.port <= PREVIEW_PORT_MAX && preview_token_ok(h.token));
    require(sandbox_id_check(h.id, &e) == 0 && preview_name_check(h.id, h.token, h.port, &e) == 0);
    (void)snprintf(name, sizeof name, "%d-%s-%s.%s", h.port, h.id, h.token, domain);
    size_t n = strcspn(host, ":");
    require(n == strlen(name) && strncasecmp(name, host, n) == 0);
    require(preview_host_parse(name, domain, &again) == PREVIEW_HOST_NAMED);
    require(again.port == h.port && strcmp(again.id, h.id) == 0 && strcmp(again.token, h.token) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *host = malloc(size + 1); /* of exactly this size: reading beyond it is seen */
    require(host != NULL);
    memcpy(host, data, size);
    host[size] = '\0';
    check(host, "localhost");
    check(host, "box.example.com");
    (void)preview_domain_check(host, &(struct error){0});
    free(host);
    return 0;
}
