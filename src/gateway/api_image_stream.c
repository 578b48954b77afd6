/* SPDX-License-Identifier: Apache-2.0 */
/* api_image_stream.c: archives of images on their way in and out.
 *
 * The keeper gives one end of a stream whose other end the image worker has; the gateway moves bytes between
 * it and the caller without looking at them, at the pace of the slower one.
 *
 *   import  body -> stream. The end of the body closes the stream; then the worker unpacks, and the answer is
 *           made of its last word. A worker that has seen enough closes its end first: the rest is not read
 *   export  stream -> answer, which begins with the first byte: until then a failure has a status of its own
 */
#include "gateway/api_images.h"
#include "gateway/reply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { WAITING_MAX = 256 * 1024 };
#define IMPORT_MAX (UINT64_C(1) << 42) /* the worker's own limit comes first */

struct image_stream {
    struct gateway *g;
    struct http_request *req;
    struct image_op op;
    struct source source; /* the stream; fd -1: closed */
    char reference[IMAGE_REFERENCE_MAX + 1], image[IMAGE_NAME_MAX + 1];
    struct buf waiting; /* import: of the body, not taken yet */
    bool body_ended, events, failed;
    bool done; /* export: the keeper's last word was good */
};

static void stream_close(struct image_stream *s)
{
    int fd = s->source.fd;
    loop_del(s->g->loop, &s->source);
    if (fd >= 0)
        (void)close(fd);
}

static void stream_free(struct image_stream *s)
{
    stream_close(s);
    image_op_abandon(&s->op);
    buf_done(&s->waiting);
    free(s);
}

static void stream_gone(struct http_request *req)
{
    stream_free(req->user);
}

static struct image_stream *stream_new(struct gateway *g, struct http_request *req)
{
    struct image_stream *s = calloc(1, sizeof *s);
    if (!s) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return NULL;
    }
    s->g = g;
    s->req = req;
    s->source.fd = -1;
    s->waiting.limit = WAITING_MAX;
    req->user = s;
    req->on_gone = stream_gone;
    return s;
}

static void refuse(struct image_stream *s, const struct problem *p)
{
    struct http_request *req = s->req;
    stream_free(s);
    reply_problem(req, NULL, p);
}

/* ------------------------------------------------------------------ import */

static void put_event(struct image_stream *s, struct json_writer *w)
{
    if (!w->err)
        (void)sse_event(s->req, NULL, buf_data(w->out), buf_len(w->out));
    buf_done(w->out);
}

static void import_progress(struct image_op *op, const struct keeper_image_tell *tell)
{
    struct image_stream *s = container_of(op, struct image_stream, op);
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    if (!s->events || !s->body_ended)
        return; /* until then the caller counts its own bytes */
    if (!http_response_begun(s->req))
        sse_begin(s->req);
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "type", "progress");
    json_member_string(&w, "phase", "unpack");
    json_member_int(&w, "layer", tell->layer);
    json_member_int(&w, "layers", tell->layers);
    json_member_int(&w, "bytes", (int64_t)tell->bytes);
    json_object_end(&w);
    put_event(s, &w);
}

static void put_result(struct image_stream *s, struct json_writer *w)
{
    json_put_key(w, "images");
    json_array_begin(w);
    for (size_t i = 0; i < s->op.made_count; i++)
        api_image_put(w, s->g, s->op.made[i]);
    json_array_end(w);
}

static void import_failed(struct image_stream *s, const struct problem *p)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    if (!http_response_begun(s->req)) {
        refuse(s, p);
        return;
    }
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "type", "error");
    json_member_string(&w, "code", p->code);
    json_member_string(&w, "message", p->message);
    json_member_int(&w, "httpStatus", p->status);
    json_object_end(&w);
    put_event(s, &w);
    struct http_request *req = s->req;
    stream_free(s);
    http_response_end(req);
}

static void import_done(struct image_op *op, const struct problem *p)
{
    struct image_stream *s = container_of(op, struct image_stream, op);
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    struct http_request *req = s->req;
    if (p) {
        import_failed(s, p);
        return;
    }
    json_writer_init(&w, &out);
    json_object_begin(&w);
    if (s->events)
        json_member_string(&w, "type", "complete");
    put_result(s, &w);
    json_object_end(&w);
    if (!s->events) {
        stream_free(s);
        reply_json(req, 201, &w);
        return;
    }
    if (!http_response_begun(req))
        sse_begin(req);
    put_event(s, &w);
    stream_free(s);
    http_response_end(req);
}

/* The worker takes no more; its last word is on the way. */
static void import_refused(struct image_stream *s)
{
    stream_close(s);
    buf_clear(&s->waiting);
    s->failed = true;
}

static void import_flush(struct image_stream *s)
{
    while (buf_len(&s->waiting) > 0) {
        ssize_t n =
            send(s->source.fd, buf_data(&s->waiting), buf_len(&s->waiting), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            loop_mod(s->g->loop, &s->source, EPOLLOUT);
            http_request_read_pause(s->req);
            return;
        }
        if (n < 0) {
            import_refused(s);
            return;
        }
        buf_consume(&s->waiting, (size_t)n);
    }
    loop_mod(s->g->loop, &s->source, 0);
    if (s->body_ended)
        stream_close(s);
    else
        http_request_read_resume(s->req);
}

static void import_ready(struct source *source, uint32_t events)
{
    (void)events;
    struct image_stream *s = container_of(source, struct image_stream, source);
    if (events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLOUT))
        import_refused(s);
    else
        import_flush(s);
}

static void import_data(struct http_request *req, const char *data, size_t n)
{
    struct image_stream *s = req->user;
    if (s->failed)
        return;
    if (buf_append(&s->waiting, data, n) < 0) { /* cannot be: reading pauses as soon as anything waits */
        import_refused(s);
        return;
    }
    import_flush(s);
}

static void import_end(struct http_request *req, int err)
{
    struct image_stream *s = req->user;
    if (err < 0)
        return; /* the server has answered, or (a body beyond all limits) the worker will */
    s->body_ended = true;
    if (!s->failed)
        import_flush(s);
}

static void import_stream(struct image_op *op, int fd)
{
    static const struct http_body_sink sink = {.on_data = import_data, .on_end = import_end};
    struct image_stream *s = container_of(op, struct image_stream, op);
    int r = loop_add(s->g->loop, &s->source, fd, 0, import_ready);
    if (r < 0) {
        (void)close(fd);
        s->failed = true; /* the worker sees an empty archive and says so */
        return;
    }
    http_request_read_start(s->req, IMPORT_MAX, &sink);
}

void api_image_import(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    char name[2 * IMAGE_REFERENCE_MAX] = "";
    struct problem p;
    struct image_stream *s = stream_new(g, req);
    (void)m;
    if (!s)
        return;
    s->events = http_list_has(http_request_header(req, "Accept"), "text/event-stream");
    s->op = (struct image_op){.done = import_done, .stream = import_stream, .progress = import_progress};
    if (!req->has_body) {
        (void)problem_set(&p, 400, "BAD_REQUEST", "the body must be the archive of an image");
        refuse(s, &p);
        return;
    }
    if (http_query_get(req->query, "name", name, sizeof name) && name[0] &&
        image_reference_parse(name, s->reference, &p) < 0) {
        refuse(s, &p);
        return;
    }
    image_op_start(
        g->images, &s->op,
        &(struct image_ask){.type = KEEPER_IMAGE_IMPORT, .reference = s->reference, .changes_fd = -1});
}

/* ------------------------------------------------------------------ export */

static void export_finish(struct image_stream *s)
{
    struct http_request *req = s->req;
    stream_free(s);
    http_response_end(req);
}

static void export_ready(struct source *source, uint32_t events)
{
    struct image_stream *s = container_of(source, struct image_stream, source);
    char *piece = loop_scratch(s->g->loop);
    (void)events;
    ssize_t n = recv(s->source.fd, piece, LOOP_SCRATCH, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* whether it is complete, the keeper says */
        stream_close(s);
        if (s->done)
            export_finish(s);
        return;
    }
    if (!http_response_begun(s->req)) {
        static const struct http_header headers[] = {{"Content-Type", "application/x-tar"}};
        http_response_begin(s->req, 200, headers, ARRAY_SIZE(headers), -1);
    }
    if (!http_response_write(s->req, piece, (size_t)n))
        loop_mod(s->g->loop, &s->source, 0);
}

static void export_drain(struct http_request *req)
{
    struct image_stream *s = req->user;
    if (s->source.fd >= 0)
        loop_mod(s->g->loop, &s->source, EPOLLIN);
}

static void export_stream(struct image_op *op, int fd)
{
    struct image_stream *s = container_of(op, struct image_stream, op);
    s->req->on_drain = export_drain;
    if (loop_add(s->g->loop, &s->source, fd, EPOLLIN, export_ready) < 0)
        (void)close(fd); /* the worker cannot write and says so */
}

static void export_done(struct image_op *op, const struct problem *p)
{
    struct image_stream *s = container_of(op, struct image_stream, op);
    struct http_request *req = s->req;
    if (p && !http_response_begun(req)) {
        refuse(s, p);
    } else if (p) {
        stream_free(s);
        http_response_abort(req); /* half an archive must not look like a whole one */
    } else if (s->source.fd >= 0) {
        s->done = true;
    } else {
        export_finish(s);
    }
}

void api_image_export(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    char name[2 * IMAGE_REFERENCE_MAX] = "", compression[16] = "gzip";
    struct problem p;
    struct image_stream *s = stream_new(g, req);
    (void)m;
    if (!s)
        return;
    s->op = (struct image_op){.done = export_done, .stream = export_stream};
    (void)http_query_get(req->query, "compression", compression, sizeof compression);
    if (!http_query_get(req->query, "name", name, sizeof name) || !name[0]) {
        (void)problem_field(&p, "name", "name must be the name of an image");
        refuse(s, &p);
        return;
    }
    if (strcmp(compression, "gzip") != 0 && strcmp(compression, "none") != 0) {
        (void)problem_field(&p, "compression", "compression must be gzip or none");
        refuse(s, &p);
        return;
    }
    if (images_resolve(g->images, name, s->image, &p) < 0) {
        refuse(s, &p);
        return;
    }
    if (!images_find(g->images, s->image)) {
        (void)problem_set(&p, 404, "IMAGE_NOT_FOUND", "there is no image '%s'", name);
        refuse(s, &p);
        return;
    }
    /* the archive carries the name it was asked for, unless that was an id */
    if (image_reference_parse(name, s->reference, &p) < 0)
        s->reference[0] = '\0';
    image_op_start(g->images, &s->op,
                   &(struct image_ask){.type = KEEPER_IMAGE_EXPORT,
                                       .image = s->image,
                                       .reference = s->reference,
                                       .plain = strcmp(compression, "none") == 0,
                                       .changes_fd = -1});
}
