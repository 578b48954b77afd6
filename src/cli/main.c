/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the silica command: finds the verb and hands over.
 *
 * Options that may stand in front of the verb are moved behind it, so that each verb reads all of its options
 * in one place: "silica --url X exec demo ..." becomes "exec --url X demo ...". */
#include "cli/connect.h"
#include "cli/verbs.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef SILICA_VERSION
#define SILICA_VERSION "development"
#endif

enum { KEY_VERSION = OPTION_KEY_FIRST };

const struct option main_options[] = {
    {KEY_VERSION, "version", 'V', NULL, NULL, "print the version"},
    {0, NULL, 0, NULL, NULL, NULL},
};

static int run_verb(const struct verb *v, int argc, char **argv, int verb_at)
{
    auto_free char **words = calloc((size_t)argc + 1, sizeof *words);
    if (!words)
        return cli_error(v->name, "out of memory");
    int n = 0;
    words[n++] = argv[verb_at];
    for (int i = 1; i < argc; i++)
        if (i != verb_at)
            words[n++] = argv[i];
    return v->run(n, words);
}

static int dispatch(int argc, char **argv)
{
    struct options o = OPTIONS_INIT(main_options, connect_options, argc, argv);
    o.env_at = SIZE_MAX; /* the environment is the verb's business */
    const char *value;
    struct error e;
    int key;
    while ((key = options_next(&o, &value, &e)) > 0) {
        if (key == OPTION_HELP) {
            cli_overview();
            return 0;
        }
        if (key == KEY_VERSION) {
            printf("silica %s\n", SILICA_VERSION);
            return 0;
        }
        if (key == OPTION_OPERAND) {
            const struct verb *v = o.operands_only ? NULL : verb_find(value);
            return v ? run_verb(v, argc, argv, o.at - 1) : verb_unknown(value);
        }
    }
    if (key < 0) {
        (void)fprintf(stderr, "silica: %s\nTry 'silica help'.\n", e.msg);
        return CLI_ERROR;
    }
    cli_overview();
    return 0;
}

/* A link with the name of the tool whose place we take. */
static bool called_as_docker(const char *name)
{
    const char *slash = name ? strrchr(name, '/') : NULL;
    const char *last = slash ? slash + 1 : name;
    return last && (strcmp(last, "docker") == 0 || strcmp(last, "silica-docker") == 0);
}

int main(int argc, char **argv)
{
    int r = called_as_docker(argv[0]) ? cmd_docker(argc, argv) : dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) { /* a full disk must not look like success */
        (void)fprintf(stderr, "silica: cannot write the output: %s\n", strerror(errno));
        return r ? r : CLI_ERROR;
    }
    return r;
}
