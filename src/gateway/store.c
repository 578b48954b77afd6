/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: the queue in front of the database; see store.h.
 *
 * Theory of operation
 * The loop appends operations to `queue`; the writer thread takes the whole queue, runs it as one transaction
 * and puts it on `finished`, waking the loop through an eventfd; the loop calls the done callbacks. When a
 * transaction of several operations fails, each is tried again alone, so that one bad row does not fail its
 * neighbours. The mutex guards the two lists and `stop`; the database belongs to the writer alone from
 * store_start on. */
#include "gateway/store_internal.h"
#include "base/failpoint.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>

enum op_kind {
    OP_PUT,
    OP_DELETE,
    OP_TOUCH,
    OP_PUT_TOKEN,
    OP_DELETE_TOKEN,
    OP_PUT_PORT,
    OP_DELETE_PORT,
    OP_PUT_CONTAINER,
    OP_DELETE_CONTAINER
};

struct op {
    struct op *next;
    enum op_kind kind;
    uint64_t ticket;
    int err;
    store_done *done;
    void *arg;
    struct sandbox_row row;         /* PUT; DELETE uses the id only */
    struct token_row *token;        /* PUT_TOKEN; DELETE_TOKEN uses the id only */
    struct port_row port;           /* PUT_PORT; DELETE_PORT uses sandbox and port only */
    struct container_row container; /* PUT_CONTAINER; DELETE_CONTAINER uses the id only */
    char *record;                   /* of the container */
    struct store_touch *touches;    /* TOUCH */
    size_t touch_count;
};

struct op_list {
    struct op *first, **last;
};

struct store {
    struct store_db *db;
    struct loop *loop;
    struct source wakeup;
    int event_fd;
    uint64_t last_ticket;
    bool running;
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct op_list queue, finished;
    bool stop;
};

static void list_init(struct op_list *l)
{
    l->first = NULL;
    l->last = &l->first;
}

static void list_append(struct op_list *l, struct op *op)
{
    op->next = NULL;
    *l->last = op;
    l->last = &op->next;
}

/* Moves everything from `from` to the end of `to`. */
static void list_move(struct op_list *to, struct op_list *from)
{
    if (!from->first)
        return;
    *to->last = from->first;
    to->last = from->last;
    list_init(from);
}

static void op_free(struct op *op)
{
    sandbox_config_done(&op->row.config);
    free(op->touches);
    free(op->token);
    free(op->record);
    free(op);
}

int store_open(const char *path, struct store **ret, struct error *reterr)
{
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return error_sys(reterr, ENOMEM, "open the state database");
    s->event_fd = -1;
    s->wakeup.fd = -1;
    list_init(&s->queue);
    list_init(&s->finished);
    (void)pthread_mutex_init(&s->mutex, NULL); /* cannot fail on Linux without attributes */
    (void)pthread_cond_init(&s->cond, NULL);
    int r = store_db_open(path, &s->db, reterr);
    if (r < 0) {
        store_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

int store_load(struct store *s, int (*each)(const struct sandbox_row *row, void *arg), void *arg,
               struct error *reterr)
{
    return store_db_load(s->db, each, arg, reterr);
}

int store_load_tokens(struct store *s, int (*each)(const struct token_row *row, void *arg), void *arg,
                      struct error *reterr)
{
    return store_db_load_tokens(s->db, each, arg, reterr);
}

int store_load_ports(struct store *s, int (*each)(const struct port_row *row, void *arg), void *arg,
                     struct error *reterr)
{
    return store_db_load_ports(s->db, each, arg, reterr);
}

int store_load_containers(struct store *s, int (*each)(const struct container_row *row, void *arg), void *arg,
                          struct error *reterr)
{
    return store_db_load_containers(s->db, each, arg, reterr);
}

static int run_op(struct store_db *db, const struct op *op)
{
    switch (op->kind) {
    case OP_PUT:
        return store_db_put(db, &op->row);
    case OP_DELETE:
        return store_db_delete(db, op->row.id);
    case OP_TOUCH:
        for (size_t i = 0; i < op->touch_count; i++) {
            int r = store_db_touch(db, op->touches[i].id, op->touches[i].last_used_ms);
            if (r < 0)
                return r;
        }
        return 0;
    case OP_PUT_TOKEN:
        return store_db_put_token(db, op->token);
    case OP_DELETE_TOKEN:
        return store_db_delete_token(db, op->token->id);
    case OP_PUT_PORT:
        return store_db_put_port(db, &op->port);
    case OP_DELETE_PORT:
        return store_db_delete_port(db, &op->port);
    case OP_PUT_CONTAINER:
        return store_db_put_container(db, &op->container);
    case OP_DELETE_CONTAINER:
        return store_db_delete_container(db, op->container.id);
    }
    return -EINVAL;
}

/* The operations from first up to, not including, end. */
static int run_transaction(struct store_db *db, const struct op *first, const struct op *end)
{
    int r = store_db_begin(db);
    for (const struct op *op = first; r == 0 && op != end; op = op->next)
        r = run_op(db, op);
    if (r == 0)
        r = store_db_commit(db);
    if (r < 0)
        store_db_rollback(db);
    return r;
}

static void run_batch(struct store_db *db, struct op_list *batch)
{
    (void)failpoint_hit("store", 0, NULL);
    int r = run_transaction(db, batch->first, NULL);
    for (struct op *op = batch->first; op && r < 0; op = op->next)
        op->err = run_transaction(db, op, op->next);
    (void)failpoint_hit("store", 1, NULL);
}

static void *writer(void *arg)
{
    struct store *s = arg;
    struct op_list batch;

    (void)pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->queue.first && !s->stop)
            (void)pthread_cond_wait(&s->cond, &s->mutex);
        if (!s->queue.first)
            break;
        list_init(&batch);
        list_move(&batch, &s->queue);
        (void)pthread_mutex_unlock(&s->mutex);

        run_batch(s->db, &batch);

        (void)pthread_mutex_lock(&s->mutex);
        list_move(&s->finished, &batch);
        (void)eventfd_write(s->event_fd, 1); /* blocks never: the counter cannot get near its limit */
    }
    (void)pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static void take_finished(struct store *s, struct op_list *ret)
{
    list_init(ret);
    (void)pthread_mutex_lock(&s->mutex);
    list_move(ret, &s->finished);
    (void)pthread_mutex_unlock(&s->mutex);
}

static void finished_ready(struct source *source, uint32_t events)
{
    struct store *s = container_of(source, struct store, wakeup);
    struct op_list done;
    eventfd_t count;
    (void)events;
    (void)eventfd_read(s->event_fd, &count);
    take_finished(s, &done);
    for (struct op *op = done.first, *next; op; op = next) {
        next = op->next;
        if (op->done)
            op->done(op->arg, op->ticket, op->err);
        op_free(op);
    }
}

int store_start(struct store *s, struct loop *loop, struct error *reterr)
{
    s->loop = loop;
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->event_fd < 0)
        return error_sys(reterr, errno, "start the store");
    int r = loop_add(loop, &s->wakeup, s->event_fd, EPOLLIN, finished_ready);
    if (r < 0)
        return error_sys(reterr, -r, "start the store");

    sigset_t all, old; /* signals are the loop's */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&s->thread, NULL, writer, s);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r != 0)
        return error_sys(reterr, r, "start the store's writer");
    s->running = true;
    return 0;
}

static struct op *op_new(struct store *s, enum op_kind kind, store_done *done, void *arg)
{
    struct op *op = calloc(1, sizeof *op);
    if (!op)
        abort(); /* without this record its caller would wait for ever; a restart loses nothing promised */
    op->kind = kind;
    op->ticket = ++s->last_ticket;
    op->done = done;
    op->arg = arg;
    return op;
}

static uint64_t submit(struct store *s, struct op *op, int err)
{
    op->err = err;
    (void)pthread_mutex_lock(&s->mutex);
    if (err < 0) {
        list_append(&s->finished, op);
        (void)eventfd_write(s->event_fd, 1);
    } else {
        list_append(&s->queue, op);
        (void)pthread_cond_signal(&s->cond);
    }
    (void)pthread_mutex_unlock(&s->mutex);
    return op->ticket; /* only the loop, that is this thread, frees it */
}

uint64_t store_put(struct store *s, const struct sandbox_row *row, store_done *done, void *arg)
{
    struct op *op = op_new(s, OP_PUT, done, arg);
    op->row = *row;
    int r = sandbox_config_copy(&op->row.config, &row->config);
    return submit(s, op, r);
}

uint64_t store_delete(struct store *s, const char *id, store_done *done, void *arg)
{
    struct op *op = op_new(s, OP_DELETE, done, arg);
    memcpy(op->row.id, id, strnlen(id, SANDBOX_ID_MAX));
    return submit(s, op, 0);
}

uint64_t store_touch(struct store *s, const struct store_touch *touches, size_t count, store_done *done,
                     void *arg)
{
    struct op *op = op_new(s, OP_TOUCH, done, arg);
    op->touches = calloc(count ? count : 1, sizeof *touches);
    if (!op->touches)
        return submit(s, op, -ENOMEM);
    memcpy(op->touches, touches, count * sizeof *touches);
    op->touch_count = count;
    return submit(s, op, 0);
}

uint64_t store_put_port(struct store *s, const struct port_row *row, store_done *done, void *arg)
{
    struct op *op = op_new(s, OP_PUT_PORT, done, arg);
    op->port = *row;
    return submit(s, op, 0);
}

uint64_t store_delete_port(struct store *s, const char *sandbox, int port, store_done *done, void *arg)
{
    struct op *op = op_new(s, OP_DELETE_PORT, done, arg);
    op->port.port = port;
    memcpy(op->port.sandbox, sandbox, strnlen(sandbox, SANDBOX_ID_MAX));
    return submit(s, op, 0);
}

static uint64_t submit_token(struct store *s, enum op_kind kind, const struct token_row *row,
                             store_done *done, void *arg)
{
    struct op *op = op_new(s, kind, done, arg);
    op->token = malloc(sizeof *op->token);
    if (!op->token)
        return submit(s, op, -ENOMEM);
    *op->token = *row;
    return submit(s, op, 0);
}

uint64_t store_put_token(struct store *s, const struct token_row *row, store_done *done, void *arg)
{
    return submit_token(s, OP_PUT_TOKEN, row, done, arg);
}

uint64_t store_delete_token(struct store *s, const char *id, store_done *done, void *arg)
{
    struct token_row row = {0};
    memcpy(row.id, id, strnlen(id, TOKEN_ID_CHARS));
    return submit_token(s, OP_DELETE_TOKEN, &row, done, arg);
}

uint64_t store_put_container(struct store *s, const struct container_row *row, store_done *done, void *arg)
{
    struct op *op = op_new(s, OP_PUT_CONTAINER, done, arg);
    op->container = *row;
    op->container.record = op->record = strdup(row->record);
    return submit(s, op, op->record ? 0 : -ENOMEM);
}

uint64_t store_delete_container(struct store *s, const char *id, store_done *done, void *arg)
{
    struct op *op = op_new(s, OP_DELETE_CONTAINER, done, arg);
    memcpy(op->container.id, id, strnlen(id, CONTAINER_ID_CHARS));
    return submit(s, op, 0);
}

void store_free(struct store *s)
{
    struct op_list rest;
    if (!s)
        return;
    if (s->running) {
        (void)pthread_mutex_lock(&s->mutex);
        s->stop = true;
        (void)pthread_cond_signal(&s->cond);
        (void)pthread_mutex_unlock(&s->mutex);
        (void)pthread_join(s->thread, NULL);
    }
    take_finished(s, &rest);
    for (struct op *op = rest.first, *next; op; op = next) {
        next = op->next;
        op_free(op);
    }
    if (s->loop)
        loop_del(s->loop, &s->wakeup);
    close_fd(&s->event_fd);
    store_db_close(s->db);
    (void)pthread_cond_destroy(&s->cond);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s);
}
