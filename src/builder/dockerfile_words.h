/* SPDX-License-Identifier: Apache-2.0 */
/* dockerfile_words.h: how the text behind a keyword is cut into flags, words, JSON elements and heredocs. */
#pragma once

#include "builder/dockerfile.h"

/* Cuts at blanks. With quotes: a blank inside quotes or behind the escape character does not cut, and all of
 * these characters stay. */
int dockerfile_split(const char *text, char escape, bool quotes, struct words *ret);
/* Takes leading "--name[=value]" words off; *text then points behind them. */
int dockerfile_take_flags(const char **text, char escape, struct words *ret);
/* 1: text is a JSON array of strings; 0: it is something else; negative: no memory. */
int dockerfile_take_json(const char *text, struct words *ret);
/* Whether a word opens a heredoc: "<<EOF", "<<-EOF", "3<<'EOF'". *ret_name is malloc'ed. */
int dockerfile_heredoc_word(const char *word, char **ret_name, bool *ret_expand, bool *ret_chomp);
