/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_health.c: silica health: is the server well? */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/print.h"

const struct option health_options[] = {
    {'j', "json", 0, NULL, NULL, "print JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

static int health(const struct connect_settings *connect, bool json)
{
    auto_client struct silica_client *c = NULL;
    int r = connect_open("health", connect, &c);
    if (r != 0)
        return r;
    auto_free char *text = NULL;
    struct silica_error e;
    if (silica_health(c, &text, &e) < 0)
        return connect_failed("health", c, &e);
    if (json) {
        printf("%s\n", text);
        return 0;
    }
    printf("%-22s %s\n", "url:", silica_client_url(c));
    if (print_members(stdout, text) < 0)
        return cli_error("health", "the server's answer is not an object: is this a Silica server?");
    return 0;
}

int cmd_health(int argc, char **argv)
{
    struct connect_settings connect = {0};
    bool json = false;
    struct command_line line = command_line_of("health", health_options, &connect, argc, argv);
    const char *value;
    int key;
    while ((key = command_line_next(&line, &value)) > 0) {
        if (key == OPTION_OPERAND)
            return cli_unexpected("health", value);
        json = true;
    }
    return key < 0 ? line.exit_code : health(&connect, json);
}
