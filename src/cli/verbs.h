/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h: looking up verbs, shared by main.c, verbs.c and help.c. */
#pragma once

#include "cli/cli.h"

extern const struct option main_options[];      /* --version; connect_options are known there, too */
const struct verb *verb_find(const char *name); /* NULL when there is none */
int verb_unknown(const char *name);             /* says so, with a suggestion; returns CLI_ERROR */
void cli_overview(void);                        /* all verbs, on stdout */
