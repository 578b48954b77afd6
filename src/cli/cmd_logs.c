/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_logs.c: silica logs: the output of a background process, so far or until its end. */
#include "cli/cli.h"
#include "cli/command_line.h"

#include "base/buf.h"
#include "base/id.h"
#include "base/json.h"

#include <errno.h>
#include <string.h>

enum { KEY_JSON = OPTION_KEY_FIRST };

const struct option logs_options[] = {
    {'f', "follow", 'f', NULL, NULL, "go on until the process ends; exit with its exit code"},
    {KEY_JSON, "json", 0, NULL, NULL, "print what the server says, as JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct logs_settings {
    struct connect_settings connect;
    const char *id, *process;
    bool follow, json;
};

struct following {
    bool json, ended;
    int exit_code;
};

static int write_piece(FILE *out, const struct json_value *v)
{
    size_t n = 0;
    const char *s = json_string(v, &n);
    return n == 0 || fwrite(s, 1, n, out) == n ? 0 : -EIO;
}

static int show_event(char *data, size_t n, void *user)
{
    struct following *f = user;
    auto_json struct json_doc *doc = NULL;
    if (f->json)
        printf("%s\n", data);
    if (json_parse(data, n, JSON_ALLOW_NUL, &doc, NULL) < 0)
        return 0;
    const struct json_value *v = json_root(doc);
    const char *type = json_string(json_get(v, "type"), NULL);
    int64_t code;
    int r = 0;
    if (!type)
        return 0;
    if (!f->json && strcmp(type, "stdout") == 0)
        r = write_piece(stdout, json_get(v, "data"));
    else if (!f->json && strcmp(type, "stderr") == 0)
        r = write_piece(stderr, json_get(v, "data"));
    else if (strcmp(type, "exit") == 0 || strcmp(type, "complete") == 0) {
        f->ended = true;
        if (json_integer(json_get(v, "exitCode"), 0, 255, &code))
            f->exit_code = (int)code;
    }
    return r < 0 || fflush(stdout) != 0 ? -EIO : 0;
}

static int follow(const struct logs_settings *s, struct silica_client *c, const char *path)
{
    struct following f = {.json = s->json};
    struct silica_request q = {.method = "GET", .path = path};
    struct silica_error e;
    if (silica_request_events(c, &q, show_event, &f, &e) < 0 && !f.ended)
        return e.kind == SILICA_ERROR_STOPPED ? cli_error("logs", "cannot write the output")
                                              : connect_failed("logs", c, &e);
    return f.ended ? f.exit_code : cli_error("logs", "the server ended the stream before the process ended");
}

static int print_once(const struct logs_settings *s, struct silica_client *c, const char *path)
{
    struct silica_request q = {.method = "GET", .path = path};
    struct silica_response response;
    struct silica_error e;
    if (silica_request(c, &q, &response, &e) < 0)
        return connect_failed("logs", c, &e);
    auto_json struct json_doc *doc = NULL;
    int r = 0;
    if (silica_response_error(&response, &e) < 0) {
        r = connect_failed("logs", c, &e);
    } else if (s->json) {
        printf("%s\n", response.body);
    } else if (json_parse(response.body, response.body_bytes, JSON_ALLOW_NUL, &doc, NULL) < 0) {
        r = cli_error("logs", "the answer is not JSON: is this a Silica server?");
    } else if (write_piece(stdout, json_get(json_root(doc), "stdout")) < 0 ||
               write_piece(stderr, json_get(json_root(doc), "stderr")) < 0) {
        r = cli_error("logs", "cannot write the output");
    }
    silica_response_done(&response);
    return r;
}

static int run(const struct logs_settings *s)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    auto_client struct silica_client *c = NULL;
    struct buf path = BUF_INIT(8192);
    int r = connect_open("logs", &s->connect, &c);
    if (r != 0)
        return r;
    struct error e;
    if (sandbox_id_check(s->id, &e) < 0)
        return cli_usage_error("logs", &e);
    r = buf_printf(&path, "/v1/sandbox/%s/api/process/", s->id);
    for (const char *p = s->process; r == 0 && *p; p++)
        r = strchr(plain, *p) ? buf_putc(&path, *p) : buf_printf(&path, "%%%02X", (unsigned char)*p);
    if (r == 0)
        r = buf_puts(&path, s->follow ? "/stream" : "/logs");
    if (r < 0 || !buf_cstr(&path))
        r = cli_error("logs", "the name of the process is too long");
    else
        r = s->follow ? follow(s, c, buf_data(&path)) : print_once(s, c, buf_data(&path));
    buf_done(&path);
    return r;
}

int cmd_logs(int argc, char **argv)
{
    struct logs_settings s = {0};
    const char *operands[2] = {"", ""}, *value;
    struct command_line line = command_line_of("logs", logs_options, &s.connect, argc, argv);
    command_line_collect(&line, operands, ARRAY_SIZE(operands));
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        *(key == 'f' ? &s.follow : &s.json) = true;
    if (key < 0)
        return line.exit_code;
    s.id = operands[0];
    s.process = operands[1];
    if (!*s.id || !*s.process)
        return cli_missing("logs", *s.id ? "the id of the process" : "the id of the sandbox");
    return run(&s);
}
