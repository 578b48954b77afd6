/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h: named disks that outlive sandboxes and that several of them may have at the same time. */
#pragma once

#include "keeper/disk.h"
#include "keeper/proto.h"

struct volume_store; /* the directory of the images; the files in it are the only record */

struct volume {
    char name[VOLUME_NAME_MAX + 1];
    uint64_t bytes, used_bytes; /* what it may hold; what it takes on the host */
    int64_t created_ms;
};

/* dir_fd: a directory of the keeper's own; scratch_fd: a private tmpfs for device nodes. Both stay the
 * caller's. Removes what a crash left half made. */
int volume_store_open(int dir_fd, int scratch_fd, struct volume_store **ret, struct error *reterr);
void volume_store_free(struct volume_store *s); /* NULL is fine */

/* Quick, any thread. -ENODEV: there is none of this name. */
int volume_stat(struct volume_store *s, const char *name, struct volume *ret, struct error *reterr);
int volume_list(struct volume_store *s, void (*found)(const struct volume *v, void *arg), void *arg);

/* These may block for some time: worker threads only. */
int volume_create(struct volume_store *s, const char *name, uint64_t bytes, struct volume *ret,
                  struct error *reterr);
int volume_remove(struct volume_store *s, const char *name, struct error *reterr);
/* Detached, idmapped, nosuid,nodev; *ret_dev: its device, for limits of use. The volume stays in use until
 * the last copy of the mount is gone. */
int volume_mount(struct volume_store *s, const char *name, bool read_only, int userns_fd, int *ret_mount_fd,
                 dev_t *ret_dev, struct error *reterr);
