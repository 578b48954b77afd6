/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_docker.c: silica docker: the commands of a container engine's tool that programs such as wrangler
 * start.
 *
 * Started under the name docker or silica-docker (a link to silica) the word "docker" is left out. */
#include "cli/docker.h"

#include "cli/suggest.h"

#include <string.h>

enum { KEY_HOST = OPTION_KEY_FIRST, KEY_IGNORED, KEY_VERSION };

const struct option docker_options[] = {
    {KEY_HOST, "host", 'H', "ADDRESS", NULL,
     "the engine's socket, unix:///path (default: WRANGLER_DOCKER_HOST, DOCKER_HOST, docker.sock in the run "
     "directory)"},
    {KEY_IGNORED, "context", 'c', "NAME", NULL, "taken and ignored, as are --config and --log-level"},
    {KEY_IGNORED, "config", 0, "DIR", NULL, "ignored"},
    {KEY_IGNORED, "log-level", 'l', "LEVEL", NULL, "ignored"},
    {KEY_VERSION, "version", 'v', NULL, NULL, "print the version"},
    {0, NULL, 0, NULL, NULL, NULL},
};

const struct docker_verb docker_verbs[] = {
    {"info", docker_info, "info [--format TEMPLATE]"},
    {"version", docker_version, "version [--format TEMPLATE]"},
    {"build", docker_build, "build [-t NAME] [-f FILE|-] [--build-arg K=V] [--target STAGE] DIR"},
    {"buildx", docker_buildx, "buildx build ..."},
    {"pull", docker_pull, "pull IMAGE"},
    {"tag", docker_tag, "tag IMAGE NAME"},
    {"images", docker_images, "images [-q] [--format TEMPLATE]"},
    {"image", docker_image, "image inspect|ls|rm|tag|pull|build ..."},
    {"inspect", docker_inspect, "inspect [--format TEMPLATE] NAME..."},
    {"rmi", docker_rmi, "rmi [-f] IMAGE..."},
    {"ps", docker_ps, "ps [-a] [-q] [--filter K=V] [--format TEMPLATE]"},
    {"rm", docker_rm, "rm [-f] CONTAINER..."},
    {"login", docker_login, "login [--username U] [--password-stdin] [HOST]"},
    {"context", docker_context, "context ls [--format json]"},
    {NULL, NULL, NULL},
};

static int unknown(const char *name)
{
    struct suggestion s = SUGGESTION_INIT(name);
    for (const struct docker_verb *v = docker_verbs; v->name; v++)
        suggestion_offer(&s, v->name);
    (void)fprintf(stderr, "silica docker: '%.60s' is not known here", name);
    if (s.best)
        (void)fprintf(stderr, " (did you mean '%s'?)", s.best);
    (void)fputs("\nKnown are:\n", stderr);
    for (const struct docker_verb *v = docker_verbs; v->name; v++)
        (void)fprintf(stderr, "  %s\n", v->usage);
    return DOCKER_ERROR;
}

static int dispatch(struct docker *d, int argc, char **argv)
{
    for (const struct docker_verb *v = docker_verbs; v->name; v++)
        if (strcmp(v->name, argv[0]) == 0)
            return v->run(d, argc, argv);
    return unknown(argv[0]);
}

int cmd_docker(int argc, char **argv)
{
    struct docker d = {0};
    struct options o = OPTIONS_INIT(docker_options, connect_options, argc, argv);
    const char *value;
    struct error e;
    int key, r = -1;
    while (r < 0 && (key = options_next(&o, &value, &e)) > 0) {
        if (key == OPTION_HELP) {
            r = cli_help("docker");
        } else if (key == KEY_VERSION) {
            r = docker_version(&d, 1, argv);
        } else if (key == OPTION_OPERAND) {
            int count;
            char **rest = options_rest(&o, &count);
            r = dispatch(&d, count, rest);
        } else if (key == KEY_HOST) {
            d.host = value;
        } else {
            (void)connect_take(&d.connect, key, value);
        }
    }
    if (r < 0)
        r = key < 0 ? cli_usage_error("docker", &e) : cli_missing("docker", "what to do");
    silica_client_free(d.engine);
    return r;
}
