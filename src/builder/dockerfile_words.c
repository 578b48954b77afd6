/* SPDX-License-Identifier: Apache-2.0 */
/* dockerfile_words.c: see dockerfile_words.h. */
#include "builder/dockerfile_words.h"

#include "base/json.h"

#include <errno.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The end of the word that begins at p. */
static const char *word_end(const char *p, char escape, bool quotes)
{
    char quote = '\0';
    for (; *p; p++) {
        if (!quote && is_blank(*p))
            break;
        if (!quotes)
            continue;
        if (*p == escape && quote != '\'' && p[1])
            p++;
        else if (quote && *p == quote)
            quote = '\0';
        else if (!quote && (*p == '\'' || *p == '"'))
            quote = *p;
    }
    return p;
}

int dockerfile_split(const char *text, char escape, bool quotes, struct words *ret)
{
    int r = 0;
    for (const char *p = text; r == 0;) {
        while (is_blank(*p))
            p++;
        if (!*p)
            break;
        const char *end = word_end(p, escape, quotes);
        r = words_add(ret, p, (size_t)(end - p));
        p = end;
    }
    return r;
}

int dockerfile_take_flags(const char **text, char escape, struct words *ret)
{
    const char *p = *text;
    int r = 0;
    while (r == 0) {
        while (is_blank(*p))
            p++;
        *text = p;
        if (p[0] != '-' || p[1] != '-')
            break;
        const char *end = word_end(p, escape, true);
        if (end - p == 2) { /* "--" ends the flags */
            while (is_blank(*end))
                end++;
            *text = end;
            break;
        }
        r = words_add(ret, p + 2, (size_t)(end - p) - 2);
        p = end;
    }
    return r;
}

int dockerfile_take_json(const char *text, struct words *ret)
{
    if (text[0] != '[')
        return 0;
    auto_free char *copy = strdup(text);
    auto_json struct json_doc *doc = NULL;
    if (!copy)
        return -ENOMEM;
    int r = json_parse(copy, strlen(copy), 0, &doc, NULL);
    if (r < 0)
        return r == -ENOMEM ? r : 0;
    const struct json_value *list = json_root(doc);
    if (json_type_of(list) != JSON_ARRAY)
        return 0;
    json_for_each (v, list)
        if (json_type_of(v) != JSON_STRING)
            return 0;
    json_for_each (v, list) {
        r = words_take(ret, strdup(json_string(v, NULL)));
        if (r < 0)
            return r;
    }
    return 1;
}

int dockerfile_heredoc_word(const char *word, char **ret_name, bool *ret_expand, bool *ret_chomp)
{
    const char *p = word + strspn(word, "0123456789");
    if (p[0] != '<' || p[1] != '<')
        return 0;
    p += 2;
    bool chomp = *p == '-';
    if (chomp)
        p++;
    if (!*p || strchr(p, '<'))
        return 0;
    char *name = malloc(strlen(p) + 1);
    if (!name)
        return -ENOMEM;
    size_t n = 0;
    bool quoted = false;
    for (; *p; p++) {
        if (*p == '\'' || *p == '"')
            quoted = true;
        else
            name[n++] = *p;
    }
    name[n] = '\0';
    if (n == 0) {
        free(name);
        return 0;
    }
    *ret_name = name;
    *ret_expand = !quoted;
    *ret_chomp = chomp;
    return 1;
}
