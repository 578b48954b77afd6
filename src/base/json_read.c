/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.c: parsing strict JSON and looking at the result; see json.h.
 *
 * Theory of operation
 * The reader is a loop over tokens with a state (what may come next) and a stack of open containers of fixed
 * depth, so a hostile text cannot use the C stack. Values are appended to one array in the order of the text.
 * Strings are unescaped where they lie: an escape is never shorter than what it stands for, and the closing
 * quote leaves room for the terminating NUL. Numbers that fit 53 bits and a small power of ten are computed
 * directly (both factors are exact, so one rounding happens, which is the definition of the right result);
 * all others go through strtod, written without a decimal point so that no locale can misread them. */
#include "base/json_internal.h"
#include "base/utf8_internal.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

struct json_doc {
    struct json_value *values;
    size_t count;
    size_t cap;
};

enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* after [ */
    EXPECT_KEY,          /* after , in an object */
    EXPECT_KEY_OR_END,   /* after { */
    EXPECT_COMMA_OR_END, /* after a value in a container */
    EXPECT_NOTHING,      /* after the root */
};

struct reader {
    unsigned char *text;
    size_t len;
    size_t pos;
    unsigned flags;
    struct json_doc *doc;
    struct error *reterr;

    const char *key; /* of the value to come */
    size_t key_len;
    unsigned depth;
    uint32_t open[JSON_MAX_DEPTH];       /* index of each open container */
    uint32_t last_child[JSON_MAX_DEPTH]; /* index of its youngest child, 0 = none yet */
};

static int fail(struct reader *r, size_t at, const char *what)
{
    return error_set(r->reterr, EBADMSG, "invalid JSON at byte %zu: %s", at, what);
}

static int fail_expected(struct reader *r, const char *what)
{
    if (r->pos >= r->len)
        return error_set(r->reterr, EBADMSG, "invalid JSON at byte %zu: expected %s, found the end", r->pos,
                         what);
    unsigned char c = r->text[r->pos];
    return error_set(r->reterr, EBADMSG,
                     c > 0x20 && c < 0x7f ? "invalid JSON at byte %zu: expected %s, found '%c'"
                                          : "invalid JSON at byte %zu: expected %s, found byte 0x%02x",
                     r->pos, what, c);
}

/* The next byte, -1 at the end. */
static int peek(const struct reader *r)
{
    return r->pos < r->len ? r->text[r->pos] : -1;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(struct reader *r)
{
    for (; r->pos < r->len; r->pos++) {
        unsigned char c = r->text[r->pos];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return;
    }
}

/* Appends a value and makes it the youngest child of the innermost open container. */
static int value_add(struct reader *r, enum json_type type, struct json_value **ret)
{
    struct json_doc *doc = r->doc;
    if (doc->count == JSON_MAX_VALUES)
        return error_set(r->reterr, EBADMSG, "invalid JSON at byte %zu: more than %d values", r->pos,
                         JSON_MAX_VALUES);
    if (doc->count == doc->cap) {
        size_t cap = doc->cap ? doc->cap * 2 : 16;
        struct json_value *values = realloc(doc->values, cap * sizeof *values);
        if (!values)
            return error_set(r->reterr, ENOMEM, "no memory for %zu JSON values", cap);
        doc->values = values;
        doc->cap = cap;
    }

    uint32_t index = (uint32_t)doc->count++;
    struct json_value *v = &doc->values[index];
    *v = (struct json_value){.type = type, .key = r->key, .key_len = r->key_len};
    r->key = NULL;
    r->key_len = 0;
    if (r->depth) {
        uint32_t *last = &r->last_child[r->depth - 1];
        if (*last)
            doc->values[*last].next = index - *last;
        *last = index;
        doc->values[r->open[r->depth - 1]].len++;
    }
    *ret = v;
    return 0;
}

/* Four hex digits at `at`; -1 when they are not. */
static long hex4(const struct reader *r, size_t at)
{
    if (r->len - at < 4)
        return -1;
    long unit = 0;
    for (size_t i = at; i < at + 4; i++) {
        int c = r->text[i];
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static size_t utf8_encode(uint32_t code, unsigned char *out)
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (unsigned char)(0xc0 | code >> 6);
        out[1] = (unsigned char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (unsigned char)(0xe0 | code >> 12);
        out[1] = (unsigned char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (unsigned char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (unsigned char)(0xf0 | code >> 18);
    out[1] = (unsigned char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (unsigned char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (unsigned char)(0x80 | (code & 0x3f));
    return 4;
}

/* The escape at pos (a backslash): writes what it stands for to out, moves pos behind it and returns the
 * number of bytes written. */
static int read_escape(struct reader *r, unsigned char *out)
{
    static const char plain[128] = {
        ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
        ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
    };
    size_t at = r->pos;
    if (r->len - at < 2)
        return fail(r, r->len, "the string does not end");
    unsigned char c = r->text[at + 1];
    if (c < sizeof plain && plain[c]) {
        *out = (unsigned char)plain[c];
        r->pos += 2;
        return 1;
    }
    if (c != 'u')
        return fail(r, at, "unknown escape");

    long unit = hex4(r, at + 2);
    if (unit < 0)
        return fail(r, at, "\\u needs four hex digits");
    r->pos += 6;
    uint32_t code = (uint32_t)unit;
    if (unit >= 0xdc00 && unit <= 0xdfff)
        return fail(r, at, "lone surrogate");
    if (unit >= 0xd800 && unit <= 0xdbff) {
        long low = -1;
        if (r->len - r->pos >= 2 && r->text[r->pos] == '\\' && r->text[r->pos + 1] == 'u')
            low = hex4(r, r->pos + 2);
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, at, "lone surrogate");
        r->pos += 6;
        code = 0x10000 + ((uint32_t)(unit - 0xd800) << 10 | (uint32_t)(low - 0xdc00));
    }
    if (code == 0 && !(r->flags & JSON_ALLOW_NUL))
        return fail(r, at, "the string contains U+0000");
    return (int)utf8_encode(code, out);
}

/* Moves the bytes that stand for themselves from p to dst (dst <= p) and returns how many there were. May
 * stop early, when fewer than eight bytes are left. */
static size_t move_plain(unsigned char *dst, const unsigned char *p, size_t n)
{
    size_t moved = 0;
    for (; n - moved >= 8; moved += 8) {
        uint64_t w = swar_load(p + moved);
        uint64_t special =
            (swar_below(w, 0x20) | swar_equal(w, SWAR_EVERY('"')) | swar_equal(w, SWAR_EVERY('\\'))) &
            SWAR_HIGHS;
        if (special) {
            /* Not the whole word: where dst lags less than eight bytes behind, that would overwrite bytes
             * which are still to be read. */
            for (size_t end = moved + SWAR_INDEX(special); moved < end; moved++)
                dst[moved] = p[moved];
            return moved;
        }
        swar_store(dst + moved, w);
    }
    return moved;
}

/* The string whose opening quote is at pos. */
static int read_string(struct reader *r, const char **ret, size_t *ret_len)
{
    unsigned char *start = r->text + r->pos + 1, *dst = start;
    r->pos++;
    for (;;) {
        size_t plain = move_plain(dst, r->text + r->pos, r->len - r->pos);
        dst += plain;
        r->pos += plain;
        if (r->pos == r->len)
            return fail(r, r->pos, "the string does not end");

        unsigned char c = r->text[r->pos];
        if (c == '"') {
            r->pos++;
            *dst = '\0';
            *ret = (const char *)start;
            *ret_len = (size_t)(dst - start);
            return 0;
        }
        if (c == '\\') {
            int n = read_escape(r, dst);
            if (n < 0)
                return n;
            dst += n;
            continue;
        }
        if (c < 0x20)
            return fail(r, r->pos, "control byte in a string");
        do {
            uint32_t code;
            int n = utf8_step(r->text + r->pos, r->len - r->pos, &code);
            if (n <= 0)
                return fail(r, r->pos, "invalid UTF-8");
            while (n--)
                *dst++ = r->text[r->pos++];
        } while (peek(r) >= 0x80); /* letters of one script come in runs */
    }
}

/* The value of a number token of any length, rounded once. A double halfway between two others has at most
 * 767 significant digits, so beyond 768 digits it only matters whether anything but zeros follows: one more
 * digit stands for that. */
static double number_slow(const unsigned char *token, size_t n)
{
    enum { KEEP = 768, EXPONENT_MAX = 99999 };
    char digits[KEEP + 32];
    size_t kept = 0;
    int64_t exponent = 0, written = 0; /* a token has fewer than 2^40 digits: the sums cannot overflow */
    bool negative = token[0] == '-', fraction = false, more = false;

    size_t i = negative;
    for (; i < n && (token[i] | 0x20) != 'e'; i++) {
        if (token[i] == '.') {
            fraction = true;
            continue;
        }
        if (kept == KEEP) {
            more |= token[i] != '0';
            exponent += !fraction;
            continue;
        }
        if (kept || token[i] != '0')
            digits[kept++] = (char)token[i];
        exponent -= fraction;
    }
    if (kept == 0)
        return negative ? -0.0 : 0.0;
    if (more) {
        digits[kept++] = '1';
        exponent--;
    }
    if (i < n) {
        bool down = token[++i] == '-';
        for (i += !is_digit(token[i]); i < n; i++)
            if (written < (int64_t)1 << 50)
                written = written * 10 + (token[i] - '0');
        exponent += down ? -written : written;
    }
    exponent = MAX(MIN(exponent, (int64_t)EXPONENT_MAX), -(int64_t)EXPONENT_MAX);
    (void)snprintf(digits + kept, sizeof digits - kept, "e%d", (int)exponent);
    double v = strtod(digits, NULL);
    return negative ? -v : v;
}

static_assert(FLT_EVAL_METHOD == 0, "a quotient of doubles must be rounded once");
static const double power_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static int read_number(struct reader *r, double *ret)
{
    size_t start = r->pos, digits = 0;
    uint64_t mantissa = 0; /* of at most 19 digits; with more, the slow way */
    int fraction = 0;
    bool negative = peek(r) == '-', has_exponent = false;

    r->pos += negative;
    if (peek(r) == '0') {
        r->pos++;
    } else {
        if (!is_digit(peek(r)))
            return fail_expected(r, "a digit");
        for (; is_digit(peek(r)); r->pos++)
            if (++digits <= 19)
                mantissa = mantissa * 10 + (uint64_t)(r->text[r->pos] - '0');
    }
    if (peek(r) == '.') {
        r->pos++;
        if (!is_digit(peek(r)))
            return fail_expected(r, "a digit");
        for (; is_digit(peek(r)); r->pos++)
            if (++digits <= 19) {
                mantissa = mantissa * 10 + (uint64_t)(r->text[r->pos] - '0');
                fraction++;
            }
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        has_exponent = true;
        r->pos++;
        if (peek(r) == '+' || peek(r) == '-')
            r->pos++;
        if (!is_digit(peek(r)))
            return fail_expected(r, "a digit");
        while (is_digit(peek(r)))
            r->pos++;
    }

    double v;
    if (!has_exponent && digits <= 19 && mantissa <= (uint64_t)1 << 53) {
        v = (double)mantissa / power_of_ten[fraction];
        v = negative ? -v : v;
    } else {
        v = number_slow(r->text + start, r->pos - start);
        if (isinf(v))
            return fail(r, start, "number out of range");
    }
    *ret = v;
    return 0;
}

static int read_literal(struct reader *r, const char *word)
{
    size_t n = strlen(word);
    if (r->len - r->pos < n || memcmp(r->text + r->pos, word, n) != 0)
        return fail(r, r->pos, "unknown word");
    r->pos += n;
    return 0;
}

/* One value; of a container only the opening bracket. *expect is what comes next. */
static int read_value(struct reader *r, enum expect *expect)
{
    struct json_value *v;
    int e, c = peek(r);

    if (c == '{' || c == '[') {
        if (r->depth == JSON_MAX_DEPTH)
            return error_set(r->reterr, EBADMSG, "invalid JSON at byte %zu: nested deeper than %d", r->pos,
                             JSON_MAX_DEPTH);
        e = value_add(r, c == '{' ? JSON_OBJECT : JSON_ARRAY, &v);
        if (e < 0)
            return e;
        r->open[r->depth] = (uint32_t)(v - r->doc->values);
        r->last_child[r->depth] = 0;
        r->depth++;
        r->pos++;
        *expect = c == '{' ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
        return 0;
    }
    if (c == '"') {
        e = value_add(r, JSON_STRING, &v);
        if (e == 0)
            e = read_string(r, &v->string, &v->len);
    } else if (c == '-' || is_digit(c)) {
        e = value_add(r, JSON_NUMBER, &v);
        if (e == 0)
            e = read_number(r, &v->number);
    } else if (c == 't' || c == 'f') {
        e = value_add(r, JSON_BOOL, &v);
        if (e == 0) {
            v->boolean = c == 't';
            e = read_literal(r, v->boolean ? "true" : "false");
        }
    } else if (c == 'n') {
        e = value_add(r, JSON_NULL, &v);
        if (e == 0)
            e = read_literal(r, "null");
    } else {
        e = fail_expected(r, *expect == EXPECT_VALUE_OR_END ? "a value or ']'" : "a value");
    }
    *expect = r->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
    return e;
}

static int read_key(struct reader *r)
{
    int e = read_string(r, &r->key, &r->key_len);
    if (e < 0)
        return e;
    skip_space(r);
    if (peek(r) != ':')
        return fail_expected(r, "':'");
    r->pos++;
    return 0;
}

static int read_document(struct reader *r)
{
    enum expect expect = EXPECT_VALUE;
    for (;;) {
        skip_space(r);
        int c = peek(r);
        bool in_object = r->depth && r->doc->values[r->open[r->depth - 1]].type == JSON_OBJECT;
        bool may_end =
            expect == EXPECT_VALUE_OR_END || expect == EXPECT_KEY_OR_END || expect == EXPECT_COMMA_OR_END;

        if (may_end && c == (in_object ? '}' : ']')) {
            r->pos++;
            r->depth--;
            expect = r->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
            continue;
        }
        int e = 0;
        switch (expect) {
        case EXPECT_VALUE:
        case EXPECT_VALUE_OR_END:
            e = read_value(r, &expect);
            break;
        case EXPECT_KEY:
        case EXPECT_KEY_OR_END:
            if (c == '"')
                e = read_key(r);
            else
                e = fail_expected(r, expect == EXPECT_KEY ? "a key" : "a key or '}'");
            expect = EXPECT_VALUE;
            break;
        case EXPECT_COMMA_OR_END:
            if (c == ',')
                r->pos++;
            else
                e = fail_expected(r, in_object ? "',' or '}'" : "',' or ']'");
            expect = in_object ? EXPECT_KEY : EXPECT_VALUE;
            break;
        case EXPECT_NOTHING:
            return c < 0 ? 0 : fail_expected(r, "the end");
        }
        if (e < 0)
            return e;
    }
}

int json_parse(char *text, size_t len, unsigned flags, struct json_doc **ret, struct error *reterr)
{
    if (len > JSON_MAX_TEXT)
        return error_set(reterr, EBADMSG, "a JSON text of %zu bytes is too long", len);
    auto_json struct json_doc *doc = calloc(1, sizeof *doc);
    if (!doc)
        return error_set(reterr, ENOMEM, "no memory for a JSON document");

    struct reader r = {
        .text = (unsigned char *)text, .len = len, .flags = flags, .doc = doc, .reterr = reterr};
    int e = read_document(&r);
    if (e < 0)
        return e;
    *ret = take_ptr(doc);
    return 0;
}

void json_free(struct json_doc *doc)
{
    if (!doc)
        return;
    free(doc->values);
    free(doc);
}

const struct json_value *json_root(const struct json_doc *doc)
{
    return doc->values;
}

enum json_type json_type_of(const struct json_value *v)
{
    return v ? (enum json_type)v->type : JSON_NULL;
}

const struct json_value *json_get(const struct json_value *v, const char *key)
{
    if (json_type_of(v) != JSON_OBJECT)
        return NULL;
    const struct json_value *found = NULL;
    size_t n = strlen(key);
    json_for_each (child, v) {
        if (child->key_len == n && memcmp(child->key, key, n) == 0)
            found = child;
    }
    return found;
}

const struct json_value *json_first(const struct json_value *v)
{
    return json_count(v) ? v + 1 : NULL;
}

const struct json_value *json_next(const struct json_value *v)
{
    return v && v->next ? v + v->next : NULL;
}

const char *json_key(const struct json_value *v)
{
    return v ? v->key : NULL;
}

size_t json_count(const struct json_value *v)
{
    enum json_type type = json_type_of(v);
    return type == JSON_ARRAY || type == JSON_OBJECT ? v->len : 0;
}

const char *json_string(const struct json_value *v, size_t *ret_len)
{
    if (json_type_of(v) != JSON_STRING)
        return NULL;
    if (ret_len)
        *ret_len = v->len;
    return v->string;
}

bool json_bool(const struct json_value *v, bool fallback)
{
    return json_type_of(v) == JSON_BOOL ? v->boolean : fallback;
}

bool json_number(const struct json_value *v, double *ret)
{
    if (json_type_of(v) != JSON_NUMBER)
        return false;
    *ret = v->number;
    return true;
}

bool json_integer(const struct json_value *v, int64_t min, int64_t max, int64_t *ret)
{
    double limit = 9007199254740992.0; /* 2^53: above, neighbours are no longer one apart */
    double d;
    if (!json_number(v, &d) || d < -limit || d > limit)
        return false;
    int64_t i = (int64_t)d;
    if ((double)i != d || i < min || i > max)
        return false;
    *ret = i;
    return true;
}
