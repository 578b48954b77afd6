/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_token.c: silica token create, ls and rm. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/format.h"
#include "cli/json_call.h"
#include "cli/values.h"

#include "base/clock.h"

#include <string.h>

enum { KEY_SANDBOX = OPTION_KEY_FIRST, KEY_NAME, KEY_EXPIRES, KEY_JSON, OPERANDS_MAX = 64 };

const struct option token_options[] = {
    {KEY_SANDBOX, "sandbox", 's', "ID", NULL, "create: the sandbox the token is for"},
    {KEY_NAME, "name", 0, "TEXT", NULL, "create: what the token is called in the list"},
    {KEY_EXPIRES, "expires", 0, "TIME", NULL,
     "create: after so long it opens nothing any more (30m, 24h, 90d)"},
    {KEY_JSON, "json", 0, NULL, NULL, "create, ls: print JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct token_settings {
    struct connect_settings connect;
    const char *operands[OPERANDS_MAX];
    size_t count;
    const char *sandbox, *name;
    int64_t expires_ms;
    bool json;
};

static const struct table_column columns[] = {
    {"ID", false, 0},    {"SCOPE", false, 0},  {"SANDBOX", false, 10},
    {"NAME", false, 10}, {"CREATED", true, 0}, {"EXPIRES", true, 0},
};

static int create(const struct token_settings *s, struct silica_client *c)
{
    struct buf body = BUF_INIT(16 * 1024);
    struct json_writer w;
    auto_answer struct json_answer a = {0};
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_member_string(&w, "scope", s->operands[1]);
    if (s->sandbox)
        json_member_string(&w, "sandbox", s->sandbox);
    if (s->name)
        json_member_string(&w, "name", s->name);
    if (s->expires_ms) {
        json_put_key(&w, "expiresIn");
        json_put_number(&w, (double)s->expires_ms / 1000);
    }
    json_object_end(&w);
    if (w.err < 0) {
        buf_done(&body);
        return cli_error("token", "the name is too long");
    }
    struct silica_request q = {
        .method = "POST", .path = "/v1/token", .body = buf_data(&body), .body_bytes = buf_len(&body)};
    int r = json_call("token", c, &q, &a);
    buf_done(&body);
    if (r != 0)
        return r;
    printf("%s\n", s->json ? a.json : json_text(json_root(a.doc), "token"));
    if (!s->json && isatty(STDERR_FILENO))
        (void)fprintf(stderr, "This is shown once. The token's id is %s.\n",
                      json_text(json_root(a.doc), "id"));
    return 0;
}

static void expiry_of(const struct json_value *v, char out[FORMAT_SIZE])
{
    int64_t at;
    (void)snprintf(out, FORMAT_SIZE, "never");
    if (!parse_iso_time(json_text(v, "expiresAt"), &at))
        return;
    if (at <= clock_wall_ms()) {
        (void)snprintf(out, FORMAT_SIZE, "expired");
    } else {
        char words[FORMAT_SIZE];
        format_age(at - clock_wall_ms(), words);
        (void)snprintf(out, FORMAT_SIZE, "in %.*s", FORMAT_SIZE - 4, words);
    }
}

static int add_row(struct table *t, const struct json_value *v, const void *arg)
{
    char created[FORMAT_SIZE], expires[FORMAT_SIZE];
    (void)arg;
    format_age_since(json_text(v, "createdAt"), created);
    expiry_of(v, expires);
    const char *cells[] = {json_string(json_get(v, "id"), NULL),
                           json_string(json_get(v, "scope"), NULL),
                           json_string(json_get(v, "sandbox"), NULL),
                           json_string(json_get(v, "name"), NULL),
                           created,
                           expires};
    return table_add(t, cells);
}

static int list(const struct token_settings *s, struct silica_client *c)
{
    struct json_listing l = {"/v1/token", "tokens", TABLE_INIT(columns), add_row, NULL};
    return json_list("token", c, &l, s->json);
}

/* The rest is tried even when one fails. */
static int remove_tokens(const struct token_settings *s, struct silica_client *c)
{
    int result = 0;
    for (size_t i = 1; i < s->count; i++) {
        char path[128];
        const char *id = s->operands[i];
        if (!*id || strlen(id) > 60 || strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(id)) {
            result = cli_error("token", "'%.60s' is not the id of a token; see 'silica token ls'", id);
            continue;
        }
        (void)snprintf(path, sizeof path, "/v1/token/%s", id);
        int r = json_print("token", c, "DELETE", path, id);
        result = r ? r : result;
    }
    return result;
}

enum { CREATE, LS, RM };

static const struct action actions[] = {
    [CREATE] = {"create", 1, 1, {"the scope (admin, create-only, one-sandbox or read-only)"}},
    [LS] = {"ls", 0, 0, {NULL}},
    [RM] = {"rm", 1, OPERANDS_MAX, {"the id of a token"}},
};

static int run(const struct token_settings *s)
{
    auto_client struct silica_client *c = NULL;
    int what = action_find("token", actions, ARRAY_SIZE(actions), s->operands, s->count);
    int r = what < 0 ? CLI_ERROR : connect_open("token", &s->connect, &c);
    if (r != 0)
        return r;
    switch (what) {
    case CREATE:
        return create(s, c);
    case LS:
        return list(s, c);
    default:
        return remove_tokens(s, c);
    }
}

int cmd_token(int argc, char **argv)
{
    struct token_settings s = {0};
    struct command_line line = command_line_of("token", token_options, &s.connect, argc, argv);
    command_line_collect(&line, s.operands, OPERANDS_MAX);
    const char *value;
    struct error e;
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        switch (key) {
        case KEY_SANDBOX:
            s.sandbox = value;
            break;
        case KEY_NAME:
            s.name = value;
            break;
        case KEY_EXPIRES:
            if (value_duration_ms(options_source(&line.options), value, &s.expires_ms, &e) < 0)
                return cli_usage_error("token", &e);
            break;
        case KEY_JSON:
            s.json = true;
            break;
        }
    s.count = line.count;
    return key < 0 ? line.exit_code : run(&s);
}
