/* SPDX-License-Identifier: Apache-2.0 */
/* command_line.c: see command_line.h. */
#include "cli/command_line.h"

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/suggest.h"

#include <errno.h>
#include <string.h>

struct command_line command_line_of(const char *verb, const struct option *table,
                                    struct connect_settings *connect, int argc, char **argv)
{
    return (struct command_line){
        .verb = verb, .options = OPTIONS_INIT(table, connect_options, argc, argv), .connect = connect};
}

void command_line_collect(struct command_line *l, const char **operands, size_t room)
{
    l->operands = operands;
    l->room = room;
}

static int stop(struct command_line *l, int exit_code)
{
    l->exit_code = exit_code;
    return -ECANCELED;
}

int command_line_next(struct command_line *l, const char **ret_value)
{
    struct error e;
    int key;
    while ((key = options_next(&l->options, ret_value, &e)) > 0) {
        if (connect_take(l->connect, key, *ret_value))
            continue;
        if (key == OPTION_HELP)
            return stop(l, cli_help(l->verb));
        if (key != OPTION_OPERAND || !l->operands)
            return key;
        if (l->count == l->room)
            return stop(l, cli_unexpected(l->verb, *ret_value));
        l->operands[l->count++] = *ret_value;
    }
    return key < 0 ? stop(l, cli_usage_error(l->verb, &e)) : OPTION_DONE;
}

/* "ls, create or rm" */
static void put_names(struct buf *out, const struct action *table, size_t rows)
{
    for (size_t i = 0; i < rows; i++)
        (void)buf_printf(out, "%s%s", i == 0 ? "" : i + 1 < rows ? ", " : " or ", table[i].name);
}

/* What could have been said instead of the first operand, or where there is none. */
static int no_action(const char *verb, const struct action *table, size_t rows, const char *word)
{
    struct buf names = BUF_INIT(1024);
    struct error e;
    put_names(&names, table, rows);
    const char *known = buf_cstr(&names);
    if (word) {
        struct suggestion s = SUGGESTION_INIT(word);
        for (size_t i = 0; i < rows; i++)
            suggestion_offer(&s, table[i].name);
        (void)error_set(&e, EINVAL, "'%.60s' is not %s%s%s%s", word, known ? known : "known",
                        s.best ? " (did you mean '" : "", s.best ? s.best : "", s.best ? "'?)" : "");
        (void)cli_usage_error(verb, &e);
    } else {
        (void)cli_missing(verb, known ? known : "what to do");
    }
    buf_done(&names);
    return -1;
}

int action_find(const char *verb, const struct action *table, size_t rows, const char *const *operands,
                size_t count)
{
    size_t i = 0;
    if (count == 0)
        return no_action(verb, table, rows, NULL);
    while (i < rows && strcmp(table[i].name, operands[0]) != 0)
        i++;
    if (i == rows)
        return no_action(verb, table, rows, operands[0]);
    if (count - 1 < table[i].min) {
        (void)cli_missing(verb, table[i].needs[count - 1]);
        return -1;
    }
    if (count - 1 > table[i].max) {
        (void)cli_unexpected(verb, operands[table[i].max + 1]);
        return -1;
    }
    return (int)i;
}
