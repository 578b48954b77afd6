/* SPDX-License-Identifier: Apache-2.0 */
/* docker_containers.c: silica docker ps and rm. */
#include "cli/docker.h"

#include "cli/format.h"

#include <string.h>

enum { SHORT_ID = 12 };

static const struct table_column columns[] = {
    {"CONTAINER ID", false, 0},
    {"IMAGE", false, 20},
    {"STATUS", false, 0},
    {"NAMES", false, 20},
};

/* The members a template for ps may name, made of what the engine says about one container. */
static int row_json(const struct json_value *c, bool whole_id, struct buf *out)
{
    static const char *const copied[][2] = {
        {"Image", "Image"}, {"State", "State"}, {"Status", "Status"}, {"Command", "Command"}};
    struct json_writer w;
    const char *id = json_string(json_get(c, "Id"), NULL);
    struct buf names = BUF_INIT(65536);
    json_writer_init(&w, out);
    json_object_begin(&w);
    json_put_key(&w, "ID");
    json_put_bytes(&w, id ? id : "", id ? (whole_id ? strlen(id) : MIN(strlen(id), (size_t)SHORT_ID)) : 0);
    for (size_t i = 0; i < ARRAY_SIZE(copied); i++) {
        const char *s = json_string(json_get(c, copied[i][1]), NULL);
        json_member_string(&w, copied[i][0], s ? s : "");
    }
    json_for_each (v, json_get(c, "Names")) {
        const char *s = json_string(v, NULL);
        if (s && (buf_len(&names) == 0 || buf_putc(&names, ',') == 0))
            (void)buf_puts(&names, *s == '/' ? s + 1 : s);
    }
    json_member_string(&w, "Names", buf_cstr(&names) ? buf_data(&names) : "");
    buf_done(&names);
    json_put_key(&w, "Labels");
    if (json_get(c, "Labels"))
        json_put_value(&w, json_get(c, "Labels"));
    else
        json_put_null(&w);
    json_object_end(&w);
    return w.err;
}

static const char *member(const struct json_value *v, const char *key)
{
    return json_string(json_get(v, key), NULL);
}

static int print_container(const struct docker_words *w, const struct json_value *c, struct table *t)
{
    struct buf text = BUF_INIT(1 << 20);
    auto_json struct json_doc *doc = NULL;
    int r = 0;
    if (row_json(c, w->no_trunc, &text) < 0 ||
        json_parse(buf_data(&text), buf_len(&text), 0, &doc, NULL) < 0) {
        r = docker_error("out of memory");
    } else if (w->format) {
        r = docker_print(w->format, json_root(doc));
    } else if (w->quiet) {
        printf("%s\n", member(json_root(doc), "ID"));
    } else {
        const char *cells[] = {member(json_root(doc), "ID"), member(json_root(doc), "Image"),
                               member(json_root(doc), "Status"), member(json_root(doc), "Names")};
        r = table_add(t, cells) < 0 ? docker_error("out of memory") : 0;
    }
    json_free(take_ptr(doc));
    buf_done(&text);
    return r;
}

static int list(struct docker *d, const struct docker_words *w)
{
    struct buf path = BUF_INIT(131072);
    struct docker_answer a;
    int r = buf_puts(&path, w->all ? "/containers/json?all=1" : "/containers/json?all=0");
    if (r == 0 && buf_len(&w->filters))
        r = buf_puts(&path, "&filters=");
    if (r == 0 && buf_len(&w->filters))
        r = docker_encode(&path, buf_data(&w->filters));
    r = r < 0 || !buf_cstr(&path) ? docker_error("too many filters")
                                  : docker_must(d, "GET", buf_data(&path), &a);
    buf_done(&path);
    if (r != 0)
        return r;
    struct table t = TABLE_INIT(columns);
    json_for_each (c, json_root(a.doc))
        if (r == 0)
            r = print_container(w, c, &t);
    if (r == 0 && !w->format && !w->quiet)
        table_print(&t, stdout, terminal_width(STDOUT_FILENO));
    table_done(&t);
    docker_answer_done(&a);
    return r;
}

int docker_ps(struct docker *d, int argc, char **argv)
{
    struct docker_words w;
    int r = docker_read_words(&w, "ps", argc, argv);
    if (r == 0)
        r = list(d, &w);
    buf_done(&w.filters);
    return r;
}

/* -f is --force here, and --format elsewhere. */
static void spell_force(int argc, char **argv)
{
    static char force[] = "--force";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-f") == 0)
            argv[i] = force;
}

/* All are tried even when one fails. */
int docker_rm(struct docker *d, int argc, char **argv)
{
    struct docker_words w;
    spell_force(argc, argv);
    int result = docker_read_words(&w, "rm", argc, argv);
    buf_done(&w.filters);
    if (result == 0 && w.count == 0)
        return docker_error("rm: which container?");
    for (size_t i = 0; result == 0 && i < w.count; i++) {
        struct buf path = BUF_INIT(65536);
        struct docker_answer a;
        int r = buf_puts(&path, "/containers/");
        if (r == 0)
            r = docker_encode(&path, w.operands[i]);
        if (r == 0)
            r = buf_puts(&path, w.force ? "?force=true" : "");
        r = r < 0 || !buf_cstr(&path) ? docker_error("the name is too long")
                                      : docker_must(d, "DELETE", buf_data(&path), &a);
        buf_done(&path);
        if (r == 0) {
            docker_answer_done(&a);
            printf("%s\n", w.operands[i]);
        }
        result = r ? r : result;
    }
    return result;
}
