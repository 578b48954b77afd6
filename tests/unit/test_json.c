/* SPDX-License-Identifier: Apache-2.0 */
/* test_json.c: the grammar's edges, numbers to the last bit, and what the writer promises. */
#include "base/json.h"
#include "test.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>

/* A copy of the text without a terminating NUL, so that ASan sees a read behind the end. */
struct parsed {
    char *text;
    struct json_doc *doc;
    struct error error;
    int result;
};

static struct parsed parse_n(const char *s, size_t n, unsigned flags)
{
    struct parsed p = {.text = malloc(n ? n : 1)};
    if (p.text) {
        memcpy(p.text, s, n);
        p.result = json_parse(p.text, n, flags, &p.doc, &p.error);
    }
    return p;
}

static struct parsed parse(const char *s)
{
    return parse_n(s, strlen(s), 0);
}

static void parsed_done(struct parsed *p)
{
    json_free(p->doc);
    free(p->text);
}

#define auto_parsed __attribute__((cleanup(parsed_done)))

/* The text written again, or the error's sentence. */
static const char *rewrite_n(const char *s, size_t n, unsigned flags)
{
    static char result[4096];
    auto_parsed struct parsed p = parse_n(s, n, flags);
    if (p.result < 0) {
        (void)snprintf(result, sizeof result, "%s", p.error.msg);
        return result;
    }
    struct buf out = BUF_INIT(sizeof result - 1);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_put_value(&w, json_root(p.doc));
    CHECK_INT(w.err, 0);
    const char *text = buf_cstr(&out);
    (void)snprintf(result, sizeof result, "%s", text ? text : "(no memory)");
    buf_done(&out);
    return result;
}

static const char *rewrite(const char *s)
{
    return rewrite_n(s, strlen(s), 0);
}

TEST(json_accepts_the_grammar)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"null", "null"},
        {" \t\r\n true \t\r\n ", "true"},
        {"false", "false"},
        {"0", "0"},
        {"-0", "-0"},
        {"-0.0e5", "-0"},
        {"1E+2", "100"},
        {"1e-2", "0.01"},
        {"0.5", "0.5"},
        {"\"\"", "\"\""},
        {"[]", "[]"},
        {"{}", "{}"},
        {"[ ]", "[]"},
        {"{ }", "{}"},
        {"[[],{},[{}]]", "[[],{},[{}]]"},
        {" [ 1 , 2 ] ", "[1,2]"},
        {" { \"a\" : 1 , \"b\" : [ true ] } ", "{\"a\":1,\"b\":[true]}"},
        {"{\"\":0}", "{\"\":0}"},
        {"{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":2}"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
        {"\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"", "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\"\\u001f\x7f\\ud7ff\\ue000\\uffff\"", "\"\\u001f\x7f\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\""},
        {"\"\xc3\xa9\xe2\x82\xac\xf4\x8f\xbf\xbf\"", "\"\xc3\xa9\xe2\x82\xac\xf4\x8f\xbf\xbf\""},
        {"[\"long enough for two words\\n, and on\"]", "[\"long enough for two words\\n, and on\"]"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        CHECK_STREQ(rewrite(cases[i].in), cases[i].out);
}

TEST(json_rejects_with_the_byte_offset)
{
    static const struct {
        const char *in, *error;
    } cases[] = {
        {"", "0: expected a value, found the end"},
        {"  ", "2: expected a value, found the end"},
        {"\xef\xbb\xbf{}", "0: expected a value, found byte 0xef"},
        {"nul", "0: unknown word"},
        {"True", "0: expected a value, found 'T'"},
        {"nulll", "4: expected the end, found 'l'"},
        {"NaN", "0: expected a value, found 'N'"},
        {"-Infinity", "1: expected a digit, found 'I'"},
        {"1 2", "2: expected the end, found '2'"},
        {"[] []", "3: expected the end, found '['"},
        {"\f1", "0: expected a value, found byte 0x0c"},
        {"\xc2\xa0"
         "1",
         "0: expected a value, found byte 0xc2"},
        {"// c\n1", "0: expected a value, found '/'"},
        {"01", "1: expected the end, found '1'"},
        {"-01", "2: expected the end, found '1'"},
        {"+1", "0: expected a value, found '+'"},
        {"-", "1: expected a digit, found the end"},
        {"--1", "1: expected a digit, found '-'"},
        {".5", "0: expected a value, found '.'"},
        {"1.", "2: expected a digit, found the end"},
        {"1.e1", "2: expected a digit, found 'e'"},
        {"1e", "2: expected a digit, found the end"},
        {"1e+", "3: expected a digit, found the end"},
        {"1e1.5", "3: expected the end, found '.'"},
        {"0x10", "1: expected the end, found 'x'"},
        {"1e400", "0: number out of range"},
        {"[1,-1e309]", "3: number out of range"},
        {"'a'", "0: expected a value, found '''"},
        {"\"", "1: the string does not end"},
        {"\"abc", "4: the string does not end"},
        {"\"abc\\", "5: the string does not end"},
        {"\"abc\\\"", "6: the string does not end"},
        {"\"\\x\"", "1: unknown escape"},
        {"\"\\U0041\"", "1: unknown escape"},
        {"\"\\\xc3\xa9\"", "1: unknown escape"},
        {"\"\\u\"", "1: \\u needs four hex digits"},
        {"\"\\u12", "1: \\u needs four hex digits"},
        {"\"\\u12g4\"", "1: \\u needs four hex digits"},
        {"\"\\u+123\"", "1: \\u needs four hex digits"},
        {"\"\\u 123\"", "1: \\u needs four hex digits"},
        {"\"\\ud800\"", "1: lone surrogate"},
        {"\"\\ud800", "1: lone surrogate"},
        {"\"\\ud800\\u", "1: lone surrogate"},
        {"\"a\\ud800\\n\"", "2: lone surrogate"},
        {"\"\\ud800\\u0041\"", "1: lone surrogate"},
        {"\"\\ud800\\ud800\"", "1: lone surrogate"},
        {"\"\\ud800\\ue000\"", "1: lone surrogate"},
        {"\"\\udc00\"", "1: lone surrogate"},
        {"\"\\udc00\\ud800\"", "1: lone surrogate"},
        {"\"\\u0000\"", "1: the string contains U+0000"},
        {"{\"a\\u0000b\":1}", "3: the string contains U+0000"},
        {"\"a\nb\"", "2: control byte in a string"},
        {"\"12345678\x1f\"", "9: control byte in a string"},
        {"\"a\xff\"", "2: invalid UTF-8"},
        {"\"\\n\xc0\x80\"", "3: invalid UTF-8"},
        {"\"\xed\xa0\x80\"", "1: invalid UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "1: invalid UTF-8"},
        {"\"\xe2\x82\"", "1: invalid UTF-8"},
        {"\"\xe2\x82", "1: invalid UTF-8"},
        {"\"\x80\"", "1: invalid UTF-8"},
        {"[", "1: expected a value or ']', found the end"},
        {"]", "0: expected a value, found ']'"},
        {"[1", "2: expected ',' or ']', found the end"},
        {"[1,", "3: expected a value, found the end"},
        {"[1,]", "3: expected a value, found ']'"},
        {"[,1]", "1: expected a value or ']', found ','"},
        {"[1 2]", "3: expected ',' or ']', found '2'"},
        {"[1}", "2: expected ',' or ']', found '}'"},
        {"[}", "1: expected a value or ']', found '}'"},
        {"{", "1: expected a key or '}', found the end"},
        {"{]", "1: expected a key or '}', found ']'"},
        {"{1:2}", "1: expected a key or '}', found '1'"},
        {"{a:2}", "1: expected a key or '}', found 'a'"},
        {"{\"a\"}", "4: expected ':', found '}'"},
        {"{\"a\" 1}", "5: expected ':', found '1'"},
        {"{\"a\":}", "5: expected a value, found '}'"},
        {"{\"a\":1", "6: expected ',' or '}', found the end"},
        {"{\"a\":1]", "6: expected ',' or '}', found ']'"},
        {"{\"a\":1,}", "7: expected a key, found '}'"},
        {"{\"a\":1 \"b\":2}", "7: expected ',' or '}', found '\"'"},
        {"{\"a\":1,,\"b\":2}", "7: expected a key, found ','"},
        {"{\"a\"::1}", "5: expected a value, found ':'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char expected[200];
        (void)snprintf(expected, sizeof expected, "invalid JSON at byte %s", cases[i].error);
        CHECK_STREQ(rewrite(cases[i].in), expected);
        auto_parsed struct parsed p = parse(cases[i].in);
        CHECK_INT(p.result, -EBADMSG);
        CHECK_INT(p.error.code, EBADMSG);
        CHECK(!p.doc);
    }
    CHECK_STREQ(rewrite_n("1\0", 2, 0), "invalid JSON at byte 1: expected the end, found byte 0x00");
    CHECK_STREQ(rewrite_n("\"\0\"", 3, JSON_ALLOW_NUL), "invalid JSON at byte 1: control byte in a string");
}

TEST(json_every_prefix_of_a_document_is_rejected)
{
    const char *s =
        "{\"key\\u00e9\\ud83d\\ude00\":[1.5e-3,\"text \xe2\x82\xac\",true,false,null,{\"a\":{}},[]]}";
    for (size_t n = 0; n < strlen(s); n++) {
        auto_parsed struct parsed p = parse_n(s, n, 0);
        CHECK_INT(p.result, -EBADMSG);
    }
    CHECK_INT(strncmp(rewrite(s), "{\"key", 5), 0);
}

TEST(json_strings_keep_every_byte_at_every_offset)
{
    /* the scanner moves eight bytes at a time: put each kind of byte at each place, before and after moves */
    static const struct {
        const char *in, *out;
    } unit[] = {{"\\n", "\n"},
                {"\\u00e9", "\xc3\xa9"},
                {"\\ud83d\\ude00", "\xf0\x9f\x98\x80"},
                {"\xe2\x82\xac", "\xe2\x82\xac"},
                {"\\\\", "\\"},
                {"x", "x"}};
    const char *pad = "abcdefghijklmnopqrstuvwxyz";
    for (size_t u = 0; u < ARRAY_SIZE(unit); u++)
        for (int before = 0; before < 26; before++)
            for (int after = 0; after < 26; after++) {
                char in[200], out[200];
                int n = snprintf(in, sizeof in, "\"%.*s%s%.*s%s\"", before, pad, unit[u].in, after, pad,
                                 unit[u].in);
                (void)snprintf(out, sizeof out, "%.*s%s%.*s%s", before, pad, unit[u].out, after, pad,
                               unit[u].out);
                auto_parsed struct parsed p = parse_n(in, (size_t)n, 0);
                REQUIRE(p.result == 0);
                size_t len = 0;
                CHECK_STREQ(json_string(json_root(p.doc), &len), out);
                CHECK_INT(len, strlen(out));
            }
}

TEST(json_nul_needs_permission)
{
    const char *s = "{\"a\\u0000b\":\"c\\u0000d\",\"a\":1}";
    auto_parsed struct parsed p = parse_n(s, strlen(s), JSON_ALLOW_NUL);
    REQUIRE(p.result == 0);
    const struct json_value *v = json_first(json_root(p.doc));
    size_t n = 0;
    const char *text = json_string(v, &n);
    CHECK_INT(n, 3);
    CHECK(text && memcmp(text, "c\0d", 4) == 0);
    /* a key with a NUL is not the key before the NUL */
    CHECK(json_get(json_root(p.doc), "a") == json_next(v));
    CHECK_STREQ(rewrite_n(s, strlen(s), JSON_ALLOW_NUL), s);
}

static const char *nested(int depth, char open, char close)
{
    static char s[400];
    memset(s, open, (size_t)depth);
    memset(s + depth, close, (size_t)depth);
    s[2 * depth] = '\0';
    return s;
}

TEST(json_depth_is_64)
{
    CHECK_STREQ(rewrite(nested(64, '[', ']')), nested(64, '[', ']'));
    CHECK_STREQ(rewrite(nested(65, '[', ']')), "invalid JSON at byte 64: nested deeper than 64");
    struct buf b = BUF_INIT(1 << 20);
    for (int i = 0; i < 65; i++)
        CHECK_INT(buf_puts(&b, "{\"a\":"), 0);
    CHECK_STREQ(rewrite(buf_cstr(&b)), "invalid JSON at byte 320: nested deeper than 64");
    buf_clear(&b);
    for (int i = 0; i < 200000; i++)
        CHECK_INT(buf_putc(&b, '['), 0);
    CHECK_STREQ(rewrite(buf_cstr(&b)), "invalid JSON at byte 64: nested deeper than 64");
    buf_done(&b);
}

TEST(json_siblings_after_deep_children)
{
    const char *s = "[[[1,2],3,[[4]]],{\"a\":{\"b\":[5]},\"c\":6},7]";
    auto_parsed struct parsed p = parse(s);
    REQUIRE(p.result == 0);
    const struct json_value *root = json_root(p.doc);
    CHECK_INT(json_count(root), 3);
    CHECK_INT(json_count(json_first(root)), 3);
    const struct json_value *object = json_next(json_first(root));
    double d = 0;
    CHECK(json_number(json_get(object, "c"), &d) && d == 6);
    CHECK(json_number(json_next(object), &d) && d == 7);
    CHECK(!json_next(json_next(object)));
    CHECK(!json_next(root) && !json_key(root));
    CHECK_STREQ(rewrite(s), s);
}

TEST(json_limits_the_number_of_values)
{
    size_t n = 2 * (size_t)JSON_MAX_VALUES;
    auto_free char *s = malloc(n + 4);
    REQUIRE(s);
    struct json_doc *doc = NULL;
    struct error e = {0};
    for (int extra = 0; extra < 2; extra++) {
        size_t children = JSON_MAX_VALUES - 1 + (size_t)extra, at = 0;
        s[at++] = '[';
        for (size_t i = 0; i < children; i++) {
            s[at++] = '1';
            s[at++] = i + 1 < children ? ',' : ']';
        }
        CHECK_INT(json_parse(s, at, 0, &doc, &e), extra ? -EBADMSG : 0);
        if (!extra) {
            CHECK_INT(json_count(json_root(doc)), children);
            size_t seen = 0;
            json_for_each (v, json_root(doc))
                seen++;
            CHECK_INT(seen, children);
            json_free(doc);
        }
    }
    CHECK_STREQ(e.msg, "invalid JSON at byte 2097151: more than 1048576 values");
}

TEST(json_last_duplicate_wins)
{
    auto_parsed struct parsed p = parse("{\"a\":1,\"b\":2,\"\\u0061\":3,\"A\":4}");
    REQUIRE(p.result == 0);
    const struct json_value *root = json_root(p.doc);
    int64_t i = 0;
    CHECK(json_integer(json_get(root, "a"), 0, 10, &i) && i == 3);
    CHECK(json_integer(json_get(root, "b"), 0, 10, &i) && i == 2);
    CHECK(!json_get(root, "c"));
    CHECK(!json_get(root, ""));
    CHECK_INT(json_count(root), 4);
    const char *const keys[] = {"a", "b", "a", "A"};
    size_t n = 0;
    json_for_each (v, root)
        CHECK_STREQ(json_key(v), keys[n++]);
    CHECK_INT(n, 4);
}

TEST(json_questions_about_the_wrong_type)
{
    auto_parsed struct parsed p = parse("[\"s\",1.5,true,null,{}]");
    REQUIRE(p.result == 0);
    const struct json_value *root = json_root(p.doc), *string = json_first(root), *number = json_next(string);
    double d = 42;
    int64_t i = 42;
    size_t n = 42;
    CHECK(!json_get(root, "a") && !json_get(string, "a") && !json_get(NULL, "a"));
    CHECK(!json_first(string) && !json_first(NULL) && !json_next(NULL) && !json_key(string) &&
          !json_key(NULL));
    CHECK(json_count(string) == 0 && json_count(NULL) == 0);
    CHECK(!json_string(number, &n) && !json_string(NULL, &n) && n == 42);
    CHECK(!json_number(string, &d) && !json_number(NULL, &d) && d == 42);
    CHECK(!json_integer(string, 0, 9, &i) && !json_integer(number, 0, 9, &i) &&
          !json_integer(NULL, 0, 9, &i) && i == 42);
    CHECK(json_bool(string, true) && !json_bool(NULL, false) && json_bool(json_next(number), false));
    CHECK_INT(json_type_of(NULL), JSON_NULL);
    CHECK_INT(json_type_of(root), JSON_ARRAY);
    CHECK_INT(json_type_of(string), JSON_STRING);
    CHECK_INT(json_type_of(number), JSON_NUMBER);
}

static bool integer(const char *s, int64_t min, int64_t max, int64_t *ret)
{
    auto_parsed struct parsed p = parse(s);
    return p.result == 0 && json_integer(json_root(p.doc), min, max, ret);
}

TEST(json_integer_checks_range_and_fraction)
{
    int64_t i = 0;
    CHECK(integer("7", 7, 7, &i) && i == 7);
    CHECK(integer("-7", -7, 0, &i) && i == -7);
    CHECK(integer("7.0", 0, 9, &i) && i == 7);
    CHECK(integer("0.7e1", 0, 9, &i) && i == 7);
    CHECK(integer("-0", 0, 0, &i) && i == 0);
    CHECK(!integer("7.5", 0, 9, &i));
    CHECK(!integer("10", 0, 9, &i));
    CHECK(!integer("-1", 0, 9, &i));
    CHECK(integer("9007199254740992", INT64_MIN, INT64_MAX, &i) && i == 9007199254740992);
    CHECK(integer("-9007199254740992", INT64_MIN, INT64_MAX, &i) && i == -9007199254740992);
    CHECK(!integer("9007199254740994", INT64_MIN, INT64_MAX, &i));
    CHECK(!integer("1e300", INT64_MIN, INT64_MAX, &i));
}

static double number(const char *s, size_t n)
{
    auto_parsed struct parsed p = parse_n(s, n, 0);
    double d = NAN;
    if (p.result == 0)
        (void)json_number(json_root(p.doc), &d);
    return d;
}

TEST(json_numbers_are_exact)
{
    static const struct {
        const char *in;
        double out;
    } cases[] = {
        {"0.1", 0.1},
        {"-0.1", -0.1},
        {"123456789.125", 123456789.125},
        {"9007199254740993", 0x1p53}, /* halfway: to even */
        {"9007199254740995", 0x1.0000000000002p53},
        {"9007199254740993.0000000000000000000000000000001", 0x1.0000000000001p53},
        {"18446744073709551615", 0x1p64},
        {"18446744073709551616", 0x1p64},
        {"1e23", 0x1.52d02c7e14af6p+76},
        {"8.5e22", 8.5e22},
        {"2.2250738585072014e-308", DBL_MIN},
        {"2.2250738585072011e-308", 0x1.fffffffffffffp-1023 - 0x1p-1074},
        {"4.9406564584124654e-324", 0x1p-1074},
        {"2.4703282292062327e-324", 0.0},
        {"2.4703282292062328e-324", 0x1p-1074},
        {"1e-400", 0.0},
        {"1e-99999999999999999999999999", 0.0},
        {"0e99999999999999999999999999", 0.0},
        {"0.000e+0000400", 0.0},
        {"1.7976931348623157e308", DBL_MAX},
        {"1.7976931348623158e308", DBL_MAX},
        {"0.0000000000000000000000000000000000000000000000000000000001e58", 1.0},
        {"10000000000000000000000000000000000000000000000000000000000e-58", 1.0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        double d = number(cases[i].in, strlen(cases[i].in));
        if (!(d == cases[i].out)) {
            char m[200];
            (void)snprintf(m, sizeof m, "%s is %a, expected %a", cases[i].in, d, cases[i].out);
            test_fail(__FILE__, __LINE__, m);
        }
    }
    CHECK(signbit(number("-0", 2)) && signbit(number("-1e-400", 7)) && !signbit(number("0", 1)));
    CHECK(isnan(number("1.7976931348623159e308", 22)));
    CHECK(isnan(number("1e99999999999999999999999999", 28)));
}

TEST(json_numbers_of_any_length)
{
    size_t zeros = 100000;
    struct buf b = BUF_INIT(1 << 20);
    /* 1 and many zeros, brought back by the exponent */
    CHECK_INT(buf_putc(&b, '1'), 0);
    for (size_t i = 0; i < zeros; i++)
        CHECK_INT(buf_putc(&b, '0'), 0);
    CHECK(isnan(number(buf_data(&b), buf_len(&b)))); /* out of range without it */
    CHECK_INT(buf_puts(&b, "e-100001"), 0);
    CHECK(number(buf_data(&b), buf_len(&b)) == 0.1);

    /* exactly halfway between 1 and its neighbour, then a digit that decides, far behind */
    buf_clear(&b);
    CHECK_INT(buf_puts(&b, "1.00000000000000011102230246251565404236316680908203125"), 0);
    for (size_t i = 0; i < zeros; i++)
        CHECK_INT(buf_putc(&b, '0'), 0);
    CHECK(number(buf_data(&b), buf_len(&b)) == 1.0);
    CHECK_INT(buf_putc(&b, '1'), 0);
    CHECK(number(buf_data(&b), buf_len(&b)) == 0x1.0000000000001p0);

    /* and many zeros in front */
    buf_clear(&b);
    CHECK_INT(buf_puts(&b, "0."), 0);
    for (size_t i = 0; i < zeros; i++)
        CHECK_INT(buf_putc(&b, '0'), 0);
    CHECK_INT(buf_puts(&b, "25e99990"), 0);
    CHECK(number(buf_data(&b), buf_len(&b)) == 2.5e-11);
    buf_done(&b);
}

TEST(json_longest_ties_round_to_even)
{
    /* Between neighbours a and b just above DBL_MIN lies a point of 767 significant digits. printf prints
     * the sum exactly when asked for enough digits of a long double; here it is built from a / 2 + b / 2 in
     * decimal, because no wider type can be relied on. */
    double a = 0x1.fffffffffffffp-1022, b = 0x1p-1021;
    char da[1200], db[1200], sum[1202];
    (void)snprintf(da, sizeof da, "%.1080f", a);
    (void)snprintf(db, sizeof db, "%.1080f", b);
    size_t n = strlen(da);
    REQUIRE(n == strlen(db) && n + 2 < sizeof sum);
    int carry = 0; /* (da + db) / 2: add from the right, then halve from the left */
    for (size_t i = n; i-- > 0;) {
        if (da[i] == '.') {
            sum[i] = '.';
            continue;
        }
        int digit = da[i] - '0' + db[i] - '0' + carry;
        sum[i] = (char)('0' + digit % 10);
        carry = digit / 10;
    }
    int rest = 0;
    for (size_t i = 0; i < n; i++) {
        if (sum[i] == '.')
            continue;
        int digit = rest * 10 + sum[i] - '0';
        sum[i] = (char)('0' + digit / 2);
        rest = digit % 2;
    }
    CHECK_INT(rest, 0);
    CHECK(number(sum, n) == b); /* the tie goes to the even mantissa */
    sum[n] = '1';
    CHECK(number(sum, n + 1) == b);
    size_t last = n - 1; /* just below the tie */
    while (sum[last] == '0')
        sum[last--] = '9';
    sum[last]--;
    CHECK(number(sum, n) == a);
}

static const char *written(double v)
{
    static char s[64];
    struct buf b = BUF_INIT(sizeof s - 1);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_put_number(&w, v);
    CHECK_INT(w.err, 0);
    (void)snprintf(s, sizeof s, "%s", buf_cstr(&b));
    buf_done(&b);
    return s;
}

TEST(json_writes_the_shortest_number)
{
    CHECK_STREQ(written(0), "0");
    CHECK_STREQ(written(-0.0), "-0");
    CHECK_STREQ(written(1), "1");
    CHECK_STREQ(written(-42), "-42");
    CHECK_STREQ(written(100), "100");
    CHECK_STREQ(written(1e15), "1000000000000000");
    CHECK_STREQ(written(0x1p53), "9007199254740992");
    CHECK_STREQ(written(-0x1p53 + 1), "-9007199254740991");
    CHECK_STREQ(written(1e20), "100000000000000000000");
    CHECK_STREQ(written(1e21), "1e+21");
    CHECK_STREQ(written(0.1), "0.1");
    CHECK_STREQ(written(0.1 + 0.2), "0.30000000000000004");
    CHECK_STREQ(written(1.5), "1.5");
    CHECK_STREQ(written(-123.456), "-123.456");
    CHECK_STREQ(written(0.000001), "0.000001");
    CHECK_STREQ(written(0.0000001), "1e-7");
    CHECK_STREQ(written(1.25e-9), "1.25e-9");
    CHECK_STREQ(written(DBL_MAX), "1.7976931348623157e+308");
    CHECK_STREQ(written(DBL_MIN), "2.2250738585072014e-308");
    CHECK_STREQ(written(0x1p-1074), "5e-324");
    CHECK_STREQ(written(NAN), "null");
    CHECK_STREQ(written(INFINITY), "null");
    CHECK_STREQ(written(-INFINITY), "null");
}

TEST(json_numbers_read_back)
{
    uint64_t x = 88172645463325252; /* xorshift: the same numbers every time */
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        double v;
        memcpy(&v, &x, sizeof v);
        if (!isfinite(v))
            continue;
        if (i % 4 == 0)
            v = (double)(int64_t)(x >> 11) / 1000;
        const char *s = written(v);
        double back = number(s, strlen(s));
        CHECK(memcmp(&back, &v, sizeof v) == 0);
    }
}

TEST(json_writer_puts_commas)
{
    struct buf b = BUF_INIT(1000);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_object_begin(&w);
    json_member_string(&w, "s", "x\"y");
    json_member_string(&w, "none", NULL);
    json_member_int(&w, "i", INT64_MIN);
    json_member_bool(&w, "b", true);
    json_put_key(&w, "a");
    json_array_begin(&w);
    json_put_null(&w);
    json_array_begin(&w);
    json_array_end(&w);
    json_object_begin(&w);
    json_object_end(&w);
    json_put_raw(&w, "[1, 2]", 6);
    json_put_bytes(&w, "\0\xff", 2);
    json_put_bool(&w, false);
    json_array_end(&w);
    json_put_key(&w, "k\n");
    json_string_begin(&w);
    CHECK_INT(buf_puts(&b, "piece"), 0);
    json_string_end(&w);
    json_object_end(&w);
    CHECK_INT(w.err, 0);
    CHECK_INT(w.depth, 0);
    CHECK_STREQ(buf_cstr(&b), "{\"s\":\"x\\\"y\",\"none\":null,\"i\":-9223372036854775808,\"b\":true,"
                              "\"a\":[null,[],{},[1, 2],\"\\u0000\xef\xbf\xbd\",false],\"k\\n\":\"piece\"}");
    buf_done(&b);
}

TEST(json_writer_copies_a_member_under_a_new_key)
{
    auto_parsed struct parsed p = parse("{\"old\":{\"x\":[1,{\"y\":\"z\"}]},\"rest\":0}");
    REQUIRE(p.result == 0);
    struct buf b = BUF_INIT(1000);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_object_begin(&w);
    json_put_key(&w, "new");
    json_put_value(&w, json_get(json_root(p.doc), "old"));
    json_put_key(&w, "missing");
    json_put_value(&w, NULL);
    json_object_end(&w);
    CHECK_INT(w.err, 0);
    CHECK_STREQ(buf_cstr(&b), "{\"new\":{\"x\":[1,{\"y\":\"z\"}]},\"missing\":null}");
    buf_done(&b);
}

TEST(json_writer_keeps_its_first_error)
{
    struct buf b = BUF_INIT(4);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_array_begin(&w);
    json_put_string(&w, "too long");
    CHECK_INT(w.err, -ENOBUFS);
    size_t n = buf_len(&b);
    json_put_int(&w, 1);
    json_array_end(&w);
    CHECK_INT(w.err, -ENOBUFS);
    CHECK_INT(buf_len(&b), n); /* and says no more */
    buf_done(&b);
}

TEST(json_writer_limits_depth)
{
    struct buf b = BUF_INIT(1000);
    struct json_writer w;
    json_writer_init(&w, &b);
    for (int i = 0; i < JSON_MAX_DEPTH; i++) {
        json_array_begin(&w);
        json_put_int(&w, i % 10);
    }
    CHECK_INT(w.err, 0);
    for (int i = 0; i < JSON_MAX_DEPTH; i++) {
        json_put_null(&w);
        json_array_end(&w);
    }
    CHECK_INT(w.err, 0);
    CHECK_INT(strncmp(rewrite(buf_cstr(&b)), "[0,[1,[2", 8), 0);
    buf_clear(&b);

    json_writer_init(&w, &b);
    json_array_begin(&w);
    auto_parsed struct parsed p = parse(nested(64, '[', ']'));
    REQUIRE(p.result == 0);
    json_put_value(&w, json_root(p.doc)); /* 65 with the one around it */
    CHECK_INT(w.err, -EOVERFLOW);
    buf_done(&b);
}

TEST(json_writer_notices_calls_out_of_order)
{
    struct buf b = BUF_INIT(100);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_object_end(&w);
    CHECK_INT(w.err, -EINVAL);
    json_writer_init(&w, &b);
    json_put_key(&w, "key without object");
    CHECK_INT(w.err, -EINVAL);
    json_writer_init(&w, &b);
    json_object_begin(&w);
    json_put_key(&w, "a");
    json_put_key(&w, "b");
    CHECK_INT(w.err, -EINVAL);
    json_writer_init(&w, &b);
    json_object_begin(&w);
    json_put_key(&w, "a");
    json_object_end(&w);
    CHECK_INT(w.err, -EINVAL);
    buf_done(&b);
}

TEST(json_free_accepts_null)
{
    json_free(NULL);
    struct error e = {0};
    struct json_doc *doc = NULL;
    CHECK_INT(json_parse(NULL, 0, 0, &doc, &e), -EBADMSG);
    CHECK_INT(json_parse(NULL, 0, 0, &doc, NULL), -EBADMSG);
}
