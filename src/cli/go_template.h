/* SPDX-License-Identifier: Apache-2.0 */
/* go_template.h: the part of Go's text templates that people give to 'docker ... --format'.
 *
 * Text, {{.Field.Field}}, {{.}}, {{json X}}, {{len X}}, {{index X "key"}}, {{join X ","}}, {{upper X}},
 * {{lower X}}, {{println X}}, "text", pipes (X | json), {{range X}}...{{else}}...{{end}}, {{if
 * X}}...{{else}}...{{end}} and {{- -}}. Everything else is an error and not a guess. */
#pragma once

#include "base/json.h"

enum { TEMPLATE_MAX = 16384, TEMPLATE_DEPTH = 16, TEMPLATE_OUTPUT_MAX = 16 << 20 };

/* Appends what the template makes of the value. -EINVAL with a sentence, -ENOMEM, -ENOBUFS. */
int go_template_run(const char *text, const struct json_value *root, struct buf *out, struct error *reterr);
