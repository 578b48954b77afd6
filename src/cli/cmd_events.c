/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_events.c: silica events: what happens to sandboxes, line by line. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/print.h"

#include "base/buf.h"
#include "base/id.h"
#include "base/json.h"

#include <errno.h>

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
    struct silica_error e;
    char path[sizeof "/v1/events?sandbox=" + SANDBOX_ID_MAX];
    (void)snprintf(path, sizeof path, "/v1/events%s%s", id ? "?sandbox=" : "", id ? id : "");
    struct silica_request q = {.method = "GET", .path = path};
    if (silica_request_events(c, &q, show_event, &json, &e) < 0)
        r = e.kind == SILICA_ERROR_STOPPED ? cli_error("events", "cannot write the output")
                                           : connect_failed("events", c, &e);
    else
        r = cli_error("events", "the server ended the stream");
    return r;
}

int cmd_events(int argc, char **argv)
{
    struct connect_settings connect = {0};
    const char *id = NULL, *value;
    bool json = false;
    struct command_line line = command_line_of("events", events_options, &connect, argc, argv);
    int key;
    while ((key = command_line_next(&line, &value)) > 0) {
        if (key == OPTION_OPERAND)
            return cli_unexpected("events", value);
        if (key == 's')
            id = value;
        else
            json = true;
    }
    if (key < 0)
        return line.exit_code;
    struct error e;
    return id && sandbox_id_check(id, &e) < 0 ? cli_usage_error("events", &e) : follow(&connect, id, json);
}
