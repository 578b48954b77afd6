/* SPDX-License-Identifier: Apache-2.0 */
/* account.h: who runs the commands of a sandbox: a user of its image, found as `docker run --user` finds him.
 */
#pragma once

#include "base/error.h"

enum { ACCOUNT_GROUPS_MAX = 32, ACCOUNT_NAME_MAX = 32, ACCOUNT_HOME_MAX = 255, ACCOUNT_ID_MAX = 65535 };

struct account {
    uint32_t uid, gid;
    uint32_t group_count, groups[ACCOUNT_GROUPS_MAX]; /* besides gid */
    char name[ACCOUNT_NAME_MAX + 1];                  /* the number when passwd has no name */
    char home[ACCOUNT_HOME_MAX + 1];
};

/* text: NAME or NUMBER, perhaps with ":" and a group's. passwd, group: the text of the files, NULL when there
 * is none. A number needs no entry (its group is 0 then), a name does: -ENOENT. With a group of its own the
 * account is in no others. */
int account_find(const char *text, const char *passwd, const char *group, struct account *ret,
                 struct error *reterr);
/* The same with this machine's files. */
int account_read(const char *text, struct account *ret, struct error *reterr);

/* From now on this thread's files are the account's: what it makes belongs to the account, what the account
 * may not reach it cannot either, and in /proc it sees the account's processes. Its rights over processes and
 * ids stay. */
int account_assume(const struct account *a);
