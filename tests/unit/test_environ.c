/* SPDX-License-Identifier: Apache-2.0 */
/* test_environ.c: layers of an environment. */
#include "agent/environ.h"
#include "test.h"

#include <errno.h>

TEST(later_layers_win_and_keep_their_place)
{
    struct env_list e = {0};
    char *image[] = {"PATH=/bin", "A=1", NULL}, *session[] = {"A=2", "B=3", NULL};
    CHECK_INT(env_merge(&e, image), 0);
    CHECK_INT(env_merge(&e, session), 0);
    CHECK_INT(e.count, 3);
    CHECK_STREQ(e.vars[1], "A=2");
    CHECK_STREQ(env_get(&e, "B"), "3");
    CHECK(e.vars[3] == NULL);
    env_done(&e);
}

TEST(a_name_that_begins_another_name_is_another_name)
{
    struct env_list e = {0};
    CHECK_INT(env_set(&e, "AB", "long"), 0);
    CHECK(env_get(&e, "A") == NULL);
    CHECK_INT(env_set(&e, "A", ""), 0);
    CHECK_STREQ(env_get(&e, "A"), "");
    CHECK_STREQ(env_get(&e, "AB"), "long");
    env_done(&e);
}

TEST(values_may_contain_equal_signs_names_may_not)
{
    struct env_list e = {0};
    CHECK_INT(env_set(&e, "A", "x=y"), 0);
    CHECK_STREQ(env_get(&e, "A"), "x=y");
    CHECK_INT(env_set(&e, "A=B", "1"), -EINVAL);
    CHECK_INT(env_set(&e, "", "1"), -EINVAL);
    CHECK_INT(env_put(&e, "novalue"), -EINVAL);
    CHECK_INT(e.count, 1);
    env_done(&e);
}

TEST(an_absent_layer_changes_nothing)
{
    struct env_list e = {0};
    CHECK_INT(env_merge(&e, NULL), 0);
    CHECK_INT(e.count, 0);
    CHECK(e.vars == NULL);
    env_done(&e);
}

TEST(a_block_is_read_up_to_its_last_nul)
{
    struct env_list e = {0};
    static const char block[] = "A=1\0junk\0B=2\0C=cut";
    CHECK_INT(env_merge_block(&e, block, sizeof block - 1), 0);
    CHECK_INT(e.count, 2);
    CHECK_STREQ(env_get(&e, "A"), "1");
    CHECK_STREQ(env_get(&e, "B"), "2");
    CHECK(env_get(&e, "C") == NULL);
    env_done(&e);
}

TEST(the_number_of_variables_is_bounded)
{
    struct env_list e = {0};
    char name[16];
    int r = 0;
    for (int i = 0; i < ENV_MAX_VARS; i++) {
        (void)snprintf(name, sizeof name, "V%d", i);
        r |= env_set(&e, name, "");
    }
    CHECK_INT(r, 0);
    CHECK_INT(env_set(&e, "ONE_MORE", ""), -E2BIG);
    CHECK_INT(env_set(&e, "V0", "again"), 0);
    env_done(&e);
}

TEST(names_follow_the_shell_s_rule)
{
    const char *const good[] = {"A", "_", "a1", "_9Z"}, *const bad[] = {"", "1A", "A-B", "A B", "A=", "Ä"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK(env_name_valid(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(!env_name_valid(bad[i]));
}
