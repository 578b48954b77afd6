/* SPDX-License-Identifier: Apache-2.0 */
/* events.c: see events.h. */
#include "agent/events.h"
#include "agent/reply.h"

#include <errno.h>
#include <string.h>

static const char *const prefixes[2] = {
    "data: {\"type\":\"stdout\",\"data\":\"",
    "data: {\"type\":\"stderr\",\"data\":\"",
};

int event_frame_init(struct event_frame *f, const char *process_id)
{
    *f = (struct event_frame){.suffix = BUF_INIT(64 * 1024), .out = BUF_INIT(EVENT_OUT_MAX)};
    if (process_id && !(f->process_id = strdup(process_id)))
        return -ENOMEM;
    return 0;
}

void event_frame_done(struct event_frame *f)
{
    free(f->process_id);
    f->process_id = NULL;
    buf_done(&f->suffix);
    buf_done(&f->out);
}

void event_frame_stamp(struct event_frame *f)
{
    struct json_writer w;
    struct buf tail = BUF_INIT(64 * 1024);
    json_writer_init(&w, &tail);
    json_object_begin(&w);
    if (f->process_id)
        json_member_string(&w, "processId", f->process_id);
    reply_timestamp(&w);
    json_object_end(&w);
    buf_clear(&f->suffix);
    if (w.err == 0 && buf_puts(&f->suffix, "\",") == 0)
        (void)buf_append(&f->suffix, buf_data(&tail) + 1, buf_len(&tail) - 1); /* without the '{' */
    (void)buf_puts(&f->suffix, f->run ? "\n" : "\n\n");
    buf_done(&tail);
}

/* Behind the data, because what it tells is known only then; the order of the lines does not matter. */
static void put_id(struct event_frame *f)
{
    if (f->run)
        (void)buf_printf(&f->out, "id: %016llx-%llu-%llu%s\n\n", (unsigned long long)f->run,
                         (unsigned long long)f->told[0], (unsigned long long)f->told[1],
                         f->last ? "-end" : "");
}

void event_open(struct event_frame *f, int stream)
{
    if (f->named)
        (void)buf_printf(&f->out, "event: %s\n", stream == 1 ? "stdout" : "stderr");
    (void)buf_puts(&f->out, prefixes[stream - 1]);
}

void event_close(struct event_frame *f)
{
    (void)buf_append(&f->out, buf_data(&f->suffix), buf_len(&f->suffix));
    put_id(f);
}

void event_put(struct event_frame *f, int stream, struct utf8_stream *st, unsigned utf8_flags,
               const char *data, size_t n, bool final)
{
    size_t before = buf_len(&f->out);
    event_open(f, stream);
    size_t opened = buf_len(&f->out);
    f->position[stream - 1] += n;
    if (utf8_decode(st, data, n, final, UTF8_JSON | utf8_flags, &f->out) == 0 && buf_len(&f->out) > opened) {
        f->told[stream - 1] = f->position[stream - 1] - st->pending_len;
        event_close(f);
        return;
    }
    f->out.end -= buf_len(&f->out) - before; /* nothing to tell yet */
}

size_t event_put_lines(struct event_frame *f, int stream, struct utf8_stream *st, const char *data, size_t n,
                       bool final)
{
    size_t used = 0;
    while (used < n) {
        const char *line = data + used;
        const char *nl = memchr(line, '\n', n - used);
        if (!nl && !final && (used || n < EVENT_PIECE))
            break;
        size_t len = nl ? (size_t)(nl - line) + 1 : n - used;
        event_put(f, stream, st, UTF8_DROP_NUL, line, len, nl || final);
        used += len;
    }
    return used;
}

bool event_flush(struct event_frame *f, struct http_request *req)
{
    if (!buf_len(&f->out))
        return true;
    bool room = http_response_write(req, buf_data(&f->out), buf_len(&f->out));
    buf_clear(&f->out);
    return room;
}

void event_begin(struct json_writer *w, struct buf *json, const char *type)
{
    *json = BUF_INIT(EVENT_OUT_MAX);
    json_writer_init(w, json);
    json_object_begin(w);
    json_member_string(w, "type", type);
}

void event_end(struct event_frame *f, struct json_writer *w, struct buf *json)
{
    static const size_t before = sizeof "{\"type\":\"" - 1;
    reply_timestamp(w);
    json_object_end(w);
    if (w->err == 0 && f->named) { /* types need no escapes */
        const char *type = buf_data(json) + before, *end = memchr(type, '"', buf_len(json) - before);
        (void)buf_printf(&f->out, "event: %.*s\n", (int)(end - type), type);
    }
    if (w->err == 0 && buf_puts(&f->out, "data: ") == 0 &&
        buf_append(&f->out, buf_data(json), buf_len(json)) == 0)
        (void)buf_puts(&f->out, f->run ? "\n" : "\n\n");
    put_id(f);
    buf_done(json);
}
