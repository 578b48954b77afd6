/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c: see interrupt.h. */
#include "builder/interrupt.h"

#include "builder/remote.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { BOXES_MAX = 4, EXIT_SIGNAL = 128 };

struct interrupt {
    const struct build_options *options;
    pthread_t thread;
    pthread_mutex_t lock;
    sigset_t before;
    char boxes[BOXES_MAX][BOX_ID_SIZE];
};

static void signals(sigset_t *ret)
{
    (void)sigemptyset(ret);
    (void)sigaddset(ret, SIGINT);
    (void)sigaddset(ret, SIGTERM);
    (void)sigaddset(ret, SIGHUP);
    (void)sigaddset(ret, SIGUSR1); /* interrupt_free */
}

static void remove_boxes(struct interrupt *i)
{
    struct silica_client *c;
    if (i->options->connect(i->options->user, &c) != 0)
        return;
    for (size_t k = 0; k < BOXES_MAX; k++)
        if (i->boxes[k][0])
            remote_box_end(c, i->boxes[k]);
    silica_client_free(c);
}

static void *wait_for_signal(void *user)
{
    struct interrupt *i = user;
    sigset_t set;
    int sig;
    signals(&set);
    while (sigwait(&set, &sig) != 0)
        ;
    if (sig == SIGUSR1)
        return NULL;
    (void)pthread_mutex_lock(&i->lock); /* for good: no sandbox is added any more */
    (void)fprintf(stderr, "\ninterrupted\n");
    remove_boxes(i);
    _exit(EXIT_SIGNAL + sig);
}

int interrupt_new(const struct build_options *o, struct interrupt **ret, struct error *reterr)
{
    struct interrupt *i = calloc(1, sizeof *i);
    sigset_t set;
    if (!i)
        return error_set(reterr, ENOMEM, "out of memory");
    i->options = o;
    signals(&set);
    int r = pthread_mutex_init(&i->lock, NULL);
    if (r == 0) {
        (void)pthread_sigmask(SIG_BLOCK, &set, &i->before);
        r = pthread_create(&i->thread, NULL, wait_for_signal, i);
    }
    if (r != 0) {
        free(i);
        return error_sys(reterr, r, "cannot start a thread");
    }
    *ret = i;
    return 0;
}

void interrupt_free(struct interrupt *i)
{
    if (!i)
        return;
    (void)pthread_kill(i->thread, SIGUSR1);
    (void)pthread_join(i->thread, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &i->before, NULL);
    (void)pthread_mutex_destroy(&i->lock);
    free(i);
}

static void replace(struct interrupt *i, const char *from, const char *to)
{
    (void)pthread_mutex_lock(&i->lock);
    for (size_t k = 0; k < BOXES_MAX; k++)
        if (strcmp(i->boxes[k], from) == 0) {
            (void)snprintf(i->boxes[k], BOX_ID_SIZE, "%s", to);
            break;
        }
    (void)pthread_mutex_unlock(&i->lock);
}

void interrupt_add(struct interrupt *i, const char *id)
{
    replace(i, "", id);
}

void interrupt_remove(struct interrupt *i, const char *id)
{
    replace(i, id, "");
}
