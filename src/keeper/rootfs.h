/* SPDX-License-Identifier: Apache-2.0 */
/* rootfs.h: an image's layers below, a disk above, as one detached overlay. */
#pragma once

#include "keeper/host.h"
#include "keeper/image.h"

/* A plain image alone, read-only, with the ids of the user namespace. */
int rootfs_bare(const struct image *image, int userns_fd, int *ret_mount_fd, struct error *reterr);
/* The overlay of such a mount, which is of the sandbox's and not used otherwise, and a disk. */
int rootfs_furnish(unsigned slot, int bare_mount_fd, int disk_mount_fd, uint32_t owner, int *ret_mount_fd,
                   struct error *reterr);
/* disk_mount_fd: the mounted disk with its directories upper and work; userns_fd: of the sandbox; owner: its
 * first id. The thread must have called host_worker_start. */
int rootfs_make(unsigned slot, const struct image *image, int disk_mount_fd, int userns_fd, uint32_t owner,
                int *ret_mount_fd, struct error *reterr);
