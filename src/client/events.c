/* SPDX-License-Identifier: Apache-2.0 */
/* events.c: answers that are streams of server-sent events, one JSON document each. */
#include "client/client_internal.h"
#include "client/sse_reader.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

struct feed {
    silica_event event;
    void *user;
    int status;
    bool events; /* the answer is a stream of events */
    struct sse_reader reader;
    struct buf body; /* any other answer */
    int err;         /* first failure */
    bool stopped;    /* it was the caller's wish */
};

static int feed_event(char *data, size_t n, void *user)
{
    struct feed *f = user;
    int r = f->event(data, n, f->user);
    f->stopped = r < 0;
    return r;
}

static int feed_head(int status, const char *content_type, void *user)
{
    static const char sse[] = "text/event-stream";
    struct feed *f = user;
    f->status = status;
    f->events = status == 200 && strncasecmp(content_type, sse, sizeof sse - 1) == 0;
    return 0;
}

static int feed_data(const void *data, size_t n, void *user)
{
    struct feed *f = user;
    f->err = f->events ? sse_reader_feed(&f->reader, data, n) : buf_append(&f->body, data, n);
    return f->err;
}

static int feed_result(struct feed *f, int transport, struct silica_error *reterr)
{
    if (f->stopped)
        return client_fail(reterr, SILICA_ERROR_STOPPED, ECANCELED, "stopped by the caller");
    if (f->err == -ENOBUFS)
        return client_fail(reterr, SILICA_ERROR_PROTOCOL, EFBIG,
                           "one piece of the answer is larger than %zu MiB", CLIENT_ANSWER_MAX >> 20);
    if (f->err < 0)
        return client_fail_memory(reterr);
    if (transport < 0)
        return transport; /* *reterr is filled */
    if (f->events)
        return 0;
    if (!buf_cstr(&f->body))
        return client_fail_memory(reterr);
    if (f->status >= 400)
        return client_fail_answer(reterr, f->status, buf_data(&f->body), buf_len(&f->body));
    return client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG,
                       "the answer is no stream of events: is this a Silica server?");
}

int silica_request_events(struct silica_client *c, const struct silica_request *request, silica_event event,
                          void *user, struct silica_error *reterr)
{
    struct feed f = {.event = event, .user = user, .body = BUF_INIT(CLIENT_ANSWER_MAX)};
    struct silica_receiver receiver = {feed_head, feed_data, &f};
    sse_reader_init(&f.reader, CLIENT_ANSWER_MAX, feed_event, &f);
    int r = transport_run(c, request, &receiver, reterr);
    r = feed_result(&f, r, reterr);
    sse_reader_done(&f.reader);
    buf_done(&f.body);
    return r;
}
