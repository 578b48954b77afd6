/* SPDX-License-Identifier: Apache-2.0 */
/* import.c: from an archive to images in the store: OCI layouts and `docker save` archives.
 *
 * The archive is stored first, because writers put its parts in any order. Then its lists are read, from the
 * index to the manifest to the configuration, each checked against its digest. A layer that the store has is
 * not looked at again; another one is unpacked, and counts only if both its digests are right: of the bytes
 * as they came and of what they were unpacked to. */
#include "image/archive.h"
#include "image/imager_internal.h"
#include "image/source.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { IMAGES_MAX = 16, INDEX_DEPTH = 4, NAMES_MAX = 16 };

/* One image of the archive, as its lists describe it. */
struct found {
    struct doc doc;
    unsigned char diff_ids[IMAGE_LAYERS_MAX][SHA256_BYTES];
    unsigned char blobs[IMAGE_LAYERS_MAX][SHA256_BYTES]; /* OCI: what the packed bytes add up to */
    char files[IMAGE_LAYERS_MAX][512];                   /* where the layers are in the archive */
    bool has_blobs;
    size_t layers;
    char names[NAMES_MAX][IMAGE_REFERENCE_MAX + 1];
    size_t name_count;
};

struct import {
    struct imager *im;
    struct archive *archive;
    struct found *found; /* the one at work */
    size_t images;
};

/* A parsed text and the memory it lies in. */
struct text {
    struct buf buf;
    struct json_doc *json;
};

static void text_done(struct text *t)
{
    json_free(t->json);
    buf_done(&t->buf);
    *t = (struct text){0};
}

static int text_parse(struct text *t, const char *what, struct error *reterr)
{
    struct error e;
    int r = json_parse(buf_data(&t->buf), buf_len(&t->buf), 0, &t->json, &e);
    if (r == -ENOMEM)
        return error_sys(reterr, ENOMEM, "read the archive");
    return r < 0 ? error_set(reterr, EBADMSG, "%s of the archive is not JSON: %s", what, e.msg) : 0;
}

/* ---- names */

static void add_name(struct found *f, const char *text)
{
    char whole[IMAGE_REFERENCE_MAX + 1];
    const char *slash, *colon;
    static const char *const hubs[] = {"docker.io/", "index.docker.io/", "library/"};
    if (!text)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(hubs); i++)
        if (strncmp(text, hubs[i], strlen(hubs[i])) == 0)
            text += strlen(hubs[i]);
    slash = strrchr(text, '/');
    colon = strrchr(text, ':');
    bool tagged = colon && (!slash || colon > slash);
    if (f->name_count == NAMES_MAX ||
        snprintf(whole, sizeof whole, "%s%s", text, tagged ? "" : ":latest") >= (int)sizeof whole ||
        !keeper_image_reference_ok(whole))
        return; /* a name that we cannot give is not worth failing for: the caller may give one */
    for (size_t i = 0; i < f->name_count; i++)
        if (strcmp(f->names[i], whole) == 0)
            return;
    (void)snprintf(f->names[f->name_count++], sizeof f->names[0], "%s", whole);
}

/* ---- one image whose lists are read */

static int check_platform(const struct doc *d, struct error *reterr)
{
    if ((d->os[0] && strcmp(d->os, "linux") != 0) ||
        (d->architecture[0] && strcmp(d->architecture, doc_architecture) != 0))
        return error_set(reterr, EBADMSG, "the image is made for %s/%s, this machine is linux/%s", d->os,
                         d->architecture, doc_architecture);
    return 0;
}

static int read_config(struct found *f, const struct json_value *config, struct error *reterr)
{
    const struct json_value *ids = json_get(json_get(config, "rootfs"), "diff_ids");
    int r = doc_read_oci(&f->doc, config, reterr);
    if (r < 0 || (r = check_platform(&f->doc, reterr)) < 0)
        return r;
    if (json_type_of(ids) != JSON_ARRAY || json_count(ids) != f->layers)
        return error_set(reterr, EBADMSG,
                         "the image's configuration does not name the same layers as its manifest");
    size_t i = 0;
    json_for_each (id, ids) {
        const char *text = json_string(id, NULL);
        if (!text || !sha256_parse(text, f->diff_ids[i++]))
            return error_set(reterr, EBADMSG,
                             "the image's configuration has a layer without a sha256 digest");
    }
    return 0;
}

static int unpack(struct import *in, size_t i, uint64_t *ret_bytes, struct error *reterr)
{
    struct imager *im = in->im;
    const struct found *f = in->found;
    unsigned char raw[SHA256_BYTES], plain[SHA256_BYTES];
    struct source *source = NULL;
    struct tar_reader *tar = NULL;
    auto_close int fd = -1;
    auto_close int tree = -1;
    int r = archive_open(in->archive, f->files[i], &fd, NULL, reterr);
    if (r < 0 || (r = imager_layer_dir(&tree, reterr)) < 0)
        return r;
    r = source_new(fd, im->bytes_left, false, &source, reterr);
    if (r == 0)
        r = tar_reader_new(source_read, source, true, &tar, reterr);
    if (r == 0)
        r = layer_unpack(tar, tree, &im->env, ret_bytes, reterr);
    if (r == 0)
        r = source_finish(source, raw, plain, reterr);
    if (r == 0 && memcmp(plain, f->diff_ids[i], sizeof plain) != 0)
        r = error_set(reterr, EBADMSG,
                      "the layer's content does not have the digest of the image's configuration");
    if (r == 0 && f->has_blobs && memcmp(raw, f->blobs[i], sizeof raw) != 0)
        r = error_set(reterr, EBADMSG, "the layer does not have the digest that the manifest names");
    if (r == 0)
        im->bytes_left -= source_plain_bytes(source);
    tar_reader_free(tar);
    source_free(source);
    return r;
}

/* Layer i is in the store afterwards. */
static int take_layer(struct import *in, size_t i, uint64_t *ret_bytes, struct error *reterr)
{
    struct imager *im = in->im;
    struct imager_message m = {.type = IMAGER_HAVE};
    struct imager_answer a;
    struct error e = {0};
    memcpy(m.digest, in->found->diff_ids[i], sizeof m.digest);
    int r = imager_ask(&m, -1, &a, reterr);
    if (r < 0)
        return r;
    im->layer = (uint32_t)i + 1;
    im->layers = (uint32_t)in->found->layers;
    imager_progress(im, 0);
    if (!a.yes) {
        uint64_t bytes = 0;
        r = unpack(in, i, &bytes, &e);
        if (r < 0) {
            *reterr = e;
            return error_prefix(reterr, "layer %zu of %zu", i + 1, in->found->layers);
        }
        m.type = IMAGER_LAYER;
        m.bytes = a.bytes = bytes;
        if ((r = imager_ask(&m, -1, NULL, reterr)) < 0)
            return r;
    }
    im->bytes_done += a.bytes;
    *ret_bytes = a.bytes;
    return 0;
}

/* The same layer twice is once, where it is uppermost: what it hides and shows there covers the other. */
static bool comes_again(const struct found *f, size_t i)
{
    for (size_t k = i + 1; k < f->layers; k++)
        if (memcmp(f->diff_ids[k], f->diff_ids[i], SHA256_BYTES) == 0)
            return true;
    return false;
}

static int take_image(struct import *in, struct error *reterr)
{
    struct found *f = in->found;
    int r = 0;
    if (++in->images > IMAGES_MAX)
        return error_set(reterr, E2BIG, "the archive has more than %d images", IMAGES_MAX);
    if (f->layers == 0)
        return error_set(reterr, EBADMSG, "the image has no layers");
    for (size_t i = 0; r == 0 && i < f->layers; i++) {
        if (comes_again(f, i))
            continue;
        struct doc_layer *l = &f->doc.layers[f->doc.layer_count];
        r = take_layer(in, i, &l->bytes, reterr);
        sha256_hex(f->diff_ids[i], l->name);
        if (r == 0)
            r = imager_stack(l, reterr);
        f->doc.layer_count++;
    }
    if (r == 0 && in->im->env.devices)
        r = doc_note(&f->doc, "device nodes were left out: a sandbox has its own", reterr);
    if (!f->doc.created[0])
        clock_iso(0, f->doc.created);
    for (size_t i = 0; r == 0 && i < f->name_count; i++) {
        struct imager_message m = {.type = IMAGER_NAME};
        (void)snprintf(m.text, sizeof m.text, "%s", f->names[i]);
        r = imager_ask(&m, -1, NULL, reterr);
    }
    return r < 0 ? r : imager_finish_image(&f->doc, reterr);
}

static int found_new(struct import *in, struct error *reterr)
{
    if (in->found)
        doc_done(&in->found->doc);
    free(in->found);
    in->found = calloc(1, sizeof *in->found);
    return in->found ? 0 : error_sys(reterr, ENOMEM, "read the archive");
}

/* ---- docker archives: manifest.json */

static int docker_image(struct import *in, const struct json_value *item, struct error *reterr)
{
    struct text config = {0};
    int r = found_new(in, reterr);
    if (r < 0)
        return r;
    struct found *f = in->found;
    const char *config_name = json_string(json_get(item, "Config"), NULL);
    json_for_each (layer, json_get(item, "Layers")) {
        const char *name = json_string(layer, NULL);
        if (!name || strlen(name) >= sizeof f->files[0])
            return error_set(reterr, EBADMSG, "manifest.json of the archive is damaged");
        if (f->layers == IMAGE_LAYERS_MAX)
            return error_set(reterr, E2BIG, "the image has more than %d layers", IMAGE_LAYERS_MAX);
        (void)snprintf(f->files[f->layers++], sizeof f->files[0], "%s", name);
    }
    json_for_each (tag, json_get(item, "RepoTags"))
        add_name(f, json_string(tag, NULL));
    if (!config_name)
        return error_set(reterr, EBADMSG, "manifest.json of the archive names no configuration");
    r = archive_text(in->archive, config_name, &config.buf, reterr);
    if (r == 0)
        r = text_parse(&config, "the configuration", reterr);
    if (r == 0)
        r = read_config(f, json_root(config.json), reterr);
    text_done(&config);
    return r < 0 ? r : take_image(in, reterr);
}

static int docker_archive(struct import *in, struct error *reterr)
{
    struct text manifest = {0};
    int r = archive_text(in->archive, "manifest.json", &manifest.buf, reterr);
    if (r == 0)
        r = text_parse(&manifest, "manifest.json", reterr);
    if (r == 0 && json_type_of(json_root(manifest.json)) != JSON_ARRAY)
        r = error_set(reterr, EBADMSG, "manifest.json of the archive is not a list");
    for (const struct json_value *item = r < 0 ? NULL : json_first(json_root(manifest.json)); r == 0 && item;
         item = json_next(item))
        r = docker_image(in, item, reterr);
    text_done(&manifest);
    return r;
}

/* ---- OCI layouts: index.json */

static bool fits_platform(const struct json_value *descriptor)
{
    const struct json_value *p = json_get(descriptor, "platform");
    const char *os = json_string(json_get(p, "os"), NULL),
               *cpu = json_string(json_get(p, "architecture"), NULL);
    return (!os || strcmp(os, "linux") == 0) && (!cpu || strcmp(cpu, doc_architecture) == 0);
}

static int read_descriptor(const struct import *in, const struct json_value *d,
                           unsigned char ret[SHA256_BYTES], char *ret_file, size_t cap, struct error *reterr)
{
    const char *digest = json_string(json_get(d, "digest"), NULL);
    int64_t size;
    auto_close int fd = -1;
    uint64_t real;
    char name[16 + SHA256_HEX];
    if (!digest || !sha256_parse(digest, ret) || !json_integer(json_get(d, "size"), 0, INT64_MAX, &size))
        return error_set(reterr, EBADMSG, "the archive has a descriptor without a sha256 digest or a size");
    archive_blob_name(ret, name);
    int r = archive_open(in->archive, name, &fd, &real, reterr);
    if (r == 0 && real != (uint64_t)size)
        r = error_set(reterr, EBADMSG, "%s does not have the size that its descriptor names", name);
    if (r == 0 && ret_file)
        (void)snprintf(ret_file, cap, "%s", name);
    return r;
}

static int oci_manifest(struct import *in, const struct json_value *manifest, const char *name,
                        struct error *reterr)
{
    unsigned char digest[SHA256_BYTES];
    struct text config = {0};
    int r = found_new(in, reterr);
    if (r < 0)
        return r;
    struct found *f = in->found;
    f->has_blobs = true;
    add_name(f, name);
    json_for_each (layer, json_get(manifest, "layers")) {
        if (f->layers == IMAGE_LAYERS_MAX)
            return error_set(reterr, E2BIG, "the image has more than %d layers", IMAGE_LAYERS_MAX);
        r = read_descriptor(in, layer, f->blobs[f->layers], f->files[f->layers], sizeof f->files[0], reterr);
        if (r < 0)
            return r;
        f->layers++;
    }
    r = read_descriptor(in, json_get(manifest, "config"), digest, NULL, 0, reterr);
    if (r == 0)
        r = archive_blob(in->archive, digest, &config.buf, reterr);
    if (r == 0)
        r = text_parse(&config, "the configuration", reterr);
    if (r == 0)
        r = read_config(f, json_root(config.json), reterr);
    text_done(&config);
    return r < 0 ? r : take_image(in, reterr);
}

static const char *descriptor_name(const struct json_value *d)
{
    const struct json_value *a = json_get(d, "annotations");
    const char *name = json_string(json_get(a, "io.containerd.image.name"), NULL);
    if (name)
        return name;
    name = json_string(json_get(a, "org.opencontainers.image.ref.name"), NULL);
    return name && strpbrk(name, ":/") ? name : NULL; /* often it is just a tag, "latest" */
}

/* Follows an index to the manifest for this machine, without recursion: of an inner index the first fit is
 * taken. */
static int oci_image(struct import *in, const struct json_value *descriptor, struct error *reterr)
{
    const char *name = descriptor_name(descriptor);
    struct text here = {0}, before = {0};
    int r = 0;
    for (int depth = 0; r == 0; depth++) {
        unsigned char digest[SHA256_BYTES];
        text_done(&before);
        before = here;
        here = (struct text){0};
        if (depth == INDEX_DEPTH) {
            r = error_set(reterr, EBADMSG, "the archive's lists are nested too deep");
            break;
        }
        r = read_descriptor(in, descriptor, digest, NULL, 0, reterr);
        if (r == 0)
            r = archive_blob(in->archive, digest, &here.buf, reterr);
        if (r == 0)
            r = text_parse(&here, "a manifest", reterr);
        if (r < 0)
            break;
        const struct json_value *root = json_root(here.json), *inner = json_get(root, "manifests");
        if (json_type_of(inner) != JSON_ARRAY) {
            r = oci_manifest(in, root, name, reterr);
            break;
        }
        descriptor = NULL;
        json_for_each (d, inner) {
            if (!descriptor && fits_platform(d))
                descriptor = d;
        }
        if (!descriptor)
            r = error_set(reterr, EBADMSG, "the image is not made for linux/%s", doc_architecture);
    }
    text_done(&here);
    text_done(&before);
    return r;
}

static int oci_layout(struct import *in, struct error *reterr)
{
    struct text index = {0};
    size_t others = 0;
    int r = archive_text(in->archive, "index.json", &index.buf, reterr);
    if (r == 0)
        r = text_parse(&index, "index.json", reterr);
    const struct json_value *list = r < 0 ? NULL : json_get(json_root(index.json), "manifests");
    for (const struct json_value *d = json_first(list); r == 0 && d; d = json_next(d)) {
        if (fits_platform(d))
            r = oci_image(in, d, reterr);
        else
            others++;
    }
    if (r == 0 && in->images == 0)
        r = others ? error_set(reterr, EBADMSG, "the image is not made for linux/%s", doc_architecture)
                   : error_set(reterr, EBADMSG, "index.json of the archive names no image");
    text_done(&index);
    return r;
}

static void archive_progress(void *arg, uint64_t bytes)
{
    imager_progress(arg, bytes);
}

int imager_import(struct imager *im, struct error *reterr)
{
    struct import in = {.im = im};
    int r = archive_read(IMAGER_FD_STREAM, im->boot.limit_bytes, archive_progress, im, &in.archive, reterr);
    if (r < 0)
        return r;
    if (archive_has(in.archive, "index.json"))
        r = oci_layout(&in, reterr);
    else if (archive_has(in.archive, "manifest.json"))
        r = docker_archive(&in, reterr);
    else
        r = error_set(reterr, EBADMSG,
                      "this is neither an OCI layout (index.json) nor a docker archive (manifest.json)");
    if (r == 0 && in.images == 0)
        r = error_set(reterr, EBADMSG, "the archive has no image");
    if (in.found)
        doc_done(&in.found->doc);
    free(in.found);
    archive_free(in.archive);
    return r;
}
