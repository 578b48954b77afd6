/* SPDX-License-Identifier: Apache-2.0 */
/* context.h: the build context: the files of a directory that .dockerignore does not exclude, which of them
 * a COPY takes, and how they travel. */
#pragma once

#include "builder/digest.h"
#include "builder/pattern.h"
#include "builder/words.h"

#include <sys/stat.h>

enum { CONTEXT_ENTRIES_MAX = 1 << 20 };

struct context_entry {
    char *path; /* relative, clean; "" is the directory itself */
    char *link; /* where a symbolic link points, else NULL */
    mode_t mode;
    uint64_t size;
    int64_t mtime_s;
};

struct context;

/* dockerfile_path: "<that>.dockerignore" wins over ".dockerignore" in the directory; NULL: there is none. */
int context_open(const char *directory, const char *dockerfile_path, struct context **ret,
                 struct error *reterr);
void context_free(struct context *c); /* NULL is fine */
const char *context_directory(const struct context *c);

/* What a COPY takes, in the order of the names. */
struct copy_item {
    const struct context_entry *entry;
    char *name;  /* relative to the destination directory */
    bool direct; /* named by the COPY itself, not found in a directory */
};

struct copy_set {
    struct copy_item *items;
    size_t count, cap;
    size_t sources;   /* how many paths the patterns stood for */
    bool single_file; /* one source, which is no directory: the destination may be its new name */
};

/* Reads the directory on first use. -ENOENT with a sentence when a source is not there. */
int context_select(struct context *c, const struct words *sources, struct copy_set *ret,
                   struct error *reterr);
void copy_set_done(struct copy_set *s);

/* Names, kinds, permissions and contents, not times and owners. */
int context_digest(struct context *c, const struct copy_set *s, struct sha256 *d, struct error *reterr);

struct copy_owner {
    unsigned uid, gid;
    int mode; /* for everything but links; -1: as it is */
};
/* An archive of the set, without its end (tar_put_end). rename: the name of a single file instead of its
 * own, NULL: none. skip: items that are left out, NULL: none. */
int context_pack(struct context *c, const struct copy_set *s, const char *rename,
                 bool (*skip)(struct context *c, const struct copy_item *item),
                 const struct copy_owner *owner, int fd, struct error *reterr);
/* Opens one of the files, for ADD of an archive. */
int context_open_file(struct context *c, const struct context_entry *e, struct error *reterr);
