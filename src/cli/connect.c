/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c: see connect.h. */
#include "cli/connect.h"

#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

const struct option connect_options[] = {
    {KEY_URL, "url", 0, "URL", "SILICA_URL",
     "where the server is: http://HOST:PORT or unix:/path; default " SILICA_DEFAULT_URL},
    {KEY_TOKEN, "token", 0, "TOKEN", "SILICA_TOKEN",
     "the token to show; others can read it in the list of processes, so prefer --token-file"},
    {KEY_TOKEN_FILE, "token-file", 0, "FILE", NULL,
     "read the token from FILE; default: admin.token in the data directory (SILICA_DATA, " SILICA_DEFAULT_DATA
     "), for a server on this machine"},
    {0, NULL, 0, NULL, NULL, NULL},
};

bool connect_take(struct connect_settings *s, int key, const char *value)
{
    switch (key) {
    case KEY_URL:
        s->url = value;
        return true;
    case KEY_TOKEN:
        s->token = value;
        s->token_file = NULL;
        return true;
    case KEY_TOKEN_FILE:
        s->token_file = value;
        s->token = NULL;
        return true;
    default:
        return false;
    }
}

int connect_open(const char *verb, const struct connect_settings *s, struct silica_client **ret)
{
    struct silica_options o = {.url = s->url, .token = s->token, .token_file = s->token_file};
    struct silica_error e;
    return silica_client_new(&o, ret, &e) < 0 ? cli_error(verb, "%s", e.message) : 0;
}

int connect_failed(const char *verb, const struct silica_client *c, const struct silica_error *e)
{
    if (e->kind == SILICA_ERROR_CONNECT)
        return cli_error(
            verb, "%s\nIs 'silica serve' running there? Another place is named with --url or SILICA_URL.",
            e->message);
    if (e->http_status == 401) {
        const char *problem = silica_client_token_problem(c);
        return cli_error(
            verb,
            "the server does not let us in: %s\n"
            "Name a token with --token-file or SILICA_TOKEN; the one of a local server is in its data "
            "directory and belongs to root (sudo helps).",
            problem ? problem : e->message);
    }
    if (e->suggestion[0])
        return cli_error(verb, "%s\n%s", e->message, e->suggestion);
    return cli_error(verb, "%s", e->message);
}
