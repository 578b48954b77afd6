/* SPDX-License-Identifier: Apache-2.0 */
/* test_process_tag.c: ranges of tags, and that a tag is inherited and read back. */
#include "agent/agent.h"
#include "test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

TEST(sessions_have_disjoint_ranges_and_members_are_inside)
{
    struct agent a = {.tag_base = 1ULL << 62 | 7ULL << 40};
    struct process_tag one = process_tag_new(&a), two = process_tag_new(&a), all = process_tags_all(&a);
    CHECK(one.first == a.tag_base && one.last < two.first && two.last <= all.last);
    struct process_tag first = process_tag_member(&one, 1), second = process_tag_member(&one, 2);
    CHECK(first.first == first.last && first.last < one.last && first.first >= one.first);
    CHECK(second.last == first.last - 1); /* lower: limits only ever go down */
    CHECK(process_tag_member(&one, (1U << 20) - 1).first == one.first);
    CHECK(process_tag_member(&one, 1U << 20).last == 0);
}

TEST(without_tags_there_are_none)
{
    struct agent a = {0};
    struct process_tag none = process_tag_new(&a);
    CHECK(none.last == 0 && process_tag_member(&none, 1).last == 0 && process_tags_all(&a).last == 0);
}

TEST(tags_run_out_instead_of_running_over)
{
    struct agent a = {.tag_base = 1ULL << 62, .tag_next = (1U << 20) - 1};
    CHECK(process_tag_new(&a).last == process_tags_all(&a).last);
    CHECK(process_tag_new(&a).last == 0);
}

TEST(a_tag_is_read_back_from_a_process)
{
    struct rlimit now;
    CHECK_INT(getrlimit(RLIMIT_LOCKS, &now), 0);
    if (now.rlim_max != RLIM_INFINITY) {
        test_skip("the limit of file locks is used by somebody");
        return;
    }
    CHECK(process_tag_read(getpid()) == 0);
    int gate[2];
    CHECK_INT(pipe(gate), 0);
    pid_t child = fork();
    if (child == 0) {
        rlim_t tag = (1ULL << 62) + 123;
        (void)setrlimit(RLIMIT_LOCKS, &(struct rlimit){tag, tag});
        (void)!write(gate[1], "x", 1);
        for (;;)
            (void)pause();
    }
    char c;
    CHECK_INT(read(gate[0], &c, 1), 1);
    CHECK(process_tag_read(child) == (1ULL << 62) + 123);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    CHECK(process_tag_read(child) == 0);
    (void)close(gate[0]);
    (void)close(gate[1]);
}
