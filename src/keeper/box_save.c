/* SPDX-License-Identifier: Apache-2.0 */
/* box_save.c: an image is made of a sandbox's disk. */
#include "base/log.h"
#include "keeper/box_internal.h"

#include <errno.h>

static void saved(void *arg)
{
    struct box *b = arg;
    if (!b->saving) { /* it sleeps */
        b->state = BOX_STOPPED;
        kept_put(b);
        box_next(b);
        return;
    }
    struct error e;
    b->saving = b->changing = false;
    if (!b->frozen && cgroup_freeze(b->sb->cgroup, false, &e) < 0)
        log_error("sandbox %s does not go on after it was saved: %s", b->row.id, e.msg);
    box_end_if_wanted(b);
    box_next(b);
}

/* A sandbox that runs stands still while its disk is read; one that sleeps cannot be woken meanwhile. */
void box_save(struct box *b)
{
    struct keeper *k = b->keeper;
    struct pending *p = take_ptr(b->current);
    struct error e = {0};
    bool runs = b->sb != NULL, sleeps = false, mounted = runs || b->hold.fd >= 0;
    if (b->is_new)
        (void)error_set(&e, ENOENT, "there is no such sandbox");
    else if (b->changing)
        (void)error_set(&e, EAGAIN, "the sandbox is being changed or saved");
    else if (runs && !b->frozen)
        (void)cgroup_freeze(b->sb->cgroup, true, &e);
    if (e.code)
        keeper_image_save_refuse(k, &p->request, &e);
    else if (keeper_image_start(k, &p->request, &p->fd, b->row.image, b->row.disk, mounted, saved, b) == 0)
        *(runs ? &b->saving : &sleeps) = true;
    if (sleeps) {
        kept_take(b);
        b->state = BOX_BUSY;
    } else if (b->saving)
        b->changing = true;
    else if (runs && !b->changing && !b->frozen)
        (void)cgroup_freeze(b->sb->cgroup, false, NULL); /* refused, or it did not come to a stop */
    pending_free(p);
}
