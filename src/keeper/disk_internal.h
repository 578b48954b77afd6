/* SPDX-License-Identifier: Apache-2.0 */
/* disk_internal.h: shared by disk.c (images and devices) and disk_hold.c (disks that stay mounted). */
#pragma once

#include "keeper/disk.h"

#include <pthread.h>

enum { DISK_NAME_SIZE = 40, DISK_LABEL_SIZE = 64, DISK_DEVICES_MAX = 8192 };
#define DISK_LABEL "silica-" /* how the names of our devices begin */

struct disk_loop { /* a loop device in use, anybody's */
    int fd;
    unsigned index;
    dev_t file_dev; /* the file it has */
    ino_t file_ino;
    char label[DISK_LABEL_SIZE];
};

/* The devices this keeper has had, see disk_trim.c. */
struct disk_devices {
    pthread_mutex_t lock;
    unsigned char ours[DISK_DEVICES_MAX / 8];
    int control_fd; /* /dev/loop-control */
};
struct disk_devices *disk_store_devices(struct disk_store *s);

int disk_store_dir(const struct disk_store *s); /* stays the store's */
void disk_image_name(char out[DISK_NAME_SIZE], uint64_t number);
int disk_loop_open(struct disk_store *s, unsigned index, int flags);
/* Calls found for every loop device in use, until it returns false. */
int disk_loops(struct disk_store *s, bool (*found)(const struct disk_loop *l, void *arg), void *arg);
