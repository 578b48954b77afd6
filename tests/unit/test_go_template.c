/* SPDX-License-Identifier: Apache-2.0 */
/* test_go_template.c: templates of --format, as a table. */
#include "cli/go_template.h"
#include "test.h"

#include <errno.h>

static const char document[] =
    "{\"Id\":\"sha256:abc\",\"RepoTags\":[\"a:1\",\"b:2\"],\"None\":null,\"Yes\":true,\"Size\":12,\"Empty\":["
    "],"
    "\"Config\":{\"ExposedPorts\":{\"80/tcp\":{},\"443/tcp\":{}},\"Env\":[\"A=1\"]},"
    "\"SecurityOptions\":[],\"Rows\":[{\"n\":\"x\",\"l\":[1,2]},{\"n\":\"y\",\"l\":[]}]}";

static const struct {
    const char *text, *result; /* NULL: an error */
} rows[] = {
    {"", ""},
    {"plain { text }", "plain { text }"},
    {"{{ .Id }}", "sha256:abc"},
    {"{{.Id}} {{.Size}} {{.Yes}}", "sha256:abc 12 true"},
    {"{{ range .RepoTags }}{{ . }}\n{{ end }}", "a:1\nb:2\n"},
    {"{{ len .Config.ExposedPorts }}", "2"},
    {"{{len .None}} {{len .Nothing}} {{len .Id}}", "0 0 10"},
    {"{{json .SecurityOptions}}", "[]"},
    {"{{json .DriverStatus}}", "null"},
    {"{{.Nothing}} {{.None}}", "<no value> <nil>"},
    {"{{ .RepoTags | json }}", "[\"a:1\",\"b:2\"]"},
    {"{{json .Id}}", "\"sha256:abc\""},
    {"{{join .RepoTags \", \"}}", "a:1, b:2"},
    {"{{upper .Id}}{{ \"Text\" | lower }}", "SHA256:ABCtext"},
    {"{{index .RepoTags 1}} {{index .Config \"Env\" | json}}", "b:2 [\"A=1\"]"},
    {"{{if .Yes}}yes{{else}}no{{end}}{{if .Empty}}yes{{else}}no{{end}}", "yesno"},
    {"{{range .Empty}}x{{else}}none{{end}}", "none"},
    {"{{range .RepoTags}}x{{else}}none{{end}}", "xx"},
    {"{{range .Rows}}{{.n}}:{{range .l}}{{.}},{{end}};{{end}}", "x:1,2,;y:;"},
    {"{{if .None}}{{range .RepoTags}}{{if .}}x{{end}}{{end}}{{else}}ok{{end}}", "ok"},
    {"a {{- .Size -}} b", "a12b"},
    {"{{println .Size}}", "12\n"},
    {"{{/* nothing */}}x", "x"},
    {"{{", NULL},
    {"{{.Id", NULL},
    {"{{}}", NULL},
    {"{{ .Id .Size }}", NULL},
    {"{{ unknown .Id }}", NULL},
    {"{{ range .RepoTags }}", NULL},
    {"{{ end }}", NULL},
    {"{{ else }}", NULL},
    {"{{ .Id | }}", NULL},
    {"{{ .Id | .Size }}", NULL},
    {"{{ \"open }}", NULL},
    {"{{ len .Size }}", NULL},
};

TEST(templates)
{
    char text[sizeof document];
    auto_json struct json_doc *doc = NULL;
    memcpy(text, document, sizeof text);
    REQUIRE(json_parse(text, sizeof text - 1, 0, &doc, NULL) == 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = BUF_INIT(TEMPLATE_OUTPUT_MAX);
        struct error e = {0};
        int r = go_template_run(rows[i].text, json_root(doc), &out, &e);
        const char *got = buf_cstr(&out);
        if (rows[i].result ? r != 0 || strcmp(got, rows[i].result) != 0 : r != -EINVAL) {
            printf("    '%s': %d '%s' (%s)\n", rows[i].text, r, got, e.msg);
            CHECK(!"as in the table");
        }
        buf_done(&out);
    }
}

TEST(blocks_have_a_limit)
{
    char text[1000] = "";
    struct buf out = BUF_INIT(1000);
    for (int i = 0; i < 40; i++)
        strcat(text, "{{if .}}");
    CHECK_INT(go_template_run(text, NULL, &out, NULL), -EINVAL);
    buf_done(&out);
}
