/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json.c (FUZ-03): any bytes are rejected or parsed, and what is parsed and written parses to the same
 * text again. */
#include "base/json.h"
#include "base/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* Asks every value what a program would ask; each answer must fit the others. */
static void look_at(const struct json_value *v)
{
    size_t n = 0, len = 0;
    json_for_each (child, v) {
        const char *key = json_key(child);
        require(!key == (json_type_of(v) == JSON_ARRAY));
        if (key && n < 16) { /* asking for every key of a big object would be quadratic */
            const struct json_value *found = json_get(v, key);
            require(!found || strcmp(json_key(found), key) == 0);
        }
        n++;
    }
    require(n == json_count(v));

    const char *s = json_string(v, &len);
    require(!s == (json_type_of(v) != JSON_STRING));
    require(!s || (s[len] == '\0' && utf8_valid(s, len)));
    double d;
    int64_t i;
    require(json_number(v, &d) == (json_type_of(v) == JSON_NUMBER));
    if (json_integer(v, INT64_MIN, INT64_MAX, &i))
        require((double)i == d);
}

/* Parses a copy of exact size; true and the text written again when it is accepted. */
static bool rewrite(const void *data, size_t size, unsigned flags, struct buf *out)
{
    char *text = malloc(size ? size : 1);
    struct json_doc *doc = NULL;
    struct error e = {0};
    require(text);
    if (size)
        memcpy(text, data, size);
    int r = json_parse(text, size, flags, &doc, &e);
    require((r == 0) == (doc != NULL));
    require((r < 0) == (e.code != 0) && (r < 0) == (e.msg[0] != '\0'));
    if (r == 0) {
        look_at(json_root(doc));
        json_for_each (child, json_root(doc))
            look_at(child);
        struct json_writer w;
        json_writer_init(&w, out);
        json_put_value(&w, json_root(doc));
        require(w.err == 0 && w.depth == 0);
    }
    json_free(doc);
    free(text);
    return r == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool accepted[2];
    for (unsigned flags = 0; flags <= JSON_ALLOW_NUL; flags++) {
        struct buf once = BUF_INIT(1 << 24), twice = BUF_INIT(1 << 24);
        accepted[flags] = rewrite(data, size, flags, &once);
        if (accepted[flags]) {
            require(utf8_valid(buf_data(&once), buf_len(&once)));
            require(rewrite(buf_data(&once), buf_len(&once), flags, &twice));
            require(buf_len(&once) == buf_len(&twice));
            require(memcmp(buf_data(&once), buf_data(&twice), buf_len(&once)) == 0);
        }
        buf_done(&once);
        buf_done(&twice);
    }
    require(!accepted[0] || accepted[JSON_ALLOW_NUL]);
    return 0;
}
