/* SPDX-License-Identifier: Apache-2.0 */
/* command_line.h: the command line of a verb that talks to a server: what all of them treat alike.
 *
 *     const char *id[1], *value;
 *     struct command_line line = command_line_of("show", show_options, &connect, argc, argv);
 *     command_line_collect(&line, id, ARRAY_SIZE(id));
 *     while ((key = command_line_next(&line, &value)) > 0)
 *         ...an option of show_options
 *     if (key < 0)
 *         return line.exit_code;
 */
#pragma once

#include "cli/connect.h"

struct command_line {
    const char *verb;
    struct options options;
    struct connect_settings *connect;
    const char **operands; /* NULL: the verb gets each as OPTION_OPERAND */
    size_t room, count;    /* of operands */
    int exit_code;         /* once command_line_next has returned less than 0 */
};

struct command_line command_line_of(const char *verb, const struct option *table,
                                    struct connect_settings *connect, int argc, char **argv);
/* Operands go to this list; one more than it has room for is refused. */
void command_line_collect(struct command_line *l, const char **operands, size_t room);

/* The key of the next option of the verb's own table, or OPTION_DONE. Below 0: the verb ends with exit_code,
 * because help was asked for or the command line is wrong; what there was to say has been said. */
int command_line_next(struct command_line *l, const char **ret_value);

enum { ACTION_NEEDS = 2 };

/* One of the things that a verb such as "silica volume" does. */
struct action {
    const char *name;                /* the first operand */
    size_t min, max;                 /* number of operands behind it; min is at most ACTION_NEEDS */
    const char *needs[ACTION_NEEDS]; /* what the first of those are, as in "the name of a volume" */
};

/* The row that the operands name and have the right number for; -1 after having said why there is none. */
int action_find(const char *verb, const struct action *table, size_t rows, const char *const *operands,
                size_t count);
