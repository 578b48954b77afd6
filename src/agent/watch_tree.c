/* SPDX-License-Identifier: Apache-2.0 */
/* watch_tree.c: the directories of one watched tree, kept in step with the file system.
 *
 * Theory of operation
 * A directory is first watched, then looked through: whatever appears in it in between is seen twice, never
 * missed. What is found in a directory that appeared while we were watching is reported as created, because
 * its own events may have come before our watch did. Nodes know their parents and names only, so a move
 * within the tree changes one node: "moved from" puts it into limbo, watching a directory again (after "moved
 * to") gives the same descriptor and brings it back; what stays in limbo for a moment has left the tree and
 * is dropped. Events below a node in limbo have no path and are not reported. Excluded directories are not
 * watched at all: everything below them is excluded too. */
#include "agent/watch_internal.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MASK_BASE = IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_EXCL_UNLINK | IN_MASK_ADD
};

/* Builds the path of name in n (name NULL: of n) from the end backwards; NULL when it is in limbo or too
 * long. */
static const char *node_path(const struct watch_node *n, const char *name, char buf[WATCH_PATH_SIZE])
{
    char *at = buf + WATCH_PATH_SIZE - 1;
    *at = '\0';
    for (; n; n = n->parent) {
        bool root = n == n->tree->root;
        if (name) {
            size_t len = strlen(name);
            bool slash = !(root && n->name[strlen(n->name) - 1] == '/');
            if (len + 1 > (size_t)(at - buf))
                return NULL;
            at -= len;
            memcpy(at, name, len);
            if (slash)
                *--at = '/';
        }
        if (root) {
            size_t len = strlen(n->name);
            if (len > (size_t)(at - buf))
                return NULL;
            return memcpy(at - len, n->name, len);
        }
        name = n->name;
    }
    return NULL;
}

static void report(struct watch_tree *t, enum watch_event e, const char *path, bool directory)
{
    if (!(t->config.events & 1u << e))
        return;
    if (t->config.include && !watch_glob_match(t->config.include, path))
        return;
    if (watch_glob_match(t->config.exclude, path))
        return;
    t->config.event(t, e, path, directory, t->config.arg);
}

/* ------------------------------------------------------------------ nodes */

static void scan_stop(struct watch_tree *t)
{
    if (t->dir)
        (void)closedir(t->dir);
    t->dir = NULL;
    t->scanning = NULL;
}

static void node_queue(struct watch_node *n)
{
    struct watch_tree *t = n->tree;
    if (n->scanned || !list_empty(&n->queued) || t->scanning == n || t->is_file || !t->config.recursive)
        return;
    list_append(&t->scans, &n->queued);
    t->settled = false;
    watch_hub_schedule(t->hub);
}

static void node_release(struct watch_node *n, bool wd_is_gone)
{
    struct watch_tree *t = n->tree;
    if (t->scanning == n)
        scan_stop(t);
    list_remove(&n->queued);
    list_remove(&n->sibling);
    watch_hub_remove(t->hub, n, wd_is_gone);
    if (t->root == n)
        t->root = NULL;
    free(n->name);
    free(n);
}

/* n and everything below it. */
static void node_drop(struct watch_node *top)
{
    for (struct watch_node *n = top;;) {
        if (!list_empty(&n->children)) {
            n = list_first(&n->children, struct watch_node, sibling);
            continue;
        }
        struct watch_node *up = n == top ? NULL : n->parent;
        node_release(n, false);
        if (!up)
            return;
        n = up;
    }
}

/* The node behind n in a walk over all below top, NULL at the end. */
static struct watch_node *node_after(struct watch_node *n, const struct watch_node *top)
{
    if (!list_empty(&n->children))
        return list_first(&n->children, struct watch_node, sibling);
    while (n != top) {
        if (n->sibling.next != &n->parent->children)
            return list_entry(n->sibling.next, struct watch_node, sibling);
        n = n->parent;
    }
    return NULL;
}

static int node_new(struct watch_tree *t, struct watch_node *parent, const char *name, int wd, bool fresh)
{
    struct watch_node *n = calloc(1, sizeof *n);
    if (!n || !(n->name = strdup(name))) {
        free(n);
        return -ENOMEM;
    }
    n->tree = t;
    n->parent = parent;
    n->wd = wd;
    n->fresh = fresh;
    list_init(&n->children);
    list_init(&n->queued);
    list_init(&n->sibling);
    int r = watch_hub_insert(t->hub, n);
    if (r < 0) {
        free(n->name);
        free(n);
        return r;
    }
    if (parent)
        list_append(&parent->children, &n->sibling);
    else
        t->root = n;
    node_queue(n);
    return 0;
}

/* A known directory turned up under another name: it was moved, and we may have been told or not. */
static int node_move(struct watch_node *n, struct watch_node *parent, const char *name)
{
    for (const struct watch_node *p = parent; p; p = p->parent)
        if (p == n)
            return -ELOOP; /* a mount of the tree inside itself */
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    free(n->name);
    n->name = copy;
    n->parent = parent;
    list_remove(&n->sibling);
    list_append(&parent->children, &n->sibling);
    for (struct watch_node *below = n; below; below = node_after(below, n))
        node_queue(below); /* those whose turn came while they were in limbo */
    return 0;
}

static void end_by_limit(struct watch_tree *t, int err)
{
    if (err == ENOSPC)
        watch_tree_end(t, err, "Too many directories to watch: the limit of the system or of %d is reached",
                       WATCH_NODES_MAX);
    else
        watch_tree_end(t, err, "Cannot watch all directories: %s", strerror(err));
}

static void node_add_child(struct watch_node *parent, const char *name, const char *path, bool fresh)
{
    struct watch_tree *t = parent->tree;
    if (t->hub->node_count >= WATCH_NODES_MAX) {
        end_by_limit(t, ENOSPC);
        return;
    }
    uint32_t mask = MASK_BASE | IN_ONLYDIR | IN_DONT_FOLLOW;
    if (t->config.events & 1u << WATCH_ATTRIB)
        mask |= IN_ATTRIB;
    int wd = inotify_add_watch(t->hub->fd, path, mask);
    if (wd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return; /* gone or replaced: its own events tell */
    if (wd < 0 && errno == EACCES) {
        log_warn("watch: no permission to look into %s", path);
        return;
    }
    if (wd < 0) {
        end_by_limit(t, errno);
        return;
    }
    struct watch_node *known = watch_hub_find(t->hub, t, wd);
    int r = 0;
    if (!known)
        r = node_new(t, parent, name, wd, fresh);
    else if (known != t->root && (known->parent != parent || strcmp(known->name, name) != 0))
        r = node_move(known, parent, name);
    if (r < 0 && r != -ELOOP)
        end_by_limit(t, -r);
}

/* ------------------------------------------------------------------ events */

static void child_moved_away(struct watch_node *parent, const char *name)
{
    list_for_each(pos, &parent->children)
    {
        struct watch_node *n = list_entry(pos, struct watch_node, sibling);
        if (strcmp(n->name, name) == 0) {
            list_remove(&n->sibling);
            list_append(&parent->tree->limbo, &n->sibling);
            n->parent = NULL;
            return;
        }
    }
}

void watch_tree_drop_limbo(struct watch_tree *t)
{
    while (!list_empty(&t->limbo))
        node_drop(list_first(&t->limbo, struct watch_node, sibling));
}

/* Events of the watched path itself. */
static void root_event(struct watch_node *root, uint32_t mask)
{
    struct watch_tree *t = root->tree;
    bool directory = !t->is_file;
    if (mask & IN_MODIFY)
        report(t, WATCH_MODIFY, root->name, directory);
    if (mask & IN_ATTRIB)
        report(t, WATCH_ATTRIB, root->name, directory);
    if (mask & IN_DELETE_SELF)
        report(t, WATCH_DELETE, root->name, directory);
    if (mask & IN_MOVE_SELF) {
        report(t, WATCH_MOVE_FROM, root->name, directory);
        watch_tree_end(t, 0, "The watched path was moved away");
    }
    if (mask & IN_UNMOUNT)
        watch_tree_end(t, ENODEV, "The file system of the watched path was unmounted");
    if (mask & IN_IGNORED)
        watch_tree_end(t, 0, "The watched path was deleted");
}

void watch_tree_inotify(struct watch_node *n, const struct inotify_event *e)
{
    static const struct {
        uint32_t bit;
        enum watch_event event;
    } kinds[] = {
        {IN_CREATE, WATCH_CREATE},        {IN_MODIFY, WATCH_MODIFY},    {IN_DELETE, WATCH_DELETE},
        {IN_MOVED_FROM, WATCH_MOVE_FROM}, {IN_MOVED_TO, WATCH_MOVE_TO}, {IN_ATTRIB, WATCH_ATTRIB},
    };
    struct watch_tree *t = n->tree;
    char buf[WATCH_PATH_SIZE];
    if (e->len == 0) {
        if (n == t->root)
            root_event(n, e->mask);
        else if (e->mask & IN_IGNORED && list_empty(&n->children))
            node_release(n, true);
        else if (e->mask & IN_IGNORED)
            node_drop(n); /* unmounted with all that is below */
        return;
    }
    const char *path = node_path(n, e->name, buf);
    if (!path)
        return;
    bool directory = e->mask & IN_ISDIR;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (e->mask & kinds[i].bit)
            report(t, kinds[i].event, path, directory);
    if (!directory || !t->config.recursive)
        return;
    if (e->mask & IN_MOVED_FROM)
        child_moved_away(n, e->name);
    if (e->mask & (IN_CREATE | IN_MOVED_TO) && !watch_glob_match(t->config.exclude, path))
        node_add_child(n, e->name, path, true);
}

/* ------------------------------------------------------------------ looking through directories */

static bool entry_is_directory(DIR *dir, const struct dirent *entry)
{
    struct stat st;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Opens the next directory of the queue; false when there is none. */
static bool scan_next(struct watch_tree *t)
{
    char buf[WATCH_PATH_SIZE];
    while (!list_empty(&t->scans)) {
        struct watch_node *n = list_first(&t->scans, struct watch_node, queued);
        const char *path = node_path(n, NULL, buf);
        list_remove(&n->queued);
        if (!path)
            continue; /* in limbo: node_move queues it again */
        int fd =
            open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | (n == t->root ? 0 : O_NOFOLLOW));
        DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        if (dir) {
            t->scanning = n;
            t->dir = dir;
            return true;
        }
        int err = errno;
        if (fd >= 0)
            (void)close(fd);
        n->scanned = true;
        if (err == ENAMETOOLONG || err == EMFILE || err == ENFILE || err == ENOMEM)
            end_by_limit(t, err);
    }
    return false;
}

static void scan_entry(struct watch_tree *t, const struct dirent *entry)
{
    struct watch_node *n = t->scanning;
    char buf[WATCH_PATH_SIZE];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        return;
    bool directory = entry_is_directory(t->dir, entry);
    if (!directory && !n->fresh)
        return;
    const char *path = node_path(n, entry->d_name, buf);
    if (!path) {
        scan_stop(t); /* in limbo */
        return;
    }
    if (n->fresh)
        report(t, WATCH_CREATE, path, directory);
    if (directory && !watch_glob_match(t->config.exclude, path))
        node_add_child(n, entry->d_name, path, n->fresh);
}

bool watch_tree_scan(struct watch_tree *t, unsigned *budget)
{
    while (!t->over && *budget > 0 && (t->scanning || scan_next(t))) {
        struct dirent *entry = readdir(t->dir);
        --*budget;
        if (entry) {
            scan_entry(t, entry);
        } else {
            t->scanning->scanned = true;
            scan_stop(t);
        }
    }
    return t->scanning || !list_empty(&t->scans);
}

/* ------------------------------------------------------------------ the life of a tree */

static int tree_open(struct watch_tree *t, struct error *reterr)
{
    struct stat st;
    const char *path = t->config.path;
    int r = watch_hub_open(t->hub, reterr);
    if (r < 0)
        return r;
    if (stat(path, &st) < 0)
        return error_sys(reterr, errno, "Cannot watch %.200s", path);
    t->is_file = !S_ISDIR(st.st_mode);
    uint32_t mask = MASK_BASE | IN_DELETE_SELF | IN_MOVE_SELF;
    if (t->config.events & 1u << WATCH_ATTRIB)
        mask |= IN_ATTRIB;
    int wd = inotify_add_watch(t->hub->fd, path, mask);
    if (wd < 0 && errno == ENOSPC)
        return error_set(reterr, ENOSPC, "Too many directories are being watched (inotify limit)");
    if (wd < 0)
        return error_sys(reterr, errno, "Cannot watch %.200s", path);
    r = node_new(t, NULL, path, wd, false);
    if (r < 0)
        return error_set(reterr, -r, "Out of memory");
    watch_hub_schedule(t->hub);
    return 0;
}

int watch_tree_new(struct watch_hub *h, const struct watch_tree_config *config, struct watch_tree **ret,
                   struct error *reterr)
{
    struct watch_tree *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(reterr, ENOMEM, "Out of memory");
    t->hub = h;
    t->config = *config;
    list_init(&t->scans);
    list_init(&t->limbo);
    list_append(&h->trees, &t->link);
    int r = tree_open(t, reterr);
    if (r < 0) {
        watch_tree_free(t);
        return r;
    }
    t->config.path = NULL; /* the root's name is a copy */
    *ret = t;
    return 0;
}

void watch_tree_free(struct watch_tree *t)
{
    if (!t)
        return;
    scan_stop(t);
    watch_hub_leave(t);
    watch_tree_drop_limbo(t);
    if (t->root)
        node_drop(t->root);
    watch_hub_release(t->hub);
    free(t);
}

bool watch_tree_settled(const struct watch_tree *t)
{
    return t->settled && !t->over;
}
