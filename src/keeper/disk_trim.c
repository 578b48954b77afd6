/* SPDX-License-Identifier: Apache-2.0 */
/* disk_trim.c: loop devices for which there is no use any more (see disk.h).
 *
 * The kernel adds a loop device when all are taken, and keeps it for ever, with 250 KiB of its memory: after
 * a thousand sandboxes that is a quarter of a GiB. So the free ones of those that we have had are removed,
 * but for some that the next disks will want. The first few belong to every machine and stay. One that is
 * being taken in this very moment, by us or by anybody, is busy or comes back by being opened. */
#include "base/log.h"
#include "keeper/disk_internal.h"

#include <errno.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { EVERYBODYS = 8, KEPT = 32, TRIMMERS = 8 };

void disk_device_known(struct disk_store *s, unsigned index)
{
    struct disk_devices *d = disk_store_devices(s);
    if (index < EVERYBODYS || index >= DISK_DEVICES_MAX)
        return;
    (void)pthread_mutex_lock(&d->lock);
    d->ours[index / 8] |= (unsigned char)(1u << index % 8);
    (void)pthread_mutex_unlock(&d->lock);
}

static bool in_use(unsigned index)
{
    char path[48];
    (void)snprintf(path, sizeof path, "/sys/block/loop%u/loop", index); /* what an attached one has */
    return access(path, F_OK) == 0;
}

/* The highest free one beyond those that are kept, which is nobody's from now on. */
static bool take_surplus(struct disk_devices *d, unsigned *ret)
{
    unsigned vacant = 0, last = 0;
    (void)pthread_mutex_lock(&d->lock);
    for (unsigned i = EVERYBODYS; i < DISK_DEVICES_MAX; i++)
        if (d->ours[i / 8] & 1u << i % 8 && !in_use(i)) {
            vacant++;
            last = i;
        }
    bool surplus = vacant > KEPT;
    if (surplus)
        d->ours[last / 8] &= (unsigned char)~(1u << last % 8);
    (void)pthread_mutex_unlock(&d->lock);
    *ret = last;
    return surplus;
}

unsigned disk_trim(struct disk_store *s, unsigned most)
{
    struct disk_devices *d = disk_store_devices(s);
    unsigned index, n = 0;
    while (n < most && take_surplus(d, &index)) {
        if (ioctl(d->control_fd, LOOP_CTL_REMOVE, (unsigned long)index) < 0 && errno != ENODEV) {
            log_debug("loop device %u stays", index); /* somebody has it open: then it is his */
            continue;
        }
        n++;
    }
    return n;
}

static void *trim_run(void *arg)
{
    (void)disk_trim(arg, DISK_DEVICES_MAX);
    return NULL;
}

void disk_trim_all(struct disk_store *s)
{
    pthread_t threads[TRIMMERS];
    size_t n = 0;
    while (n < TRIMMERS && pthread_create(&threads[n], NULL, trim_run, s) == 0)
        n++;
    while (n > 0)
        (void)pthread_join(threads[--n], NULL);
}
