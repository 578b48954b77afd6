/* SPDX-License-Identifier: Apache-2.0 */
/* record.h: what a restarted keeper must know of a running sandbox: one small file per slot in the run
 * directory.
 *
 * The run directory is a tmpfs: after a reboot there are no records, as there are no processes. The slot's
 * directory is made before any other host object of the slot and removed after all of them, so it is also the
 * intent that lets a restarted keeper find half-made and half-removed ones. */
#pragma once

#include "keeper/proto.h"

struct record {
    uint32_t magic, version;
    uint64_t generation;
    uint64_t disk;
    uint64_t start_time;
    struct limits limits;
    int32_t pid;
    uint32_t loop_index;
    uint32_t sidecar; /* 0 or 1 */
    uint32_t reserved;
    char id[SANDBOX_ID_MAX + 1];
    char image[IMAGE_NAME_MAX + 1];
};

int slot_dir_make(int slots_fd, unsigned slot, int *ret_fd, struct error *reterr);
int slot_dir_open(int slots_fd, unsigned slot, int *ret_fd, struct error *reterr);
void slot_dir_remove(int slots_fd, unsigned slot);
int slot_dir_scan(int slots_fd, void (*found)(unsigned slot, void *arg), void *arg);

/* Written aside and renamed: a reader sees the old or the new one. */
int record_write(int slot_dir_fd, const struct record *r, struct error *reterr);
int record_read(int slot_dir_fd, struct record *ret, struct error *reterr); /* -ENOENT, -EBADMSG */
