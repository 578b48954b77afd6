/* SPDX-License-Identifier: Apache-2.0 */
/* watch_glob.c: glob lists matched by following all possibilities at once.
 *
 * Theory of operation
 * A pattern G means the regular expression (^|/)G(/|$) searched in the full path. It is compiled to tokens; a
 * state is the number of tokens already matched. Reading the path character by character, we keep the set of
 * states that are possible, so nothing is ever tried twice and no pattern can make matching slow. The set is
 * a row of bytes; only the part between its lowest and highest member is looked at. */
#include "agent/watch_glob.h"

#include <errno.h>
#include <string.h>

enum token_kind {
    TOKEN_BYTE,   /* this very byte */
    TOKEN_ANY,    /* one character other than '/' */
    TOKEN_STAR,   /* any number of characters other than '/' */
    TOKEN_DOUBLE, /* any number of characters */
};

struct token {
    unsigned char kind;
    unsigned char byte;
};

struct watch_glob {
    size_t patterns;
    size_t tokens;
    size_t *begin; /* pattern i has the tokens begin[i] .. begin[i + 1] */
    struct token *token;
};

static bool is_star(struct token t)
{
    return t.kind == TOKEN_STAR || t.kind == TOKEN_DOUBLE;
}

/* Neighbouring stars are one: the wider of them. Every star is then followed by something that is none, and
 * passing over a star needs one step only. */
static int pattern_compile(struct watch_glob *g, const char *p)
{
    size_t first = g->tokens;
    while (*p) {
        struct token t = {TOKEN_BYTE, (unsigned char)*p};
        size_t used = 1;
        if (*p == '?') {
            t = (struct token){TOKEN_ANY, 0};
        } else if (*p == '*') {
            used = strspn(p, "*");
            t = (struct token){used > 1 ? TOKEN_DOUBLE : TOKEN_STAR, 0};
        }
        p += used;
        if (g->tokens == WATCH_GLOB_TOKENS_MAX)
            return -E2BIG;
        g->token[g->tokens++] = t;
    }
    g->begin[++g->patterns] = g->tokens;
    return g->tokens > first ? 0 : -EINVAL;
}

int watch_glob_new(const char *const *patterns, size_t count, struct watch_glob **ret)
{
    if (count > WATCH_GLOB_PATTERNS_MAX)
        return -E2BIG;
    struct watch_glob *g = calloc(1, sizeof *g);
    size_t room = 0;
    for (size_t i = 0; i < count; i++)
        room += strlen(patterns[i]);
    if (g) {
        g->begin = calloc(count + 1, sizeof *g->begin);
        g->token = calloc(MIN(room, (size_t)WATCH_GLOB_TOKENS_MAX) + 1, sizeof *g->token);
    }
    int r = g && g->begin && g->token ? 0 : -ENOMEM;
    for (size_t i = 0; i < count && r == 0; i++)
        r = pattern_compile(g, patterns[i]);
    if (r < 0) {
        watch_glob_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

void watch_glob_free(struct watch_glob *g)
{
    if (!g)
        return;
    free(g->begin);
    free(g->token);
    free(g);
}

/* Bytes of the character at s, at least one. The end of the string is no continuation byte. */
static size_t char_len(const unsigned char *s)
{
    size_t want = *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : *s >= 0xc0 ? 2 : 1, n = 1;
    while (n < want && (s[n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* A set of states 0..count, all between low and high (empty: low > high). */
struct row {
    unsigned char has[WATCH_GLOB_TOKENS_MAX + 1];
    size_t low, high;
};

static void row_add(struct row *r, const struct token *token, size_t count, size_t state)
{
    for (;;) {
        r->has[state] = 1;
        r->low = MIN(r->low, state);
        r->high = MAX(r->high, state);
        if (state == count || !is_star(token[state]))
            return;
        state++; /* a star may match nothing */
    }
}

static void row_clear(struct row *r)
{
    if (r->low <= r->high)
        memset(r->has + r->low, 0, r->high - r->low + 1);
    r->low = WATCH_GLOB_TOKENS_MAX + 1;
    r->high = 0;
}

/* All states that reading one character leads to. A literal character of several bytes is several tokens, so
 * it advances over all of them at once. */
static void row_step(const struct row *from, struct row *to, const struct token *token, size_t count,
                     const unsigned char *s, size_t n)
{
    for (size_t i = from->low; i <= from->high; i++) {
        if (!from->has[i] || i == count)
            continue;
        if (is_star(token[i])) {
            if (token[i].kind == TOKEN_DOUBLE || *s != '/')
                row_add(to, token, count, i);
        } else if (token[i].kind == TOKEN_ANY) {
            if (*s != '/')
                row_add(to, token, count, i + 1);
        } else {
            size_t k = 0;
            while (k < n && i + k < count && token[i + k].kind == TOKEN_BYTE && token[i + k].byte == s[k])
                k++;
            if (k == n)
                row_add(to, token, count, i + n);
        }
    }
}

static bool pattern_match(const struct token *token, size_t count, const unsigned char *path,
                          struct row rows[2])
{
    struct row *now = &rows[0], *next = &rows[1];
    row_clear(now);
    row_clear(next);
    row_add(now, token, count, 0);
    for (const unsigned char *s = path;;) {
        if (now->has[count] && (*s == '\0' || *s == '/'))
            return true;
        if (*s == '\0')
            return false;
        size_t n = char_len(s);
        row_step(now, next, token, count, s, n);
        if (*s == '/')
            row_add(next, token, count, 0);
        row_clear(now);
        struct row *swap = now;
        now = next;
        next = swap;
        s += n;
    }
}

bool watch_glob_match(const struct watch_glob *g, const char *path)
{
    struct row rows[2] = {{.low = 0, .high = WATCH_GLOB_TOKENS_MAX},
                          {.low = 0, .high = WATCH_GLOB_TOKENS_MAX}};
    for (size_t i = 0; g && i < g->patterns; i++)
        if (pattern_match(g->token + g->begin[i], g->begin[i + 1] - g->begin[i], (const unsigned char *)path,
                          rows))
            return true;
    return false;
}
