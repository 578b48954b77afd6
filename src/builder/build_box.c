/* SPDX-License-Identifier: Apache-2.0 */
/* build_box.c: the sandboxes of a build. */
#include "base/id.h"
#include "builder/build_internal.h"

#include <errno.h>
#include <string.h>

enum { OUTPUT_MAX = 64 * 1024 };

void box_close(struct build *b, struct box *box)
{
    if (!box->id[0])
        return;
    remote_box_end(b->client, box->id);
    interrupt_remove(b->interrupt, box->id);
    *box = (struct box){0};
}

int box_open(struct build *b, struct box *box, const char *image)
{
    if (box->id[0] && strcmp(box->image, image) == 0)
        return 0;
    box_close(b, box);
    char random[11];
    struct box fresh = {0};
    random_name(random, sizeof random - 1);
    (void)snprintf(fresh.id, sizeof fresh.id, "build-%s", random);
    (void)snprintf(fresh.image, sizeof fresh.image, "%s", image);
    interrupt_add(b->interrupt,
                  fresh.id); /* before it exists: the clean-up of one that does not is harmless */
    int r = remote_box(b->client, fresh.id, image, b->network, b->reterr);
    if (r == -ENONET && b->options->network_if_any && b->network) {
        report_note(&b->report, "the server gives sandboxes no network: steps run without");
        b->network = NULL;
        r = remote_box(b->client, fresh.id, image, NULL, b->reterr);
    }
    if (r < 0) {
        interrupt_remove(b->interrupt, fresh.id);
        return r;
    }
    *box = fresh;
    return 0;
}

static int collect(enum silica_stream stream, const char *data, size_t n, void *user)
{
    (void)stream;
    struct buf *out = user;
    size_t room = out->limit - buf_len(out);
    return buf_append(out, data, MIN(n, room));
}

int box_shell(struct build *b, const struct box *box, const char *script, const struct words *args,
              char **ret)
{
    struct buf out = BUF_INIT(OUTPUT_MAX);
    struct words argv = {0};
    int exit_code = 0;
    int r = words_add(&argv, "/bin/sh", 7);
    if (r == 0)
        r = words_add(&argv, "-c", 2);
    if (r == 0)
        r = words_add(&argv, script, strlen(script));
    if (r == 0)
        r = words_add(&argv, "build", 5); /* $0 */
    for (size_t i = 0; r == 0 && args && i < args->count; i++)
        r = words_add(&argv, args->items[i], strlen(args->items[i]));
    r = r < 0 ? error_set(b->reterr, ENOMEM, "out of memory")
              : remote_run(b->client, box->id, &argv, NULL, "/", collect, &out, &exit_code, b->reterr);
    const char *text = buf_cstr(&out);
    if (r == 0 && exit_code != 0)
        r = error_set(b->reterr, EIO, "%s", text && *text ? text : "it failed inside the sandbox");
    if (r == 0 && ret && !(*ret = text ? strdup(text) : NULL))
        r = error_set(b->reterr, ENOMEM, "out of memory");
    words_done(&argv);
    buf_done(&out);
    return r;
}
