/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: what the API promised, on disk: one SQLite file, written by one thread.
 *
 * Loading is synchronous and happens before the loop runs. Writing is asynchronous: an operation is
 * copied into a queue, the writer commits everything queued in one transaction (one flush of the disk for all
 * of it), and `done` is called from the loop when it is safe. Operations take effect in the order of the
 * calls. */
#pragma once

#include "base/error.h"
#include "gateway/sandbox_config.h"
#include "net/loop.h"

struct store;

enum { PORT_TOKEN_MAX = 16, PORT_NAME_MAX = 64 };
enum { TOKEN_ID_CHARS = 12, TOKEN_NAME_MAX = 63, TOKEN_SCOPE_MAX = 15, TOKEN_HASH_SIZE = 32 };

struct sandbox_row {
    char id[SANDBOX_ID_MAX + 1];
    char owner[TOKEN_ID_CHARS + 1]; /* the token that made it; "": nobody's in particular */
    struct sandbox_config config;
    int64_t created_ms, last_used_ms; /* wall time */
};

struct store_touch {
    char id[SANDBOX_ID_MAX + 1];
    int64_t last_used_ms;
};

struct token_row {
    char id[TOKEN_ID_CHARS + 1];
    unsigned char hash[TOKEN_HASH_SIZE]; /* SHA-256 of the secret, which is nowhere */
    char scope[TOKEN_SCOPE_MAX + 1];
    char sandbox[SANDBOX_ID_MAX + 1]; /* "": not bound to one */
    char name[TOKEN_NAME_MAX + 1];
    int64_t created_ms, expires_ms; /* wall time; expires_ms 0: never */
};

struct port_row {
    char sandbox[SANDBOX_ID_MAX + 1];
    int port;
    char token[PORT_TOKEN_MAX + 1]; /* part of the preview's host name */
    char name[PORT_NAME_MAX + 1];   /* "" when none was given */
    int64_t exposed_ms;             /* wall time */
};

enum { CONTAINER_ID_CHARS = 64 };

/* A container of the engine; what the record says is docker_record.c's. */
struct container_row {
    char id[CONTAINER_ID_CHARS + 1];
    const char *record; /* JSON */
};

/* err: 0, or -errno (-EIO, -ENOSPC, -ENOMEM): nothing of the operation is on disk. */
typedef void store_done(void *arg, uint64_t ticket, int err);

/* Opens or makes the file, brings its schema up to date. */
int store_open(const char *path, struct store **ret, struct error *reterr);
/* Calls each for every row; stops at the first negative return value and passes it on. */
int store_load(struct store *s, int (*each)(const struct sandbox_row *row, void *arg), void *arg,
               struct error *reterr);
int store_load_tokens(struct store *s, int (*each)(const struct token_row *row, void *arg), void *arg,
                      struct error *reterr);
/* The exposed ports of sandboxes that have a row. */
int store_load_ports(struct store *s, int (*each)(const struct port_row *row, void *arg), void *arg,
                     struct error *reterr);
int store_load_containers(struct store *s, int (*each)(const struct container_row *row, void *arg), void *arg,
                          struct error *reterr);
/* Starts the writer. After this only the calls below are allowed. */
int store_start(struct store *s, struct loop *loop, struct error *reterr);

/* All return a ticket (never 0), which done gets too. When the operation cannot even be queued, done is
 * called from the loop all the same, with -ENOMEM. done may be NULL. */
uint64_t store_put(struct store *s, const struct sandbox_row *row, store_done *done, void *arg);
/* Also deletes its exposed ports. */
uint64_t store_delete(struct store *s, const char *id, store_done *done, void *arg);
/* New times of last use; rows that do not exist are skipped. */
uint64_t store_touch(struct store *s, const struct store_touch *touches, size_t count, store_done *done,
                     void *arg);

uint64_t store_put_port(struct store *s, const struct port_row *row, store_done *done, void *arg);
uint64_t store_delete_port(struct store *s, const char *sandbox, int port, store_done *done, void *arg);

uint64_t store_put_token(struct store *s, const struct token_row *row, store_done *done, void *arg);
uint64_t store_delete_token(struct store *s, const char *id, store_done *done, void *arg);

uint64_t store_put_container(struct store *s, const struct container_row *row, store_done *done, void *arg);
uint64_t store_delete_container(struct store *s, const char *id, store_done *done, void *arg);

/* NULL is fine. Writes what is queued; then no done is called any more. */
void store_free(struct store *s);
