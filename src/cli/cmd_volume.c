/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_volume.c: silica volume create, ls, inspect and rm. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/format.h"
#include "cli/json_call.h"
#include "cli/values.h"

#include "keeper/proto_volume.h"

#include <string.h>

enum { KEY_SIZE = OPTION_KEY_FIRST, KEY_JSON, OPERANDS_MAX = 64 };

const struct option volume_options[] = {
    {KEY_SIZE, "size", 's', "SIZE", NULL, "create: how much it may hold (10G; default 1G)"},
    {KEY_JSON, "json", 0, NULL, NULL, "create, ls: print JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct volume_settings {
    struct connect_settings connect;
    const char *operands[OPERANDS_MAX];
    size_t count;
    uint64_t bytes;
    bool json;
};

static const struct table_column columns[] = {
    {"NAME", false, 0}, {"SIZE", true, 0}, {"USED", true, 0}, {"CREATED", true, 0}, {"SANDBOXES", false, 10},
};

static int create(const struct volume_settings *s, struct silica_client *c)
{
    struct buf body = BUF_INIT(4096);
    struct json_writer w;
    auto_answer struct json_answer a = {0};
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_member_string(&w, "name", s->operands[1]);
    if (s->bytes)
        json_member_int(&w, "size", (int64_t)s->bytes);
    json_object_end(&w);
    struct silica_request q = {
        .method = "POST", .path = "/v1/volumes", .body = buf_data(&body), .body_bytes = buf_len(&body)};
    int r = json_call("volume", c, &q, &a);
    buf_done(&body);
    if (r == 0)
        printf("%s\n", s->json ? a.json : json_text(json_root(a.doc), "name"));
    return r;
}

/* "a, b, c", cut where the cell is full. */
static void join(const struct json_value *list, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = '\0';
    json_for_each (v, list) {
        const char *id = json_string(v, NULL);
        int wrote = id ? snprintf(out + n, cap - n, "%s%s", n ? ", " : "", id) : 0;
        if (wrote < 0 || (size_t)wrote >= cap - n)
            return;
        n += (size_t)wrote;
    }
}

static int add_row(struct table *t, const struct json_value *v, const void *arg)
{
    (void)arg;
    char size[FORMAT_SIZE] = "", used[FORMAT_SIZE] = "", created[FORMAT_SIZE], sandboxes[256];
    int64_t n;
    if (json_integer(json_get(v, "sizeBytes"), 0, INT64_MAX, &n))
        format_bytes(n, size);
    if (json_integer(json_get(v, "usedBytes"), 0, INT64_MAX, &n))
        format_bytes(n, used);
    format_age_since(json_text(v, "createdAt"), created);
    join(json_get(v, "sandboxes"), sandboxes, sizeof sandboxes);
    const char *cells[] = {json_text(v, "name"), size, used, created, sandboxes};
    return table_add(t, cells);
}

static int list(const struct volume_settings *s, struct silica_client *c)
{
    struct json_listing l = {"/v1/volumes", "volumes", TABLE_INIT(columns), add_row, NULL};
    return json_list("volume", c, &l, s->json);
}

/* Each of the names; the rest is tried even when one fails. */
static int for_names(const struct volume_settings *s, struct silica_client *c, const char *method)
{
    int result = 0;
    bool removes = strcmp(method, "DELETE") == 0;
    for (size_t i = 1; i < s->count; i++) {
        char path[VOLUME_NAME_MAX + 32];
        const char *name = s->operands[i];
        if (!volume_name_ok(name)) {
            result = cli_error("volume", "'%.60s' is not the name of a volume; see 'silica volume ls'", name);
            continue;
        }
        (void)snprintf(path, sizeof path, "/v1/volumes/%s", name);
        int r = json_print("volume", c, method, path, removes ? name : NULL);
        result = r ? r : result;
    }
    return result;
}

enum { CREATE, LS, INSPECT, RM };

static const struct action actions[] = {
    [CREATE] = {"create", 1, 1, {"the name of the volume"}},
    [LS] = {"ls", 0, 0, {NULL}},
    [INSPECT] = {"inspect", 1, OPERANDS_MAX, {"the name of a volume"}},
    [RM] = {"rm", 1, OPERANDS_MAX, {"the name of a volume"}},
};

static int run(const struct volume_settings *s)
{
    auto_client struct silica_client *c = NULL;
    int what = action_find("volume", actions, ARRAY_SIZE(actions), s->operands, s->count);
    int r = what < 0 ? CLI_ERROR : connect_open("volume", &s->connect, &c);
    if (r != 0)
        return r;
    switch (what) {
    case CREATE:
        return create(s, c);
    case LS:
        return list(s, c);
    default:
        return for_names(s, c, what == RM ? "DELETE" : "GET");
    }
}

int cmd_volume(int argc, char **argv)
{
    struct volume_settings s = {0};
    struct command_line line = command_line_of("volume", volume_options, &s.connect, argc, argv);
    command_line_collect(&line, s.operands, OPERANDS_MAX);
    const char *value;
    struct error e;
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        if (key == KEY_JSON)
            s.json = true;
        else if (value_bytes(options_source(&line.options), value, &s.bytes, &e) < 0)
            return cli_usage_error("volume", &e);
    s.count = line.count;
    return key < 0 ? line.exit_code : run(&s);
}
