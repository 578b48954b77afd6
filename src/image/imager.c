/* SPDX-License-Identifier: Apache-2.0 */
/* imager.c: the image worker from its start to its last word; see imager.h. */
#include "image/imager_internal.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

int imager_ask(const struct imager_message *m, int fd, struct imager_answer *ret, struct error *reterr)
{
    struct imager_answer a;
    if (socket_send_fd(IMAGER_FD_CONTROL, m, sizeof *m, fd) != (ssize_t)sizeof *m)
        return error_set(reterr, EIO, "the keeper does not listen");
    if (m->type == IMAGER_PROGRESS || m->type == IMAGER_FAILED || m->type == IMAGER_DONE)
        return 0;
    if (recv(IMAGER_FD_CONTROL, &a, sizeof a, 0) != (ssize_t)sizeof a)
        return error_set(reterr, EIO, "the keeper does not answer");
    if (a.error)
        return error_sys(reterr, a.error, "the image store refused");
    if (ret)
        *ret = a;
    return 0;
}

void imager_progress(struct imager *im, uint64_t bytes)
{
    struct imager_message m = {
        .type = IMAGER_PROGRESS, .index = im->layer, .count = im->layers, .bytes = im->bytes_done + bytes};
    (void)imager_ask(&m, -1, NULL, NULL); /* a keeper that is gone shows at the next question */
}

static int mark_opaque(void *arg, int dir_fd, struct error *reterr)
{
    (void)arg;
    return imager_ask(&(struct imager_message){.type = IMAGER_OPAQUE}, dir_fd, NULL, reterr);
}

static void layer_progress(void *arg, uint64_t bytes)
{
    imager_progress(arg, bytes);
}

int imager_read_file(int fd, size_t max, struct buf *ret, struct error *reterr)
{
    *ret = BUF_INIT(max);
    for (off_t at = 0;;) {
        char piece[16384];
        ssize_t n = pread(fd, piece, sizeof piece, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(reterr, errno, "read a file");
        if (n == 0)
            return 0;
        if (buf_append(ret, piece, (size_t)n) < 0)
            return error_set(reterr, E2BIG, "a file of the image's description has more than %zu bytes", max);
        at += n;
    }
}

static int write_file(const char *name, const struct buf *text, struct error *reterr)
{
    (void)unlink(name); /* of the image before this one, if the keeper left it */
    auto_close int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, buf_data(text), buf_len(text)) != (ssize_t)buf_len(text))
        return error_sys(reterr, errno ? errno : EIO, "write %s", name);
    return 0;
}

int imager_layer_dir(int *ret_fd, struct error *reterr)
{
    if (mkdir("layer", 0755) < 0)
        return error_sys(reterr, errno, "make a layer's directory");
    *ret_fd = open("layer", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret_fd < 0 ? error_sys(reterr, errno, "open a layer's directory") : 0;
}

int imager_stack(const struct doc_layer *l, struct error *reterr)
{
    struct imager_message m = {.type = IMAGER_STACK, .bytes = l->bytes};
    char text[8 + SHA256_HEX];
    (void)snprintf(text, sizeof text, "sha256:%s", l->name);
    if (!sha256_parse(text, m.digest))
        return error_set(reterr, EBADMSG, "a layer has no digest");
    return imager_ask(&m, -1, NULL, reterr);
}

int imager_finish_image(const struct doc *d, struct error *reterr)
{
    struct buf text = BUF_INIT(DOC_TEXT_MAX), run = BUF_INIT(2 * DOC_BYTES_MAX);
    struct imager_message m = {.type = IMAGER_IMAGE};
    struct json_writer w;
    struct sha256 *sum = NULL;
    json_writer_init(&w, &text);
    doc_write(d, &w);
    int r = w.err ? w.err : doc_write_run(d, &run);
    if (r < 0)
        r = error_set(reterr, EBADMSG, "the image's configuration is too long");
    if (r == 0)
        r = sha256_new(&sum, reterr);
    if (r == 0) {
        sha256_add(sum, buf_data(&text), buf_len(&text));
        sha256_take(sum, m.digest);
        r = write_file("config.json", &text, reterr);
    }
    if (r == 0)
        r = write_file("run", &run, reterr);
    if (r == 0)
        r = imager_ask(&m, -1, NULL, reterr);
    sha256_free(sum);
    buf_done(&text);
    buf_done(&run);
    return r;
}

static enum keeper_image_why why_of(const struct imager *im, const struct error *e)
{
    if (im->why)
        return im->why;
    return e->code == EBADMSG ? IMAGE_WHY_INVALID : e->code == E2BIG ? IMAGE_WHY_TOO_LARGE : IMAGE_WHY_OTHER;
}

int imager_main(void)
{
    struct imager im = {0};
    struct error e = {0};
    int r;
    if (pread(IMAGER_FD_BOOT, &im.boot, sizeof im.boot, 0) != (ssize_t)sizeof im.boot ||
        im.boot.version != IMAGER_VERSION)
        return 2;
    im.env = (struct layer_env){.entries_left = im.boot.limit_entries,
                                .sparse_left = im.boot.limit_bytes,
                                .opaque = mark_opaque,
                                .progress = layer_progress,
                                .arg = &im};
    im.bytes_left = im.boot.limit_bytes;
    r = imager_confine(&im.boot, &e);
    if (r == 0)
        r = im.boot.operation == IMAGER_IMPORT   ? imager_import(&im, &e)
            : im.boot.operation == IMAGER_EXPORT ? imager_export(&im, &e)
                                                 : imager_save(&im, &e);
    struct imager_message last = {.type = r < 0 ? IMAGER_FAILED : IMAGER_DONE};
    if (r < 0) {
        last.err = e.code > 0 ? e.code : EIO;
        last.why = why_of(&im, &e);
        (void)snprintf(last.text, sizeof last.text, "%.*s", (int)sizeof last.text - 1, e.msg);
    }
    (void)imager_ask(&last, -1, NULL, NULL);
    return r < 0;
}
