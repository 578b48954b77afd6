/* SPDX-License-Identifier: Apache-2.0 */
/* go_template.c: see go_template.h.
 *
 * The template is walked once per round of its loops. Open range and if blocks lie on a small stack; a block
 * that is skipped is walked without output. */
#include "cli/go_template.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum value_kind { VALUE_JSON, VALUE_TEXT, VALUE_NUMBER };

/* What an expression comes to. */
struct value {
    enum value_kind kind;
    const struct json_value *json; /* NULL: no value */
    char *text;                    /* owned */
    int64_t number;
};

struct block {
    bool loop;
    bool live;                     /* its text counts */
    bool done;                     /* a branch was taken: "else" is skipped */
    size_t body;                   /* loop: where its text begins */
    const struct json_value *dot;  /* before the block */
    const struct json_value *next; /* loop: what comes after this round */
};

struct template
{
    const char *text;
    size_t at;
    const struct json_value *dot;
    struct block blocks[TEMPLATE_DEPTH];
    size_t depth;
    bool trim; /* the last action ended with -}} */
    struct buf *out;
    struct error *reterr;
};

static void value_done(struct value *v)
{
    free(v->text);
    *v = (struct value){0};
}

static int fail(struct template *t, const char *what, const char *word)
{
    return error_set(t->reterr, EINVAL, "the template has %s '%.60s'", what, word);
}

static int no_room(struct template *t, int r)
{
    return error_set(t->reterr, r == -ENOMEM ? ENOMEM : E2BIG, "what the template makes is too large");
}

/* ------------------------------------------------------------------ values */

/* As Go prints them. Objects and arrays come from a server: printed as JSON, in one line. */
static int value_print(const struct value *v, struct buf *out)
{
    struct json_writer w;
    double number;
    switch (v->kind) {
    case VALUE_TEXT:
        return buf_puts(out, v->text);
    case VALUE_NUMBER:
        return buf_printf(out, "%lld", (long long)v->number);
    case VALUE_JSON:
        break;
    }
    switch (json_type_of(v->json)) {
    case JSON_NULL:
        return buf_puts(out, v->json ? "<nil>" : "<no value>");
    case JSON_STRING:
        return buf_puts(out, json_string(v->json, NULL));
    case JSON_BOOL:
        return buf_puts(out, json_bool(v->json, false) ? "true" : "false");
    case JSON_NUMBER:
        (void)json_number(v->json, &number);
        json_writer_init(&w, out);
        json_put_number(&w, number);
        return w.err;
    default:
        json_writer_init(&w, out);
        json_put_value(&w, v->json);
        return w.err;
    }
}

static bool value_true(const struct value *v)
{
    double number = 0;
    if (v->kind != VALUE_JSON)
        return v->kind == VALUE_NUMBER ? v->number != 0 : v->text[0] != '\0';
    switch (json_type_of(v->json)) {
    case JSON_NULL:
        return false;
    case JSON_BOOL:
        return json_bool(v->json, false);
    case JSON_NUMBER:
        return json_number(v->json, &number) && number != 0;
    case JSON_STRING:
        return json_string(v->json, NULL)[0] != '\0';
    default:
        return json_count(v->json) > 0;
    }
}

static int value_take_text(struct template *t, struct value *v, struct buf *text)
{
    char *copy = buf_cstr(text) ? strdup(buf_data(text)) : NULL;
    buf_done(text);
    value_done(v);
    if (!copy)
        return no_room(t, -ENOMEM);
    *v = (struct value){.kind = VALUE_TEXT, .text = copy};
    return 0;
}

static int as_json(struct template *t, struct value *v)
{
    struct buf text = BUF_INIT(TEMPLATE_OUTPUT_MAX);
    struct json_writer w;
    json_writer_init(&w, &text);
    if (v->kind == VALUE_TEXT)
        json_put_string(&w, v->text);
    else if (v->kind == VALUE_NUMBER)
        json_put_int(&w, v->number);
    else if (v->json)
        json_put_value(&w, v->json);
    else
        json_put_null(&w);
    if (w.err < 0) {
        buf_done(&text);
        return no_room(t, w.err);
    }
    return value_take_text(t, v, &text);
}

static int length(struct template *t, struct value *v)
{
    size_t n = 0;
    if (v->kind == VALUE_TEXT)
        n = strlen(v->text);
    else if (v->kind == VALUE_JSON && json_type_of(v->json) == JSON_STRING)
        n = strlen(json_string(v->json, NULL));
    else if (v->kind == VALUE_JSON && json_type_of(v->json) >= JSON_ARRAY)
        n = json_count(v->json);
    else if (v->kind != VALUE_JSON || json_type_of(v->json) != JSON_NULL)
        return fail(t, "a length of something without one:", "len");
    value_done(v);
    *v = (struct value){.kind = VALUE_NUMBER, .number = (int64_t)n};
    return 0;
}

static int join(struct template *t, struct value *v, const char *separator)
{
    struct buf text = BUF_INIT(TEMPLATE_OUTPUT_MAX);
    int r = 0;
    bool first = true;
    json_for_each (item, v->kind == VALUE_JSON ? v->json : NULL) {
        struct value one = {.json = item};
        if (r == 0 && !first)
            r = buf_puts(&text, separator);
        if (r == 0)
            r = value_print(&one, &text);
        first = false;
    }
    if (r < 0) {
        buf_done(&text);
        return no_room(t, r);
    }
    return value_take_text(t, v, &text);
}

static int change_case(struct template *t, struct value *v, bool upper)
{
    struct buf text = BUF_INIT(TEMPLATE_OUTPUT_MAX);
    int r = value_print(v, &text);
    if (r < 0) {
        buf_done(&text);
        return no_room(t, r);
    }
    r = value_take_text(t, v, &text);
    for (char *p = v->text; r == 0 && *p; p++)
        *p = (char)(upper ? toupper((unsigned char)*p) : tolower((unsigned char)*p));
    return r;
}

/* ------------------------------------------------------------------ expressions */

/* The next word of an action: a name, a path, a string with its quotes, or one of | ( ). "" at its end. */
static int next_word(struct template *t, const char **p, const char *end, char out[256])
{
    size_t n = 0;
    while (*p < end && isspace((unsigned char)**p))
        (*p)++;
    if (*p < end && **p == '|') {
        out[n++] = *(*p)++;
    } else if (*p < end && (**p == '"' || **p == '`')) {
        char quote = **p;
        do {
            if (n + 2 >= 256)
                return fail(t, "a word that is too long", "");
            out[n++] = *(*p)++;
        } while (*p < end && **p != quote);
        if (*p == end)
            return fail(t, "a text without an end", "");
        (*p)++;
    } else {
        while (*p < end && !isspace((unsigned char)**p) && **p != '|') {
            if (n + 1 >= 256)
                return fail(t, "a word that is too long", "");
            out[n++] = *(*p)++;
        }
    }
    out[n] = '\0';
    return 0;
}

static int operand(struct template *t, const char *word, struct value *ret)
{
    if (word[0] == '"' || word[0] == '`') {
        *ret = (struct value){.kind = VALUE_TEXT, .text = strdup(word + 1)};
        return ret->text ? 0 : no_room(t, -ENOMEM);
    }
    if (word[0] != '.')
        return fail(t, "an unknown word", word);
    const struct json_value *v = t->dot;
    for (const char *p = word; *p == '.' && p[1];) {
        char name[256];
        size_t n = strcspn(p + 1, ".");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, p + 1);
        v = json_get(v, name);
        p += n + 1;
    }
    *ret = (struct value){.json = v};
    return 0;
}

static int apply_index(struct template *t, struct value *v, const char *key)
{
    const struct json_value *found = NULL;
    if (v->kind != VALUE_JSON)
        return fail(t, "an index into a text:", key);
    if (json_type_of(v->json) == JSON_OBJECT) {
        found = json_get(v->json, key);
    } else {
        unsigned long n = strtoul(key, NULL, 10);
        json_for_each (item, v->json)
            if (n-- == 0) {
                found = item;
                break;
            }
    }
    v->json = found;
    return 0;
}

/* A function with its value; `extra` is the word of index and join that is no operand. */
static int call(struct template *t, const char *name, struct value *v, const char *extra)
{
    const char *text = extra[0] == '"' || extra[0] == '`' ? extra + 1 : extra;
    if (strcmp(name, "json") == 0)
        return as_json(t, v);
    if (strcmp(name, "len") == 0)
        return length(t, v);
    if (strcmp(name, "upper") == 0 || strcmp(name, "lower") == 0)
        return change_case(t, v, name[0] == 'u');
    if (strcmp(name, "index") == 0)
        return apply_index(t, v, text);
    if (strcmp(name, "join") == 0)
        return join(t, v, text);
    if (strcmp(name, "print") == 0)
        return 0;
    if (strcmp(name, "println") == 0) {
        struct buf line = BUF_INIT(TEMPLATE_OUTPUT_MAX);
        int r = value_print(v, &line);
        if (r == 0)
            r = buf_putc(&line, '\n');
        if (r < 0) {
            buf_done(&line);
            return no_room(t, r);
        }
        return value_take_text(t, v, &line);
    }
    return fail(t, "a function that is not known here,", name);
}

static bool has_extra(const char *name)
{
    return strcmp(name, "index") == 0 || strcmp(name, "join") == 0;
}

/* "FUNC OPERAND [EXTRA]", "OPERAND", or behind a pipe "FUNC [EXTRA]". */
static int command(struct template *t, const char **p, const char *end, char *word, bool piped,
                   struct value *v)
{
    char name[256] = "", extra[256] = "";
    int r = 0;
    if (word[0] != '.' && word[0] != '"' && word[0] != '`') {
        (void)snprintf(name, sizeof name, "%s", word);
        if (!piped)
            r = next_word(t, p, end, word);
    } else if (piped) {
        return fail(t, "a pipe into", word);
    }
    if (r == 0 && !piped)
        r = operand(t, word, v);
    if (r == 0 && has_extra(name))
        r = next_word(t, p, end, extra);
    return r == 0 && name[0] ? call(t, name, v, extra) : r;
}

/* The whole expression up to end; v is filled also on failure. */
static int expression(struct template *t, const char *p, const char *end, struct value *v)
{
    char word[256];
    bool piped = false;
    *v = (struct value){0};
    int r = next_word(t, &p, end, word);
    if (r == 0 && !word[0])
        return fail(t, "an empty action", "{{}}");
    while (r == 0) {
        r = command(t, &p, end, word, piped, v);
        if (r == 0)
            r = next_word(t, &p, end, word);
        if (r < 0 || !word[0])
            break;
        if (strcmp(word, "|") != 0)
            return fail(t, "something unexpected:", word);
        piped = true;
        r = next_word(t, &p, end, word);
        if (r == 0 && !word[0])
            return fail(t, "nothing behind the", "|");
    }
    return r;
}

/* ------------------------------------------------------------------ blocks */

static bool live(const struct template *t)
{
    return t->depth == 0 || t->blocks[t->depth - 1].live;
}

static int begin_block(struct template *t, bool loop, const char *p, const char *end)
{
    struct value v = {0};
    if (t->depth == TEMPLATE_DEPTH)
        return fail(t, "too many blocks inside each other", "");
    struct block b = {.loop = loop, .body = t->at, .dot = t->dot, .done = true};
    if (live(t)) {
        int r = expression(t, p, end, &v);
        if (r < 0) {
            value_done(&v);
            return r;
        }
        if (loop) {
            const struct json_value *first = v.kind == VALUE_JSON ? json_first(v.json) : NULL;
            b.live = b.done = first != NULL;
            b.next = first ? json_next(first) : NULL;
            t->dot = first ? first : t->dot;
        } else {
            b.live = b.done = value_true(&v);
        }
    }
    value_done(&v);
    t->blocks[t->depth++] = b;
    return 0;
}

static int end_block(struct template *t)
{
    if (t->depth == 0)
        return fail(t, "an end without a beginning:", "end");
    struct block *b = &t->blocks[t->depth - 1];
    if (b->loop && b->live && b->next) {
        t->dot = b->next;
        b->next = json_next(b->next);
        t->at = b->body;
        return 0;
    }
    t->dot = b->dot;
    t->depth--;
    return 0;
}

static int else_block(struct template *t)
{
    if (t->depth == 0)
        return fail(t, "an else without an if:", "else");
    struct block *b = &t->blocks[t->depth - 1];
    if (b->loop && b->live && b->next)
        return end_block(t); /* another round */
    bool outer = t->depth < 2 || t->blocks[t->depth - 2].live;
    b->live = outer && !b->done;
    b->done = true;
    b->next = NULL;
    t->dot = b->dot;
    return 0;
}

static int action(struct template *t, const char *p, const char *end)
{
    char word[256];
    const char *rest = p;
    int r = next_word(t, &rest, end, word);
    if (r < 0)
        return r;
    if (strcmp(word, "range") == 0 || strcmp(word, "if") == 0)
        return begin_block(t, word[0] == 'r', rest, end);
    if (strcmp(word, "end") == 0)
        return end_block(t);
    if (strcmp(word, "else") == 0)
        return else_block(t);
    if (!live(t) || strncmp(p, "/*", 2) == 0)
        return 0;
    struct value v;
    r = expression(t, p, end, &v);
    if (r == 0) {
        r = value_print(&v, t->out);
        if (r < 0)
            r = no_room(t, r);
    }
    value_done(&v);
    return r;
}

/* Text up to the next action; trims it on both sides where the actions want that. */
static int text_run(struct template *t, size_t n, bool trim_end)
{
    const char *p = t->text + t->at, *end = p + n;
    while (t->trim && p < end && isspace((unsigned char)*p))
        p++;
    while (trim_end && end > p && isspace((unsigned char)end[-1]))
        end--;
    int r = live(t) ? buf_append(t->out, p, (size_t)(end - p)) : 0;
    return r < 0 ? no_room(t, r) : 0;
}

int go_template_run(const char *text, const struct json_value *root, struct buf *out, struct error *reterr)
{
    struct template t = {.text = text, .dot = root, .out = out, .reterr = reterr};
    size_t n = strlen(text);
    if (n > TEMPLATE_MAX)
        return error_set(reterr, E2BIG, "the template is longer than %d bytes", TEMPLATE_MAX);
    while (t.at < n) {
        const char *open = strstr(text + t.at, "{{");
        size_t plain = open ? (size_t)(open - text) - t.at : n - t.at;
        bool trim_end = open && open[2] == '-' && isspace((unsigned char)open[3]);
        int r = text_run(&t, plain, trim_end);
        t.trim = false;
        if (r < 0 || !open) {
            if (r < 0)
                return r;
            break;
        }
        const char *p = open + (trim_end ? 3 : 2), *close = strstr(p, "}}");
        if (!close)
            return fail(&t, "an action without }}:", open);
        const char *end = close;
        bool trim = end > p + 1 && end[-1] == '-' && isspace((unsigned char)end[-2]);
        t.at = (size_t)(close - text) + 2;
        while (p < end && isspace((unsigned char)*p))
            p++;
        r = action(&t, p, trim ? end - 1 : end);
        if (r < 0)
            return r;
        t.trim = trim;
    }
    return t.depth ? fail(&t, "no {{end}} for a block", "") : 0;
}
