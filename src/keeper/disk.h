/* SPDX-License-Identifier: Apache-2.0 */
/* disk.h: the quota disks: one sparse ext4 image per sandbox on a loop device with direct I/O. */
#pragma once

#include "base/error.h"

struct disk_store; /* the directory that holds the images, and the templates made so far */

struct disk_device {
    int fd;         /* the loop device; with AUTOCLEAR it disappears with its last user */
    unsigned index; /* /dev/loop<index> */
    dev_t dev;
};

/* dir_fd: a directory of the keeper's own; scratch_fd: a private tmpfs for device nodes. Both stay the
 * caller's. */
int disk_store_open(int dir_fd, int scratch_fd, struct disk_store **ret, struct error *reterr);
void disk_store_free(struct disk_store *s);

/* Writes the image of a fresh disk: a copy of the template of that size, made by mkfs on first need.
 * Thread-safe. */
int disk_create(struct disk_store *s, uint64_t number, uint64_t bytes, uint64_t inodes, struct error *reterr);
int disk_remove(struct disk_store *s, uint64_t number, struct error *reterr); /* fine when missing */
int disk_used_bytes(struct disk_store *s, uint64_t number,
                    uint64_t *ret); /* blocks the image occupies on the host */
/* Calls found(number, arg) for every image. */
int disk_store_scan(struct disk_store *s, void (*found)(uint64_t number, void *arg), void *arg);
/* Bytes an unprivileged writer may still use on the file system of the images. */
int disk_store_free_bytes(struct disk_store *s, uint64_t *ret);

int disk_attach(struct disk_store *s, uint64_t number, struct disk_device *ret, struct error *reterr);
/* Detached, idmapped by the user namespace, nosuid,nodev. */
int disk_mount(struct disk_store *s, const struct disk_device *d, int userns_fd, int *ret_mount_fd,
               struct error *reterr);
/* The file system below fd forgets whatever is not on disk yet: for a disk that is about to be removed, so
 * that its unmount does not write it first. */
void disk_abandon(int fd);
/* True when nothing mounts the device any more. */
bool disk_unused(struct disk_store *s, unsigned index);
