/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_go_template.c: a template is refused with a sentence or makes a text, the same one twice. */
#include "cli/go_template.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char document[] = "{\"Id\":\"sha256:abc\",\"Tags\":[\"a:1\",\"b:2\"],\"None\":null,\"Yes\":"
                                   "true,\"Size\":12.5,\"Empty\":[],"
                                   "\"Config\":{\"Ports\":{\"80/tcp\":{},\"443/"
                                   "tcp\":{}}},\"Rows\":[{\"n\":\"x\",\"l\":[1,[2]]},{\"n\":\"y\"}]}";
    char text[sizeof document];
    auto_json struct json_doc *doc = NULL;
    auto_free char *template = malloc(size + 1);
    require(template);
    if (size)
        memcpy(template, data, size);
    template[size] = '\0';
    memcpy(text, document, sizeof text);
    require(json_parse(text, sizeof text - 1, 0, &doc, NULL) == 0);
    struct buf one = BUF_INIT(TEMPLATE_OUTPUT_MAX), two = BUF_INIT(TEMPLATE_OUTPUT_MAX);
    struct error e = {0};
    int r = go_template_run(template, json_root(doc), &one, &e);
    require(r == 0 || (e.msg[0] && e.code == -r));
    require(go_template_run(template, json_root(doc), &two, NULL) == r);
    require(buf_len(&one) == buf_len(&two) &&
            (buf_len(&one) == 0 || memcmp(buf_data(&one), buf_data(&two), buf_len(&one)) == 0));
    buf_done(&one);
    buf_done(&two);
    return 0;
}
