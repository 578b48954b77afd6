/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_internal.h: what the files of the cgroup module share. */
#pragma once

#include <limits.h>
#include <linux/bpf.h>
#include <stdio.h>

#include "keeper/cgroup.h"

/* Only counts; used where no v2 group offers cpu.stat. */
enum { CGROUP_CPUACCT = CGROUP_CONTROLLER_COUNT, CGROUP_KNOWN };

/* At most one v1 hierarchy per controller, and v2. */
enum { CGROUP_TREE_MAX = CGROUP_KNOWN + 1 };

enum cgroup_dir { CGROUP_DIR_SLOT, CGROUP_DIR_AGENT, CGROUP_DIR_WORK, CGROUP_DIR_COUNT };

#define BIT(n) (UINT32_C(1) << (n))

/* One hierarchy as mountinfo tells it. */
struct cgroup_mount {
    enum cgroup_version version;
    uint32_t controllers; /* BIT(controller) of those we know; v1 only */
    bool whole;           /* the mount shows the hierarchy's root, not a part of it */
    char path[PATH_MAX];
};

struct cgroup_mounts {
    size_t count;
    struct cgroup_mount list[CGROUP_TREE_MAX];
};

/* One hierarchy in which sandboxes have groups. */
struct cgroup_tree {
    enum cgroup_version version;
    uint32_t controllers; /* those we use here */
    uint32_t dirs;        /* BIT(dir) made for each sandbox; 0: all sandboxes share the prefix group */
    int root_fd, prefix_fd;
};

/* Written by cgroup_host_open only; afterwards threads share it without locks. */
struct cgroup_host {
    char prefix[64];
    size_t tree_count;
    struct cgroup_tree trees[CGROUP_TREE_MAX];
    enum cgroup_version version[CGROUP_KNOWN];
    const struct cgroup_tree *tree_of[CGROUP_KNOWN]; /* NULL when missing */
    const struct cgroup_tree *v2;                    /* NULL when not mounted */
    bool v2_kill;                                    /* cgroup.kill exists */
};

/* cgroup_mountinfo.c */
/* True when the line (which is cut into pieces) describes a writable hierarchy we know something about. */
bool cgroup_mount_parse(char *line, struct cgroup_mount *ret);
/* Every hierarchy once; where it is mounted several times, the mount that shows its root. */
int cgroup_mounts_read(FILE *mountinfo, struct cgroup_mounts *ret);

/* cgroup_file.c: paths are relative to a directory descriptor, contents are small */
enum { CGROUP_PATH_SIZE = 96 };
const char *cgroup_path(char out[CGROUP_PATH_SIZE], unsigned slot, enum cgroup_dir dir, const char *file);
int cgroup_file_write(int dir_fd, const char *path, const char *value);
/* NUL-terminated, cut at size - 1 bytes; returns the length or -errno. */
int cgroup_file_read(int dir_fd, const char *path, char *out, size_t size);
int cgroup_file_number(int dir_fd, const char *path, uint64_t *ret);
/* The number behind "<key> " at the start of a line. -ENOENT when the file or the key is missing. */
int cgroup_file_key(int dir_fd, const char *path, const char *key, uint64_t *ret);
bool cgroup_text_key(const char *text, const char *key, uint64_t *ret);
bool cgroup_text_has_word(const char *text, const char *word);

/* cgroup_host.c: as cgroup_host_open, with the hierarchies taken from a text (tests hide some of them) */
int cgroup_host_open_from(FILE *mountinfo, const char *prefix, struct cgroup_host **ret,
                          struct error *reterr);

/* cgroup_limits.c */
struct cgroup_setting {
    enum cgroup_controller controller;
    enum cgroup_dir dir;
    const char *file;
    bool optional; /* not every kernel has the file */
    char value[128];
};
enum { CGROUP_SETTINGS_MAX = 16 };
/* What to write for these limits, in order; pure. */
size_t cgroup_settings_plan(const enum cgroup_version version[], const struct limits *l, dev_t io_dev,
                            struct cgroup_setting out[CGROUP_SETTINGS_MAX]);
int cgroup_limits_apply(const struct cgroup_host *h, unsigned slot, const struct limits *l, dev_t io_dev,
                        struct error *reterr);
int cgroup_io_apply(const struct cgroup_host *h, unsigned slot, const struct limits *l, dev_t io_dev,
                    struct error *reterr); /* those of I/O alone */
int cgroup_usage_of(const struct cgroup_host *h, unsigned slot, struct cgroup_usage *ret);

/* cgroup_devices.c */
enum { CGROUP_DEVICES_INSNS_MAX = 64 };
size_t cgroup_devices_program(struct bpf_insn out[CGROUP_DEVICES_INSNS_MAX]);
int cgroup_devices_attach_v2(int group_fd); /* once: finds and replaces what an earlier keeper attached */
int cgroup_devices_set_v1(int group_fd);
