/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokens.c: tokens and who holds them; the table of those who guess. */
#include "gateway/throttle.h"
#include "gateway/tokens.h"
#include "base/clock.h"
#include "test.h"

#include "base/id.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct fixture {
    struct loop *loop;
    struct tokens *tokens;
};

static struct fixture set_up(void)
{
    struct fixture f = {0};
    struct error e;
    if (loop_new(&f.loop, &e) < 0 || tokens_new(&f.tokens, &e) < 0)
        test_fail(__FILE__, __LINE__, "no tokens");
    tokens_start(f.tokens, f.loop);
    return f;
}

static void tear_down(struct fixture *f)
{
    tokens_free(f->tokens);
    loop_free(f->loop);
}

static struct token *add(struct fixture *f, const char *id, const char *secret, const char *scope,
                         int64_t expires_ms)
{
    struct token_row row = {.expires_ms = expires_ms};
    struct token *t = NULL;
    (void)snprintf(row.id, sizeof row.id, "%s", id);
    (void)snprintf(row.scope, sizeof row.scope, "%s", scope);
    CHECK_INT(tokens_hash(f->tokens, secret, row.hash), 0);
    CHECK_INT(tokens_add(f->tokens, &row, &t), 0);
    return t;
}

static int told;

static void count_revoked(struct token_hold *h)
{
    (void)h;
    told++;
}

TEST(tokens_are_found_by_their_secret)
{
    struct fixture f = set_up();
    struct token *a = add(&f, "a", "secret-a", "admin", 0), *b = add(&f, "b", "secret-b", "read-only", 0);
    CHECK(tokens_find(f.tokens, "secret-a") == a && tokens_find(f.tokens, "secret-b") == b);
    CHECK(!tokens_find(f.tokens, "secret-c") && !tokens_find(f.tokens, ""));
    CHECK(tokens_by_id(f.tokens, "b") == b && !tokens_by_id(f.tokens, ""));
    CHECK(b->scope == AUTH_SCOPE_READ);
    struct token_row odd = {.scope = "emperor"};
    CHECK_INT(tokens_add(f.tokens, &odd, NULL), -EINVAL);
    tear_down(&f);
}

TEST(tokens_end_when_their_time_is_up)
{
    struct fixture f = set_up();
    struct token *t = add(&f, "a", "s", "admin", clock_wall_ms() + 60000);
    struct token_hold hold = {.revoked = count_revoked};
    told = 0;
    CHECK(tokens_find(f.tokens, "s") == t);
    token_hold(f.tokens, t, &hold);
    t->deadline_ms = clock_boot_ms() - 1;
    CHECK(!tokens_find(f.tokens, "s"));
    int64_t deadline = clock_mono_ms() + 60000;
    while (!told && clock_mono_ms() < deadline)
        (void)loop_step(f.loop, 50);
    CHECK_INT(told, 1);
    CHECK(!hold.prev);
    tear_down(&f);
}

/* TIME-01: the wall clock was set back while the server was down; nothing lives longer than it was made for.
 */
TEST(tokens_do_not_outlive_what_they_were_made_for)
{
    struct fixture f = set_up();
    int64_t year_ms = INT64_C(365) * 86400 * 1000, later = clock_wall_ms() + 10 * year_ms;
    struct token_row row = {.created_ms = later, .expires_ms = later + 60000, .scope = "admin"};
    struct token *t = NULL;
    CHECK_INT(tokens_add(f.tokens, &row, &t), 0);
    CHECK(!token_expired(t));
    CHECK(t->deadline_ms <= clock_boot_ms() + 60000);
    tear_down(&f);
}

TEST(tokens_tell_their_holders)
{
    struct fixture f = set_up();
    struct token *t = add(&f, "a", "s", "admin", 0), *other = add(&f, "b", "s2", "admin", 0);
    struct token_hold holds[3] = {
        {count_revoked, NULL, NULL}, {count_revoked, NULL, NULL}, {count_revoked, NULL, NULL}};
    told = 0;
    for (int i = 0; i < 3; i++)
        token_hold(f.tokens, i == 2 ? other : t, &holds[i]);
    token_release(&holds[0]);
    token_release(&holds[0]);
    tokens_revoke(f.tokens, t);
    CHECK(!tokens_find(f.tokens, "s") && tokens_find(f.tokens, "s2") == other);
    CHECK_INT(told, 0); /* from the loop, not from inside */
    (void)loop_step(f.loop, 0);
    CHECK_INT(told, 1);
    token_release(&holds[2]);
    tear_down(&f);
}

TEST(throttle_forgets_after_a_while)
{
    static struct throttle t;
    throttle_init(&t);
    for (int i = 0; i < THROTTLE_FAILURES - 1; i++)
        throttle_failed(&t, "1.2.3.4:1", 1000);
    CHECK_INT(throttle_wait(&t, "1.2.3.4:1", 1000), 0);
    throttle_failed(&t, "1.2.3.4:9", 1000 + THROTTLE_WINDOW_MS); /* a new window */
    CHECK_INT(throttle_wait(&t, "1.2.3.4:1", 1000 + THROTTLE_WINDOW_MS), 0);
    for (int i = 0; i < THROTTLE_FAILURES; i++)
        throttle_failed(&t, "[fe80::1]:1", 5000);
    CHECK_INT(throttle_wait(&t, "[fe80::1]:2", 5000), THROTTLE_BLOCK_MS / 1000);
    CHECK_INT(throttle_wait(&t, "[fe80::1]:2", 5000 + THROTTLE_BLOCK_MS), 0);
    CHECK_INT(throttle_wait(&t, "[fe80::2]:2", 5000), 0);
    for (int i = 0; i < 100; i++)
        throttle_failed(&t, "unix", 5000);
    CHECK_INT(throttle_wait(&t, "unix", 5000), 0);
}

TEST(throttle_keeps_the_newest)
{
    static struct throttle t;
    char peer[64];
    throttle_init(&t);
    for (int i = 0; i < 100000; i++) { /* far more than there is room for */
        (void)snprintf(peer, sizeof peer, "10.%d.%d.%d:80", i >> 16, i >> 8 & 255, i & 255);
        throttle_failed(&t, peer, 1000 + i);
    }
    for (int i = 0; i < THROTTLE_FAILURES; i++)
        throttle_failed(&t, "9.9.9.9:1", 200000);
    CHECK(throttle_wait(&t, "9.9.9.9:1", 200000) > 0);
}

/* ------------------------------------------------------------------ AUTH-03 */

enum { SAMPLES = 2000, LONG = 8000 };

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Long secrets make the difference large that an early end of the comparison would leave: a first byte that
 * is wrong would cost a small part of what a wrong last byte costs. Both kinds take turns and medians are
 * compared, so that a busy machine disturbs both alike. */
TEST(auth_03_a_wrong_first_byte_costs_as_much_as_a_wrong_last_one)
{
    static int64_t first[SAMPLES], last[SAMPLES], first_equal[SAMPLES], last_equal[SAMPLES];
    static char right[LONG + 1], wrong_first[LONG + 1], wrong_last[LONG + 1];
    struct fixture f = set_up();
    memset(right, 'a', LONG);
    memcpy(wrong_first, right, LONG);
    memcpy(wrong_last, right, LONG);
    wrong_first[0] = wrong_last[LONG - 1] = 'b';
    (void)add(&f, "a", right, "admin", 0);
    for (size_t i = 0; i < SAMPLES; i++) {
        int64_t begin = now_ns();
        CHECK(!tokens_find(f.tokens, wrong_first));
        int64_t between = now_ns();
        CHECK(!tokens_find(f.tokens, wrong_last));
        first[i] = between - begin;
        last[i] = now_ns() - between;
        begin = now_ns();
        CHECK(!equal_constant_time(right, wrong_first, LONG)); /* of a preview's token */
        between = now_ns();
        CHECK(!equal_constant_time(right, wrong_last, LONG));
        first_equal[i] = between - begin;
        last_equal[i] = now_ns() - between;
    }
    int64_t *all[] = {first, last, first_equal, last_equal};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        qsort(all[i], SAMPLES, sizeof *all[i], by_value);
    CHECK(first[SAMPLES / 2] > last[SAMPLES / 2] / 2);
    CHECK(first_equal[SAMPLES / 2] > last_equal[SAMPLES / 2] / 2);
    tear_down(&f);
}
