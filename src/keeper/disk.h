/* SPDX-License-Identifier: Apache-2.0 */
/* disk.h: the quota disks: one sparse ext4 image per sandbox on a loop device.
 *
 * A disk that has just been made is young: its writes stay in the host's page cache and order nothing, since
 * most sandboxes are gone before that could matter to anybody. After its first seconds, and whenever it is
 * kept beyond the end of its sandbox, it is settled: from then on with direct I/O and with barriers, as every
 * disk that is attached again. */
#pragma once

#include "base/error.h"

struct disk_store; /* the directory that holds the images, and the templates made so far */

struct disk_device {
    int fd;         /* the loop device; with AUTOCLEAR it disappears with its last user */
    unsigned index; /* /dev/loop<index> */
    dev_t dev;
};

/* The keeper's own mount of a disk, with the host's ids. It may outlive the sandbox: the next one need not
 * wait for a mount. */
struct disk_hold {
    int fd;         /* detached; -1: it is not mounted */
    unsigned index; /* its loop device */
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

int disk_attach(struct disk_store *s, uint64_t number, bool young, struct disk_device *ret,
                struct error *reterr);
/* The same for files with names of their own, which several sandboxes may have mounted: an image must never
 * be on two devices, so the one it is on already is taken, whoever attached it. */
int disk_file_create(struct disk_store *s, const char *name, uint64_t bytes, uint64_t inodes,
                     struct error *reterr);
int disk_file_attach(struct disk_store *s, int image_fd, const char *label, struct disk_device *ret,
                     struct error *reterr);
bool disk_file_busy(struct disk_store *s, int image_fd); /* it is on a device */
/* For reading beside a sandbox that may have it mounted: on the device it is on already, or on a new one. */
int disk_attach_again(struct disk_store *s, uint64_t number, struct disk_device *ret, struct error *reterr);
/* Detached, idmapped by the user namespace (-1: not), nosuid,nodev. discard: what is deleted inside is given
 * back to the host at once, which costs time. */
int disk_mount(const struct disk_device *d, int userns_fd, bool discard, bool young, int *ret_mount_fd,
               struct error *reterr);
/* Ends the youth of a mounted disk; root_fd: its root directory. Slow: for a worker. */
int disk_settle(struct disk_store *s, uint64_t number, unsigned index, int root_fd, struct error *reterr);
/* The same for one that is not mounted any more. */
int disk_flush(struct disk_store *s, uint64_t number, struct error *reterr);
/* The file system forgets whatever is not on disk yet: for a disk that is about to be removed, so
 * that its unmount does not write it first. */
void disk_abandon(const struct disk_hold *h);
/* disk_trim.c: loop devices that were added for our disks and are free again. An index of an earlier keeper's
 * life has to be made known. */
void disk_device_known(struct disk_store *s, unsigned index);
dev_t disk_device_number(unsigned index);
/* Removes up to `most` of those beyond what is kept for the next disks; returns how many. 40 ms each: for a
 * worker. */
unsigned disk_trim(struct disk_store *s, unsigned most);
/* All of them, with some threads, when nobody else uses the store. */
void disk_trim_all(struct disk_store *s);
/* disk_hold.c */
/* The same file system once more, detached, with the ids of the user namespace. */
int disk_view(struct disk_store *s, const struct disk_hold *h, int userns_fd, bool young, int *ret_mount_fd,
              struct error *reterr);
/* Everything on the disk is durable on return. young: it is settled first. Slow: for a worker. */
int disk_sync(struct disk_store *s, uint64_t number, const struct disk_hold *h, bool young,
              struct error *reterr);
/* The image can be used again on return, or removed; fine when nothing is held. Slow as well. */
void disk_let_go(struct disk_store *s, struct disk_hold *h);
/* disk_renew.c: a disk that nobody needs any more and that has little on it. */
bool disk_has_little(const struct disk_hold *h);
/* Empties it, so that it is a fresh one: no overlay may be on it. */
int disk_renew(const struct disk_hold *h, struct error *reterr);
/* What a killed keeper held is unmounted by the kernel in its own time: waits until the images that in_use
 * does not know are on no device, some seconds at most. */
void disk_wait_let_go(struct disk_store *s, bool (*in_use)(uint64_t number, void *arg), void *arg);
/* True when nothing mounts the device any more. */
bool disk_unused(struct disk_store *s, unsigned index);
/* The kernel unmounts some time after the last user is gone: an image must not be used before. Waits some
 * seconds at most. */
void disk_wait_unused(struct disk_store *s, unsigned index);
