/* SPDX-License-Identifier: Apache-2.0 */
/* test_spool.c: bytes in memory, bytes in a file, and the border between them. */
#include "agent/spool.h"
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

static const char *const dirs[] = {"/tmp", NULL}, *const no_dirs[] = {"/nonexistent", NULL};

static struct spool_pool make_pool(uint64_t cap, const char *const *where)
{
    return (struct spool_pool){.cap_bytes = cap, .memory_max_bytes = 1 << 20, .dirs = where};
}

static void append(struct spool *s, const char *text)
{
    spool_append(s, text, strlen(text));
}

TEST(what_was_appended_is_read_from_any_offset)
{
    struct spool_pool pool = make_pool(1 << 20, dirs);
    struct spool *s = spool_new(&pool);
    char text[16] = "";
    append(s, "hello ");
    append(s, "world");
    CHECK_INT(spool_end(s), 11);
    CHECK_INT(spool_read(s, 3, text, 5), 5);
    CHECK(memcmp(text, "lo wo", 5) == 0);
    CHECK_INT(spool_read(s, 9, text, 16), 2);
    CHECK_INT(spool_read(s, 11, text, 16), 0);
    CHECK_INT(spool_read(s, 99, text, 16), 0);
    spool_unref(s);
    CHECK_INT(pool.memory_bytes, 0);
}

TEST(large_content_moves_to_a_file_unchanged)
{
    struct spool_pool pool = make_pool(1 << 30, dirs);
    struct spool *s = spool_new(&pool);
    enum { PIECE = 5000, COUNT = 200 };
    unsigned char piece[PIECE], back[PIECE];
    for (int i = 0; i < COUNT; i++) {
        memset(piece, i, sizeof piece);
        spool_append(s, piece, sizeof piece);
    }
    CHECK_INT(spool_end(s), (long long)PIECE * COUNT);
    CHECK_INT(spool_begin(s), 0);
    CHECK_INT(pool.memory_bytes, 0); /* it is all in the file */
    for (int i = 0; i < COUNT; i++) {
        memset(piece, i, sizeof piece);
        CHECK_INT(spool_read(s, (uint64_t)i * PIECE, back, PIECE), PIECE);
        CHECK(memcmp(piece, back, PIECE) == 0);
    }
    spool_unref(s);
}

TEST(a_pool_out_of_memory_uses_files_at_once)
{
    struct spool_pool pool = make_pool(1 << 20, dirs);
    pool.memory_max_bytes = 0;
    struct spool *s = spool_new(&pool);
    char c = 0;
    append(s, "x");
    CHECK_INT(pool.memory_bytes, 0);
    CHECK_INT(spool_read(s, 0, &c, 1), 1);
    CHECK_INT(c, 'x');
    spool_unref(s);
}

TEST(beyond_the_cap_the_newest_bytes_are_kept)
{
    struct spool_pool pool = make_pool(4, dirs);
    struct spool *s = spool_new(&pool);
    char text[8] = "";
    append(s, "abc");
    append(s, "def");
    CHECK_INT(spool_end(s), 6);
    CHECK_INT(spool_begin(s), 2);
    CHECK_INT(spool_capacity(s), 4);
    CHECK_INT(spool_read(s, 1, text, 8), -ESTALE);
    CHECK_INT(spool_read(s, 2, text, 8), 4); /* across the seam */
    CHECK_STREQ(text, "cdef");
    append(s, "0123456789");
    CHECK_INT(spool_begin(s), 12);
    CHECK_INT(spool_read(s, 12, text, 8), 4);
    CHECK(memcmp(text, "6789", 4) == 0);
    spool_unref(s);
}

/* Everything that is left must be what was appended there. */
static void check_content(struct spool *s, uint64_t from)
{
    static unsigned char back[70000];
    uint64_t wrong = 0;
    for (uint64_t at = from; at < spool_end(s);) {
        ssize_t n = spool_read(s, at, back, sizeof back);
        CHECK(n > 0);
        if (n <= 0)
            return;
        for (ssize_t i = 0; i < n; i++)
            wrong += back[i] != (unsigned char)((at + (uint64_t)i) * 2654435761U >> 13);
        at += (uint64_t)n;
    }
    CHECK_INT(wrong, 0);
}

static void append_pattern(struct spool *s, uint64_t from, size_t n)
{
    static unsigned char block[70000];
    for (size_t i = 0; i < n; i++)
        block[i] = (unsigned char)((from + i) * 2654435761U >> 13);
    spool_append(s, block, n);
}

TEST(a_ring_in_a_file_keeps_the_newest_at_their_offsets)
{
    enum { CAP = 1000003 };
    struct spool_pool pool = make_pool(CAP, dirs);
    struct spool *s = spool_new(&pool);
    for (uint64_t total = 0, n = 1; total < 5 * (uint64_t)CAP; total += n, n = (n * 7 + 13) % 70000) {
        append_pattern(s, total, n);
        CHECK_INT(spool_end(s), total + n);
        CHECK_INT(spool_begin(s), total + n > CAP ? total + n - CAP : 0);
    }
    check_content(s, spool_begin(s));
    spool_unref(s);
}

TEST(without_a_place_for_files_memory_is_the_ring)
{
    struct spool_pool pool = make_pool(1 << 30, no_dirs);
    struct spool *s = spool_new(&pool);
    for (uint64_t total = 0; total < 10 * 60000; total += 60000)
        append_pattern(s, total, 60000);
    CHECK_INT(spool_end(s), 600000);
    CHECK_INT(spool_begin(s), 600000 - SPOOL_MEMORY_MAX);
    CHECK_INT(spool_capacity(s), SPOOL_MEMORY_MAX);
    check_content(s, spool_begin(s));
    spool_unref(s);
    CHECK_INT(pool.memory_bytes, 0);
}

TEST(a_full_disk_turns_the_file_into_a_ring)
{
    struct rlimit old, small = {.rlim_cur = 400000};
    struct spool_pool pool = make_pool(1 << 30, dirs);
    struct spool *s = spool_new(&pool);
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t total = 0; total < 30 * 60000; total += 60000)
        append_pattern(s, total, 60000);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &old), 0);
    CHECK_INT(spool_capacity(s), 400000);
    CHECK_INT(spool_end(s), 1800000);
    CHECK_INT(spool_begin(s), 1400000);
    check_content(s, spool_begin(s));
    spool_unref(s);
}

TEST(with_no_room_at_all_everything_is_counted_as_lost)
{
    struct spool_pool pool = make_pool(1 << 30, no_dirs);
    pool.memory_max_bytes = 0;
    struct spool *s = spool_new(&pool);
    char c;
    append(s, "line\n");
    CHECK_INT(spool_end(s), 5);
    CHECK_INT(spool_begin(s), 5);
    CHECK_INT(spool_line_end(s), 5);
    CHECK_INT(spool_read(s, 5, &c, 1), 0);
    CHECK_INT(spool_trimmed_end(s), 5);
    spool_unref(s);
}

TEST(trimming_across_the_seam_of_a_ring)
{
    struct spool_pool pool = make_pool(8, dirs);
    struct spool *s = spool_new(&pool);
    append(s, "abcdefgh");
    spool_append(s, "x\n\0", 3);
    CHECK_INT(spool_trimmed_end(s), 9);
    spool_append(s, "\0\0\0\0\0\0\0\0\0", 9);
    CHECK_INT(spool_trimmed_end(s), spool_begin(s)); /* nothing but NULs is left */
    spool_unref(s);
}

TEST(the_end_of_the_last_line_is_known)
{
    struct spool_pool pool = make_pool(1 << 20, dirs);
    struct spool *s = spool_new(&pool);
    CHECK_INT(spool_line_end(s), 0);
    append(s, "ab");
    CHECK_INT(spool_line_end(s), 0);
    append(s, "c\nd\nef");
    CHECK_INT(spool_line_end(s), 6);
    spool_unref(s);
}

TEST(trimming_takes_one_newline_and_the_nuls_behind_the_text)
{
    static const struct {
        const char *text;
        size_t n, end;
    } cases[] = {
        {"", 0, 0},      {"a", 1, 1},     {"a\n", 2, 1},   {"a\n\n", 3, 2}, {"\n", 1, 0},
        {"a\r\n", 3, 2}, {"a\n\0", 3, 1}, {"a\0\0", 3, 1}, {"\0\0", 2, 0},  {"a\0\n\0b", 5, 5},
    };
    struct spool_pool pool = make_pool(1 << 20, dirs);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct spool *s = spool_new(&pool);
        spool_append(s, cases[i].text, cases[i].n);
        CHECK_INT(spool_trimmed_end(s), cases[i].end);
        spool_unref(s);
    }
}

TEST(the_last_reference_frees)
{
    struct spool_pool pool = make_pool(1 << 20, dirs);
    struct spool *s = spool_new(&pool);
    append(s, "x");
    spool_ref(s);
    spool_unref(s);
    CHECK_INT(spool_end(s), 1);
    spool_unref(s);
    CHECK_INT(pool.memory_bytes, 0);
    spool_unref(NULL);
}
