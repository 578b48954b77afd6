/* SPDX-License-Identifier: Apache-2.0 */
/* sse_reader.c: see sse_reader.h. Lines end with LF, CR or CRLF; comments and fields other than data are
 * skipped; an event that the end of the stream cuts off is dropped, as the specification of EventSource
 * demands. */
#include "client/sse_reader.h"

#include <errno.h>
#include <string.h>

void sse_reader_init(struct sse_reader *s, size_t limit_bytes, int (*event)(char *data, size_t n, void *user),
                     void *user)
{
    *s = (struct sse_reader){
        .line = BUF_INIT(limit_bytes), .data = BUF_INIT(limit_bytes), .event = event, .user = user};
}

static int end_event(struct sse_reader *s)
{
    if (!s->has_data)
        return 0;
    s->has_data = false;
    int r = buf_cstr(&s->data) ? s->event(buf_data(&s->data), buf_len(&s->data), s->user) : -ENOMEM;
    buf_clear(&s->data);
    return r;
}

static int end_line(struct sse_reader *s)
{
    const char *line = buf_data(&s->line);
    size_t n = buf_len(&s->line);
    int r = 0;
    if (n == 0)
        return end_event(s);
    if (n >= 4 && memcmp(line, "data", 4) == 0 && (n == 4 || line[4] == ':')) {
        size_t skip = n == 4 ? 4 : 5;
        if (n > skip && line[skip] == ' ')
            skip++;
        if (s->has_data)
            r = buf_putc(&s->data, '\n');
        if (r == 0)
            r = buf_append(&s->data, line + skip, n - skip);
        s->has_data = true;
    }
    buf_clear(&s->line);
    return r;
}

int sse_reader_feed(struct sse_reader *s, const char *data, size_t n)
{
    const char *end = data + n;
    while (data < end) {
        if (s->after_cr && *data == '\n') {
            s->after_cr = false;
            data++;
            continue;
        }
        s->after_cr = false;
        const char *p = data;
        while (p < end && *p != '\n' && *p != '\r')
            p++;
        int r = buf_append(&s->line, data, (size_t)(p - data));
        if (r < 0)
            return r;
        if (p == end)
            return 0;
        s->after_cr = *p == '\r';
        data = p + 1;
        r = end_line(s);
        if (r < 0)
            return r;
    }
    return 0;
}

void sse_reader_done(struct sse_reader *s)
{
    buf_done(&s->line);
    buf_done(&s->data);
}
