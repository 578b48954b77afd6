/* SPDX-License-Identifier: Apache-2.0 */
/* preview_page.c: what a browser shows when a preview cannot; programs get the error envelope. */
#include "gateway/preview.h"
#include "gateway/reply.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_MAX = 8192 };

/* Nothing from outside is loaded, and nothing of it runs. */
static const char policy[] = "default-src 'none'; style-src 'unsafe-inline'";

static const char page_head[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>Preview</title><style>"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:38rem;margin:15vh auto;padding:0 "
    "1rem;color:#222;background:#fff}"
    "h1{font-size:1.4rem}code{background:#eee;padding:.1em "
    ".3em;border-radius:3px}p.small{color:#666;font-size:.85rem}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code{background:#333}}"
    "</style></head><body>";

static const char *title(const struct problem *p)
{
    switch (p->status) {
    case 404:
        return "There is no preview at this address";
    case 429:
        return "Please wait a moment";
    case 502:
        return "Nothing answers here yet";
    case 503:
        return "This preview is busy";
    case 504:
        return "The service takes too long";
    default:
        return "This preview cannot be shown";
    }
}

static const char *advice(const struct problem *p)
{
    switch (p->status) {
    case 404:
        return "The address may be mistyped, the port may not be exposed any more, or the sandbox may have "
               "been removed.";
    case 502:
        return "Start the service inside the sandbox and reload this page. It may listen on "
               "<code>127.0.0.1</code>, "
               "<code>0.0.0.0</code> or <code>::1</code>. Programs end when a sandbox falls asleep; its "
               "files are kept.";
    case 504:
        return "The service took the connection but has not answered. Look at its output, then reload this "
               "page.";
    default:
        return "Reload this page to try again.";
    }
}

/* The sentence may quote what others said. */
static int put_escaped(struct buf *out, const char *text)
{
    int r = 0;
    for (; *text && r == 0; text++) {
        if (strchr("<>&\"'", *text))
            r = buf_printf(out, "&#%d;", *text);
        else
            r = buf_putc(out, *text);
    }
    return r;
}

static int put_page(struct buf *out, const char *sandbox_id, const struct problem *p)
{
    int r;
    if ((r = buf_puts(out, page_head)) < 0 ||
        (r = buf_printf(out, "<h1>%s</h1><p>%s</p>", title(p), advice(p))) < 0)
        return r;
    if (p->status != 404) {
        if ((r = buf_puts(out, "<p class=\"small\">")) < 0)
            return r;
        if (sandbox_id && (r = buf_printf(out, "Sandbox <code>%s</code>, ", sandbox_id)) < 0)
            return r;
        if ((r = put_escaped(out, p->message)) < 0 || (r = buf_puts(out, ".</p>")) < 0)
            return r;
    }
    return buf_puts(out, "</body></html>\n");
}

static bool wants_page(const struct http_request *req)
{
    for (size_t i = 0; i < req->header_count; i++)
        if (strcasecmp(req->headers[i].name, "Accept") == 0 && strcasestr(req->headers[i].value, "text/html"))
            return true;
    return false;
}

void preview_refuse(struct http_request *req, const char *sandbox_id, const struct problem *p)
{
    struct buf out = BUF_INIT(PAGE_MAX);
    char seconds[16];
    if (!wants_page(req) || put_page(&out, sandbox_id, p) < 0) {
        buf_done(&out);
        reply_problem(req, sandbox_id, p);
        return;
    }
    struct http_header headers[4] = {{"Content-Type", "text/html; charset=utf-8"},
                                     {"Cache-Control", "no-store"},
                                     {"Content-Security-Policy", policy}};
    size_t count = 3;
    if (p->retry_after_s) {
        (void)snprintf(seconds, sizeof seconds, "%d", p->retry_after_s);
        headers[count++] = (struct http_header){"Retry-After", seconds};
    }
    http_respond_headers(req, p->status, headers, count, buf_data(&out), buf_len(&out));
    buf_done(&out);
}
