/* SPDX-License-Identifier: Apache-2.0 */
/* dockerfile.c: see dockerfile.h.
 *
 * A logical line is what is left of one or more lines when comments and empty lines between them are dropped
 * and the escape character at their ends has joined them. Lines of a heredoc follow the logical line that
 * names it and are taken as they are. */
#include "builder/dockerfile.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "builder/dockerfile_words.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum form {
    FORM_TEXT,   /* one text: WORKDIR a b */
    FORM_BLANKS, /* words cut at blanks */
    FORM_PAIRS,  /* words cut at blanks outside of quotes */
    FORM_JSON,   /* a JSON array, or one text */
    FORM_LIST,   /* a JSON array, or words cut at blanks */
};

static const struct keyword {
    const char *name;
    enum form form;
    bool heredocs;
} keywords[] = {
    [DOCKERFILE_ADD] = {"ADD", FORM_LIST, true},
    [DOCKERFILE_ARG] = {"ARG", FORM_PAIRS, false},
    [DOCKERFILE_CMD] = {"CMD", FORM_JSON, false},
    [DOCKERFILE_COPY] = {"COPY", FORM_LIST, true},
    [DOCKERFILE_ENTRYPOINT] = {"ENTRYPOINT", FORM_JSON, false},
    [DOCKERFILE_ENV] = {"ENV", FORM_PAIRS, false},
    [DOCKERFILE_EXPOSE] = {"EXPOSE", FORM_BLANKS, false},
    [DOCKERFILE_FROM] = {"FROM", FORM_BLANKS, false},
    [DOCKERFILE_HEALTHCHECK] = {"HEALTHCHECK", FORM_TEXT, false},
    [DOCKERFILE_LABEL] = {"LABEL", FORM_PAIRS, false},
    [DOCKERFILE_MAINTAINER] = {"MAINTAINER", FORM_TEXT, false},
    [DOCKERFILE_ONBUILD] = {"ONBUILD", FORM_TEXT, false},
    [DOCKERFILE_RUN] = {"RUN", FORM_JSON, true},
    [DOCKERFILE_SHELL] = {"SHELL", FORM_JSON, false},
    [DOCKERFILE_STOPSIGNAL] = {"STOPSIGNAL", FORM_TEXT, false},
    [DOCKERFILE_USER] = {"USER", FORM_TEXT, false},
    [DOCKERFILE_VOLUME] = {"VOLUME", FORM_LIST, false},
    [DOCKERFILE_WORKDIR] = {"WORKDIR", FORM_TEXT, false},
};

struct reader {
    const char *p, *end;
    unsigned line; /* of the line read last */
    char escape;
    struct error *reterr;
};

struct line {
    const char *text;
    size_t n;
};

static bool next_line(struct reader *in, struct line *ret)
{
    if (in->p == in->end)
        return false;
    const char *newline = memchr(in->p, '\n', (size_t)(in->end - in->p));
    const char *end = newline ? newline : in->end;
    *ret = (struct line){in->p, (size_t)(end - in->p)};
    if (ret->n > 0 && ret->text[ret->n - 1] == '\r')
        ret->n--;
    in->p = newline ? newline + 1 : in->end;
    in->line++;
    return true;
}

static struct line trim_left(struct line l)
{
    while (l.n > 0 && (*l.text == ' ' || *l.text == '\t'))
        l = (struct line){l.text + 1, l.n - 1};
    return l;
}

static struct line trim_right(struct line l)
{
    while (l.n > 0 && (l.text[l.n - 1] == ' ' || l.text[l.n - 1] == '\t'))
        l.n--;
    return l;
}

/* Cuts an escape character off the end; two of them are no continuation. */
static bool take_continuation(struct line *l, char escape)
{
    struct line t = trim_right(*l);
    if (t.n == 0 || t.text[t.n - 1] != escape || (t.n > 1 && t.text[t.n - 2] == escape))
        return false;
    *l = (struct line){t.text, t.n - 1};
    return true;
}

static int fail(const struct reader *in, unsigned line, int r)
{
    if (r == -E2BIG || r == -ENOBUFS)
        return error_set(in->reterr, E2BIG, "line %u: the instruction is too long", line);
    return error_set(in->reterr, ENOMEM, "out of memory");
}

/* "# name = value" in the first lines of the file. */
static bool directive(struct line l, struct line *ret_name, struct line *ret_value)
{
    l = trim_left(l);
    if (l.n == 0 || *l.text != '#')
        return false;
    l = trim_right(trim_left((struct line){l.text + 1, l.n - 1}));
    const char *equals = l.n ? memchr(l.text, '=', l.n) : NULL;
    if (!equals)
        return false;
    *ret_name = trim_right((struct line){l.text, (size_t)(equals - l.text)});
    *ret_value = trim_left((struct line){equals + 1, (size_t)(l.text + l.n - equals - 1)});
    for (size_t i = 0; i < ret_name->n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", ret_name->text[i]))
            return false;
    return ret_name->n > 0 && ret_value->n > 0;
}

static int read_directives(struct reader *in)
{
    struct line l, name, value;
    for (struct reader look = *in; next_line(&look, &l) && directive(l, &name, &value); *in = look) {
        if (name.n != 6 || strncasecmp(name.text, "escape", 6) != 0)
            continue; /* "syntax" and "check" are for other builders */
        if (value.n != 1 || (*value.text != '\\' && *value.text != '`'))
            return error_set(in->reterr, EINVAL, "line %u: the escape character is \\ or `", look.line);
        look.escape = in->escape = *value.text;
    }
    return 0;
}

/* The next logical line; *ret_line is where it begins. 1, 0 at the end of the file, or negative. */
static int read_logical(struct reader *in, struct buf *out, unsigned *ret_line)
{
    struct line l;
    bool more = false;
    buf_clear(out);
    *ret_line = 0;
    while (next_line(in, &l)) {
        struct line bare = trim_left(l);
        if (bare.n == 0 || *bare.text == '#')
            continue; /* also between the lines of an instruction */
        if (!*ret_line) {
            *ret_line = in->line;
            l = bare;
        }
        more = take_continuation(&l, in->escape);
        int r = buf_append(out, l.text, l.n);
        if (r < 0)
            return fail(in, *ret_line, r);
        if (!more)
            break;
    }
    if (!*ret_line)
        return 0;
    return buf_cstr(out) ? 1 : fail(in, *ret_line, -ENOMEM);
}

/* The lines up to the one that is the name. */
static int read_heredoc(struct reader *in, struct heredoc *h, bool chomp)
{
    struct buf text = BUF_INIT(DOCKERFILE_MAX);
    unsigned begin = in->line;
    struct line l;
    int r = 0;
    while (r == 0 && next_line(in, &l)) {
        while (chomp && l.n > 0 && *l.text == '\t')
            l = (struct line){l.text + 1, l.n - 1};
        if (l.n == strlen(h->name) && memcmp(l.text, h->name, l.n) == 0) {
            h->text = buf_cstr(&text) ? strdup(buf_data(&text)) : NULL;
            buf_done(&text);
            return h->text ? 0 : fail(in, begin, -ENOMEM);
        }
        r = buf_append(&text, l.text, l.n);
        if (r == 0)
            r = buf_putc(&text, '\n');
    }
    buf_done(&text);
    if (r < 0)
        return fail(in, begin, r);
    return error_set(in->reterr, EINVAL, "line %u: the text that begins here has no line '%s' at its end",
                     begin, h->name);
}

static int read_heredocs(struct reader *in, struct instruction *i)
{
    struct words words = {0};
    int r = dockerfile_split(i->rest, in->escape, true, &words);
    if (r < 0)
        r = fail(in, i->line, r);
    for (size_t k = 0; r == 0 && k < words.count; k++) {
        struct heredoc h = {0};
        bool chomp;
        int found = dockerfile_heredoc_word(words.items[k], &h.name, &h.expand, &chomp);
        if (found == 0)
            continue;
        struct heredoc *list = found < 0 ? NULL : realloc(i->heredocs, (i->heredoc_count + 1) * sizeof *list);
        if (!list) {
            free(h.name);
            r = fail(in, i->line, -ENOMEM);
            break;
        }
        i->heredocs = list;
        h.word = strdup(words.items[k]);
        list[i->heredoc_count++] = h; /* freed with the instruction from here on */
        if (!h.word)
            r = fail(in, i->line, -ENOMEM);
        else if (i->heredoc_count > DOCKERFILE_HEREDOCS_MAX)
            r = error_set(in->reterr, E2BIG, "line %u: more than %d texts in one instruction", i->line,
                          DOCKERFILE_HEREDOCS_MAX);
        else
            r = read_heredoc(in, &list[i->heredoc_count - 1], chomp);
    }
    words_done(&words);
    return r;
}

static int unknown_keyword(const struct reader *in, unsigned line, const char *word, size_t n)
{
    char known[200] = "";
    size_t at = 0;
    for (size_t k = 0; k < ARRAY_SIZE(keywords); k++) {
        size_t len = strlen(keywords[k].name);
        memcpy(known + at, keywords[k].name, len);
        known[at + len] = ' ';
        at += len + 1;
    }
    known[at - 1] = '\0';
    return error_set(in->reterr, EINVAL, "line %u: there is no instruction '%.*s'; known are %s", line,
                     (int)MIN(n, (size_t)40), word, known);
}

/* The text with every run of blanks as one, which is how people want to see it. */
static char *one_line(const char *text)
{
    char *out = malloc(strlen(text) + 1), *p = out;
    if (!out)
        return NULL;
    for (; *text; text++)
        if ((*text != ' ' && *text != '\t') || (p > out && p[-1] != ' '))
            *p++ = *text == '\t' ? ' ' : *text;
    while (p > out && p[-1] == ' ')
        p--;
    *p = '\0';
    return out;
}

static int split_rest(const struct reader *in, struct instruction *i)
{
    enum form form = keywords[i->kind].form;
    if (form == FORM_JSON || form == FORM_LIST) {
        int r = dockerfile_take_json(i->rest, &i->words);
        if (r != 0) {
            i->json = r > 0;
            return r < 0 ? fail(in, i->line, r) : 0;
        }
    }
    if (form == FORM_TEXT || form == FORM_JSON)
        return 0;
    int r = dockerfile_split(i->rest, in->escape, form == FORM_PAIRS, &i->words);
    return r < 0 ? fail(in, i->line, r) : 0;
}

static bool needs_rest(enum instruction_kind kind)
{
    return kind != DOCKERFILE_CMD && kind != DOCKERFILE_ENTRYPOINT; /* which may be taken back */
}

static int read_instruction(struct reader *in, const char *text, unsigned line, struct instruction *i)
{
    size_t n = strcspn(text, " \t");
    size_t kind = 0;
    while (kind < ARRAY_SIZE(keywords) &&
           (strlen(keywords[kind].name) != n || strncasecmp(keywords[kind].name, text, n) != 0))
        kind++;
    if (kind == ARRAY_SIZE(keywords))
        return unknown_keyword(in, line, text, n);
    i->kind = (enum instruction_kind)kind;
    i->line = line;
    i->text = one_line(text);
    const char *p = text + n + strspn(text + n, " \t");
    int r = dockerfile_take_flags(&p, in->escape, &i->flags);
    struct line rest = trim_right((struct line){p, strlen(p)});
    i->rest = strndup(rest.text, rest.n);
    if (r < 0 || !i->text || !i->rest)
        return fail(in, line, r < 0 ? r : -ENOMEM);
    if (!*i->rest && needs_rest(i->kind))
        return error_set(in->reterr, EINVAL, "line %u: %s needs something behind it", line,
                         keywords[kind].name);
    r = split_rest(in, i);
    if (r == 0 && keywords[kind].heredocs && !i->json)
        r = read_heredocs(in, i);
    return r;
}

static void instruction_done(struct instruction *i)
{
    for (size_t k = 0; k < i->heredoc_count; k++) {
        free(i->heredocs[k].word);
        free(i->heredocs[k].name);
        free(i->heredocs[k].text);
    }
    free(i->heredocs);
    words_done(&i->flags);
    words_done(&i->words);
    free(i->text);
    free(i->rest);
}

void dockerfile_done(struct dockerfile *d)
{
    for (size_t i = 0; i < d->count; i++)
        instruction_done(&d->items[i]);
    free(d->items);
    *d = (struct dockerfile){0};
}

static int read_all(struct reader *in, struct dockerfile *d)
{
    struct buf logical = BUF_INIT(DOCKERFILE_MAX);
    unsigned line;
    int r = read_directives(in);
    d->escape = in->escape;
    while (r == 0 && (r = read_logical(in, &logical, &line)) > 0) {
        struct instruction *items =
            d->count < DOCKERFILE_INSTRUCTIONS_MAX ? realloc(d->items, (d->count + 1) * sizeof *items) : NULL;
        if (!items) {
            r = error_set(in->reterr, E2BIG, "line %u: more than %d instructions", line,
                          DOCKERFILE_INSTRUCTIONS_MAX);
            break;
        }
        d->items = items;
        items[d->count++] = (struct instruction){0};
        r = read_instruction(in, buf_data(&logical), line, &items[d->count - 1]);
    }
    buf_done(&logical);
    return r;
}

int dockerfile_parse(const char *text, size_t n, struct dockerfile *ret, struct error *reterr)
{
    static const char bom[] = "\xef\xbb\xbf";
    if (n > DOCKERFILE_MAX)
        return error_set(reterr, E2BIG, "the Dockerfile is larger than %d KiB", DOCKERFILE_MAX >> 10);
    if (!utf8_valid(text, n) || (n && memchr(text, '\0', n)))
        return error_set(reterr, EINVAL, "the Dockerfile is not a text in UTF-8");
    if (n >= 3 && memcmp(text, bom, 3) == 0) {
        text += 3;
        n -= 3;
    }
    struct dockerfile d = {0};
    struct reader in = {.p = text, .end = text + n, .escape = '\\', .reterr = reterr};
    int r = read_all(&in, &d);
    if (r < 0) {
        dockerfile_done(&d);
        return r;
    }
    *ret = d;
    return 0;
}

const char *instruction_name(enum instruction_kind kind)
{
    return keywords[kind].name;
}

const char *instruction_flag(const struct instruction *i, const char *name)
{
    size_t n = strlen(name);
    for (size_t k = 0; k < i->flags.count; k++) {
        const char *f = i->flags.items[k];
        if (strncmp(f, name, n) == 0 && (f[n] == '=' || f[n] == '\0'))
            return f[n] ? f + n + 1 : f + n;
    }
    return NULL;
}
