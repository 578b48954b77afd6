/* SPDX-License-Identifier: Apache-2.0 */
/* images.h: what images there are, as the gateway knows it, and what can be done with them.
 *
 * The keeper owns the store; the gateway keeps a copy of its list, asked for at the start and renewed by
 * every operation (all of them go through the gateway). Names that the list does not have may still be
 * directories that somebody made meanwhile (scripts/image): images_resolve passes plain names on. */
#pragma once

#include "base/json.h"
#include "gateway/keeper_link.h"
#include "gateway/problem.h"

struct images;

struct image_info {
    char id[IMAGE_NAME_MAX + 1]; /* 64 hexadecimal digits; the directory's name when `plain` */
    bool plain;
    uint64_t bytes;
    struct json_doc *doc; /* members as in docs/images.md, without id, digest, names, size and sandboxes */
    char *text;           /* what doc points into */
    struct image_info *next;
};

struct image_name {
    char reference[IMAGE_REFERENCE_MAX + 1]; /* whole: with its tag */
    char image[IMAGE_NAME_MAX + 1];
    struct image_name *next;
};

/* ready is called from the loop, once: the list is known. */
int images_new(struct keeper_link *link, void (*ready)(void *arg), void *arg, struct images **ret,
               struct error *reterr);
void images_free(struct images *im); /* NULL is fine; after the link */

/* "docker.io/library/app" is "app:latest". 0, or -EINVAL and *p. */
int image_reference_parse(const char *text, char ret[IMAGE_REFERENCE_MAX + 1], struct problem *p);

/* Name, id, beginning of an id, or plain name -> id. 0, or -EINVAL and *p (404 or 400). */
int images_resolve(const struct images *im, const char *name, char ret_id[IMAGE_NAME_MAX + 1],
                   struct problem *p);
const struct image_info *images_find(const struct images *im, const char *id); /* NULL: not in the list */
const struct image_info *images_first(const struct images *im);
const struct image_name *images_first_name(const struct images *im);
/* The "config" of an image: {"env", "workdir", ...}; NULL: it has none. */
const struct json_value *image_config(const struct image_info *info);
/* An array of the names that an image has now. */
void image_names_write(struct json_writer *w, const struct images *im, const char *id);
/* The IMAGE object of docs/images.md; sandboxes < 0: not told. */
void image_write(struct json_writer *w, const struct images *im, const struct image_info *info,
                 int64_t sandboxes);

/* One operation. Callbacks come from the loop, `done` last and exactly once, when the list is renewed. After
 * image_op_abandon there are none, but the operation goes on. */
struct image_op {
    void (*done)(struct image_op *op, const struct problem *p); /* p NULL: it worked */
    void (*stream)(struct image_op *op, int fd);                /* IMPORT, EXPORT; fd is yours */
    void (*progress)(struct image_op *op, const struct keeper_image_tell *tell); /* may be NULL */
    struct image_call *call;                                                     /* NULL: nothing under way */
    /* results */
    char made[16][IMAGE_NAME_MAX + 1]; /* IMPORT, SAVE */
    size_t made_count;
    char (*gone)[IMAGE_NAME_MAX + 1]; /* PRUNE; freed by whoever owns the operation */
    size_t gone_count;
    struct keeper_image_tell tell; /* of the last word */
};

struct image_ask {
    uint32_t type;                           /* KEEPER_IMAGE_* */
    const char *sandbox, *image, *reference; /* NULL: none; image is an id */
    bool plain;
    int changes_fd; /* SAVE: JSON in a memfd, or -1; stays the caller's */
};
void image_op_start(struct images *im, struct image_op *op, const struct image_ask *ask);
void image_op_abandon(struct image_op *op); /* fine when nothing is under way */

/* Lays body's member "image" over the id at *c_image. 0, or -EINVAL and *p. */
int images_apply(const struct images *im, const struct json_value *body, char c_image[IMAGE_NAME_MAX + 1],
                 struct problem *p);
