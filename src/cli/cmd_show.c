/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_show.c: silica show: everything the server knows about one sandbox. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/print.h"

const struct option show_options[] = {
    {'j', "json", 0, NULL, NULL, "print JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

static int show(const struct connect_settings *connect, const char *id, bool json)
{
    auto_client struct silica_client *c = NULL;
    int r = connect_open("show", connect, &c);
    if (r != 0)
        return r;
    struct silica_sandbox s;
    struct silica_error e;
    if (silica_sandbox_get(c, id, &s, &e) < 0)
        return connect_failed("show", c, &e);
    if (json)
        printf("%s\n", s.json);
    else if (print_members(stdout, s.json) < 0)
        r = cli_error("show", "out of memory");
    silica_sandbox_done(&s);
    return r;
}

int cmd_show(int argc, char **argv)
{
    struct connect_settings connect = {0};
    const char *id = "", *value;
    bool json = false;
    struct command_line line = command_line_of("show", show_options, &connect, argc, argv);
    command_line_collect(&line, &id, 1);
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        json = true;
    if (key < 0)
        return line.exit_code;
    return *id ? show(&connect, id, json) : cli_missing("show", "the id of the sandbox");
}
