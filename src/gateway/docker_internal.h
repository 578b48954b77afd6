/* SPDX-License-Identifier: Apache-2.0 */
/* docker_internal.h: the parts of the container engine. */
#pragma once

#include "gateway/docker.h"
#include "gateway/docker_text.h"
#include "gateway/gateway_internal.h"

enum {
    DOCKER_CONTAINERS_MAX = 4096,
    DOCKER_BODY_MAX = 4 << 20,
    DOCKER_SIDECARS_IDLE = 128,              /* without a container; beyond, the oldest go ... */
    DOCKER_SIDECAR_IDLE_MS = 10 * 60 * 1000, /* ... that nobody spoke to for so long */
    DOCKER_STOP_S = 10,                      /* between SIGTERM and the end, unless said otherwise */
};

enum container_status {
    CONTAINER_CREATED,    /* never started */
    CONTAINER_STARTING,   /* its main program does not run yet */
    CONTAINER_RUNNING,    /* it does */
    CONTAINER_RESTARTING, /* it failed, and is started again in a moment */
    CONTAINER_EXITED,     /* it has ended; the files are kept */
    CONTAINER_REMOVING,
    CONTAINER_STATUS_COUNT,
};

struct container;

/* A request that waits for a container's end. */
struct docker_wait {
    struct docker_wait *next, **prev;
    struct http_request *req;
    bool removed; /* for its removal, not for its end */
};

/* One who asked for a start, a stop or a removal; embedded in its owner. */
struct container_want {
    struct container_want *next, **prev;                             /* prev NULL: not waiting */
    void (*done)(struct container_want *w, const struct problem *p); /* p NULL: it is so */
};

struct container {
    struct docker *docker;
    struct container *next;
    char id[CONTAINER_ID_CHARS + 1];
    char sandbox[SANDBOX_ID_MAX + 1];
    char *name;
    char *image;  /* as it was asked for */
    char *config; /* JSON: what the caller decided; see docker_create.c */
    struct json_doc *doc;
    char *doc_text;
    bool is_sidecar;
    enum container_status status;
    int exit_code;
    int64_t created_ms, started_ms, finished_ms;
    unsigned restarts;
    bool stop_wanted; /* its end is no failure */

    struct docker_wait *waits;
    struct docker_late *late; /* answers of its last end that are not sent yet */
    struct container_want *starts, *stops, *removals;
    struct timer restart, deadline; /* deadline: of a polite stop */
    struct container_run *run;      /* a start under way */
    struct farewell *farewell;      /* the signal of a stop, on its way */
    struct sandbox_wait killing;    /* asked for, when killing_pending */
    bool killing_pending;
    struct sandbox_wait destroying;
    unsigned pending; /* callbacks of the store that will come */

    struct sidecar *sidecar; /* of a sidecar that runs */
    char *secret;            /* of its certificate authority, so that containers go on trusting it */
    char *egress;            /* the settings of its way out, as egress_describe tells them */
    int host_port;
    int64_t used_ms; /* when its owner spoke to it last; since we run */
};

struct docker {
    struct gateway *g;
    struct http_server *server;
    struct container *containers;
    size_t container_count;
    struct docker_late *lates;
    struct docker_exec *execs;
    int listen_fd;      /* until everything is taken up */
    unsigned taking_up; /* sidecars without a port yet */
    char taken_up;      /* docker_begin was called */
};

/* A request of the engine's own server; lives as long as its request. */
struct docker_request {
    struct docker *docker;
    struct http_request *req;
    const char *method, *path; /* path: without a version prefix, in the request */
    char *name;                /* the container or exec in the path, decoded */
    const char *action;        /* what follows it, e.g. "/start"; "" */
    char *target;              /* for the agent */
    const struct json_value *body;
};

/* docker_router.c */
int docker_server_new(struct docker *d, struct http_server **ret, struct error *reterr);
void docker_reply_error(struct http_request *req, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
void docker_reply_problem(struct http_request *req, const struct problem *p);
void docker_reply_json(struct http_request *req, int status, struct json_writer *w); /* frees w->out */
void docker_reply_empty(struct http_request *req, int status);

/* docker.c: the table */
struct container *docker_find(const struct docker *d, const char *name); /* name, id, or beginning of an id */
struct container *docker_find_sandbox(const struct docker *d, const char *sandbox);
struct container *container_new(struct docker *d, const char *id);
void container_free(struct container *c); /* out of the table, too */
/* The sidecar whose network the container shares, NULL: none. */
struct container *container_sidecar(const struct container *c);
/* The container that shares the sidecar's network and runs, NULL: none. */
struct container *sidecar_member(const struct container *sidecar);

/* docker_record.c: a container on disk */
void container_save(struct container *c, store_done *done, void *arg);
int container_load(struct docker *d, const struct container_row *row);
int container_set_config(struct container *c, const char *config); /* JSON; once */

/* docker_create.c */
void docker_create(struct docker_request *r);
/* The sandbox it becomes. */
int container_sandbox_config(const struct container *c, struct sandbox_config *ret, struct problem *p);
/* The body of the agent's /container/start. */
int container_start_body(const struct container *c, struct buf *out);

/* docker_life.c */
void container_start(struct container *c, struct container_want *w);
void container_kill(struct container *c, struct container_want *w);      /* SIGKILL; done when it has ended */
void container_stop_wait(struct container *c, struct container_want *w); /* only waits for its end */
void container_remove(struct container *c, struct container_want *w);
void container_want_cancel(struct container_want *w);
/* Its sandbox has ended. */
void container_ended(struct container *c, int code);
void container_take_up(struct container *c);
void container_destroy(struct container *c);
void container_life_stop(struct container *c); /* for container_free */

/* docker_wait.c */
void docker_wait_request(struct docker_request *r, struct container *c);
void docker_waits_ended(struct container *c, int code); /* it has ended: they hear of it in a moment */
bool docker_waits_hurry(struct container *c);           /* ... or now; false: nobody waited */
void docker_waits_removed(struct container *c);         /* it is gone */
void docker_lates_free(struct docker *d);

/* docker_run.c: what a start consists of */
void container_run_begin(struct container *c);
void container_run_cancel(struct container *c);
/* Its sandbox has ended; false: no start is under way. */
bool container_run_ended(struct container *c, int code);
/* Makes its sandbox known, if it is not; it starts with its first use. */
int container_sandbox_make(struct container *c, struct problem *p);
/* Calls back here (docker_life.c). */
void container_run_done(struct container *c, const struct problem *p);

/* docker_control.c: start, stop, kill, remove, rename as requests */
void docker_control_request(struct docker_request *r, struct container *c);
void container_farewell_free(struct container *c);

/* docker_view.c */
void docker_view_container(struct docker_request *r, struct container *c);
void docker_view_list(struct docker_request *r);

/* docker_agent.c: requests that the agent of a container answers */
/* Passes the request on as `target`, which is copied; the body must not have been read. */
void docker_pass_on(struct docker_request *r, struct container *c, const char *target, bool must_run);

/* docker_exec.c */
void docker_exec_create(struct docker_request *r, struct container *c);
bool docker_exec_passed_on(struct docker_request *r); /* false: its body must be read first */
void docker_exec_request(struct docker_request *r);
void docker_exec_sandbox_ended(struct docker *d, const char *sandbox); /* "": all */

/* docker_sidecar.c */
void sidecar_start(struct container *c, void (*done)(struct container *c, const struct problem *p));
void sidecar_stop(struct container *c); /* fine when it does not run */
/* Nobody else removes sidecars: keeps their number in bounds, before one more is made. */
void sidecars_trim(struct docker *d);
/* Its member runs, before its main program does; ready is called from the loop. */
void sidecar_attach(struct container *sidecar, const char *sandbox, void (*ready)(void *arg, int err),
                    void *arg);
void sidecar_detach(struct container *sidecar); /* the member has ended */

/* docker_images.c */
void docker_images_request(struct docker_request *r);
/* What an image says about its programs; all of it is the image list's, and good until the next event. 0, or
 * -EINVAL with *p. */
struct docker_image {
    char id[IMAGE_NAME_MAX + 1];
    const struct image_info *info;
    const struct json_value *entrypoint, *cmd;
    const char *workdir;
};
int docker_image_find(struct docker *d, const char *name, struct docker_image *ret, struct problem *p);

/* docker_image_ops.c */
void docker_image_tag(struct docker_request *r);
void docker_image_delete(struct docker_request *r);
void docker_commit(struct docker_request *r);

/* docker_system.c: everything that is about no container; false: it is not its path */
bool docker_system_request(struct docker_request *r);
