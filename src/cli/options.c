/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: see options.h. */
#include "cli/options.h"

#include "cli/suggest.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static const struct option help_row = {OPTION_HELP, "help", 'h', NULL, NULL, "show this help"};

static const struct option *row_by_letter(const struct options *o, char letter)
{
    for (size_t t = 0; t < ARRAY_SIZE(o->tables); t++)
        for (const struct option *row = o->tables[t]; row && row->name; row++)
            if (row->letter == letter)
                return row;
    return letter == help_row.letter ? &help_row : NULL;
}

static const struct option *row_by_name(const struct options *o, const char *name, size_t n)
{
    for (size_t t = 0; t < ARRAY_SIZE(o->tables); t++)
        for (const struct option *row = o->tables[t]; row && row->name; row++)
            if (strncmp(row->name, name, n) == 0 && row->name[n] == '\0')
                return row;
    return strncmp(help_row.name, name, n) == 0 && help_row.name[n] == '\0' ? &help_row : NULL;
}

static int unknown_long(const struct options *o, const char *name, int n, struct error *reterr)
{
    char typed[SUGGEST_WORD_MAX + 1];
    (void)snprintf(typed, sizeof typed, "%.*s", n, name);

    struct suggestion s = SUGGESTION_INIT(typed);
    for (size_t t = 0; t < ARRAY_SIZE(o->tables); t++)
        for (const struct option *row = o->tables[t]; row && row->name; row++)
            suggestion_offer(&s, row->name);
    suggestion_offer(&s, help_row.name);
    if (s.best)
        return error_set(reterr, EINVAL, "unknown option '--%.*s' (did you mean '--%s'?)", n, name, s.best);
    return error_set(reterr, EINVAL, "unknown option '--%.*s'", n, name);
}

static int missing_value(const struct options *o, const struct option *row, struct error *reterr)
{
    return error_set(reterr, EINVAL, "option '%s' needs a value (%s)", o->source, row->value);
}

static int next_long(struct options *o, const char *word, const char **ret_value, struct error *reterr)
{
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    const struct option *row = row_by_name(o, word, n);
    if (!row)
        return unknown_long(o, word, (int)MIN(n, (size_t)100), reterr);

    (void)snprintf(o->source, sizeof o->source, "--%s", row->name);
    if (!row->value) {
        if (equals)
            return error_set(reterr, EINVAL, "option '%s' takes no value", o->source);
        *ret_value = NULL;
        return row->key;
    }
    if (equals)
        *ret_value = equals + 1;
    else if (o->at < o->argc)
        *ret_value = o->argv[o->at++];
    else
        return missing_value(o, row, reterr);
    return row->key;
}

static int next_letter(struct options *o, const char **ret_value, struct error *reterr)
{
    char letter = *o->bundle++;
    const struct option *row = row_by_letter(o, letter);
    if (!row)
        return error_set(reterr, EINVAL, "unknown option '-%c'", letter);

    (void)snprintf(o->source, sizeof o->source, "-%c", letter);
    *ret_value = NULL;
    if (row->value) {
        if (*o->bundle)
            *ret_value = o->bundle;
        else if (o->at < o->argc)
            *ret_value = o->argv[o->at++];
        else
            return missing_value(o, row, reterr);
        o->bundle = NULL;
    } else if (!*o->bundle) {
        o->bundle = NULL;
    }
    return row->key;
}

static int switch_from_env(const char *name, const char *text, bool *ret, struct error *reterr)
{
    static const struct {
        const char *word;
        bool on;
    } words[] = {{"1", true}, {"true", true}, {"yes", true}, {"0", false}, {"false", false}, {"no", false}};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcasecmp(words[i].word, text) == 0) {
            *ret = words[i].on;
            return 0;
        }
    return error_set(reterr, EINVAL, "environment variable %s is '%.60s'; use 1 or 0", name, text);
}

/* The n-th row over both tables. */
static const struct option *row_at(const struct options *o, size_t n)
{
    for (size_t t = 0; t < ARRAY_SIZE(o->tables); t++)
        for (const struct option *row = o->tables[t]; row && row->name; row++)
            if (n-- == 0)
                return row;
    return NULL;
}

/* 0 when the environment has no further setting. */
static int next_env(struct options *o, const char **ret_value, struct error *reterr)
{
    const struct option *row;
    while ((row = row_at(o, o->env_at))) {
        o->env_at++;
        const char *text = row->env ? getenv(row->env) : NULL;
        if (!text || !*text)
            continue;
        (void)snprintf(o->source, sizeof o->source, "%s", row->env);
        *ret_value = text;
        if (!row->value) {
            bool on = false;
            int r = switch_from_env(row->env, text, &on, reterr);
            if (r < 0)
                return r;
            if (!on)
                continue;
            *ret_value = NULL;
        }
        return row->key;
    }
    return 0;
}

int options_next(struct options *o, const char **ret_value, struct error *reterr)
{
    int r = next_env(o, ret_value, reterr);
    if (r != 0)
        return r;
    if (o->bundle)
        return next_letter(o, ret_value, reterr);
    if (o->at >= o->argc)
        return OPTION_DONE;

    const char *word = o->argv[o->at++];
    if (!o->operands_only && strcmp(word, "--") == 0) {
        o->operands_only = true;
        if (o->at >= o->argc)
            return OPTION_DONE;
        word = o->argv[o->at++];
    }
    if (o->operands_only || word[0] != '-' || word[1] == '\0') {
        o->source[0] = '\0';
        *ret_value = word;
        return OPTION_OPERAND;
    }
    if (word[1] == '-')
        return next_long(o, word + 2, ret_value, reterr);
    o->bundle = word + 1;
    return next_letter(o, ret_value, reterr);
}

const char *options_source(const struct options *o)
{
    return o->source;
}

char **options_rest(struct options *o, int *ret_count)
{
    char **rest = o->argv + o->at - 1;
    *ret_count = o->argc - o->at + 1;
    o->at = o->argc;
    return rest;
}

enum { HELP_COLUMN = 28 };

/* Words of text from column `column` on, continued in HELP_COLUMN. */
static void print_wrapped(FILE *out, const char *text, unsigned column, unsigned width)
{
    while (*text) {
        unsigned n = (unsigned)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > width) {
            (void)fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        if (column > HELP_COLUMN) {
            (void)fputc(' ', out);
            column++;
        }
        (void)fprintf(out, "%.*s", (int)n, text);
        column += n;
        text += n;
        text += strspn(text, " ");
    }
    (void)fputc('\n', out);
}

static void print_row(FILE *out, const struct option *row, unsigned width)
{
    char left[80], help[400];
    const char *space = row->value ? " " : "", *value = row->value ? row->value : "";
    if (row->letter)
        (void)snprintf(left, sizeof left, "  -%c, --%s%s%s", row->letter, row->name, space, value);
    else
        (void)snprintf(left, sizeof left, "      --%s%s%s", row->name, space, value);
    if (row->env)
        (void)snprintf(help, sizeof help, "%s [%s]", row->help, row->env);
    else
        (void)snprintf(help, sizeof help, "%s", row->help);

    unsigned n = (unsigned)strlen(left);
    if (n + 2 > HELP_COLUMN) /* too long for its column: the text starts on the next line */
        (void)fprintf(out, "%s\n%*s", left, HELP_COLUMN, "");
    else
        (void)fprintf(out, "%-*s", HELP_COLUMN, left);
    print_wrapped(out, help, HELP_COLUMN, width);
}

void options_print(FILE *out, const struct option *table, unsigned width)
{
    for (const struct option *row = table; row && row->name; row++)
        print_row(out, row, width);
}
