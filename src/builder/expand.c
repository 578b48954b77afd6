/* SPDX-License-Identifier: Apache-2.0 */
/* expand.c: see expand.h.
 *
 * The word behind an operator is expanded into a frame of its own; the closing brace decides what becomes of
 * it. Frames lie on a small stack, so nesting costs no recursion. */
#include "builder/expand.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

struct frame {
    struct buf out;
    const char *name; /* of the variable whose word this is; frame 0 has none */
    size_t name_len;
    char op;    /* '-', '+', '?', '#' or '%' */
    bool twice; /* ':' in front of the first three; the longest match for the other two */
    char quote; /* the quote we are in */
};

struct expander {
    const char *p;
    char escape;
    bool quotes; /* quotes and escapes mean something */
    expand_lookup lookup;
    void *user;
    struct frame frames[EXPAND_DEPTH_MAX];
    size_t depth; /* frames in use */
    struct error *reterr;
};

static int no_room(struct expander *x, int r)
{
    return r == -ENOBUFS ? error_set(x->reterr, E2BIG, "a value is longer than %d bytes", EXPAND_MAX)
                         : error_set(x->reterr, ENOMEM, "out of memory");
}

static int put(struct expander *x, const char *data, size_t n)
{
    int r = buf_append(&x->frames[x->depth - 1].out, data, n);
    return r < 0 ? no_room(x, r) : 0;
}

static bool is_name_byte(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

/* Length of the name at p: a word, or one digit or special parameter (which are never set here). */
static size_t name_length(const char *p)
{
    size_t n = 0;
    while (is_name_byte(p[n], n == 0))
        n++;
    return n ? n : (*p && strchr("0123456789@*#", *p) ? 1 : 0);
}

static int put_variable(struct expander *x, const char *name, size_t n)
{
    const char *value = x->lookup(name, n, x->user);
    return value ? put(x, value, strlen(value)) : 0;
}

static int push(struct expander *x, const char *name, size_t n)
{
    const char *p = name + n;
    struct frame f = {.out = BUF_INIT(EXPAND_MAX), .name = name, .name_len = n};
    f.twice = *p == ':';
    if (f.twice)
        p++;
    if (!*p || !strchr(f.twice ? "-+?" : "-+?#%", *p))
        return error_set(x->reterr, EINVAL, "'${%.*s' is followed by '%.1s', which is not known here", (int)n,
                         name, *p ? p : "nothing");
    f.op = *p++;
    if ((f.op == '#' || f.op == '%') && *p == f.op) {
        f.twice = true;
        p++;
    }
    if (x->depth == EXPAND_DEPTH_MAX)
        return error_set(x->reterr, E2BIG, "more than %d variables inside each other", EXPAND_DEPTH_MAX);
    x->frames[x->depth++] = f;
    x->p = p;
    return 0;
}

/* Cuts what matches the pattern off the beginning ('#') or the end ('%') of value. */
static int put_trimmed(struct expander *x, const struct frame *f, const char *pattern, const char *value)
{
    size_t n = strlen(value), best = f->op == '#' ? 0 : n;
    auto_free char *piece = malloc(n + 1);
    if (!piece)
        return no_room(x, -ENOMEM);
    for (size_t i = 0; i <= n; i++) {
        /* shortest cut first; the longest wins when it was asked for */
        size_t at = f->op == '#' ? i : n - i;
        size_t len = f->op == '#' ? at : n - at;
        memcpy(piece, f->op == '#' ? value : value + at, len);
        piece[len] = '\0';
        if (fnmatch(pattern, piece, 0) != 0)
            continue;
        best = at;
        if (!f->twice)
            break;
    }
    return f->op == '#' ? put(x, value + best, n - best) : put(x, value, best);
}

static int pop(struct expander *x)
{
    struct frame f = x->frames[--x->depth];
    const char *word = buf_cstr(&f.out);
    const char *value = x->lookup(f.name, f.name_len, x->user);
    bool set = value && (!f.twice || *value);
    int r = 0;
    if (!word)
        r = no_room(x, -ENOMEM);
    else if (f.op == '#' || f.op == '%')
        r = value ? put_trimmed(x, &f, word, value) : 0;
    else if (f.op == '-')
        r = set ? put(x, value, strlen(value)) : put(x, word, strlen(word));
    else if (f.op == '+')
        r = set ? put(x, word, strlen(word)) : 0;
    else if (set)
        r = put(x, value, strlen(value));
    else
        r = error_set(x->reterr, EINVAL, "%.*s: %s", (int)f.name_len, f.name,
                      *word ? word : "the variable is not set");
    buf_done(&f.out);
    return r;
}

/* x->p is at '$'. */
static int dollar(struct expander *x)
{
    bool brace = x->p[1] == '{';
    const char *name = x->p + (brace ? 2 : 1);
    size_t n = name_length(name);
    if (!brace && n == 0) {
        x->p++;
        return put(x, "$", 1);
    }
    if (n == 0)
        return error_set(x->reterr, EINVAL, "'${' is not followed by the name of a variable");
    if (brace && name[n] != '}')
        return push(x, name, n);
    x->p = name + n + (brace ? 1 : 0);
    return put_variable(x, name, n);
}

/* x->p is at the escape character. */
static int escaped(struct expander *x, char quote)
{
    char next = x->p[1];
    bool drop = next && (!x->quotes ? next == '$'
                         : quote    ? next == '"' || next == '$' || next == x->escape
                                    : true);
    int r = put(x, drop ? x->p + 1 : x->p, drop || !next ? 1 : 2);
    x->p += next ? 2 : 1;
    return r;
}

static int step(struct expander *x)
{
    struct frame *f = &x->frames[x->depth - 1];
    char c = *x->p;
    if (f->quote == '\'') {
        x->p++;
        if (c != '\'')
            return put(x, &c, 1);
        f->quote = '\0';
        return 0;
    }
    if (c == x->escape)
        return escaped(x, f->quote);
    if (c == '$')
        return dollar(x);
    x->p++;
    if (x->quotes && (c == '"' || (c == '\'' && !f->quote))) {
        f->quote = f->quote ? '\0' : c;
        return 0;
    }
    if (c == '}' && x->depth > 1 && !f->quote)
        return pop(x);
    return put(x, &c, 1);
}

static int run(struct expander *x, char **ret)
{
    int r = 0;
    x->frames[0] = (struct frame){.out = BUF_INIT(EXPAND_MAX)};
    x->depth = 1;
    while (r == 0 && *x->p)
        r = step(x);
    if (r == 0 && x->depth > 1)
        r = error_set(x->reterr, EINVAL, "'${%.*s' has no closing brace",
                      (int)x->frames[x->depth - 1].name_len, x->frames[x->depth - 1].name);
    if (r == 0 && x->frames[0].quote)
        r = error_set(x->reterr, EINVAL, "a %c has no counterpart", x->frames[0].quote);
    char *text = r == 0 && buf_cstr(&x->frames[0].out) ? strdup(buf_data(&x->frames[0].out)) : NULL;
    for (size_t i = 0; i < x->depth; i++)
        buf_done(&x->frames[i].out);
    if (r == 0 && !text)
        r = no_room(x, -ENOMEM);
    if (r == 0)
        *ret = text;
    return r;
}

int expand_word(const char *text, char escape, expand_lookup lookup, void *user, char **ret,
                struct error *reterr)
{
    struct expander x = {
        .p = text, .escape = escape, .quotes = true, .lookup = lookup, .user = user, .reterr = reterr};
    return run(&x, ret);
}

int expand_text(const char *text, char escape, expand_lookup lookup, void *user, char **ret,
                struct error *reterr)
{
    struct expander x = {.p = text, .escape = escape, .lookup = lookup, .user = user, .reterr = reterr};
    return run(&x, ret);
}
