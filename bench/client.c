/* SPDX-License-Identifier: Apache-2.0 */
/* client.c: the measuring client: runs a plan (see step.h) from stdin and prints every sample.
 *
 * mix ROUNDS GAP_MS       every round runs every step once, beginning with another one each time, so that
 * whatever else the machine does hits all competitors alike; GAP_MS of rest between steps load THREADS
 * SECONDS    every thread repeats the whole plan until the time is over process ADDRESS PREFIX ROUNDS starts
 * processes which tell the time, follows their streams, and compares the clocks
 *
 * start ADDRESS ROUNDS PROGRAM ARGUMENT...
 *                         from the start of a server program to its first answer
 *
 * Output: "sample NAME AT TOTAL FIRST MARK BYTES" in nanoseconds and "fail NAME TEXT", fields separated by
 * tabs. The token, if any, is $BENCH_TOKEN. Samples are printed when all is over: nothing is written while
 * something is timed. */
#include "step.h"

#include "base/util.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum { THREADS_MAX = 256, FAILURES_MAX = 20, STAMP_DELAY_MS = 20, START_MAX_MS = 10000 };

extern char **environ;

static void rest_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (ms && nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static void fail_print(const char *name, const char *text)
{
    (void)printf("fail\t%s\t", name);
    for (; *text; text++)
        (void)putchar(*text == '\t' || *text == '\n' || *text == '\r' ? ' ' : *text);
    (void)putchar('\n');
}

/* A step and the untimed ones behind it. */
static int run_group(struct runner *r, const struct plan *p, size_t i, unsigned n, unsigned t)
{
    int e = step_run(r, &p->steps[i], n, t);
    for (size_t j = i + 1; e == 0 && j < p->count && p->steps[j].name[0] == '-'; j++)
        e = step_run(r, &p->steps[j], n, t);
    return e;
}

/* Another order each round, the same in each run: what one step leaves to be done behind it hits every other
 * alike. */
static void shuffle(size_t *order, size_t count, unsigned *seed)
{
    for (size_t i = count; i > 1; i--) {
        *seed = *seed * 1103515245 + 12345;
        size_t j = (*seed >> 16) % i, swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

static int run_mix(const struct plan *p, unsigned rounds, unsigned gap_ms)
{
    struct runner r;
    bool dead[STEP_MAX] = {0};
    size_t order[STEP_MAX];
    unsigned seed = 1;
    int64_t zero = now_ns();
    if (runner_init(&r) < 0)
        return 1;
    for (size_t i = 0; i < p->count; i++)
        order[i] = i;
    for (unsigned n = 0; n <= rounds; n++) {
        if (n == 1)
            r.sample_count = 0; /* the first round warmed caches and connections */
        shuffle(order, p->count, &seed);
        for (size_t k = 0; k < p->count; k++) {
            size_t i = order[k];
            if (dead[i] || p->steps[i].name[0] == '-')
                continue;
            if (run_group(&r, p, i, n, 0) < 0) {
                fail_print(p->steps[i].name, r.error);
                dead[i] = true;
            }
            rest_ms(gap_ms);
        }
    }
    runner_print(&r, zero);
    runner_done(&r);
    return 0;
}

struct load {
    const struct plan *plan;
    pthread_barrier_t start;
    int64_t zero_ns, end_ns;
};

struct load_thread {
    struct load *load;
    struct runner runner;
    pthread_t thread;
    unsigned number, failures;
    char failed[64], error[512];
};

static void *load_main(void *arg)
{
    struct load_thread *t = arg;
    const struct plan *p = t->load->plan;
    (void)pthread_barrier_wait(&t->load->start);
    for (unsigned n = 0; now_ns() < t->load->end_ns && t->failures < FAILURES_MAX; n++) {
        for (size_t i = 0; i < p->count; i++) {
            if (step_run(&t->runner, &p->steps[i], n, t->number) == 0)
                continue;
            t->failures++;
            (void)snprintf(t->failed, sizeof t->failed, "%s", p->steps[i].name);
            (void)snprintf(t->error, sizeof t->error, "%s", t->runner.error);
            break; /* what it was about stays as it is, to be looked at */
        }
    }
    return NULL;
}

static int run_load(const struct plan *p, unsigned threads, double seconds)
{
    static struct load_thread all[THREADS_MAX];
    struct load load = {.plan = p};
    if (threads < 1 || threads > THREADS_MAX || pthread_barrier_init(&load.start, NULL, threads + 1) != 0)
        return 1;
    for (unsigned i = 0; i < threads; i++) {
        all[i].load = &load;
        all[i].number = i;
        if (runner_init(&all[i].runner) < 0 || pthread_create(&all[i].thread, NULL, load_main, &all[i]) != 0)
            return 1;
    }
    load.zero_ns = now_ns();
    load.end_ns = load.zero_ns + (int64_t)(seconds * 1e9);
    (void)pthread_barrier_wait(&load.start);
    for (unsigned i = 0; i < threads; i++) {
        (void)pthread_join(all[i].thread, NULL);
        runner_print(&all[i].runner, load.zero_ns);
        if (all[i].failures)
            fail_print(all[i].failed, all[i].error);
        runner_done(&all[i].runner);
    }
    (void)pthread_barrier_destroy(&load.start);
    return 0;
}

/* Times by the wall clock, which the sandbox shares, at which parts of a process's stream arrived. */
struct watch {
    int64_t stdout_ns, exit_ns, stamp_ns;
    char text[HTTP_CAPTURE];
    size_t len;
};

static int64_t wall_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void watch_piece(void *arg, const char *data, size_t n)
{
    struct watch *w = arg;
    int64_t now = wall_ns();
    n = MIN(n, sizeof w->text - 1 - w->len);
    memcpy(w->text + w->len, data, n);
    w->len += n;
    w->text[w->len] = '\0';
    const char *out = strstr(w->text, "\"type\":\"stdout\""), *end = strstr(w->text, "\"type\":\"exit\"");
    if (out && !w->stdout_ns) {
        const char *stamp = strstr(out, "\"data\":\"");
        long long s, us;
        if (stamp && sscanf(stamp + 8, "%lld.%6lld", &s, &us) == 2) {
            w->stamp_ns = (s * 1000000 + us) * 1000;
            w->stdout_ns = now;
        }
    }
    if (end && !w->exit_ns)
        w->exit_ns = now;
}

/* The process waits until its stream is surely followed, tells the time and ends. */
static int run_process(const char *address, const char *prefix, unsigned rounds)
{
    struct runner r;
    if (runner_init(&r) < 0)
        return 1;
    struct http *h = runner_connection(&r, address);
    struct watch *w = malloc(sizeof *w);
    if (!h || !w)
        return 1;
    for (unsigned n = 0; n < rounds; n++) {
        char path[512], body[512];
        (void)snprintf(body, sizeof body,
                       "{\"command\":\"sleep 0.0%d; echo $EPOCHREALTIME\",\"processId\":\"bench-%u\"}",
                       STAMP_DELAY_MS, n);
        (void)snprintf(path, sizeof path, "%s/api/process/start", prefix);
        struct http_call start = {.method = "POST", .path = path, .body = body, .body_len = strlen(body)};
        int e = http_do(h, &start, r.answer);
        int64_t begin = r.answer->start_ns, took = r.answer->end_ns - begin;
        if (e == 0 && r.answer->status == 200) {
            *w = (struct watch){0};
            (void)snprintf(path, sizeof path, "%s/api/process/bench-%u/stream", prefix, n);
            struct http_call follow = {.method = "GET", .path = path, .piece = watch_piece, .arg = w};
            e = http_do(h, &follow, r.answer);
        }
        if (e < 0 || r.answer->status != 200 || !w->exit_ns || !w->stamp_ns) {
            (void)snprintf(r.error, sizeof r.error, "HTTP %d %s %.200s", r.answer->status,
                           e ? strerror(-e) : "", r.answer->text);
            fail_print("process", r.error);
            break;
        }
        (void)printf("sample\tstart\t0\t%lld\t0\t0\t0\n", (long long)took);
        (void)printf("sample\tlog\t0\t%lld\t0\t0\t0\n", (long long)(w->stdout_ns - w->stamp_ns));
        (void)printf("sample\texit\t0\t%lld\t0\t0\t0\n", (long long)(w->exit_ns - w->stamp_ns));
    }
    free(w);
    runner_done(&r);
    return 0;
}

/* Asks again and again, shortly apart, so that the asking does not take the processor from who should answer.
 */
static int first_answer(const char *address, struct http_answer *a)
{
    struct http h;
    struct http_call ping = {.method = "GET", .path = "/api/ping"};
    int64_t until = now_ns() + (int64_t)START_MAX_MS * 1000000;
    int e = http_init(&h, address);
    while (e == 0 && (e = http_do(&h, &ping, a)) < 0 && now_ns() < until) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        e = 0;
    }
    http_done(&h);
    return e < 0 || a->status != 200 ? -1 : 0;
}

static int run_start(const char *address, unsigned rounds, char **argv)
{
    struct http_answer *a = malloc(sizeof *a);
    int r = a ? 0 : 1;
    for (unsigned n = 0; r == 0 && n < rounds; n++) {
        pid_t pid;
        int64_t begin = now_ns();
        if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) != 0) {
            fail_print("start", argv[0]);
            break;
        }
        r = first_answer(address, a);
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        if (r == 0)
            (void)printf("sample\tstart\t0\t%lld\t0\t0\t0\n", (long long)(a->end_ns - begin));
        else
            fail_print("start", "no answer");
    }
    free(a);
    return 0;
}

int main(int argc, char **argv)
{
    struct plan plan;
    int r = 2;
    if (argc == 5 && strcmp(argv[1], "process") == 0)
        return run_process(argv[2], argv[3], (unsigned)strtoul(argv[4], NULL, 10));
    if (argc >= 5 && strcmp(argv[1], "start") == 0)
        return run_start(argv[2], (unsigned)strtoul(argv[3], NULL, 10), argv + 4);
    if (argc == 4 && (strcmp(argv[1], "mix") == 0 || strcmp(argv[1], "load") == 0)) {
        unsigned n = (unsigned)strtoul(argv[2], NULL, 10);
        int e = plan_read(&plan, stdin);
        if (e < 0) {
            (void)fprintf(stderr, "client: bad plan: %s\n", strerror(-e));
            plan_done(&plan);
            return 2;
        }
        r = argv[1][0] == 'm' ? run_mix(&plan, n, (unsigned)strtoul(argv[3], NULL, 10))
                              : run_load(&plan, n, strtod(argv[3], NULL));
        plan_done(&plan);
        return r;
    }
    (void)fprintf(stderr,
                  "usage: client mix ROUNDS GAP_MS | load THREADS SECONDS | process ADDRESS PREFIX ROUNDS |\n"
                  "       start ADDRESS ROUNDS PROGRAM ARGUMENT...\n");
    return r;
}
