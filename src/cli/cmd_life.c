/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_life.c: silica sleep and silica wake. */
#include "cli/cli.h"
#include "cli/command_line.h"

#include <string.h>

const struct option life_options[] = {{0, NULL, 0, NULL, NULL, NULL}};

typedef int life_call(struct silica_client *c, const char *id, struct silica_sandbox *ret,
                      struct silica_error *reterr);

/* The rest is tried even when one fails. */
static int change_one(const char *verb, life_call *call, struct silica_client *c, const char *id, int result)
{
    struct silica_sandbox s;
    struct silica_error e;
    if (call(c, id, &s, &e) == 0) {
        printf("%s\n", s.id);
        silica_sandbox_done(&s);
        return result;
    }
    if (e.kind == SILICA_ERROR_SERVER && e.http_status != 401)
        return cli_error(verb, "%s: %s", id, e.message);
    return connect_failed(verb, c, &e);
}

static int run(const char *verb, life_call *call, int argc, char **argv)
{
    auto_free const char **ids = calloc((size_t)argc, sizeof *ids);
    if (!ids)
        return cli_error(verb, "out of memory");
    struct connect_settings connect = {0};
    struct command_line line = command_line_of(verb, life_options, &connect, argc, argv);
    command_line_collect(&line, ids, (size_t)argc);
    const char *value;
    if (command_line_next(&line, &value) < 0) /* it has no options of its own */
        return line.exit_code;
    if (line.count == 0)
        return cli_missing(verb, "the id of a sandbox");

    auto_client struct silica_client *c = NULL;
    int r = connect_open(verb, &connect, &c);
    if (r != 0)
        return r;
    for (size_t i = 0; i < line.count; i++)
        r = change_one(verb, call, c, ids[i], r);
    return r;
}

int cmd_sleep(int argc, char **argv)
{
    return run("sleep", silica_sandbox_sleep, argc, argv);
}

int cmd_wake(int argc, char **argv)
{
    return run("wake", silica_sandbox_wake, argc, argv);
}
