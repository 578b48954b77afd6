/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_events.c: silica events: what happens to sandboxes, line by line. */
#include "cli/cli.h"
#include "cli/connect.h"
#include "cli/print.h"

#include "base/buf.h"
#include "base/json.h"

#include <errno.h>
#include <string.h>

enum { KEY_JSON = OPTION_KEY_FIRST };

const struct option events_options[] = {
    {'s', "sandbox", 's', "ID", NULL, "only of this sandbox"},
    {KEY_JSON, "json", 0, NULL, NULL, "print each event as one line of JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

static int show_event(char *data, size_t n, void *user)
{
    const bool *json = user;
    auto_json struct json_doc *doc = NULL;
    if (*json) {
        printf("%s\n", data);
    } else {
        if (json_parse(data, n, 0, &doc, NULL) < 0)
            return 0; /* of a later server */
        const struct json_value *v = json_root(doc);
        int64_t missed;
        print_cell(json_string(json_get(v, "timestamp"), NULL), 26);
        print_cell(json_string(json_get(v, "type"), NULL), 11);
        print_cell(json_string(json_get(v, "sandboxId"), NULL), 0);
        if (json_integer(json_get(v, "missed"), 0, INT64_MAX, &missed))
            printf("%lld events were missed", (long long)missed);
        const char *reason = json_string(json_get(v, "reason"), NULL);
        if (reason) {
            printf("  ");
            print_cell(reason, 0);
        }
        printf("\n");
    }
    return fflush(stdout) == 0 ? 0 : -EIO;
}

static int follow(const struct connect_settings *connect, const char *id, bool json)
{
    auto_client struct silica_client *c = NULL;
    int r = connect_open("events", connect, &c);
    if (r != 0)
        return r;
    struct buf path = BUF_INIT(1024);
    struct silica_error e;
    r = buf_puts(&path, "/v1/events");
    if (r == 0 && id)
        r = buf_printf(&path, "?sandbox=%s", id);
    struct silica_request q = {.method = "GET", .path = r == 0 ? buf_cstr(&path) : NULL};
    if (!q.path)
        r = cli_error("events", "the id of the sandbox is too long");
    else if (silica_request_events(c, &q, show_event, &json, &e) < 0)
        r = e.kind == SILICA_ERROR_STOPPED ? cli_error("events", "cannot write the output")
                                           : connect_failed("events", c, &e);
    else
        r = cli_error("events", "the server ended the stream");
    buf_done(&path);
    return r;
}

int cmd_events(int argc, char **argv)
{
    struct connect_settings connect = {0};
    const char *id = NULL;
    bool json = false;
    struct options o = OPTIONS_INIT(events_options, connect_options, argc, argv);
    const char *value;
    struct error e;
    int key;
    while ((key = options_next(&o, &value, &e)) > 0) {
        if (connect_take(&connect, key, value))
            continue;
        if (key == OPTION_HELP)
            return cli_help("events");
        if (key == OPTION_OPERAND)
            return cli_unexpected("events", value);
        if (key == 's')
            id = value;
        else
            json = true;
    }
    if (key < 0)
        return cli_usage_error("events", &e);
    if (id && (!*id ||
               strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._") != strlen(id)))
        return cli_error("events", "'%.60s' is not the id of a sandbox", id);
    return follow(&connect, id, json);
}
