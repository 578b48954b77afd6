/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_image_doc.c: any JSON as an image's description, in each of its three forms: within bounds, and what
 * is written is read again as the same. */
#include "image/doc.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static int parse(struct doc *d, int (*read)(struct doc *, const struct json_value *, struct error *),
                 const void *text, size_t n)
{
    char *copy = malloc(n + 1);
    struct json_doc *doc = NULL;
    struct error e = {0};
    require(copy);
    memcpy(copy, text, n);
    int r = json_parse(copy, n, 0, &doc, &e);
    if (r == 0)
        r = read(d, json_root(doc), &e);
    require(r == 0 || e.code > 0);
    json_free(doc);
    free(copy);
    return r;
}

static void check_again(const struct doc *d)
{
    struct buf one = BUF_INIT(8 << 20), two = BUF_INIT(8 << 20), run = BUF_INIT(8 << 20),
               oci = BUF_INIT(8 << 20);
    struct json_writer w;
    struct doc again = {0};
    require(d->env.count <= DOC_STRINGS_MAX && d->env.bytes <= DOC_BYTES_MAX &&
            d->layer_count <= IMAGE_LAYERS_MAX);
    json_writer_init(&w, &one);
    doc_write(d, &w);
    require(w.err == 0);
    require(parse(&again, doc_read, buf_data(&one), buf_len(&one)) == 0);
    json_writer_init(&w, &two);
    doc_write(&again, &w);
    require(buf_len(&one) == buf_len(&two) && memcmp(buf_data(&one), buf_data(&two), buf_len(&one)) == 0);
    require(doc_write_run(d, &run) == 0);
    json_writer_init(&w, &oci);
    doc_write_oci(d, NULL, 0, &w);
    require(w.err == 0);
    doc_done(&again);
    buf_done(&one);
    buf_done(&two);
    buf_done(&run);
    buf_done(&oci);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const forms[])(struct doc *, const struct json_value *,
                                struct error *) = {doc_read, doc_read_oci, doc_override};
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct doc d = {0};
        if (parse(&d, forms[i], data, size) == 0)
            check_again(&d);
        doc_done(&d);
    }
    return 0;
}
