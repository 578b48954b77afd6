/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_image_build.c: silica image build. */
#include "cli/build_command.h"
#include "cli/cli.h"

#include <string.h>

const struct option image_build_options[] = {
    {KEY_BUILD_TAG, "tag", 't', "NAME", NULL, "name of the image; may be repeated"},
    {KEY_BUILD_FILE, "file", 'f', "FILE", NULL,
     "the Dockerfile; - is standard input (default DIR/Dockerfile)"},
    {KEY_BUILD_ARG, "build-arg", 0, "NAME=VALUE", NULL, "value of an ARG; NAME alone takes our own variable"},
    {KEY_BUILD_TARGET, "target", 0, "STAGE", NULL, "build this stage instead of the last one"},
    {KEY_BUILD_NO_CACHE, "no-cache", 0, NULL, NULL, "run every step, whatever earlier builds have left"},
    {KEY_BUILD_NETWORK, "network", 0, "MODE", NULL,
     "what RUN may reach: none or public (default: what sandboxes of the server may)"},
    {KEY_BUILD_LABEL, "label", 0, "NAME=VALUE", NULL, "a label of the image"},
    {KEY_BUILD_QUIET, "quiet", 'q', NULL, NULL, "print the image's id and nothing else"},
    {0, NULL, 0, NULL, NULL, NULL},
};

static int help(void)
{
    printf(
        "silica image build: make an image from a Dockerfile\n\nUsage: silica image build [options] DIR\n\n"
        "DIR has the files that COPY may take. Steps run in sandboxes of the server; results are kept, so "
        "that an\n"
        "unchanged step takes no time. Exit code 1 when a step failed.\n\nOptions:\n");
    options_print(stdout, image_build_options, 100);
    options_print(stdout, connect_options, 100);
    return 0;
}

bool image_build_asked(int argc, char **argv)
{
    struct options o = OPTIONS_INIT(connect_options, NULL, argc, argv);
    o.env_at = SIZE_MAX; /* only the words */
    const char *value;
    struct error e;
    int key;
    while ((key = options_next(&o, &value, &e)) > 0)
        if (key == OPTION_OPERAND)
            return strcmp(value, "build") == 0;
    return false;
}

int cmd_image_build(int argc, char **argv)
{
    bool verb_seen = false; /* the word "build" */
    struct build_command b = {0};
    struct options o = OPTIONS_INIT(image_build_options, connect_options, argc, argv);
    const char *value;
    struct error e;
    int key, r = 0;
    while (r >= 0 && (key = options_next(&o, &value, &e)) > 0) {
        if (key == OPTION_HELP) {
            build_command_done(&b);
            return help();
        }
        if (key == OPTION_OPERAND && !verb_seen) {
            verb_seen = true;
            continue;
        }
        if (key == OPTION_OPERAND && b.directory) {
            build_command_done(&b);
            return cli_unexpected("image", value);
        }
        if (key == OPTION_OPERAND)
            b.directory = value;
        else if (!connect_take(&b.connect, key, value))
            r = build_command_take(&b, options_source(&o), key, value, &e);
    }
    if (r < 0 || key < 0)
        r = cli_usage_error("image", &e);
    else if (!b.directory)
        r = cli_missing("image", "the directory with the files to copy (often '.')");
    else
        r = build_command_run("image build", &b);
    build_command_done(&b);
    return r;
}
