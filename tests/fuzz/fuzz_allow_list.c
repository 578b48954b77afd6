/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_allow_list.c: an entry that is accepted reads the same again, opens nothing that no list can open, and
 * its name matches itself and no longer one. */
#include "gateway/allow_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[512], out[ALLOW_ENTRY_CHARS + 1], again[ALLOW_ENTRY_CHARS + 1], longer[DNS_NAME_MAX + 16];
    struct allow_list *l = NULL;
    struct keeper_policy p = {0};
    uint16_t ports[ALLOW_PORTS_MAX];
    if (size >= sizeof text || memchr(data, '\0', size))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (allow_entry_check(text, out, NULL) < 0)
        return 0;
    require(allow_entry_check(out, again, NULL) == 0 && strcmp(out, again) == 0);
    require(allow_list_parse(out, &l, NULL) == 0);
    allow_list_rules(l, &p);
    require(keeper_policy_ok(&p) && p.rule_count <= 1);
    if (!p.rule_count && out[0] != '*') {
        char *colon = strchr(out, ':');
        if (colon)
            *colon = '\0';
        require(allow_list_ports(l, out, ports) == 1);
        (void)snprintf(longer, sizeof longer, "%s.evil", out);
        require(allow_list_ports(l, longer, ports) == 0);
    }
    allow_list_free(l);
    return 0;
}
