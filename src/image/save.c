/* SPDX-License-Identifier: Apache-2.0 */
/* save.c: what a sandbox has changed becomes a layer, and its image with that layer a new image.
 *
 * The upper directory is walked once. Each entry goes two ways: into the layer's tree, and as the bytes of an
 * archive into the digest that names the layer. The archive itself is never written. */
#include "image/imager_internal.h"
#include "image/pack.h"
#include "image/tar_put.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct save {
    struct imager *im;
    struct layer_writer *writer;
    struct sha256 *sum;
    uint64_t bytes_left;
    size_t entries;
};

/* The content on its way to the tree, seen by the digest. */
struct tee {
    struct save *save;
    layer_data *data;
    void *arg;
};

static int digest_sink(void *arg, const void *data, size_t n, struct error *reterr)
{
    (void)reterr;
    sha256_add(arg, data, n);
    return 0;
}

static ssize_t tee_read(void *arg, void *data, size_t n, uint64_t *ret_offset, struct error *reterr)
{
    struct tee *t = arg;
    ssize_t k = t->data(t->arg, data, n, ret_offset, reterr);
    if (k <= 0)
        return k;
    if ((uint64_t)k > t->save->bytes_left)
        return error_set(reterr, E2BIG, "the files have more than %llu bytes",
                         (unsigned long long)t->save->im->boot.limit_bytes);
    t->save->bytes_left -= (uint64_t)k;
    sha256_add(t->save->sum, data, (size_t)k);
    return k;
}

static int save_entry(void *arg, const struct tar_entry *e, layer_data *data, void *data_arg,
                      struct error *reterr)
{
    struct save *s = arg;
    struct tee t = {s, data, data_arg};
    int r = tar_put_header(e, digest_sink, s->sum, reterr);
    if (r == 0)
        r = layer_writer_put(s->writer, e, tee_read, &t, reterr);
    s->entries++;
    return r < 0 || e->type != TAR_FILE ? r : tar_put_pad(e->size, digest_sink, s->sum, reterr);
}

static int save_is_opaque(void *arg, int dir_fd, struct error *reterr)
{
    struct imager_answer a;
    (void)arg;
    int r = imager_ask(&(struct imager_message){.type = IMAGER_IS_OPAQUE}, dir_fd, &a, reterr);
    return r < 0 ? r : a.yes != 0;
}

/* *ret_layer is filled, or has no name: nothing has changed. */
static int save_layer(struct imager *im, struct doc_layer *ret_layer, struct error *reterr)
{
    struct save s = {.im = im, .bytes_left = im->bytes_left};
    struct pack_ops ops = {
        .entry = save_entry, .is_opaque = save_is_opaque, .arg = &s, .entries_left = im->boot.limit_entries};
    struct imager_message m = {.type = IMAGER_HAVE};
    struct imager_answer have;
    auto_close int tree = -1;
    int r = imager_layer_dir(&tree, reterr);
    if (r == 0)
        r = sha256_new(&s.sum, reterr);
    if (r == 0)
        r = layer_writer_new(tree, &im->env, &s.writer, reterr);
    if (r == 0)
        r = pack_tree(IMAGER_FD_TREE, &ops, reterr);
    if (r == 0)
        r = tar_put_end(digest_sink, s.sum, reterr);
    if (r == 0)
        r = layer_writer_finish(s.writer, &m.bytes, reterr);
    if (r == 0 && s.entries > 1) { /* one is the root */
        sha256_take(s.sum, m.digest);
        sha256_hex(m.digest, ret_layer->name);
        ret_layer->bytes = m.bytes;
        r = imager_ask(&m, -1, &have, reterr);
        m.type = IMAGER_LAYER;
        if (r == 0 && !have.yes)
            r = imager_ask(&m, -1, NULL, reterr);
    }
    layer_writer_free(s.writer);
    sha256_free(s.sum);
    return r;
}

static int read_json(int fd, struct buf *text, struct json_doc **ret, struct error *reterr)
{
    int r = imager_read_file(fd, IMAGER_DOC_MAX, text, reterr);
    if (r < 0 || buf_len(text) == 0)
        return r;
    return json_parse(buf_data(text), buf_len(text), 0, ret, reterr);
}

/* The new layer on top; if the image has it already, it moves there. */
static void doc_add_layer(struct doc *d, const struct doc_layer *l)
{
    size_t out = 0;
    for (size_t i = 0; i < d->layer_count; i++)
        if (d->layers[i].plain || strcmp(d->layers[i].name, l->name) != 0)
            d->layers[out++] = d->layers[i];
    d->layers[out++] = *l;
    d->layer_count = out;
}

static int describe(struct imager *im, struct doc *d, struct error *reterr)
{
    struct buf text = {0}, changes = {0};
    auto_json struct json_doc *doc = NULL;
    auto_json struct json_doc *changed = NULL;
    int r = read_json(IMAGER_FD_DOC, &text, &doc, reterr);
    if (r == 0)
        r = doc_read(d, json_root(doc), reterr);
    if (r == 0 && d->layer_count == 0) { /* a directory: it is its own and only layer */
        d->layers[0].plain = true;
        memcpy(d->layers[0].name, im->boot.parent, sizeof d->layers[0].name);
        d->layer_count = 1;
    }
    if (r == 0) {
        im->why = IMAGE_WHY_CONFIG;
        r = read_json(IMAGER_FD_CHANGES, &changes, &changed, reterr);
        if (r == 0 && changed)
            r = doc_override(d, json_root(changed), reterr);
        if (r == 0)
            im->why = IMAGE_WHY_OTHER;
    }
    buf_done(&text);
    buf_done(&changes);
    memcpy(d->parent, im->boot.parent, sizeof d->parent);
    if (!d->architecture[0])
        (void)snprintf(d->architecture, sizeof d->architecture, "%s", doc_architecture);
    if (!d->os[0])
        (void)snprintf(d->os, sizeof d->os, "linux");
    clock_iso(im->boot.now_ms, d->created);
    return r;
}

int imager_save(struct imager *im, struct error *reterr)
{
    auto_free struct doc *d = calloc(1, sizeof *d);
    struct doc_layer layer = {0};
    if (!d)
        return error_sys(reterr, ENOMEM, "save an image");
    im->layer = im->layers = 1;
    int r = describe(im, d, reterr);
    if (r == 0 && im->boot.trees)
        r = save_layer(im, &layer, reterr);
    if (r == 0 && layer.name[0]) {
        if (d->layer_count == IMAGE_LAYERS_MAX)
            r = error_set(reterr, E2BIG, "the image has %d layers already", IMAGE_LAYERS_MAX);
        else
            doc_add_layer(d, &layer);
    }
    for (size_t i = 0; r == 0 && i < d->layer_count; i++)
        if (!d->layers[i].plain)
            r = imager_stack(&d->layers[i], reterr);
    if (r == 0)
        r = imager_finish_image(d, reterr);
    doc_done(d);
    return r;
}
