/* SPDX-License-Identifier: Apache-2.0 */
/* connect.h: the options of every verb that talks to a server, and what is said when that fails. */
#pragma once

#include "cli/options.h"
#include "client/silica.h"

enum { KEY_URL = 0x1000, KEY_TOKEN, KEY_TOKEN_FILE };
extern const struct option connect_options[];

struct connect_settings {
    const char *url;
    const char *token; /* of token and token_file the one said last counts; the other is NULL */
    const char *token_file;
};

/* True when the key is one of connect_options and now is in *s. */
bool connect_take(struct connect_settings *s, int key, const char *value);

/* 0, or CLI_ERROR after having said why. */
int connect_open(const char *verb, const struct connect_settings *s, struct silica_client **ret);
/* Says what went wrong with a request and what to do about it; returns CLI_ERROR. */
int connect_failed(const char *verb, const struct silica_client *c, const struct silica_error *e);

static inline void client_free_p(struct silica_client **c)
{
    silica_client_free(*c);
}
#define auto_client __attribute__((cleanup(client_free_p)))
