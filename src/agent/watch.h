/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h: what happens to the files of a directory tree, as events. */
#pragma once

#include "agent/watch_glob.h"
#include "base/error.h"
#include "net/loop.h"

enum watch_event {
    WATCH_CREATE,
    WATCH_MODIFY,
    WATCH_DELETE,
    WATCH_MOVE_FROM,
    WATCH_MOVE_TO,
    WATCH_ATTRIB,
    WATCH_EVENT_COUNT,
};
#define WATCH_EVENTS_DEFAULT ((1u << WATCH_ATTRIB) - 1)

const char *watch_event_name(enum watch_event e);
bool watch_event_parse(const char *name, enum watch_event *ret);

/* All trees of a program together: 160 bytes each and the name. */
enum { WATCH_NODES_MAX = 131072 };

struct watch_hub; /* the inotify instance and all trees on it */
struct watch_tree;

struct watch_tree_config {
    const char *path; /* absolute; a file or a directory */
    bool recursive;
    const struct watch_glob *include; /* NULL: everything; both must outlive the tree */
    const struct watch_glob *exclude; /* NULL: nothing */
    unsigned events;                  /* bits 1 << enum watch_event */

    /* Everything that was there is watched now. Comes again after each time that new directories had to be
     * looked through; the callee may free the tree. */
    void (*settled)(struct watch_tree *t, void *arg);
    /* path is valid during the call; the callee must not free a tree. */
    void (*event)(struct watch_tree *t, enum watch_event e, const char *path, bool directory, void *arg);
    /* No more events: the path is gone (err 0), or err says why watching failed. The callee frees the tree.
     */
    void (*ended)(struct watch_tree *t, int err, const char *why, void *arg);
    void *arg;
};

struct watch_hub *watch_hub_new(struct loop *loop); /* NULL when memory is short; opens nothing yet */
void watch_hub_free(struct watch_hub *h);           /* all trees must be gone */
/* Handles what the kernel has queued up to now, at once. */
void watch_hub_poll(struct watch_hub *h);

/* Watches the path itself at once, the rest in small steps from the loop. */
int watch_tree_new(struct watch_hub *h, const struct watch_tree_config *config, struct watch_tree **ret,
                   struct error *reterr);
void watch_tree_free(struct watch_tree *t); /* NULL is fine */
bool watch_tree_settled(const struct watch_tree *t);
