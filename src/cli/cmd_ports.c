/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_ports.c: silica ports, expose and unexpose: services inside a sandbox, reached from a browser. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/format.h"
#include "cli/values.h"

#include <string.h>

enum { KEY_JSON = OPTION_KEY_FIRST, KEY_LISTENING, KEY_NAME, KEY_PORT_TOKEN };

const struct option ports_options[] = {
    {KEY_LISTENING, "listening", 'l', NULL, NULL,
     "the ports on which something listens inside; wakes the sandbox"},
    {'q', "quiet", 'q', NULL, NULL, "only the addresses (with --listening the ports), one a line"},
    {KEY_JSON, "json", 0, NULL, NULL, "print JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

const struct option expose_options[] = {
    {KEY_NAME, "name", 'n', "NAME", NULL, "what the service is called in listings"},
    {KEY_PORT_TOKEN, "address-token", 't', "TOKEN", NULL,
     "the secret part of the address: 1 to 16 of a-z, 0-9, _ (default: random)"},
    {0, NULL, 0, NULL, NULL, NULL},
};

const struct option unexpose_options[] = {{0, NULL, 0, NULL, NULL, NULL}};

struct ports_settings {
    struct connect_settings connect;
    const char *id;
    int64_t port;
    const char *name, *token;
    bool listening, quiet, json;
};

/* Reads the command line of a verb that takes an id and, if with_port, a port. 0 or the exit code; *ret_stop:
 * it is that. */
static int read_settings(const char *verb, const struct option *table, bool with_port, int argc, char **argv,
                         struct ports_settings *s, bool *ret_stop)
{
    struct command_line line = command_line_of(verb, table, &s->connect, argc, argv);
    const char *operands[2] = {"", NULL}, *value;
    struct error e;
    int key;
    command_line_collect(&line, operands, with_port ? 2 : 1);
    *ret_stop = true;
    while ((key = command_line_next(&line, &value)) > 0)
        switch (key) {
        case KEY_NAME:
            s->name = value;
            break;
        case KEY_PORT_TOKEN:
            s->token = value;
            break;
        case KEY_LISTENING:
            s->listening = true;
            break;
        case 'q':
            s->quiet = true;
            break;
        case KEY_JSON:
            s->json = true;
            break;
        }
    if (key < 0)
        return line.exit_code;
    s->id = operands[0];
    if (!*s->id)
        return cli_missing(verb, "the id of the sandbox");
    if (with_port && !operands[1])
        return cli_missing(verb, "the port");
    if (with_port && value_integer("the port", operands[1], 1, 65535, &s->port, &e) < 0)
        return cli_usage_error(verb, &e);
    *ret_stop = false;
    return 0;
}

static int print_exposed(const struct silica_port_list *l)
{
    static const struct table_column columns[] = {
        {"PORT", true, 0}, {"URL", false, 30}, {"NAME", false, 8}, {"EXPOSED", true, 0}};
    struct table t = TABLE_INIT(columns);
    int r = 0;
    for (size_t i = 0; r == 0 && i < l->count; i++) {
        const struct silica_port *p = &l->items[i];
        char number[16], age[FORMAT_SIZE];
        (void)snprintf(number, sizeof number, "%d", p->port);
        format_age_since(p->exposed_at, age);
        const char *cells[] = {number, p->url, p->name, age};
        r = table_add(&t, cells);
    }
    if (r == 0)
        table_print(&t, stdout, terminal_width(STDOUT_FILENO));
    table_done(&t);
    return r;
}

static int print_listening(const struct silica_port_list *l)
{
    static const struct table_column columns[] = {
        {"PORT", true, 0}, {"ADDRESS", false, 0}, {"PROCESS", false, 8}};
    struct table t = TABLE_INIT(columns);
    int r = 0;
    for (size_t i = 0; r == 0 && i < l->count; i++) {
        const struct silica_port *p = &l->items[i];
        char number[16];
        (void)snprintf(number, sizeof number, "%d", p->port);
        const char *cells[] = {number, p->address, p->process};
        r = table_add(&t, cells);
    }
    if (r == 0)
        table_print(&t, stdout, terminal_width(STDOUT_FILENO));
    table_done(&t);
    return r;
}

static void print_quiet(const struct ports_settings *s, const struct silica_port_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (s->listening)
            printf("%d\n", l->items[i].port);
        else
            printf("%s\n", l->items[i].url ? l->items[i].url : "-");
}

int cmd_ports(int argc, char **argv)
{
    struct ports_settings s = {0};
    auto_client struct silica_client *c = NULL;
    struct silica_port_list l;
    struct silica_error e;
    bool stop;
    int r = read_settings("ports", ports_options, false, argc, argv, &s, &stop);
    if (stop || (r = connect_open("ports", &s.connect, &c)) != 0)
        return r;
    if ((s.listening ? silica_port_listening : silica_port_list)(c, s.id, &l, &e) < 0)
        return connect_failed("ports", c, &e);
    if (s.json)
        printf("%s\n", l.json);
    else if (s.quiet)
        print_quiet(&s, &l);
    else
        r = s.listening ? print_listening(&l) : print_exposed(&l);
    silica_port_list_done(&l);
    return r < 0 ? cli_error("ports", "%s", strerror(-r)) : 0;
}

int cmd_expose(int argc, char **argv)
{
    struct ports_settings s = {0};
    auto_client struct silica_client *c = NULL;
    struct silica_port p;
    struct silica_error e;
    bool stop;
    int r = read_settings("expose", expose_options, true, argc, argv, &s, &stop);
    if (stop || (r = connect_open("expose", &s.connect, &c)) != 0)
        return r;
    if (silica_port_expose(c, s.id, (int)s.port, s.name, s.token, &p, &e) < 0)
        return connect_failed("expose", c, &e);
    printf("%s\n", p.url ? p.url : "");
    silica_port_done(&p);
    return 0;
}

int cmd_unexpose(int argc, char **argv)
{
    struct ports_settings s = {0};
    auto_client struct silica_client *c = NULL;
    struct silica_error e;
    bool stop;
    int r = read_settings("unexpose", unexpose_options, true, argc, argv, &s, &stop);
    if (stop || (r = connect_open("unexpose", &s.connect, &c)) != 0)
        return r;
    if (silica_port_close(c, s.id, (int)s.port, &e) < 0)
        return connect_failed("unexpose", c, &e);
    return 0;
}
