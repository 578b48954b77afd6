/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_account.c: whatever an image has in its passwd and group, an account that is found can be used: ids in
 * range, strings that end, a home that is a path.
 *
 * Input: the user, newline, passwd, a NUL, group. */
#include "agent/account.h"

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
    struct account a;
    struct error e;
    auto_free char *text = malloc(size + 2);
    require(text != NULL);
    if (size)
        memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    char *passwd = strchr(text, '\n');
    if (!passwd)
        return 0;
    *passwd++ = '\0';
    const char *group = passwd + strlen(passwd);
    group += group < text + size;
    if (account_find(text, passwd, group, &a, &e) < 0) {
        require(e.msg[0] != '\0');
        return 0;
    }
    require(a.uid <= ACCOUNT_ID_MAX && a.gid <= ACCOUNT_ID_MAX && a.group_count <= ACCOUNT_GROUPS_MAX);
    for (uint32_t i = 0; i < a.group_count; i++)
        require(a.groups[i] <= ACCOUNT_ID_MAX && a.groups[i] != a.gid);
    require(strnlen(a.name, sizeof a.name) < sizeof a.name && strnlen(a.home, sizeof a.home) < sizeof a.home);
    require(a.home[0] == '/' && !strchr(a.home, '\n') && !strchr(a.name, '\n') && !strchr(a.name, ':'));
    return 0;
}
