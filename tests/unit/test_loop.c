/* SPDX-License-Identifier: Apache-2.0 */
/* test_loop.c: the event loop: order, removal from inside callbacks, deferred work, timers, signals. */
#include "test.h"
#include "base/clock.h"
#include "net/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

static struct loop *loop;
static int calls;
static char trace[256];

static void note(char c)
{
    size_t n = strlen(trace);
    if (n + 1 < sizeof trace) {
        trace[n] = c;
        trace[n + 1] = '\0';
    }
}

static bool begin(void)
{
    struct error e;
    calls = 0;
    trace[0] = '\0';
    if (loop_new(&loop, &e) == 0)
        return true;
    test_fail(__FILE__, __LINE__, e.msg);
    return false;
}

/* Steps until cond holds; fails the test after a minute. */
#define STEP_UNTIL(cond)                          \
    do {                                          \
        int64_t end_ = clock_mono_ms() + 60000;   \
        while (!(cond) && clock_mono_ms() < end_) \
            (void)loop_step(loop, 20);            \
        CHECK(cond);                              \
    } while (0)

struct pipe_source {
    struct source source;
    int fds[2];
    struct pipe_source *victim; /* removed by this one's callback */
    bool freed_victim;
};

static void pipe_ready(struct source *s, uint32_t events)
{
    struct pipe_source *p = container_of(s, struct pipe_source, source);
    char c;
    calls++;
    CHECK(events & EPOLLIN);
    CHECK_INT(read(s->fd, &c, 1), 1);
    if (p->victim) {
        loop_del(loop, &p->victim->source);
        if (p->freed_victim)
            free(p->victim);
        p->victim = NULL;
    }
}

static bool pipe_add(struct pipe_source *p)
{
    *p = (struct pipe_source){.source.fd = -1};
    return pipe2(p->fds, O_CLOEXEC | O_NONBLOCK) == 0 &&
           loop_add(loop, &p->source, p->fds[0], EPOLLIN, pipe_ready) == 0;
}

static void pipe_close(struct pipe_source *p)
{
    loop_del(loop, &p->source);
    (void)close(p->fds[0]);
    (void)close(p->fds[1]);
}

TEST(loop_delivers_a_readable_descriptor)
{
    struct pipe_source p;
    REQUIRE(begin());
    REQUIRE(pipe_add(&p));
    CHECK_INT(loop_step(loop, 0), 0);
    CHECK_INT(write(p.fds[1], "x", 1), 1);
    CHECK_INT(loop_step(loop, 1000), 1);
    CHECK_INT(calls, 1);
    pipe_close(&p);
    loop_free(loop);
}

TEST(loop_add_refuses_a_bad_descriptor)
{
    struct source s = {.fd = -1};
    REQUIRE(begin());
    CHECK_INT(loop_add(loop, &s, -1, EPOLLIN, pipe_ready), -EBADF);
    CHECK_INT(s.fd, -1);
    loop_del(loop, &s); /* fine when not added */
    loop_mod(loop, &s, EPOLLIN);
    loop_free(loop);
}

TEST(loop_mod_to_nothing_silences_a_source)
{
    struct pipe_source p;
    REQUIRE(begin());
    REQUIRE(pipe_add(&p));
    CHECK_INT(write(p.fds[1], "x", 1), 1);
    loop_mod(loop, &p.source, 0);
    CHECK_INT(loop_step(loop, 0), 0);
    CHECK_INT(calls, 0);
    loop_mod(loop, &p.source, EPOLLIN);
    CHECK_INT(loop_step(loop, 1000), 1);
    CHECK_INT(calls, 1);
    pipe_close(&p);
    loop_free(loop);
}

TEST(loop_forgets_a_source_removed_by_another_in_the_same_batch)
{
    struct pipe_source p;
    struct pipe_source *v = calloc(1, sizeof *v);
    REQUIRE(begin() && v);
    /* both are ready; whichever comes first removes and frees the other, which must not be called */
    REQUIRE(pipe_add(&p) && pipe_add(v));
    int fds[2] = {v->fds[0], v->fds[1]};
    p.victim = v;
    p.freed_victim = true;
    CHECK_INT(write(p.fds[1], "x", 1), 1);
    loop_mod(loop, &v->source, 0); /* so that p comes first */
    CHECK_INT(write(fds[1], "x", 1), 1);
    struct pipe_source *w = v;
    loop_mod(loop, &w->source, EPOLLIN);
    (void)loop_step(loop, 1000);
    if (p.victim) { /* the kernel chose the other order: the victim was served, and is removed now */
        CHECK_INT(write(p.fds[1], "y", 1), 1);
        STEP_UNTIL(!p.victim);
    } else {
        CHECK_INT(calls, 1);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    pipe_close(&p);
    loop_free(loop);
}

static struct pipe_source *self_victim;

static void remove_self(struct source *s, uint32_t events)
{
    (void)events;
    calls++;
    loop_del(loop, s);
    free(self_victim);
}

TEST(loop_source_may_remove_and_free_itself)
{
    REQUIRE(begin());
    self_victim = calloc(1, sizeof *self_victim);
    REQUIRE(self_victim && pipe_add(self_victim));
    int fds[2] = {self_victim->fds[0], self_victim->fds[1]};
    self_victim->source.ready = remove_self;
    CHECK_INT(write(fds[1], "x", 1), 1);
    CHECK_INT(loop_step(loop, 1000), 1);
    CHECK_INT(loop_step(loop, 0), 0);
    CHECK_INT(calls, 1);
    (void)close(fds[0]);
    (void)close(fds[1]);
    loop_free(loop);
}

/* ------------------------------------------------------------------ timers */

struct test_timer {
    struct timer timer;
    char name;
    struct timer *stop; /* stopped by this one's callback */
    int again;          /* restarts itself this often */
};

static void timer_note(struct timer *t)
{
    struct test_timer *x = container_of(t, struct test_timer, timer);
    note(x->name);
    CHECK(!loop_timer_running(t));
    if (x->stop)
        loop_timer_stop(loop, x->stop);
    if (x->again-- > 0)
        loop_timer_start(loop, t, 0, timer_note);
}

TEST(loop_timers_fire_in_the_order_of_their_deadlines)
{
    static const int delays[] = {7, 1, 5, 3, 9, 2, 8, 4, 6, 0};
    struct test_timer t[ARRAY_SIZE(delays)] = {0};
    REQUIRE(begin());
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        t[i].name = (char)('0' + delays[i]);
        loop_timer_start(loop, &t[i].timer, delays[i] * 20, timer_note); /* apart, whenever each is started */
    }
    STEP_UNTIL(strlen(trace) == ARRAY_SIZE(t));
    CHECK_STREQ(trace, "0123456789");
    loop_free(loop);
}

TEST(loop_timers_never_fire_early)
{
    struct test_timer t = {.name = 'x'};
    REQUIRE(begin());
    int64_t start = clock_mono_us();
    loop_timer_start(loop, &t.timer, 15, timer_note);
    STEP_UNTIL(trace[0]);
    CHECK(clock_mono_us() - start >= 15000);
    loop_free(loop);
}

TEST(loop_timer_stopped_by_another_does_not_fire)
{
    struct test_timer a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};
    REQUIRE(begin());
    a.stop = &b.timer;
    loop_timer_start(loop, &a.timer, 0, timer_note);
    loop_timer_start(loop, &b.timer, 0, timer_note);
    loop_timer_start(loop, &c.timer, 2, timer_note);
    STEP_UNTIL(strchr(trace, 'c'));
    CHECK_STREQ(trace, "ac");
    loop_timer_stop(loop, &b.timer); /* fine when stopped */
    loop_free(loop);
}

TEST(loop_timer_restarted_moves)
{
    struct test_timer a = {.name = 'a'}, b = {.name = 'b'};
    REQUIRE(begin());
    loop_timer_start(loop, &a.timer, 0, timer_note);
    loop_timer_start(loop, &b.timer, 5, timer_note);
    loop_timer_start(loop, &a.timer, 15, timer_note);
    STEP_UNTIL(strlen(trace) == 2);
    CHECK_STREQ(trace, "ba");
    loop_free(loop);
}

TEST(loop_timer_that_restarts_itself_does_not_starve_descriptors)
{
    struct test_timer t = {.name = 't', .again = 1000};
    struct pipe_source p;
    REQUIRE(begin());
    REQUIRE(pipe_add(&p));
    loop_timer_start(loop, &t.timer, 0, timer_note);
    CHECK_INT(write(p.fds[1], "x", 1), 1);
    for (int i = 0; i < 10 && !calls; i++)
        (void)loop_step(loop, 1000);
    CHECK_INT(calls, 1);
    CHECK(t.again > 900);
    loop_timer_stop(loop, &t.timer);
    pipe_close(&p);
    loop_free(loop);
}

/* A thousand timers, a third of them stopped, against the obvious answer. */
static int64_t last_deadline;
static size_t fired_count;

static void timer_check_order(struct timer *t)
{
    CHECK(t->deadline_us >= last_deadline);
    last_deadline = t->deadline_us;
    fired_count++;
}

TEST(loop_heap_keeps_its_order_under_removal)
{
    enum { N = 1000 };
    static struct timer t[N];
    unsigned x = 12345;
    REQUIRE(begin());
    last_deadline = 0;
    fired_count = 0;
    for (size_t i = 0; i < N; i++) {
        x = x * 1103515245 + 12345;
        t[i] = (struct timer){0};
        loop_timer_start(loop, &t[i], (x >> 16) % 20, timer_check_order);
    }
    for (size_t i = 0; i < N; i += 3)
        loop_timer_stop(loop, &t[i]);
    STEP_UNTIL(fired_count >= N - (N + 2) / 3);
    CHECK_INT(loop_step(loop, 25), 0);
    CHECK_INT(fired_count, N - (N + 2) / 3);
    loop_free(loop);
}

/* ------------------------------------------------------------------ deferred work */

struct test_deferred {
    struct deferred deferred;
    char name;
    int again;
    struct test_deferred *undefer;
};

static void deferred_note(struct deferred *d)
{
    struct test_deferred *x = container_of(d, struct test_deferred, deferred);
    note(x->name);
    if (x->undefer)
        loop_undefer(loop, &x->undefer->deferred);
    if (x->again-- > 0)
        loop_defer(loop, d, deferred_note);
}

TEST(loop_deferred_runs_once_and_in_order)
{
    struct test_deferred a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};
    REQUIRE(begin());
    loop_defer(loop, &a.deferred, deferred_note);
    loop_defer(loop, &b.deferred, deferred_note);
    loop_defer(loop, &a.deferred, deferred_note); /* fine when queued */
    loop_defer(loop, &c.deferred, deferred_note);
    (void)loop_step(loop, -1); /* does not wait: there is work */
    (void)loop_step(loop, 0);
    CHECK_STREQ(trace, "abc");
    loop_free(loop);
}

TEST(loop_deferred_can_be_withdrawn_also_the_last_one)
{
    struct test_deferred a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};
    REQUIRE(begin());
    loop_defer(loop, &a.deferred, deferred_note);
    loop_defer(loop, &b.deferred, deferred_note);
    loop_undefer(loop, &b.deferred);
    loop_undefer(loop, &b.deferred);
    loop_defer(loop, &c.deferred, deferred_note);
    (void)loop_step(loop, -1);
    CHECK_STREQ(trace, "ac");
    loop_free(loop);
}

TEST(loop_deferred_requeued_waits_for_the_next_batch)
{
    struct test_deferred a = {.name = 'a', .again = 2}, b = {.name = 'b'};
    REQUIRE(begin());
    loop_defer(loop, &a.deferred, deferred_note);
    loop_defer(loop, &b.deferred, deferred_note);
    (void)loop_step(loop, -1);
    CHECK_STREQ(trace, "ab");
    (void)loop_step(loop, -1);
    (void)loop_step(loop, -1);
    (void)loop_step(loop, 0);
    CHECK_STREQ(trace, "abaa");
    loop_free(loop);
}

TEST(loop_deferred_may_withdraw_the_last_of_its_batch)
{
    /* a requeues itself and withdraws b, which was the end of the batch: a must not run for ever in one batch
     */
    struct test_deferred a = {.name = 'a', .again = 100}, b = {.name = 'b'};
    REQUIRE(begin());
    a.undefer = &b;
    loop_defer(loop, &a.deferred, deferred_note);
    loop_defer(loop, &b.deferred, deferred_note);
    (void)loop_step(loop, -1);
    CHECK(strchr(trace, 'b') == NULL);
    CHECK(strlen(trace) <= 2);
    loop_undefer(loop, &a.deferred);
    loop_free(loop);
}

/* ------------------------------------------------------------------ signals, run and stop */

static void on_signal(int sig, void *arg)
{
    calls++;
    CHECK_INT(sig, arg ? SIGUSR2 : SIGUSR1);
    if (calls == 2)
        loop_stop(loop);
}

TEST(loop_signals_arrive_as_events)
{
    struct error e;
    sigset_t old;
    REQUIRE(begin());
    (void)sigprocmask(SIG_SETMASK, NULL, &old);
    CHECK_INT(loop_signal(loop, SIGUSR1, on_signal, NULL, &e), 0);
    CHECK_INT(loop_signal(loop, SIGUSR2, on_signal, &e, &e), 0);
    (void)raise(SIGUSR1);
    (void)raise(SIGUSR2);
    CHECK_INT(loop_run(loop), 0);
    CHECK_INT(calls, 2);
    loop_free(loop);
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
}

TEST(loop_refuses_too_many_signals)
{
    struct error e;
    sigset_t old;
    int r = 0, added = 0;
    REQUIRE(begin());
    (void)sigprocmask(SIG_SETMASK, NULL, &old);
    for (int i = 0; i < 20 && r == 0; i++, added++)
        r = loop_signal(loop, SIGRTMIN + i, on_signal, NULL, &e);
    CHECK_INT(r, -ENOSPC);
    CHECK(added < 20);
    loop_free(loop);
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
}

TEST(loop_now_is_the_time_of_the_batch)
{
    REQUIRE(begin());
    (void)loop_step(loop, 0);
    int64_t now = loop_now_us(loop);
    CHECK(now <= clock_mono_us());
    CHECK(clock_mono_us() - now < 60000000);
    loop_free(loop);
    loop_free(NULL);
}

static void one_byte(struct source *s, uint32_t events)
{
    char c;
    calls++;
    if (events & EPOLLIN)
        CHECK_INT(read(s->fd, &c, 1), 1);
    note(c);
}

/* With EPOLLET what is left is not told of by itself, and loop_again tells of it. */
TEST(loop_again_tells_of_what_is_left)
{
    int ends[2];
    struct source s = {.fd = -1};
    REQUIRE(begin() && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK_INT(write(ends[1], "abc", 3), 3);
    CHECK_INT(loop_add(loop, &s, ends[0], EPOLLIN | EPOLLET, one_byte), 0);
    CHECK_INT(loop_step(loop, 0), 1);
    CHECK_INT(loop_step(loop, 0), 0);
    loop_again(loop, &s);
    CHECK_INT(loop_step(loop, 0), 1);
    CHECK_INT(loop_step(loop, 0), 0);
    loop_mod(loop, &s, EPOLLET); /* not wanted for a while */
    loop_mod(loop, &s, EPOLLIN | EPOLLET);
    CHECK_INT(loop_step(loop, 0), 1);
    CHECK_STREQ(trace, "abc");
    loop_again(loop, &s); /* nothing is there */
    CHECK_INT(loop_step(loop, 0), 0);
    loop_del(loop, &s);
    loop_again(loop, &s); /* fine when not added */
    close_fd(&ends[0]);
    close_fd(&ends[1]);
    loop_free(loop);
}

/* Says something to itself again as long as there is something to say. */
static void talks_to_itself(struct source *s, uint32_t events)
{
    struct pipe_source *p = container_of(s, struct pipe_source, source);
    pipe_ready(s, events);
    if (calls % 100)
        CHECK_INT(write(p->fds[1], "x", 1), 1);
}

/* A loop that looks instead of sleeping hears the same as any other, fires its timers, falls asleep when the
 * conversation ends, and forgets who has gone. */
TEST(loop_watch_changes_nothing_but_the_wait)
{
    REQUIRE(begin());
    struct pipe_source *p = calloc(1, sizeof *p);
    struct test_timer t = {.name = 't'};
    REQUIRE(p && pipe_add(p));
    p->source.ready = talks_to_itself;
    loop_watch(loop, 200);
    for (int round = 1; round <= 3; round++) {
        CHECK_INT(write(p->fds[1], "x", 1), 1);
        for (int i = 0; i < 100; i++)
            CHECK_INT(loop_step(loop, 1000), 1);
        CHECK_INT(calls, round * 100);
        /* nobody talks: the wait is watched in vain and ends when it should */
        loop_timer_start(loop, &t.timer, 2, timer_note);
        STEP_UNTIL((int)strlen(trace) == round);
        CHECK_INT(loop_step(loop, 1), 0);
    }
    CHECK_INT(write(p->fds[1], "x", 1), 1);
    CHECK_INT(loop_step(loop, 1000), 1);
    CHECK_INT(loop_step(loop, 1000), 1); /* the last that was heard goes away, with what it has yet to say */
    pipe_close(p);
    free(p);
    CHECK_INT(loop_step(loop, 1), 0);
    loop_free(loop);
}
