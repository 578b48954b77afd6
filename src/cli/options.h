/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: one table of options per verb: read from the environment and the command line, printed as help.
 *
 * A verb walks its settings in the order in which later ones win: first the environment variables named in
 * the table, then the command line. Options and operands may be mixed; "--" ends the options.
 *
 *     struct options o = OPTIONS_INIT(serve_options, NULL, argc, argv);
 *     const char *value;
 *     int key;
 *     while ((key = options_next(&o, &value, &e)) > 0)
 *         switch (key) {
 *         case OPTION_HELP:
 *             return cli_help("serve");
 *         case OPTION_OPERAND:  value is the operand
 *         case 'l':             value is the text behind --listen, options_source(&o) says from where
 *         }
 *     if (key < 0)
 *         return cli_usage_error("serve", &e);
 */
#pragma once

#include "base/error.h"

#include <stdio.h>

/* What options_next returns besides the keys of the table. */
enum { OPTION_DONE = 0, OPTION_OPERAND = 1, OPTION_HELP = 2, OPTION_KEY_FIRST = 256 };

/* A table ends with a row whose name is NULL. --help and -h are known without a row. */
struct option {
    int key;           /* a letter, or OPTION_KEY_FIRST and up */
    const char *name;  /* long form without the dashes */
    char letter;       /* short form, 0: none */
    const char *value; /* what the value is called in the help ("DIR"); NULL: a switch */
    const char *env;   /* environment variable that sets it too, NULL: none; an empty one counts as unset */
    const char *help;  /* part of a sentence, without full stop */
};

struct options {
    const struct option *tables[2]; /* the verb's own and the shared ones; either may be NULL */
    int argc;
    char **argv;
    int at;             /* next word of argv; argv[0] is the verb */
    const char *bundle; /* rest of a word like -abc, NULL: none */
    bool operands_only; /* "--" was seen */
    size_t env_at;      /* rows whose environment variable has been looked at */
    char source[64];    /* "--listen", "-e" or "SILICA_LISTEN": where the last value came from */
};

#define OPTIONS_INIT(own_table, shared_table, argc_, argv_)                                \
    (struct options)                                                                       \
    {                                                                                      \
        .tables = {(own_table), (shared_table)}, .argc = (argc_), .argv = (argv_), .at = 1 \
    }

/* The next setting: its key, or OPTION_OPERAND, OPTION_HELP, OPTION_DONE. *ret_value is the value or operand,
 * NULL for switches. -EINVAL with a sentence (and a suggestion) for an unknown option, a missing or a
 * superfluous value. */
int options_next(struct options *o, const char **ret_value, struct error *reterr);
/* Where the value just returned came from, for sentences: "--listen: ...". */
const char *options_source(const struct options *o);
/* Everything from the operand just returned to the end, untouched: what follows is not ours to interpret. */
char **options_rest(struct options *o, int *ret_count);

/* One line (or more) per row, wrapped to `width` columns. */
void options_print(FILE *out, const struct option *table, unsigned width);
