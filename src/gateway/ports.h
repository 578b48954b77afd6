/* SPDX-License-Identifier: Apache-2.0 */
/* ports.h: the exposed ports of all sandboxes: a table in memory, in front of a table on disk.
 *
 * A port is exposed from ports_expose until ports_unexpose, or until its sandbox is removed; sleep, wake and
 * restarts do not touch it. Whoever serves a request for an exposed port is on its list of users, and is told
 * when the port is closed. */
#pragma once

#include "gateway/pace.h"
#include "gateway/preview_host.h"
#include "gateway/store.h"
#include "gateway/upstream.h"

enum {
    PORTS_PER_SANDBOX_MAX = 64,
    PORT_USERS_MAX = 256, /* requests and tunnels of one exposed port at a time */
};

struct ports;

struct port_user {
    /* The port is not exposed any more, or (gone: false) the sandbox ended that the user is connected to. The
     * user must leave before it returns. */
    void (*end)(struct port_user *u, bool gone);
    bool connected; /* to the service */
    bool stale;     /* to one that is gone */
    struct port_user *next, **prev;
};

struct exposed_port {
    struct ports *ports;
    struct exposed_port *next;
    char id[SANDBOX_ID_MAX + 1];
    int port;
    char token[PREVIEW_TOKEN_MAX + 1]; /* zero to its end: it is compared as a whole */
    char name[PORT_NAME_MAX + 1];      /* "" when none was given */
    int64_t exposed_ms;
    bool on_disk;    /* its row is */
    bool closing;    /* its row is being deleted; nobody is let in */
    unsigned writes; /* of its row, in flight */
    struct upstream_pool pool;
    struct port_user *users;
    unsigned user_count;
    struct pace pace[2];   /* to the service, and from it */
    struct deferred stale; /* see ports_sandbox_ended */
};

/* One who waits for a change to be on disk; embedded in its owner, who must stay until done is called. */
struct port_change {
    /* err: 0 or -errno: nothing has changed. e is NULL when the port is gone. */
    void (*done)(struct port_change *c, const struct exposed_port *e, int err);
    struct ports *ports;
    char id[SANDBOX_ID_MAX + 1];
    int port;
    bool removal;
};

/* Loads the rows; the store must not have been started. */
int ports_new(struct loop *loop, struct keeper_link *link, struct store *store, struct ports **ret,
              struct error *reterr);
/* Ends all users. */
void ports_close(struct ports *p);
void ports_free(struct ports *p); /* NULL is fine; after ports_close, and after the store */

/* NULL when the port is not exposed. */
struct exposed_port *ports_find(struct ports *p, const char *id, int port);
struct exposed_port *ports_find_token(struct ports *p, const char *id, const char *token);
size_t ports_count(struct ports *p, const char *id);
/* Fills list with the ports of a sandbox in ascending order and returns how many there are. */
size_t ports_list(struct ports *p, const char *id, const struct exposed_port *list[PORTS_PER_SANDBOX_MAX]);
/* The port that a host name means, NULL when there is none: the same work whatever is wrong with the name. */
struct exposed_port *ports_route(struct ports *p, const struct preview_host *host);

/* Makes a new one (there is none with this port or token, and fewer than PORTS_PER_SANDBOX_MAX) or, with the
 * token of the existing one, writes it again with another name. */
void ports_expose(struct ports *p, const char *id, int port, const char *token, const char *name,
                  struct port_change *c);
/* The users are told at once, the row follows. */
void ports_unexpose(struct exposed_port *e, struct port_change *c);

/* From the lifecycle: the sandbox ended, its row was removed. */
void ports_sandbox_ended(struct ports *p, const char *id);
void ports_sandbox_removed(struct ports *p, const char *id);

/* False: there are too many. */
bool port_user_add(struct exposed_port *e, struct port_user *u);
void port_user_del(struct exposed_port *e, struct port_user *u); /* fine when not on the list */
