/* SPDX-License-Identifier: Apache-2.0 */
/* watch_internal.h: what watch.c (the inotify instance) and watch_tree.c (the directories) share. */
#pragma once

#include "agent/list.h"
#include "agent/watch.h"

#include <dirent.h>
#include <limits.h>
#include <sys/inotify.h>

/* One watched directory (or file) of one tree. A tree has at most one node per watch descriptor. */
struct watch_node {
    struct watch_tree *tree;
    struct watch_node *parent; /* NULL: the root, or in limbo */
    struct list sibling, children;
    struct list queued; /* in tree->scans while it waits to be looked through */
    struct watch_node *next_wd;
    char *name; /* the root's is the whole path */
    int wd;
    bool scanned;
    bool fresh; /* appeared while we watched: what a scan finds in it is reported as created */
};

struct watch_tree {
    struct watch_hub *hub;
    struct watch_tree_config config;
    struct list link;
    struct watch_node *root;
    bool is_file;
    struct list scans;           /* nodes to look through */
    struct watch_node *scanning; /* the one whose directory is open, NULL: none */
    DIR *dir;
    struct list limbo; /* moved away (linked by sibling), perhaps to another place in this tree */
    bool settled;
    bool over; /* `ended` is due, with these: */
    int over_err;
    char over_why[160];
};

struct watch_hub {
    struct loop *loop;
    struct source source;
    int fd; /* -1: no trees */
    struct list trees;
    struct deferred work;
    struct timer limbo_timer;
    struct watch_node **buckets; /* by watch descriptor */
    size_t bucket_count, node_count;
    char *events; /* read buffer, while there are trees */
};

/* Longest path that can be given to the kernel, and one more name. */
enum { WATCH_PATH_SIZE = PATH_MAX + NAME_MAX + 2 };

/* watch.c */
int watch_hub_open(struct watch_hub *h, struct error *reterr); /* fine when open */
void watch_hub_leave(struct watch_tree *t);                    /* before its nodes are dropped ... */
void watch_hub_release(struct watch_hub *h); /* ... and after: without trees there is no instance */
void watch_hub_schedule(struct watch_hub *h);
struct watch_node *watch_hub_find(struct watch_hub *h, const struct watch_tree *t, int wd);
int watch_hub_insert(struct watch_hub *h, struct watch_node *n);
void watch_hub_remove(struct watch_hub *h, struct watch_node *n, bool wd_is_gone);
void watch_tree_end(struct watch_tree *t, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* watch_tree.c */
void watch_tree_inotify(struct watch_node *n, const struct inotify_event *e);
bool watch_tree_scan(struct watch_tree *t, unsigned *budget); /* false: nothing left to do */
void watch_tree_drop_limbo(struct watch_tree *t);
