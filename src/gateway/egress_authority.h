/* SPDX-License-Identifier: Apache-2.0 */
/* egress_authority.h: the authority of one sidecar: certificates for whatever name its sandbox asks for. */
#pragma once

#include "base/error.h"

struct authority;

/* saved: what authority_secret_pem gave; NULL: a new one is made. */
int authority_new(const char *saved, struct authority **ret, struct error *reterr);
void authority_free(struct authority *a); /* NULL is fine; sessions go on */

const char *authority_ca_pem(const struct authority *a);     /* the certificate to trust */
const char *authority_secret_pem(const struct authority *a); /* that and its key */

/* An SSL on fd that waits for a client's hello and answers as `name` (a host name, checked); NULL: out of
 * memory. Speaks HTTP/1.1 only, where the client lets it choose. */
void *authority_session(struct authority *a, const char *name, int fd);
