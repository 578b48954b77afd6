/* SPDX-License-Identifier: Apache-2.0 */
/* tls_files.h: certificates and keys for the gateway, which cannot open files. */
#pragma once

#include "keeper/keeper.h"

/* Reads the files that the configuration names into the memory file (struct gateway_tls and the texts behind
 * it). They are not looked into: that is the gateway's business. On failure the memory file is as before. */
int tls_files_load(const struct keeper_config *config, int memfd, struct error *reterr);
