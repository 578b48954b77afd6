/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_net.c: silica net: what a sandbox may reach, and what it did reach. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/json_call.h"
#include "cli/print.h"

#include "base/buf.h"
#include "base/id.h"
#include "base/json.h"

#include <errno.h>
#include <string.h>

enum { KEY_JSON = OPTION_KEY_FIRST, OPERANDS_MAX = 160, BODY_MAX = 256 * 1024 };

const struct option net_options[] = {
    {'f', "follow", 'f', NULL, NULL, "log: go on with what happens from now on, until Ctrl-C"},
    {KEY_JSON, "json", 0, NULL, NULL, "show, log: print JSON, an entry of the log a line"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct net_settings {
    struct connect_settings connect;
    const char *operands[OPERANDS_MAX];
    size_t count;
    bool follow, json;
};

/* "/v1/sandbox/ID" and tail; false: not an id. */
static bool sandbox_path(struct buf *out, const char *id, const char *tail)
{
    return sandbox_id_check(id, NULL) == 0 && buf_printf(out, "/v1/sandbox/%s%s", id, tail) == 0 &&
           buf_cstr(out);
}

static int call(struct silica_client *c, const char *method, const char *id, const char *tail,
                const struct buf *body, struct json_answer *a)
{
    struct buf path = BUF_INIT(1024);
    int r;
    if (sandbox_path(&path, id, tail)) {
        struct silica_request q = {.method = method, .path = buf_data(&path)};
        if (body) {
            q.body = buf_data(body);
            q.body_bytes = buf_len(body);
        }
        r = json_call("net", c, &q, a);
    } else {
        r = cli_error("net", "'%.60s' is not the id of a sandbox", id);
    }
    buf_done(&path);
    return r;
}

static int show(const struct net_settings *s, struct silica_client *c)
{
    auto_answer struct json_answer a = {0};
    int r = call(c, "GET", s->operands[1], "/network", NULL, &a);
    if (r != 0)
        return r;
    if (s->json)
        printf("%s\n", a.json);
    else if (print_members(stdout, a.json) < 0)
        return cli_error("net", "out of memory");
    return 0;
}

/* ------------------------------------------------------------------ changes */

static bool is_operand(const struct net_settings *s, size_t from, const char *text)
{
    for (size_t i = from; text && i < s->count; i++)
        if (strcmp(s->operands[i], text) == 0)
            return true;
    return false;
}

static int put_network(struct silica_client *c, const char *id, struct json_writer *w, struct buf *body)
{
    auto_answer struct json_answer a = {0};
    int r = w->err < 0 ? cli_error("net", "the list is too long") : call(c, "PUT", id, "", body, &a);
    if (r == 0) {
        struct buf out = BUF_INIT(BODY_MAX);
        struct json_writer now;
        json_writer_init(&now, &out);
        json_put_value(&now, json_get(json_root(a.doc), "network"));
        if (now.err == 0 && buf_cstr(&out))
            printf("%s\n", buf_data(&out));
        buf_done(&out);
    }
    return r;
}

static void begin_network(struct json_writer *w, struct buf *body, const char *mode)
{
    json_writer_init(w, body);
    json_object_begin(w);
    json_put_key(w, "network");
    json_object_begin(w);
    json_member_string(w, "mode", mode);
}

static int set_mode(const struct net_settings *s, struct silica_client *c)
{
    struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w;
    begin_network(&w, &body, s->operands[2]);
    if (s->count > 3) {
        json_put_key(&w, "allow");
        json_array_begin(&w);
        for (size_t i = 3; i < s->count; i++)
            json_put_string(&w, s->operands[i]);
        json_array_end(&w);
    }
    json_object_end(&w);
    json_object_end(&w);
    int r = put_network(c, s->operands[1], &w, &body);
    buf_done(&body);
    return r;
}

/* The list as it is, with these entries or without them. */
static int change_list(const struct net_settings *s, struct silica_client *c, bool add)
{
    auto_answer struct json_answer a = {0};
    const char *id = s->operands[1];
    int r = call(c, "GET", id, "/network", NULL, &a);
    if (r != 0)
        return r;
    const struct json_value *network = json_get(json_root(a.doc), "network");
    const char *mode = json_string(json_get(network, "mode"), NULL);
    if (!mode || strcmp(mode, "allowlist") != 0)
        return cli_error(
            "net",
            "its mode is '%s', which has no list; 'silica net mode %s allowlist ENTRY...' gives it one",
            mode ? mode : "", id);
    struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w;
    size_t removed = 0;
    begin_network(&w, &body, mode);
    json_put_key(&w, "allow");
    json_array_begin(&w);
    json_for_each (v, json_get(network, "allow")) {
        bool named = is_operand(s, 2, json_string(v, NULL));
        removed += named;
        if (add || !named)
            json_put_string(&w, json_string(v, NULL));
    }
    for (size_t i = 2; add && i < s->count; i++)
        json_put_string(&w, s->operands[i]);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    if (!add && removed < s->count - 2)
        r = cli_error("net", "not on the list as you wrote it; 'silica net show %s' prints it", id);
    else
        r = put_network(c, id, &w, &body);
    buf_done(&body);
    return r;
}

/* ------------------------------------------------------------------ the log */

static void print_entry(const struct json_value *v)
{
    char where[320];
    int64_t port = 0, sent, received, missed;
    const char *name = json_string(json_get(v, "name"), NULL),
               *reason = json_string(json_get(v, "reason"), NULL);
    const char *address = json_string(json_get(v, "address"), NULL);
    if (json_integer(json_get(v, "missed"), 0, INT64_MAX, &missed)) {
        printf("%lld entries were missed\n", (long long)missed);
        return;
    }
    (void)json_integer(json_get(v, "port"), 0, 65535, &port);
    print_cell(json_string(json_get(v, "time"), NULL), 26);
    print_cell(json_string(json_get(v, "verdict"), NULL), 7);
    print_cell(json_string(json_get(v, "event"), NULL), 8);
    print_cell(json_string(json_get(v, "protocol"), NULL), 7);
    bool v6 = address && strchr(address, ':');
    (void)snprintf(where, sizeof where,
                   !port ? "%s"
                   : v6  ? "[%s]:%lld"
                         : "%s:%lld",
                   address ? address : "", (long long)port);
    print_cell(where, 23);
    print_cell(name, 0);
    if (json_integer(json_get(v, "bytesSent"), 0, INT64_MAX, &sent) &&
        json_integer(json_get(v, "bytesReceived"), 0, INT64_MAX, &received))
        printf("  %lld sent, %lld received", (long long)sent, (long long)received);
    if (reason) {
        printf("  (");
        print_cell(reason, 0);
        printf(")");
    }
    printf("\n");
}

static int entry_came(char *data, size_t n, void *user)
{
    const bool *json = user;
    auto_json struct json_doc *doc = NULL;
    if (*json)
        printf("%s\n", data);
    else if (json_parse(data, n, 0, &doc, NULL) == 0)
        print_entry(json_root(doc));
    return fflush(stdout) == 0 ? 0 : -EIO;
}

static int follow(const struct net_settings *s, struct silica_client *c)
{
    struct buf path = BUF_INIT(1024);
    struct silica_error e;
    int r;
    bool json = s->json;
    if (!sandbox_path(&path, s->operands[1], "/network/log?follow=1"))
        r = cli_error("net", "'%.60s' is not the id of a sandbox", s->operands[1]);
    else if (silica_request_events(c, &(struct silica_request){.method = "GET", .path = buf_data(&path)},
                                   entry_came, &json, &e) < 0)
        r = e.kind == SILICA_ERROR_STOPPED ? cli_error("net", "cannot write the output")
                                           : connect_failed("net", c, &e);
    else
        r = cli_error("net", "the server ended the stream");
    buf_done(&path);
    return r;
}

static int print_log(const struct net_settings *s, struct silica_client *c)
{
    auto_answer struct json_answer a = {0};
    if (s->follow)
        return follow(s, c);
    int r = call(c, "GET", s->operands[1], "/network/log", NULL, &a);
    if (r != 0)
        return r;
    json_for_each (v, json_get(json_root(a.doc), "entries")) {
        struct buf line = BUF_INIT(BODY_MAX);
        struct json_writer w;
        json_writer_init(&w, &line);
        json_put_value(&w, v);
        if (!s->json)
            print_entry(v);
        else if (w.err == 0 && buf_cstr(&line))
            printf("%s\n", buf_data(&line));
        buf_done(&line);
    }
    return 0;
}

/* ------------------------------------------------------------------ the command line */

enum { SHOW, MODE, ALLOW, DENY, LOG };

static const struct action actions[] = {
    [SHOW] = {"show", 1, 1, {"the id of the sandbox"}},
    [MODE] = {"mode", 2, OPERANDS_MAX, {"the id of the sandbox", "the mode"}},
    [ALLOW] = {"allow", 2, OPERANDS_MAX, {"the id of the sandbox", "what to add, such as *.example.org,"}},
    [DENY] = {"deny", 2, OPERANDS_MAX, {"the id of the sandbox", "what to take away"}},
    [LOG] = {"log", 1, 1, {"the id of the sandbox"}},
};

static int run(const struct net_settings *s)
{
    auto_client struct silica_client *c = NULL;
    int what = action_find("net", actions, ARRAY_SIZE(actions), s->operands, s->count);
    int r = what < 0 ? CLI_ERROR : connect_open("net", &s->connect, &c);
    if (r != 0)
        return r;
    switch (what) {
    case SHOW:
        return show(s, c);
    case MODE:
        return set_mode(s, c);
    case LOG:
        return print_log(s, c);
    default:
        return change_list(s, c, what == ALLOW);
    }
}

int cmd_net(int argc, char **argv)
{
    struct net_settings s = {0};
    struct command_line line = command_line_of("net", net_options, &s.connect, argc, argv);
    command_line_collect(&line, s.operands, OPERANDS_MAX);
    const char *value;
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        *(key == 'f' ? &s.follow : &s.json) = true;
    s.count = line.count;
    return key < 0 ? line.exit_code : run(&s);
}
