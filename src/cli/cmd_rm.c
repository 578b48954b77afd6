/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_rm.c: silica rm: removes sandboxes for good. */
#include "cli/cli.h"
#include "cli/command_line.h"

#include <string.h>

enum { KEY_ALL = OPTION_KEY_FIRST };

const struct option rm_options[] = {
    {KEY_ALL, "all", 'a', NULL, NULL, "remove every sandbox; asks first when a person is at the keyboard"},
    {'y', "yes", 'y', NULL, NULL, "do not ask"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct rm_settings {
    struct connect_settings connect;
    const char **ids;
    size_t id_count;
    bool all, yes;
};

static bool confirm(size_t count)
{
    char answer[16];
    (void)fprintf(stderr, "Remove %zu sandbox%s with all processes and files? [y/N] ", count,
                  count == 1 ? "" : "es");
    if (!fgets(answer, sizeof answer, stdin))
        return false;
    return answer[0] == 'y' || answer[0] == 'Y';
}

/* The rest is tried even when one fails. */
static int remove_one(struct silica_client *c, const char *id, int result)
{
    struct silica_error e;
    if (silica_sandbox_destroy(c, id, &e) == 0) {
        printf("%s\n", id);
        return result;
    }
    if (e.kind == SILICA_ERROR_SERVER && e.http_status != 401)
        return cli_error("rm", "%s: %s", id, e.message);
    return connect_failed("rm", c, &e);
}

static int remove_all(const struct rm_settings *s, struct silica_client *c)
{
    struct silica_sandbox_list l;
    struct silica_error e;
    int r = 0;
    if (silica_sandbox_list(c, &l, &e) < 0)
        return connect_failed("rm", c, &e);
    if (l.count > 0 && !s->yes && isatty(STDIN_FILENO) && !confirm(l.count))
        r = cli_error("rm", "nothing was removed");
    else
        for (size_t i = 0; i < l.count; i++)
            r = remove_one(c, l.items[i].id, r);
    silica_sandbox_list_done(&l);
    return r;
}

static int run(const struct rm_settings *s)
{
    auto_client struct silica_client *c = NULL;
    int r = connect_open("rm", &s->connect, &c);
    if (r != 0)
        return r;
    if (s->all)
        return remove_all(s, c);
    for (size_t i = 0; i < s->id_count; i++)
        r = remove_one(c, s->ids[i], r);
    return r;
}

int cmd_rm(int argc, char **argv)
{
    auto_free const char **ids = calloc((size_t)argc, sizeof *ids);
    if (!ids)
        return cli_error("rm", "out of memory");
    struct rm_settings s = {.ids = ids};

    struct command_line line = command_line_of("rm", rm_options, &s.connect, argc, argv);
    command_line_collect(&line, ids, (size_t)argc);
    const char *value;
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        *(key == KEY_ALL ? &s.all : &s.yes) = true;
    if (key < 0)
        return line.exit_code;
    s.id_count = line.count;
    if (s.all && s.id_count > 0)
        return cli_unexpected("rm", s.ids[0]);
    if (!s.all && s.id_count == 0)
        return cli_missing("rm", "the id of a sandbox (or --all)");
    return run(&s);
}
