/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c: see worker.h. */
#include "net/worker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

enum { THREADS_MAX = 8 };

struct queue {
    struct job *first, **last;
};

struct workers {
    struct loop *loop;
    struct source source;
    int event_fd;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct queue urgent, normal, finished;
    size_t waiting; /* not begun */
    size_t open;    /* submitted, done not called yet */
    bool stop;
    int (*start)(void *arg, struct error *reterr);
    void *arg;
    unsigned starting;
    struct error start_error;
    pthread_t threads[THREADS_MAX];
    unsigned thread_count;
};

static void queue_init(struct queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void queue_put(struct queue *q, struct job *j)
{
    j->next = NULL;
    *q->last = j;
    q->last = &j->next;
}

static struct job *queue_take(struct queue *q)
{
    struct job *j = q->first;
    if (j && !(q->first = j->next))
        q->last = &q->first;
    return j;
}

static void *thread_main(void *arg)
{
    struct workers *w = arg;
    struct error e = {0};
    int r = w->start ? w->start(w->arg, &e) : 0;
    (void)pthread_mutex_lock(&w->lock);
    if (r < 0)
        w->start_error = e;
    w->starting--;
    (void)pthread_cond_broadcast(&w->wake);
    for (;;) {
        struct job *j = queue_take(&w->urgent);
        if (!j)
            j = queue_take(&w->normal);
        if (!j) {
            if (w->stop)
                break;
            (void)pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        w->waiting--;
        (void)pthread_mutex_unlock(&w->lock);
        j->run(j);
        (void)pthread_mutex_lock(&w->lock);
        queue_put(&w->finished, j);
        uint64_t one = 1;
        (void)!write(w->event_fd, &one, sizeof one); /* a full counter is readable all the same */
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void deliver(struct workers *w)
{
    (void)pthread_mutex_lock(&w->lock);
    struct job *j = w->finished.first;
    queue_init(&w->finished);
    (void)pthread_mutex_unlock(&w->lock);
    while (j) {
        struct job *next = j->next;
        w->open--;
        j->done(j);
        j = next;
    }
}

void workers_finish(struct workers *w)
{
    while (w->open) {
        uint64_t count;
        struct pollfd p = {.fd = w->event_fd, .events = POLLIN};
        (void)poll(&p, 1, -1);
        (void)!read(w->event_fd, &count, sizeof count);
        deliver(w);
    }
}

static void finished_ready(struct source *s, uint32_t events)
{
    struct workers *w = container_of(s, struct workers, source);
    uint64_t count;
    (void)events;
    (void)!read(w->event_fd, &count, sizeof count);
    deliver(w);
}

int workers_new(struct loop *loop, unsigned threads, int (*start)(void *arg, struct error *reterr), void *arg,
                struct workers **ret, struct error *reterr)
{
    struct workers *w = calloc(1, sizeof *w);
    if (!w)
        return error_sys(reterr, ENOMEM, "start worker threads");
    w->loop = loop;
    w->start = start;
    w->arg = arg;
    w->source.fd = -1;
    queue_init(&w->urgent);
    queue_init(&w->normal);
    queue_init(&w->finished);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->wake, NULL);
    int r;
    w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->event_fd < 0 || (r = loop_add(loop, &w->source, w->event_fd, EPOLLIN, finished_ready)) < 0) {
        r = error_sys(reterr, errno, "start worker threads");
        workers_free(w);
        return r;
    }
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the loop's */
    w->starting = MIN(threads, (unsigned)THREADS_MAX);
    for (unsigned i = 0, n = w->starting; i < n; i++) {
        r = pthread_create(&w->threads[i], NULL, thread_main, w);
        if (r != 0) {
            w->start_error.code = r;
            w->starting -= n - i;
            (void)error_sys(&w->start_error, r, "start worker threads");
            break;
        }
        w->thread_count++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_mutex_lock(&w->lock);
    while (w->starting)
        (void)pthread_cond_wait(&w->wake, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
    if (w->start_error.code) {
        if (reterr)
            *reterr = w->start_error;
        r = -w->start_error.code;
        workers_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void workers_submit(struct workers *w, struct job *j, bool urgent)
{
    (void)pthread_mutex_lock(&w->lock);
    queue_put(urgent ? &w->urgent : &w->normal, j);
    w->waiting++;
    w->open++;
    (void)pthread_cond_signal(&w->wake);
    (void)pthread_mutex_unlock(&w->lock);
}

size_t workers_waiting(struct workers *w)
{
    (void)pthread_mutex_lock(&w->lock);
    size_t n = w->waiting;
    (void)pthread_mutex_unlock(&w->lock);
    return n;
}

void workers_free(struct workers *w)
{
    if (!w)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_broadcast(&w->wake);
    (void)pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->thread_count; i++)
        (void)pthread_join(w->threads[i], NULL);
    deliver(w);
    loop_del(w->loop, &w->source);
    close_fd(&w->event_fd);
    (void)pthread_cond_destroy(&w->wake);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}
