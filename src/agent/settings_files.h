/* SPDX-License-Identifier: Apache-2.0 */
/* settings_files.h: files of the image that a sandbox's settings change: in the sandbox, never in the image.
 * All are written aside and renamed, change nothing that is right already, and log what they cannot do. */
#pragma once

#include "base/buf.h"

/* /etc/hostname, and a line in /etc/hosts so that the name leads back to the machine itself. */
void settings_write_hostname(const char *name);
/* The certificates go to the end of the image's bundles, between two lines that mark them, and into a file of
 * their own from which the image's tools would make the bundle anew. */
void settings_write_ca(const char *pem);
/* In the lists of sources: http://deb.debian.org/debian becomes URL/debian, and likewise for Debian's and
 * Ubuntu's other hosts. Other sources stay. */
void settings_write_apt(const char *url);

/* The texts behind them. 0 or -ENOMEM/-EMSGSIZE. */
int settings_bundle_text(const char *text, size_t n, const char *pem, struct buf *out);
int settings_sources_text(const char *text, size_t n, const char *url, struct buf *out);
int settings_hosts_text(const char *text, size_t n, const char *name, struct buf *out);
