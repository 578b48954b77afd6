/* SPDX-License-Identifier: Apache-2.0 */
/* json_call.c: see json_call.h. */
#include "cli/json_call.h"
#include "cli/cli.h"

#include <string.h>

int json_call(const char *verb, struct silica_client *c, const struct silica_request *q,
              struct json_answer *ret)
{
    struct silica_error e;
    auto_answer struct json_answer a = {0};
    if (silica_request(c, q, &a.response, &e) < 0 || silica_response_error(&a.response, &e) < 0)
        return connect_failed(verb, c, &e);
    a.json = strdup(a.response.body); /* parsing changes it in place */
    if (!a.json || json_parse(a.response.body, a.response.body_bytes, 0, &a.doc, NULL) < 0)
        return cli_error(verb, "the answer is not JSON: is this a Silica server?");
    *ret = a;
    a = (struct json_answer){0};
    return 0;
}

void json_answer_done(struct json_answer *a)
{
    json_free(a->doc);
    free(a->json);
    silica_response_done(&a->response);
    *a = (struct json_answer){0};
}

const char *json_text(const struct json_value *v, const char *member)
{
    const char *s = json_string(json_get(v, member), NULL);
    return s ? s : "";
}

int json_print(const char *verb, struct silica_client *c, const char *method, const char *path,
               const char *instead)
{
    auto_answer struct json_answer a = {0};
    int r = json_call(verb, c, &(struct silica_request){.method = method, .path = path}, &a);
    if (r == 0)
        printf("%s\n", instead ? instead : a.json);
    return r;
}

int json_list(const char *verb, struct silica_client *c, const struct json_listing *l, bool as_json)
{
    auto_answer struct json_answer a = {0};
    int r = json_call(verb, c, &(struct silica_request){.method = "GET", .path = l->path}, &a);
    if (r != 0)
        return r;
    if (as_json) {
        printf("%s\n", a.json);
        return 0;
    }
    struct table t = l->table;
    for (const struct json_value *v = json_first(json_get(json_root(a.doc), l->member)); r == 0 && v;
         v = json_next(v))
        r = l->add(&t, v, l->arg);
    if (r == 0)
        table_print(&t, stdout, terminal_width(STDOUT_FILENO));
    table_done(&t);
    return r < 0 ? cli_error(verb, "out of memory") : 0;
}
