/* SPDX-License-Identifier: Apache-2.0 */
/* export.c: an image as an archive that is both an OCI layout and a docker archive.
 *
 * In a tar a file's size comes before its content and in a layout its digest is its name, so layers are
 * packed into files first, one after the other, and the archive is written when all are known. The layers'
 * archives are made anew from their trees; for a layer that came from elsewhere they need not be the bytes it
 * came as. */
#include "image/imager_internal.h"
#include "image/pack.h"
#include "image/tar_put.h"
#include "base/clock.h"
#include "net/write_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { PIECE = 256 * 1024, NAME_SIZE = 24 };

#define TYPE_INDEX    "application/vnd.oci.image.index.v1+json"
#define TYPE_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define TYPE_CONFIG   "application/vnd.oci.image.config.v1+json"
#define TYPE_LAYER    "application/vnd.oci.image.layer.v1.tar"

struct blob {
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    uint64_t size;
};

struct export
{
    struct imager *im;
    struct doc doc;
    struct blob layers[IMAGE_LAYERS_MAX];
    char diff_ids[IMAGE_LAYERS_MAX][SHA256_HEX + 1];
    char *piece;
};

/* A layer's archive on its way into a file. */
struct packing {
    struct export *ex;
    int fd;
    bool compress;
    z_stream gzip;
    struct sha256 *plain, *packed;
    uint64_t plain_bytes, packed_bytes, told;
    unsigned char out[64 * 1024];
};

static void layer_file(char out[NAME_SIZE], size_t i)
{
    (void)snprintf(out, NAME_SIZE, "blob-%zu", i);
}

static int write_piece(int fd, const void *data, size_t n, struct error *reterr)
{
    int r = write_all(fd, data, n);
    if (r == -EPIPE)
        return error_set(reterr, EPIPE, "nobody reads the archive any more");
    return r < 0 ? error_sys(reterr, -r, "write the archive") : 0;
}

static int packed_write(struct packing *p, const void *data, size_t n, struct error *reterr)
{
    sha256_add(p->packed, data, n);
    p->packed_bytes += n;
    return write_piece(p->fd, data, n, reterr);
}

static int deflate_more(struct packing *p, const void *data, size_t n, int flush, struct error *reterr)
{
    p->gzip.next_in = (unsigned char *)data; /* zlib does not change it */
    p->gzip.avail_in = (uInt)n;
    int k = Z_OK;
    do {
        p->gzip.next_out = p->out;
        p->gzip.avail_out = sizeof p->out;
        k = deflate(&p->gzip, flush);
        int r = packed_write(p, p->out, sizeof p->out - p->gzip.avail_out, reterr);
        if (r < 0)
            return r;
    } while (p->gzip.avail_out == 0 || (flush == Z_FINISH && k == Z_OK));
    return 0;
}

static int packing_sink(void *arg, const void *data, size_t n, struct error *reterr)
{
    struct packing *p = arg;
    sha256_add(p->plain, data, n);
    p->plain_bytes += n;
    if (p->plain_bytes - p->told > 16 << 20) {
        p->told = p->plain_bytes;
        imager_progress(p->ex->im, p->plain_bytes);
    }
    return p->compress ? deflate_more(p, data, n, Z_NO_FLUSH, reterr) : packed_write(p, data, n, reterr);
}

static int pack_entry(void *arg, const struct tar_entry *e, layer_data *data, void *data_arg,
                      struct error *reterr)
{
    struct packing *p = arg;
    uint64_t offset;
    ssize_t n = 0;
    int r = tar_put_header(e, packing_sink, p, reterr);
    while (r == 0 && (n = data(data_arg, p->ex->piece, PIECE, &offset, reterr)) > 0)
        r = packing_sink(p, p->ex->piece, (size_t)n, reterr);
    if (r == 0 && n < 0)
        r = (int)n;
    return r < 0 || e->type != TAR_FILE ? r : tar_put_pad(e->size, packing_sink, p, reterr);
}

static int pack_is_opaque(void *arg, int dir_fd, struct error *reterr)
{
    struct imager_answer a;
    (void)arg;
    int r = imager_ask(&(struct imager_message){.type = IMAGER_IS_OPAQUE}, dir_fd, &a, reterr);
    return r < 0 ? r : a.yes != 0;
}

static int pack_layer(struct export *ex, size_t i, struct error *reterr)
{
    char name[NAME_SIZE];
    unsigned char sum[SHA256_BYTES];
    auto_free struct packing *p = calloc(1, sizeof *p);
    if (!p)
        return error_sys(reterr, ENOMEM, "pack a layer");
    struct pack_ops ops = {.entry = pack_entry,
                           .is_opaque = pack_is_opaque,
                           .arg = p,
                           .entries_left = ex->im->boot.limit_entries};
    layer_file(name, i);
    p->ex = ex;
    p->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->fd < 0)
        return error_sys(reterr, errno, "pack a layer");
    /* level 1: exports wait for the processor, not for the disk */
    p->compress = !ex->im->boot.plain;
    int r = p->compress && deflateInit2(&p->gzip, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK
                ? error_sys(reterr, ENOMEM, "pack a layer")
                : 0;
    if (r == 0)
        r = sha256_new(&p->plain, reterr);
    if (r == 0)
        r = sha256_new(&p->packed, reterr);
    if (r == 0)
        r = pack_tree(IMAGER_FD_TREE + (int)i, &ops, reterr);
    if (r == 0)
        r = tar_put_end(packing_sink, p, reterr);
    if (r == 0 && p->compress)
        r = deflate_more(p, NULL, 0, Z_FINISH, reterr);
    if (r == 0) {
        sha256_take(p->plain, sum);
        sha256_hex(sum, ex->diff_ids[i]);
        sha256_take(p->packed, ex->layers[i].digest);
        sha256_hex(ex->layers[i].digest, ex->layers[i].hex);
        ex->layers[i].size = p->packed_bytes;
        ex->im->bytes_done += p->plain_bytes;
    }
    if (p->compress)
        (void)deflateEnd(&p->gzip);
    sha256_free(p->plain);
    sha256_free(p->packed);
    close_fd(&p->fd);
    return r;
}

/* ---- the archive */

static int stream_sink(void *arg, const void *data, size_t n, struct error *reterr)
{
    (void)arg;
    return write_piece(IMAGER_FD_STREAM, data, n, reterr);
}

static int put_header(const char *name, uint64_t size, struct error *reterr)
{
    struct tar_entry e = {.type = TAR_FILE, .path = name, .link = "", .mode = 0644, .size = size};
    return tar_put_header(&e, stream_sink, NULL, reterr);
}

static int put_text(const char *name, const struct buf *text, struct error *reterr)
{
    int r = put_header(name, buf_len(text), reterr);
    if (r == 0)
        r = stream_sink(NULL, buf_data(text), buf_len(text), reterr);
    return r < 0 ? r : tar_put_pad(buf_len(text), stream_sink, NULL, reterr);
}

static void blob_path(const struct blob *b, char out[16 + SHA256_HEX])
{
    (void)snprintf(out, 16 + SHA256_HEX, "blobs/sha256/%s", b->hex);
}

static int put_layer(struct export *ex, size_t i, struct error *reterr)
{
    char name[NAME_SIZE], path[16 + SHA256_HEX];
    ssize_t n;
    layer_file(name, i);
    blob_path(&ex->layers[i], path);
    for (size_t k = 0; k < i; k++)
        if (strcmp(ex->layers[k].hex, ex->layers[i].hex) == 0)
            return 0;
    auto_close int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_sys(reterr, errno, "write the archive");
    int r = put_header(path, ex->layers[i].size, reterr);
    while (r == 0 && (n = read(fd, ex->piece, PIECE)) != 0)
        r = n < 0 ? error_sys(reterr, errno, "write the archive")
                  : stream_sink(NULL, ex->piece, (size_t)n, reterr);
    (void)unlink(name);
    return r < 0 ? r : tar_put_pad(ex->layers[i].size, stream_sink, NULL, reterr);
}

static int blob_of(const struct buf *text, struct blob *ret, struct error *reterr)
{
    struct sha256 *d = NULL;
    int r = sha256_new(&d, reterr);
    if (r < 0)
        return r;
    sha256_add(d, buf_data(text), buf_len(text));
    sha256_take(d, ret->digest);
    sha256_free(d);
    sha256_hex(ret->digest, ret->hex);
    ret->size = buf_len(text);
    return 0;
}

static void put_descriptor(struct json_writer *w, const char *type, const struct blob *b)
{
    char digest[8 + SHA256_HEX];
    (void)snprintf(digest, sizeof digest, "sha256:%s", b->hex);
    json_member_string(w, "mediaType", type);
    json_member_string(w, "digest", digest);
    json_member_int(w, "size", (int64_t)b->size);
}

static void write_manifest(const struct export *ex, const struct blob *config, struct json_writer *w)
{
    json_object_begin(w);
    json_member_int(w, "schemaVersion", 2);
    json_member_string(w, "mediaType", TYPE_MANIFEST);
    json_put_key(w, "config");
    json_object_begin(w);
    put_descriptor(w, TYPE_CONFIG, config);
    json_object_end(w);
    json_put_key(w, "layers");
    json_array_begin(w);
    for (size_t i = 0; i < ex->im->boot.trees; i++) {
        json_object_begin(w);
        put_descriptor(w, ex->im->boot.plain ? TYPE_LAYER : TYPE_LAYER "+gzip", &ex->layers[i]);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

static void write_index(const struct export *ex, const struct blob *manifest, struct json_writer *w)
{
    const char *reference = ex->im->boot.reference;
    json_object_begin(w);
    json_member_int(w, "schemaVersion", 2);
    json_member_string(w, "mediaType", TYPE_INDEX);
    json_put_key(w, "manifests");
    json_array_begin(w);
    json_object_begin(w);
    put_descriptor(w, TYPE_MANIFEST, manifest);
    if (reference[0]) {
        json_put_key(w, "annotations");
        json_object_begin(w);
        json_member_string(w, "io.containerd.image.name", reference);
        json_member_string(w, "org.opencontainers.image.ref.name", strrchr(reference, ':') + 1);
        json_object_end(w);
    }
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
}

/* What `docker load` of any age reads. */
static void write_docker(const struct export *ex, const struct blob *config, struct json_writer *w)
{
    char path[16 + SHA256_HEX];
    json_array_begin(w);
    json_object_begin(w);
    blob_path(config, path);
    json_member_string(w, "Config", path);
    json_put_key(w, "RepoTags");
    json_array_begin(w);
    if (ex->im->boot.reference[0])
        json_put_string(w, ex->im->boot.reference);
    json_array_end(w);
    json_put_key(w, "Layers");
    json_array_begin(w);
    for (size_t i = 0; i < ex->im->boot.trees; i++) {
        blob_path(&ex->layers[i], path);
        json_put_string(w, path);
    }
    json_array_end(w);
    json_object_end(w);
    json_array_end(w);
}

static int write_archive(struct export *ex, struct error *reterr)
{
    static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
    struct buf texts[5];
    struct blob config, manifest;
    struct json_writer w;
    char path[16 + SHA256_HEX];
    int err = 0;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        texts[i] = BUF_INIT(DOC_TEXT_MAX);
    err |= buf_puts(&texts[0], layout);
    json_writer_init(&w, &texts[1]);
    doc_write_oci(&ex->doc, ex->diff_ids, ex->im->boot.trees, &w);
    err |= w.err;
    int r = blob_of(&texts[1], &config, reterr);
    json_writer_init(&w, &texts[2]);
    write_manifest(ex, &config, &w);
    err |= w.err;
    if (r == 0)
        r = blob_of(&texts[2], &manifest, reterr);
    if (r == 0) {
        json_writer_init(&w, &texts[3]);
        write_index(ex, &manifest, &w);
        err |= w.err;
        json_writer_init(&w, &texts[4]);
        write_docker(ex, &config, &w);
        err |= w.err;
    }
    if (r == 0 && err)
        r = error_set(reterr, E2BIG, "the image's description is too long");
    if (r == 0)
        r = put_text("oci-layout", &texts[0], reterr);
    for (size_t i = 0; r == 0 && i < ex->im->boot.trees; i++)
        r = put_layer(ex, i, reterr);
    if (r == 0) {
        blob_path(&config, path);
        r = put_text(path, &texts[1], reterr);
    }
    if (r == 0) {
        blob_path(&manifest, path);
        r = put_text(path, &texts[2], reterr);
    }
    if (r == 0)
        r = put_text("index.json", &texts[3], reterr);
    if (r == 0)
        r = put_text("manifest.json", &texts[4], reterr);
    if (r == 0)
        r = tar_put_end(stream_sink, NULL, reterr);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        buf_done(&texts[i]);
    return r;
}

int imager_export(struct imager *im, struct error *reterr)
{
    struct export *ex = calloc(1, sizeof *ex);
    struct buf text = {0};
    struct json_doc *json = NULL;
    if (!ex || !(ex->piece = malloc(PIECE))) {
        free(ex);
        return error_sys(reterr, ENOMEM, "export an image");
    }
    ex->im = im;
    im->layers = im->boot.trees;
    int r = imager_read_file(IMAGER_FD_DOC, IMAGER_DOC_MAX, &text, reterr);
    if (r == 0)
        r = json_parse(buf_data(&text), buf_len(&text), 0, &json, reterr);
    if (r == 0)
        r = doc_read(&ex->doc, json_root(json), reterr);
    if (r == 0 && !ex->doc.created[0])
        clock_iso(0, ex->doc.created);
    for (size_t i = 0; r == 0 && i < im->boot.trees; i++) {
        im->layer = (uint32_t)i + 1;
        r = pack_layer(ex, i, reterr);
    }
    if (r == 0)
        r = write_archive(ex, reterr);
    json_free(json);
    buf_done(&text);
    doc_done(&ex->doc);
    free(ex->piece);
    free(ex);
    return r;
}
