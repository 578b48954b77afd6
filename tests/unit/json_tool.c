/* SPDX-License-Identifier: Apache-2.0 */
/* json_tool.c: parses the JSON text on stdin and writes it again to stdout; exit code 1 when it is rejected.
 *
 * With --batch stdin is a sequence of texts, each as "LENGTH\n" and its bytes, and each is answered by
 * "ok LENGTH\n" and the text written again, or by "reject\n": one process then serves many thousand texts. */
#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 64 << 20 };

/* 0 and the text written again in out, or the reason why not. */
static int rewrite(char *text, size_t n, struct buf *out, struct error *reterr)
{
    auto_json struct json_doc *doc = NULL;
    int r = json_parse(text, n, 0, &doc, reterr);
    if (r < 0)
        return r;
    struct json_writer w;
    json_writer_init(&w, out);
    json_put_value(&w, json_root(doc));
    return w.err < 0 ? error_set(reterr, -w.err, "write the JSON text again") : 0;
}

static int run_batch(void)
{
    struct buf out = BUF_INIT((size_t)TEXT_MAX * 6);
    size_t n;
    int matched;

    while ((matched = scanf("%zu", &n)) == 1) {
        auto_free char *text = malloc(n ? n : 1); /* of exact size, for the address sanitizer */
        if (n > TEXT_MAX || !text || getchar() != '\n' || fread(text, 1, n, stdin) != n)
            break;
        struct error e;
        buf_clear(&out);
        if (rewrite(text, n, &out, &e) == 0) {
            printf("ok %zu\n", buf_len(&out));
            (void)fwrite(buf_data(&out), 1, buf_len(&out), stdout);
        } else {
            printf("reject\n");
        }
        (void)fflush(stdout);
    }
    buf_done(&out);
    return matched == EOF ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_one(void)
{
    struct buf in = BUF_INIT(TEXT_MAX), out = BUF_INIT((size_t)TEXT_MAX * 6);
    struct error e = {0};
    char piece[65536];
    size_t n;
    int r = 0;

    while (r == 0 && (n = fread(piece, 1, sizeof piece, stdin)) > 0)
        r = buf_append(&in, piece, n);
    if (r < 0)
        r = error_set(&e, -r, "the text is too long");
    else
        r = rewrite(buf_data(&in), buf_len(&in), &out, &e);
    if (r == 0)
        (void)fwrite(buf_data(&out), 1, buf_len(&out), stdout);
    else
        (void)fprintf(stderr, "%s\n", e.msg);
    buf_done(&in);
    buf_done(&out);
    return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "--batch") == 0 ? run_batch() : run_one();
}
