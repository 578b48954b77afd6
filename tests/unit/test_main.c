/* SPDX-License-Identifier: Apache-2.0 */
/* test_main.c: runs the registered tests (or those whose name contains argv[1]) and prints the count. */
#include "test.h"

#include <stdlib.h>

static struct test *first;
static const char *skip_reason;
bool test_failed;

void test_register(struct test *t)
{
    struct test **p = &first;
    while (*p)
        p = &(*p)->next;
    *p = t;
}

void test_fail(const char *file, int line, const char *what)
{
    test_failed = true;
    printf("    %s:%d: %s\n", file, line, what);
}

void test_skip(const char *reason)
{
    skip_reason = reason;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0;
    for (struct test *t = first; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1]))
            continue;
        test_failed = false;
        skip_reason = NULL;
        t->run();
        if (test_failed) {
            failed++;
            printf("FAIL %s\n", t->name);
        } else if (skip_reason) {
            skipped++;
            printf("skip %s: %s\n", t->name, skip_reason);
        } else {
            passed++;
        }
        (void)fflush(stdout);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
