/* SPDX-License-Identifier: Apache-2.0 */
/* help.c: help printed from the table of verbs, and the form of every error message. */
#include "cli/cli.h"

#include "cli/connect.h"
#include "cli/format.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum { WIDTH_MAX = 110, WIDTH_PLAIN = 80 };

const struct option help_options[] = {{0, NULL, 0, NULL, NULL, NULL}};

static unsigned help_width(void)
{
    unsigned width = terminal_width(STDOUT_FILENO);
    return width ? MIN(MAX(width, 60U), (unsigned)WIDTH_MAX) : WIDTH_PLAIN;
}

const struct verb *verb_find(const char *name)
{
    for (const struct verb *v = verbs; v->name; v++)
        if (strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

int verb_unknown(const char *name)
{
    struct suggestion s = SUGGESTION_INIT(name);
    for (const struct verb *v = verbs; v->name; v++)
        if (v->summary)
            suggestion_offer(&s, v->name);
    (void)fprintf(stderr, "silica: unknown command '%.60s'", name);
    if (s.best)
        (void)fprintf(stderr, " (did you mean '%s'?)", s.best);
    (void)fputs("\nTry 'silica help'.\n", stderr);
    return CLI_ERROR;
}

static void print_lines(const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        printf("  %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

int cli_help(const char *name)
{
    const struct verb *v = verb_find(name);
    if (!v || !v->summary)
        return verb_unknown(name);
    printf("silica %s: %s\n\nUsage: silica %s\n", v->name, v->summary, v->usage);
    if (v->details)
        printf("\n%s\n", v->details);
    if (v->options && v->options->name) {
        printf("\nOptions:\n");
        options_print(stdout, v->options, help_width());
    }
    if (v->talks) {
        printf("\nConnection (also in front of the command's name):\n");
        options_print(stdout, connect_options, help_width());
    }
    printf("\nExamples:\n");
    print_lines(v->examples);
    return 0;
}

void cli_overview(void)
{
    printf("silica: sandboxes of your own, in milliseconds\n\n"
           "Usage: silica COMMAND [options] ...\n\nCommands:\n");
    for (const struct verb *v = verbs; v->name; v++)
        if (v->summary)
            printf("  %-10s %s\n", v->name, v->summary);
    printf("\nOptions:\n");
    options_print(stdout, main_options, help_width());
    options_print(stdout, connect_options, help_width());
    printf("\nFirst steps:\n"
           "  sudo silica serve                        start the server (in another terminal)\n"
           "  sudo silica exec demo -- 'echo hello'    run a command; 'demo' is made on first use\n"
           "  silica help exec                         learn more about one command\n");
}

int cmd_help(int argc, char **argv)
{
    struct options o = OPTIONS_INIT(help_options, NULL, argc, argv);
    const char *value, *name = NULL;
    struct error e;
    int key;
    while ((key = options_next(&o, &value, &e)) > 0) {
        if (key == OPTION_HELP)
            name = "help";
        else if (name)
            return cli_unexpected("help", value);
        else
            name = value;
    }
    if (key < 0)
        return cli_usage_error("help", &e);
    if (name)
        return cli_help(name);
    cli_overview();
    return 0;
}

/* Messages may quote what a server said: nothing in them may steer the terminal. */
static void print_safely(const char *text)
{
    for (; *text; text++)
        (void)fputc((unsigned char)*text < 0x20 && *text != '\n' ? '?' : *text, stderr);
}

int cli_error(const char *verb, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, "silica %s: ", verb);
    print_safely(text);
    (void)fputc('\n', stderr);
    return CLI_ERROR;
}

int cli_usage_error(const char *verb, const struct error *e)
{
    return cli_error(verb, "%s\nTry 'silica help %s'.", e->msg, verb);
}

int cli_unexpected(const char *verb, const char *operand)
{
    struct error e;
    (void)error_set(&e, EINVAL, "'%.60s' is one argument too many", operand);
    return cli_usage_error(verb, &e);
}

int cli_missing(const char *verb, const char *what)
{
    struct error e;
    (void)error_set(&e, EINVAL, "%s is missing", what);
    return cli_usage_error(verb, &e);
}
