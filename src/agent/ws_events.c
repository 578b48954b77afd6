/* SPDX-License-Identifier: Apache-2.0 */
/* ws_events.c: see ws_events.h. Lines end with LF, as the agent writes them; comments and other fields are
 * left out. */
#include "agent/ws_events.h"

#include <string.h>

enum { NAME_MAX_BYTES = 256 };

void ws_events_init(struct ws_events *e)
{
    *e = (struct ws_events){.line = BUF_INIT(WS_EVENT_BYTES_MAX),
                            .data = BUF_INIT(WS_EVENT_BYTES_MAX),
                            .event = BUF_INIT(NAME_MAX_BYTES)};
}

void ws_events_done(struct ws_events *e)
{
    buf_done(&e->line);
    buf_done(&e->data);
    buf_done(&e->event);
}

/* The value of a line "name: value", NULL when it is another field. */
static const char *value_of(const char *line, size_t n, const char *name, size_t *ret_len)
{
    size_t len = strlen(name);
    if (n < len || memcmp(line, name, len) != 0)
        return NULL;
    if (n > len && line[len] == ' ')
        len++;
    *ret_len = n - len;
    return line + len;
}

static bool take_line(struct ws_events *e, const char *line, size_t n,
                      void (*each)(struct ws_events *e, const char *event, const char *data, size_t n))
{
    size_t len;
    const char *value;
    if (!n) {
        if (e->has_data)
            each(e, buf_len(&e->event) ? buf_cstr(&e->event) : NULL, buf_data(&e->data), buf_len(&e->data));
        buf_clear(&e->data);
        buf_clear(&e->event);
        e->has_data = false;
        return true;
    }
    value = value_of(line, n, "data:", &len);
    if (value) {
        bool more = e->has_data;
        e->has_data = true;
        return (!more || buf_putc(&e->data, '\n') == 0) && buf_append(&e->data, value, len) == 0;
    }
    value = value_of(line, n, "event:", &len);
    if (!value)
        return true;
    buf_clear(&e->event);
    return buf_append(&e->event, value, len) == 0;
}

bool ws_events_feed(struct ws_events *e, const char *bytes, size_t n,
                    void (*each)(struct ws_events *e, const char *event, const char *data, size_t n))
{
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        size_t len = end ? (size_t)(end - bytes) : n;
        if (!end)
            return buf_append(&e->line, bytes, len) == 0;
        bool ok;
        if (buf_len(&e->line)) {
            ok = buf_append(&e->line, bytes, len) == 0 &&
                 take_line(e, buf_data(&e->line), buf_len(&e->line), each);
            buf_clear(&e->line);
        } else {
            ok = take_line(e, bytes, len, each);
        }
        if (!ok)
            return false;
        bytes += len + 1;
        n -= len + 1;
    }
    return true;
}
