/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_ls.c: silica ls: the sandboxes of a server as a table, as ids or as JSON. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/format.h"
#include "cli/values.h"

#include <string.h>

enum { KEY_LABEL = OPTION_KEY_FIRST, KEY_JSON };

const struct option ls_options[] = {
    {KEY_LABEL, "label", 'l', "KEY=VALUE", NULL, "only sandboxes with this label; may be repeated"},
    {'q', "quiet", 'q', NULL, NULL, "only the ids, one a line"},
    {KEY_JSON, "json", 0, NULL, NULL, "print JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct ls_settings {
    struct connect_settings connect;
    const char **labels;
    size_t label_count;
    bool quiet, json;
};

static const struct table_column columns[] = {
    {"ID", false, 12}, {"STATE", false, 0}, {"IMAGE", false, 8}, {"CREATED", true, 0},
    {"USED", true, 0}, {"MEMORY", true, 0}, {"TASKS", true, 0},  {"LABELS", false, 10},
};

static bool has_label(const struct silica_sandbox *s, const char *label)
{
    size_t n = strcspn(label, "=");
    for (size_t i = 0; i < s->label_count; i++)
        if (strlen(s->labels[i].key) == n && memcmp(s->labels[i].key, label, n) == 0 &&
            strcmp(s->labels[i].value, label + n + 1) == 0)
            return true;
    return false;
}

static bool wanted(const struct ls_settings *ls, const struct silica_sandbox *s)
{
    for (size_t i = 0; i < ls->label_count; i++)
        if (!has_label(s, ls->labels[i]))
            return false;
    return true;
}

static int add_row(struct table *t, const struct silica_sandbox *s)
{
    char created[FORMAT_SIZE], used[FORMAT_SIZE], memory[FORMAT_SIZE] = "-", tasks[FORMAT_SIZE] = "-";
    struct buf labels = BUF_INIT((size_t)1 << 20);
    int r = 0;

    format_age_since(s->created_at, created);
    format_age_since(s->last_used_at, used);
    if (s->memory_bytes >= 0)
        format_bytes((uint64_t)s->memory_bytes, memory);
    if (s->tasks >= 0)
        (void)snprintf(tasks, sizeof tasks, "%lld", (long long)s->tasks);
    for (size_t i = 0; r == 0 && i < s->label_count; i++)
        r = buf_printf(&labels, "%s%s=%s", i ? "," : "", s->labels[i].key, s->labels[i].value);
    if (r == 0) {
        const char *image = s->image_name ? s->image_name : s->image;
        const char *cells[] = {s->id, s->state, image, created,
                               used,  memory,   tasks, s->label_count ? buf_cstr(&labels) : "-"};
        r = table_add(t, cells);
    }
    buf_done(&labels);
    return r;
}

static int print_table(const struct ls_settings *ls, const struct silica_sandbox_list *l)
{
    struct table t = TABLE_INIT(columns);
    int r = 0;
    for (size_t i = 0; r == 0 && i < l->count; i++)
        if (wanted(ls, &l->items[i]))
            r = add_row(&t, &l->items[i]);
    if (r == 0)
        table_print(&t, stdout, terminal_width(STDOUT_FILENO));
    table_done(&t);
    return r < 0 ? cli_error("ls", "%s", strerror(-r)) : 0;
}

static void print_json(const struct ls_settings *ls, const struct silica_sandbox_list *l)
{
    const char *comma = "";
    printf("{\"sandboxes\":[");
    for (size_t i = 0; i < l->count; i++)
        if (wanted(ls, &l->items[i])) {
            printf("%s%s", comma, l->items[i].json);
            comma = ",";
        }
    printf("]}\n");
}

static int list(const struct ls_settings *ls)
{
    auto_client struct silica_client *c = NULL;
    int r = connect_open("ls", &ls->connect, &c);
    if (r != 0)
        return r;
    struct silica_sandbox_list l;
    struct silica_error e;
    if (silica_sandbox_list(c, &l, &e) < 0)
        return connect_failed("ls", c, &e);
    if (ls->json)
        print_json(ls, &l);
    else if (ls->quiet)
        for (size_t i = 0; i < l.count; i++) {
            if (wanted(ls, &l.items[i]))
                printf("%s\n", l.items[i].id);
        }
    else
        r = print_table(ls, &l);
    silica_sandbox_list_done(&l);
    return r;
}

int cmd_ls(int argc, char **argv)
{
    struct ls_settings ls = {0};
    auto_free const char **labels = calloc((size_t)argc, sizeof *labels);
    if (!labels)
        return cli_error("ls", "out of memory");
    ls.labels = labels;

    struct command_line line = command_line_of("ls", ls_options, &ls.connect, argc, argv);
    const char *value;
    struct error e;
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        switch (key) {
        case OPTION_OPERAND:
            return cli_unexpected("ls", value);
        case KEY_LABEL:
            if (value_label(options_source(&line.options), value, &e) < 0)
                return cli_usage_error("ls", &e);
            ls.labels[ls.label_count++] = value;
            break;
        case 'q':
            ls.quiet = true;
            break;
        case KEY_JSON:
            ls.json = true;
            break;
        }
    return key < 0 ? line.exit_code : list(&ls);
}
