/* SPDX-License-Identifier: Apache-2.0 */
/* store_internal.h: the database below the queue: store_db.c does it, store.c decides when and in which
 * thread. */
#pragma once

#include "gateway/store.h"

struct store_db;

int store_db_open(const char *path, struct store_db **ret, struct error *reterr);
void store_db_close(struct store_db *db); /* NULL is fine */
int store_db_load(struct store_db *db, int (*each)(const struct sandbox_row *row, void *arg), void *arg,
                  struct error *reterr);

int store_db_load_tokens(struct store_db *db, int (*each)(const struct token_row *row, void *arg), void *arg,
                         struct error *reterr);

int store_db_load_ports(struct store_db *db, int (*each)(const struct port_row *row, void *arg), void *arg,
                        struct error *reterr);

int store_db_load_containers(struct store_db *db, int (*each)(const struct container_row *row, void *arg),
                             void *arg, struct error *reterr);

/* All return 0 or -errno. A transaction that failed anywhere must be rolled back. */
int store_db_begin(struct store_db *db);
int store_db_commit(struct store_db *db);
void store_db_rollback(struct store_db *db);
int store_db_put(struct store_db *db, const struct sandbox_row *row);
int store_db_delete(struct store_db *db, const char *id);
int store_db_touch(struct store_db *db, const char *id, int64_t last_used_ms);
int store_db_put_port(struct store_db *db, const struct port_row *row);
int store_db_delete_port(struct store_db *db, const struct port_row *row);
int store_db_put_token(struct store_db *db, const struct token_row *row);
int store_db_delete_token(struct store_db *db, const char *id);
int store_db_put_container(struct store_db *db, const struct container_row *row);
int store_db_delete_container(struct store_db *db, const char *id);
