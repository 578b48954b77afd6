/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h: what the verbs of the silica command share: the table, help, and how errors are told. */
#pragma once

#include "cli/options.h"

/* Exit codes of silica itself; a command that ran passes on its own. */
enum { CLI_ERROR = 125, CLI_TIMEOUT = 124 };

struct verb {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the verb; returns the exit code */
    const char *summary; /* one line for the list of verbs; NULL: started by programs only, no help */
    const char *usage;   /* behind "silica " */
    const char *details; /* what one should know before using it */
    const struct option *options; /* the verb's own */
    bool talks;                   /* to a server: also has the options of connect.h */
    const char *examples;         /* one a line */
};

extern const struct verb verbs[]; /* ends with a NULL name */

int cmd_serve(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_shell(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_create(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_ports(int argc, char **argv);
int cmd_expose(int argc, char **argv);
int cmd_unexpose(int argc, char **argv);
int cmd_net(int argc, char **argv);
int cmd_sleep(int argc, char **argv);
int cmd_wake(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_token(int argc, char **argv);
int cmd_volume(int argc, char **argv);
bool image_build_asked(int argc, char **argv); /* 'silica image build': it has options of its own */
int cmd_image_build(int argc, char **argv);
int cmd_docker(int argc, char **argv);
int cmd_wrangler(int argc, char **argv);
int cmd_health(int argc, char **argv);
int cmd_api(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_gateway(int argc, char **argv);
int cmd_image_worker(int argc, char **argv);
int cmd_image(int argc, char **argv);

/* Each verb's table lives in its file, next to the code that reads it. */
extern const struct option life_options[], events_options[], top_options[], logs_options[], token_options[];
extern const struct option volume_options[];
extern const struct option image_options[], image_build_options[], docker_options[], wrangler_options[];
extern const struct option ports_options[], expose_options[], unexpose_options[], net_options[];
extern const struct option serve_options[], doctor_options[], exec_options[], shell_options[], ls_options[],
    create_options[], show_options[], rm_options[], health_options[], api_options[], help_options[];

/* Prints the help of a verb on stdout; returns 0. */
int cli_help(const char *verb);
/* "silica VERB: <sentence>" on stderr; both return CLI_ERROR. A usage error also says where help is. */
int cli_usage_error(const char *verb, const struct error *e);
int cli_error(const char *verb, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The usage error for operands a verb does not take or misses; `what` as in "the id of a sandbox". */
int cli_unexpected(const char *verb, const char *operand);
int cli_missing(const char *verb, const char *what);
