/* SPDX-License-Identifier: Apache-2.0 */
/* json.h: strict JSON (RFC 8259), iterative, depth 64, UTF-8 checked.
 *
 * Reading: json_parse takes a mutable text and unescapes strings in place, so a document costs its text
 * plus 32 bytes a value. Rejected: anything outside the grammar, a BOM, trailing data, invalid UTF-8, lone
 * surrogates, numbers outside double, nesting beyond 64, more than JSON_MAX_VALUES values and, unless
 * JSON_ALLOW_NUL is given, strings that contain U+0000 (they would be cut where they become C strings).
 * Of duplicate keys the last wins.
 *
 * Writing: a struct json_writer appends to a struct buf and puts commas itself. */
#pragma once

#include "base/buf.h"
#include "base/error.h"

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

enum { JSON_MAX_DEPTH = 64, JSON_MAX_VALUES = 1 << 20 };
enum json_flags { JSON_ALLOW_NUL = 1 };

struct json_doc;
struct json_value;

/* text[0..len) is changed in place and must live as long as the document. 0, -EBADMSG (with a sentence
 * that names the byte offset) or -ENOMEM. */
int json_parse(char *text, size_t len, unsigned flags, struct json_doc **ret, struct error *reterr);
void json_free(struct json_doc *doc); /* NULL is fine; does not free the text */
static inline void json_free_p(struct json_doc **doc)
{
    json_free(*doc);
}
#define auto_json __attribute__((cleanup(json_free_p)))

const struct json_value *json_root(const struct json_doc *doc);
enum json_type json_type_of(const struct json_value *v); /* NULL counts as JSON_NULL */

/* Member of an object; NULL when v is no object (or NULL) or has no such member. */
const struct json_value *json_get(const struct json_value *v, const char *key);

/* Children of an array or object in order of the text; json_key is the member's name (NULL in arrays). */
const struct json_value *json_first(const struct json_value *v);
const struct json_value *json_next(const struct json_value *v);
const char *json_key(const struct json_value *v);
size_t json_count(const struct json_value *v);
#define json_for_each(child, parent) \
    for (const struct json_value *child = json_first(parent); child; child = json_next(child))

/* NUL-terminated; *ret_len (may be NULL) counts embedded NULs. NULL when v is not a string. */
const char *json_string(const struct json_value *v, size_t *ret_len);
bool json_bool(const struct json_value *v, bool fallback); /* fallback unless v is a boolean */
bool json_number(const struct json_value *v, double *ret); /* false unless v is a number */
/* True when v is a number without fraction inside [min, max] (and within +-2^53). */
bool json_integer(const struct json_value *v, int64_t min, int64_t max, int64_t *ret);

struct json_writer {
    struct buf *out;
    int err;        /* first failure of the buffer, sticky */
    unsigned depth; /* open containers */
    bool after_key;
    uint64_t comma[(JSON_MAX_DEPTH + 63) / 64]; /* bit per depth: a value was written */
};

void json_writer_init(struct json_writer *w, struct buf *out);
void json_object_begin(struct json_writer *w);
void json_object_end(struct json_writer *w);
void json_array_begin(struct json_writer *w);
void json_array_end(struct json_writer *w);
void json_put_key(struct json_writer *w, const char *key);
void json_put_string(struct json_writer *w, const char *s); /* NULL writes null */
/* Any bytes: invalid UTF-8 becomes U+FFFD (one per maximal invalid sequence, WHATWG). */
void json_put_bytes(struct json_writer *w, const void *data, size_t n);
void json_put_int(struct json_writer *w, int64_t v);
void json_put_number(struct json_writer *w, double v); /* shortest form that reads back; NaN, inf: null */
void json_put_bool(struct json_writer *w, bool v);
void json_put_null(struct json_writer *w);
void json_put_raw(struct json_writer *w, const char *json, size_t n); /* already valid JSON */
void json_put_value(struct json_writer *w,
                    const struct json_value *v); /* copies a parsed value, iteratively */
/* A string produced in pieces: begin, any number of escaped pieces appended to w->out by the caller
 * (utf8_decode with UTF8_JSON), end. */
void json_string_begin(struct json_writer *w);
void json_string_end(struct json_writer *w);

/* key and value in one call, the common case */
void json_member_string(struct json_writer *w, const char *key, const char *value);
void json_member_int(struct json_writer *w, const char *key, int64_t value);
void json_member_bool(struct json_writer *w, const char *key, bool value);
