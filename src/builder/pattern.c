/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c: see pattern.h.
 *
 * A pattern is compiled into tokens and run as an automaton: the set of tokens the path may be at moves on
 * character by character. So a match costs at most pattern times path, whatever the pattern is. */
#include "builder/pattern.h"

#include "base/buf.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum token_kind {
    TOKEN_CHAR,
    TOKEN_ANY,   /* ? */
    TOKEN_CLASS, /* [a-z] */
    TOKEN_STAR,  /* stays for anything but '/', goes on for nothing */
    TOKEN_DEEP,  /* stays for anything, goes on for nothing: "**" at the end */
    TOKEN_DIRS,  /* goes on, or over the next token */
    TOKEN_BELOW, /* behind TOKEN_DIRS: stays for anything, goes on behind '/' */
};

struct token {
    enum token_kind kind;
    uint32_t c;                   /* TOKEN_CHAR */
    const char *class, *classend; /* TOKEN_CLASS: between the brackets */
};

struct pattern {
    char *text;
    struct token *tokens;
    size_t count;
};

/* One character as its bytes in a number. Anything that is not UTF-8 goes byte by byte. */
static uint32_t take_char(const char **p)
{
    const unsigned char *s = (const unsigned char *)*p;
    size_t n = s[0] < 0xc0 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t c = s[0];
    size_t i = 1;
    for (; i < n && (s[i] & 0xc0) == 0x80; i++)
        c = c << 8 | s[i];
    if (i < n) { /* cut short: the first byte stands for itself */
        c = s[0];
        i = 1;
    }
    *p += i;
    return c;
}

static uint32_t take_class_char(const char **p)
{
    if (**p == '\\')
        (*p)++;
    return take_char(p);
}

static bool class_matches(const struct token *t, uint32_t c)
{
    const char *p = t->class;
    bool negated = *p == '^' || *p == '!', found = false;
    if (negated)
        p++;
    while (p < t->classend) {
        uint32_t low = take_class_char(&p), high = low;
        if (p + 1 < t->classend && *p == '-') {
            p++;
            high = take_class_char(&p);
        }
        found = found || (c >= low && c <= high);
    }
    return found != negated;
}

/* p is behind '['; the end of the class, NULL: there is none. */
static const char *class_end(const char *p)
{
    if (*p == '^' || *p == '!')
        p++;
    const char *first = p;
    for (; *p && (*p != ']' || p == first); p++)
        if (*p == '\\' && !*++p)
            return NULL;
    return *p ? p : NULL;
}

static void add(struct pattern *p, struct token t)
{
    p->tokens[p->count++] = t;
}

static const char *compile_stars(struct pattern *out, const char *p, bool deep)
{
    bool two = deep && p[1] == '*';
    while (*p == '*')
        p++;
    if (!two) {
        add(out, (struct token){.kind = TOKEN_STAR});
    } else if (!*p || (*p == '/' && !p[1])) {
        add(out, (struct token){.kind = TOKEN_DEEP});
        p += *p ? 1 : 0;
    } else {
        p += *p == '/';
        add(out, (struct token){.kind = TOKEN_DIRS});
        add(out, (struct token){.kind = TOKEN_BELOW});
    }
    return p;
}

int pattern_compile(const char *text, bool deep, struct pattern **ret, struct error *reterr)
{
    size_t n = strlen(text);
    if (n > PATTERN_MAX)
        return error_set(reterr, E2BIG, "a pattern is longer than %d bytes", PATTERN_MAX);
    struct pattern *out = calloc(1, sizeof *out);
    if (out) {
        out->text = strdup(text);
        out->tokens = calloc(n + 1, sizeof *out->tokens); /* no character makes more than one */
    }
    if (!out || !out->text || !out->tokens) {
        pattern_free(out);
        return error_set(reterr, ENOMEM, "out of memory");
    }
    for (const char *p = out->text; *p;) {
        if (*p == '*') {
            p = compile_stars(out, p, deep);
        } else if (*p == '?') {
            add(out, (struct token){.kind = TOKEN_ANY});
            p++;
        } else if (*p == '[') {
            const char *end = class_end(p + 1);
            if (!end) {
                pattern_free(out);
                return error_set(reterr, EINVAL, "the pattern '%.200s' has a [ without ]", text);
            }
            add(out, (struct token){.kind = TOKEN_CLASS, .class = p + 1, .classend = end});
            p = end + 1;
        } else {
            if (*p == '\\' && p[1])
                p++;
            add(out, (struct token){.kind = TOKEN_CHAR, .c = take_char(&p)});
        }
    }
    *ret = out;
    return 0;
}

/* Marks token i and everything that can be reached from it without a character. */
static void mark(const struct pattern *p, bool *set, size_t i)
{
    set[i] = true;
    for (; i < p->count; i++) {
        enum token_kind k = p->tokens[i].kind;
        if (k == TOKEN_DIRS) {
            set[i + 1] = true; /* may take characters */
            set[i + 2] = true; /* or not */
            i++;
        } else if (k == TOKEN_STAR || k == TOKEN_DEEP) {
            set[i + 1] = true;
        } else {
            break;
        }
    }
}

static void advance(const struct pattern *p, bool *next, size_t i, uint32_t c)
{
    const struct token *t = &p->tokens[i];
    switch (t->kind) {
    case TOKEN_CHAR:
        if (t->c == c)
            mark(p, next, i + 1);
        break;
    case TOKEN_ANY:
        if (c != '/')
            mark(p, next, i + 1);
        break;
    case TOKEN_CLASS:
        if (c != '/' && class_matches(t, c))
            mark(p, next, i + 1);
        break;
    case TOKEN_STAR:
        if (c != '/')
            mark(p, next, i);
        break;
    case TOKEN_DEEP:
        mark(p, next, i);
        break;
    case TOKEN_BELOW:
        next[i] = true;
        if (c == '/')
            mark(p, next, i + 1);
        break;
    case TOKEN_DIRS: /* has handed over in mark() */
        break;
    }
}

bool pattern_match(const struct pattern *p, const char *path)
{
    bool sets[2][PATTERN_MAX + 2];
    size_t size = p->count + 2;
    bool *now = sets[0], *next = sets[1];
    memset(now, 0, size);
    mark(p, now, 0);
    while (*path) {
        uint32_t c = take_char(&path);
        memset(next, 0, size);
        for (size_t i = 0; i < p->count; i++)
            if (now[i])
                advance(p, next, i, c);
        bool *t = now;
        now = next;
        next = t;
    }
    return now[p->count];
}

bool pattern_is_plain(const char *text)
{
    return !text[strcspn(text, "*?[\\")];
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    free(p->text);
    free(p->tokens);
    free(p);
}

char *path_clean(const char *path)
{
    char *out = malloc(strlen(path) + 1);
    size_t n = 0;
    if (!out)
        return NULL;
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len == 2 && path[0] == '.' && path[1] == '.') {
            while (n > 0 && out[--n] != '/')
                ;
        } else if (len > 0 && !(len == 1 && path[0] == '.')) {
            if (n > 0)
                out[n++] = '/';
            memmove(out + n, path, len);
            n += len;
        }
        path += len + (path[len] == '/');
    }
    out[n] = '\0';
    return out;
}

/* ------------------------------------------------------------------ .dockerignore */

struct rule {
    struct pattern *pattern;
    bool exception; /* "!pattern" */
};

struct ignore {
    struct rule *rules;
    size_t count;
    bool has_exceptions;
};

static int add_rule(struct ignore *ig, const char *line, unsigned number, struct error *reterr)
{
    bool exception = line[0] == '!';
    if (exception)
        line += 1 + strspn(line + 1, " \t");
    auto_free char *clean = path_clean(line);
    if (!clean)
        return error_set(reterr, ENOMEM, "out of memory");
    if (!*line)
        return error_set(reterr, EINVAL, "line %u of .dockerignore: a pattern is missing behind '!'", number);
    if (!*clean)
        return 0; /* "." and "/" exclude nothing */
    if (ig->count == IGNORE_PATTERNS_MAX)
        return error_set(reterr, E2BIG, ".dockerignore has more than %d patterns", IGNORE_PATTERNS_MAX);
    struct rule *rules = realloc(ig->rules, (ig->count + 1) * sizeof *rules);
    if (!rules)
        return error_set(reterr, ENOMEM, "out of memory");
    ig->rules = rules;
    rules[ig->count] = (struct rule){.exception = exception};
    int r = pattern_compile(clean, true, &rules[ig->count].pattern, reterr);
    if (r < 0)
        return error_prefix(reterr, "line %u of .dockerignore", number);
    ig->count++;
    ig->has_exceptions = ig->has_exceptions || exception;
    return 0;
}

int ignore_parse(const char *text, size_t n, struct ignore **ret, struct error *reterr)
{
    if (n > IGNORE_FILE_MAX || (n && memchr(text, '\0', n)))
        return error_set(reterr, EINVAL, ".dockerignore is too large or not a text");
    struct ignore *ig = calloc(1, sizeof *ig);
    if (!ig)
        return error_set(reterr, ENOMEM, "out of memory");
    const char *p = text, *end = text + n;
    int r = 0;
    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    for (unsigned number = 1; r == 0 && p < end; number++) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline ? newline : end) - p);
        auto_free char *line = strndup(p, len);
        p = newline ? newline + 1 : end;
        if (!line) {
            r = error_set(reterr, ENOMEM, "out of memory");
            break;
        }
        if (line[0] == '#') /* only in the first column */
            continue;
        char *begin = line + strspn(line, " \t\r");
        len = strlen(begin);
        while (len > 0 && strchr(" \t\r", begin[len - 1]))
            begin[--len] = '\0';
        if (len > 0)
            r = add_rule(ig, begin, number, reterr);
    }
    if (r < 0) {
        ignore_free(ig);
        return r;
    }
    *ret = ig;
    return 0;
}

static bool rule_matches(const struct rule *rule, char *path)
{
    if (pattern_match(rule->pattern, path))
        return true;
    for (char *slash = strrchr(path, '/'); slash;) {
        *slash = '\0';
        bool match = pattern_match(rule->pattern, path);
        char *above = strrchr(path, '/');
        *slash = '/';
        if (match)
            return true;
        slash = above;
    }
    return false;
}

bool ignore_excludes(const struct ignore *i, const char *path)
{
    char copy[PATH_MAX];
    bool excluded = false;
    if (!i || !*path)
        return false;
    if (strlen(path) >= sizeof copy)
        return true;
    memcpy(copy, path, strlen(path) + 1);
    for (size_t k = 0; k < i->count; k++)
        if (excluded == i->rules[k].exception && rule_matches(&i->rules[k], copy))
            excluded = !i->rules[k].exception;
    return excluded;
}

bool ignore_has_exceptions(const struct ignore *i)
{
    return i && i->has_exceptions;
}

void ignore_free(struct ignore *i)
{
    if (!i)
        return;
    for (size_t k = 0; k < i->count; k++)
        pattern_free(i->rules[k].pattern);
    free(i->rules);
    free(i);
}
