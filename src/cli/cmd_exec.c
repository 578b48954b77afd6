/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_exec.c: silica exec: a command in a sandbox, its output live, its exit code ours. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/format.h"
#include "cli/values.h"

#include "net/write_all.h"

#include <errno.h>
#include <string.h>

enum { KEY_CWD = OPTION_KEY_FIRST, KEY_TIMEOUT, KEY_JSON };

const struct option exec_options[] = {
    {'e', "env", 'e', "NAME=VALUE", NULL, "set a variable for this command only; may be repeated"},
    {KEY_CWD, "cwd", 'w', "DIR", NULL, "run in DIR; the session stays where it is"},
    {'s', "session", 's', "NAME", NULL, "use the session NAME instead of the default one; made on first use"},
    {KEY_TIMEOUT, "timeout", 't', "TIME", NULL, "give up after TIME (500ms, 10s, 2m), with exit code 124"},
    {KEY_JSON, "json", 0, NULL, NULL, "print one JSON document at the end instead of live output"},
    {0, NULL, 0, NULL, NULL, NULL},
};

/* More than ARG_MAX of Linux, so that a command line never hits it. */
#define COMMAND_MAX ((size_t)8 << 20)

struct exec_settings {
    struct connect_settings connect;
    struct silica_exec_options options;
    const char **env; /* what options.env points to */
    size_t env_count;
    const char *id;
    bool json;
    struct buf command;
};

static int show_output(enum silica_stream stream, const char *data, size_t n, void *user)
{
    int *write_error = user;
    *write_error = write_all(stream == SILICA_STDOUT ? STDOUT_FILENO : STDERR_FILENO, data, n);
    return *write_error;
}

/* The exit code for a call that failed. */
static int exec_failed(const struct exec_settings *s, const struct silica_client *c,
                       const struct silica_error *e)
{
    if (strcmp(e->code, "SESSION_TERMINATED") == 0 && e->exit_code >= 0) {
        if (isatty(STDERR_FILENO))
            (void)cli_error(
                "exec", "the shell of the session ended with exit code %d; the next command gets a new one",
                e->exit_code);
        return e->exit_code;
    }
    int r = connect_failed("exec", c, e);
    /* the protocol has no code of its own for this */
    bool timeout = s->options.timeout_ms > 0 && strcmp(e->code, "COMMAND_EXECUTION_ERROR") == 0 &&
                   strcasestr(e->message, "timeout");
    return timeout ? CLI_TIMEOUT : r;
}

static int exec_json(const struct exec_settings *s, struct silica_client *c)
{
    struct silica_exec_result result;
    struct silica_error e;
    if (silica_exec(c, s->id, buf_data(&s->command), &s->options, &result, &e) < 0)
        return exec_failed(s, c, &e);
    printf("%s\n", result.json);
    int exit_code = result.exit_code;
    silica_exec_result_done(&result);
    return exit_code;
}

static int exec_live(const struct exec_settings *s, struct silica_client *c)
{
    int exit_code, write_error = 0;
    struct silica_error e;
    if (silica_exec_stream(c, s->id, buf_data(&s->command), &s->options, show_output, &write_error,
                           &exit_code, &e) < 0)
        return write_error ? cli_error("exec", "cannot write the output: %s", strerror(-write_error))
                           : exec_failed(s, c, &e);
    return exit_code;
}

static int exec_option(struct exec_settings *s, const struct options *o, int key, const char *value,
                       struct error *reterr)
{
    switch (key) {
    case 'e':
        s->env[s->env_count++] = value;
        return value_env(options_source(o), value, reterr);
    case KEY_CWD:
        s->options.cwd = value;
        return 0;
    case 's':
        s->options.session = value;
        return *value
                   ? 0
                   : error_set(reterr, EINVAL, "%s: the name of a session is not empty", options_source(o));
    case KEY_TIMEOUT: {
        int r = value_duration_ms(options_source(o), value, &s->options.timeout_ms, reterr);
        if (r == 0 && s->options.timeout_ms == 0)
            r = error_set(reterr, ERANGE, "%s: must be more than 0; leave it out for no limit",
                          options_source(o));
        return r;
    }
    case KEY_JSON:
        s->json = true;
        return 0;
    default:
        return 0;
    }
}

/* 0: go on; otherwise *ret_exit is the answer to a wrong (or help) command line. */
static int exec_parse(struct exec_settings *s, int argc, char **argv, int *ret_exit)
{
    struct command_line line = command_line_of("exec", exec_options, &s->connect, argc, argv);
    const char *value;
    struct error e;
    int key = 0, count = 0;
    char **words = NULL;
    while (!words && (key = command_line_next(&line, &value)) > 0) {
        if (key == OPTION_OPERAND && s->id) {
            words = options_rest(&line.options, &count);
        } else if (key == OPTION_OPERAND) {
            s->id = value;
        } else if (exec_option(s, &line.options, key, value, &e) < 0) {
            *ret_exit = cli_usage_error("exec", &e);
            return -EINVAL;
        }
    }
    if (key < 0) {
        *ret_exit = line.exit_code;
        return -ECANCELED;
    }
    if (!s->id || !*s->id || !words) {
        *ret_exit = cli_missing("exec", s->id && *s->id ? "the command" : "the id of the sandbox");
        return -EINVAL;
    }
    if (shell_join(&s->command, count, words) < 0 || !buf_cstr(&s->command)) {
        *ret_exit = cli_error("exec", "the command is too long");
        return -E2BIG;
    }
    s->options.env = s->env;
    return 0;
}

int cmd_exec(int argc, char **argv)
{
    struct exec_settings s = {.command = BUF_INIT(COMMAND_MAX)};
    s.env = calloc((size_t)argc + 1, sizeof *s.env); /* at most one an argument, and the NULL behind */
    int r = CLI_ERROR;
    auto_client struct silica_client *c = NULL;
    if (!s.env)
        r = cli_error("exec", "out of memory");
    else if (exec_parse(&s, argc, argv, &r) == 0 && (r = connect_open("exec", &s.connect, &c)) == 0)
        r = s.json ? exec_json(&s, c) : exec_live(&s, c);
    buf_done(&s.command);
    free(s.env);
    return r;
}
