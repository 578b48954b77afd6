/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c: `silica doctor`: prints what doctor.c finds. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/serve_setup.h"
#include "keeper/doctor.h"

#include <string.h>

enum { KEY_JSON = OPTION_KEY_FIRST, KEY_AGENT, KEY_IMAGE };

const struct option doctor_options[] = {
    {'d', "data", 'd', "DIR", "SILICA_DATA", "the data directory (default /var/lib/silica)"},
    {KEY_IMAGE, "image", 0, "NAME", "SILICA_IMAGE", "the image to try (default base)"},
    {KEY_AGENT, "agent", 0, "FILE", "SILICA_AGENT",
     "the agent's program (default: silica-agent beside this program)"},
    {KEY_JSON, "json", 0, NULL, NULL, "print JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

static const char *const verdict_name[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_WARN] = "optional", [DOCTOR_MISSING] = "missing"};

static void print_line(const struct doctor_line *line, void *arg)
{
    struct json_writer *w = arg;
    if (!w) {
        printf("%-8s  %-18s  %s\n", verdict_name[line->verdict], line->layer, line->detail);
        (void)fflush(stdout);
        return;
    }
    json_object_begin(w);
    json_member_string(w, "layer", line->layer);
    json_member_string(w, "verdict", verdict_name[line->verdict]);
    json_member_string(w, "detail", line->detail);
    json_object_end(w);
}

int cmd_doctor(int argc, char **argv)
{
    static char agent_default[512];
    struct doctor_config config = {.data_dir = "/var/lib/silica", .image = "base", .agent_path = NULL};
    struct options o = OPTIONS_INIT(doctor_options, NULL, argc, argv);
    struct buf out = BUF_INIT(1 << 20);
    struct json_writer w;
    struct error e;
    const char *value;
    bool json = false;
    int key;
    while ((key = options_next(&o, &value, &e)) > 0)
        switch (key) {
        case OPTION_HELP:
            return cli_help("doctor");
        case OPTION_OPERAND:
            return cli_unexpected("doctor", value);
        case 'd':
            config.data_dir = value;
            break;
        case KEY_IMAGE:
            config.image = value;
            break;
        case KEY_AGENT:
            config.agent_path = value;
            break;
        default:
            json = true;
        }
    if (key < 0)
        return cli_usage_error("doctor", &e);
    if (!config.agent_path) {
        (void)serve_agent_beside(agent_default, sizeof agent_default,
                                 NULL); /* a missing one is a line of the report */
        config.agent_path = agent_default;
    }
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_put_key(&w, "layers");
    json_array_begin(&w);
    int missing = doctor_run(&config, print_line, json ? &w : NULL);
    json_array_end(&w);
    json_member_int(&w, "missing", missing);
    json_object_end(&w);
    if (json)
        printf("%.*s\n", (int)buf_len(&out), buf_data(&out));
    else
        printf("\n%s\n", missing ? "Sandboxes cannot be made here until what is missing has been mended."
                                 : "Everything that sandboxes need is here.");
    buf_done(&out);
    return missing ? 1 : 0;
}
