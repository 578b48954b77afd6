/* SPDX-License-Identifier: Apache-2.0 */
/* test_unwritten.c: LEAK-15: memory that nobody has written carries the patterns which tests/unwritten.py
 * looks for in answers. */
#include "base/util.h"
#include "test.h"

enum { SIZE = 64 };

/* The compiler must not know what is in it. */
static void hide(void *p)
{
    __asm__ volatile("" : "+m"(*(char(*)[SIZE])p) : : "memory");
}

static bool is_all(const unsigned char *p, unsigned char byte)
{
    for (size_t i = 0; i < SIZE; i++)
        if (p[i] != byte)
            return false;
    return true;
}

TEST(LEAK_15_fresh_memory_has_a_pattern)
{
#ifdef __SANITIZE_ADDRESS__
    unsigned char stack[SIZE];
    hide(stack);
    CHECK(is_all(stack, 0xfe));
    auto_free unsigned char *heap = malloc(SIZE);
    REQUIRE(heap);
    hide(heap);
    CHECK(is_all(heap, 0xbe));
#else
    (void)hide;
    (void)is_all;
    test_skip("only builds with the address sanitizer fill memory");
#endif
}
