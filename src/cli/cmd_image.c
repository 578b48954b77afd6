/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_image.c: silica image ls, import, export, save, tag, inspect, rm and prune; build is in
 * cmd_image_build.c. */
#include "cli/build_cache.h"
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/format.h"
#include "cli/image_files.h"
#include "cli/json_call.h"
#include "cli/values.h"

#include "base/clock.h"
#include "net/write_all.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum {
    KEY_NAME = OPTION_KEY_FIRST,
    KEY_JSON,
    KEY_FORCE,
    KEY_PLAIN,
    KEY_WORKDIR,
    KEY_USER,
    KEY_ENTRYPOINT,
    KEY_CMD,
    KEY_EXPOSE,
    KEY_LABEL,
    KEY_ALL,
    OPERANDS_MAX = 64,
    LIST_MAX = 128,
    BAR = 30,
};

const struct option image_options[] = {
    {KEY_NAME, "name", 'n', "NAME", NULL, "import: what the image is called (default: as the archive says)"},
    {KEY_PLAIN, "no-compress", 0, NULL, NULL, "export: write layers as they are"},
    {KEY_FORCE, "force", 'f', NULL, NULL,
     "rm: also an image with several names; a name although a sandbox uses the image"},
    {'e', "env", 'e', "NAME=VALUE", NULL, "save: a variable; may be repeated"},
    {KEY_WORKDIR, "workdir", 'w', "PATH", NULL, "save: the directory that commands start in"},
    {KEY_USER, "user", 'u', "USER", NULL, "save: who runs commands"},
    {KEY_ENTRYPOINT, "entrypoint", 0, "WORD", NULL, "save: the program; repeated for its arguments"},
    {KEY_CMD, "cmd", 0, "WORD", NULL, "save: further arguments; may be repeated"},
    {KEY_EXPOSE, "expose", 0, "PORT", NULL, "save: a port of a service; may be repeated"},
    {KEY_LABEL, "label", 'l', "NAME=VALUE", NULL, "save: a label; may be repeated"},
    {KEY_ALL, "all", 'a', NULL, NULL, "ls, prune: also what builds have kept of their steps"},
    {KEY_JSON, "json", 0, NULL, NULL, "ls, import, save, tag, rm, prune: print JSON"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct words {
    const char *list[LIST_MAX];
    size_t count;
};

struct image_settings {
    struct connect_settings connect;
    const char *operands[OPERANDS_MAX];
    size_t count;
    const char *name, *workdir, *user;
    struct words env, entrypoint, cmd, ports, labels;
    bool json, force, plain, all;
};

static const struct table_column columns[] = {
    {"NAME", false, 16}, {"ID", false, 0},     {"SIZE", true, 0},
    {"LAYERS", true, 0}, {"CREATED", true, 0}, {"SANDBOXES", true, 0},
};

/* "/v1/images/<name>" with a query behind it; a name needs no encoding but for what no name has. */
static const char *image_path(struct buf *out, const char *name, const char *query)
{
    if (buf_puts(out, "/v1/images/") < 0)
        return NULL;
    for (const char *p = name; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     strchr("-._~/:@", *p);
        if ((plain ? buf_putc(out, *p) : buf_printf(out, "%%%02X", (unsigned char)*p)) < 0)
            return NULL;
    }
    return buf_puts(out, query) < 0 ? NULL : buf_cstr(out);
}

/* ---- ls */

static int add_row(struct table *t, const struct json_value *v, const char *name)
{
    char id[16], size[FORMAT_SIZE] = "", created[FORMAT_SIZE], layers[FORMAT_SIZE], users[FORMAT_SIZE];
    int64_t n = 0;
    (void)snprintf(id, sizeof id, "%.12s", json_text(v, "id"));
    bool plain = !json_get(v, "digest");
    if (!plain && json_integer(json_get(v, "size"), 0, INT64_MAX, &n))
        format_bytes((uint64_t)n, size);
    format_age_since(json_text(v, "createdAt"), created);
    (void)snprintf(layers, sizeof layers, "%zu", plain ? (size_t)1 : json_count(json_get(v, "layers")));
    n = 0;
    (void)json_integer(json_get(v, "sandboxes"), 0, INT64_MAX, &n);
    (void)snprintf(users, sizeof users, "%lld", (long long)n);
    const char *cells[] = {name, id, plain ? "-" : size, layers, created, users};
    return table_add(t, cells);
}

/* A row for each of its names. */
static int add_rows(struct table *t, const struct json_value *v, const void *arg)
{
    const struct image_settings *s = arg;
    const struct json_value *names = json_get(v, "names");
    int r = json_count(names) ? 0 : add_row(t, v, json_get(v, "digest") ? "-" : json_text(v, "id"));
    json_for_each (name, names)
        if (r == 0 && (s->all || !build_cache_is_name(json_string(name, NULL))))
            r = add_row(t, v, json_string(name, NULL));
    return r;
}

static int list(const struct image_settings *s, struct silica_client *c)
{
    struct json_listing l = {"/v1/images", "images", TABLE_INIT(columns), add_rows, s};
    return json_list("image", c, &l, s->json);
}

/* ---- import */

struct progress {
    struct image_files *files;
    int64_t shown_ms;
    bool terminal;
};

static void show(struct progress *p, const char *what, int64_t done, int64_t all)
{
    char a[FORMAT_SIZE], b[FORMAT_SIZE] = "", bar[BAR + 1] = "";
    int64_t now = clock_mono_ms();
    if (!p->terminal || now - p->shown_ms < 100)
        return;
    p->shown_ms = now;
    format_bytes((uint64_t)done, a);
    if (all > 0) {
        format_bytes((uint64_t)all, b);
        size_t n = (size_t)(done * BAR / all);
        memset(bar, '#', n);
        memset(bar + n, '.', BAR - n);
        (void)fprintf(stderr, "\r\033[K%s %s %s of %s", what, bar, a, b);
    } else {
        (void)fprintf(stderr, "\r\033[K%s %s", what, a);
    }
}

static void show_end(const struct progress *p)
{
    if (p->terminal)
        (void)fprintf(stderr, "\r\033[K");
}

static long import_read(void *data, size_t n, void *user)
{
    struct progress *p = user;
    long k = image_files_read(data, n, p->files);
    show(p, "sending", image_files_sent(p->files), image_files_bytes(p->files));
    return k;
}

static int import_event(char *data, size_t n, void *user)
{
    struct progress *p = user;
    auto_json struct json_doc *doc = NULL;
    char what[64];
    int64_t layer = 0, layers = 0, bytes = 0;
    if (json_parse(data, n, 0, &doc, NULL) < 0)
        return 0;
    (void)json_integer(json_get(json_root(doc), "layer"), 0, INT32_MAX, &layer);
    (void)json_integer(json_get(json_root(doc), "layers"), 0, INT32_MAX, &layers);
    (void)json_integer(json_get(json_root(doc), "bytes"), 0, INT64_MAX, &bytes);
    (void)snprintf(what, sizeof what, "unpacking layer %lld of %lld", (long long)layer, (long long)layers);
    show(p, what, bytes, 0);
    return 0;
}

/* "app:1.0 <id>" for each; given: the name that the first one was to have. */
static void print_images(const struct json_value *images, const char *given)
{
    json_for_each (v, images) {
        const char *name = given ? given : json_string(json_first(json_get(v, "names")), NULL);
        given = NULL;
        printf("%s%s%s\n", name ? name : "", name ? " " : "", json_text(v, "id"));
    }
}

static int import(const struct image_settings *s, struct silica_client *c)
{
    struct progress p = {.terminal = isatty(STDERR_FILENO)};
    struct silica_error se;
    struct error e;
    auto_free char *json = NULL;
    auto_json struct json_doc *doc = NULL;
    if (image_files_open(s->operands[1], &p.files, &e) < 0)
        return cli_error("image", "%s", e.msg);
    struct silica_upload upload = {import_read, &p, image_files_bytes(p.files)};
    int r = silica_image_import(c, s->name, &upload, import_event, &p, &json, &se);
    show_end(&p);
    const char *problem = image_files_problem(p.files);
    if (r < 0)
        r = problem ? cli_error("image", "%s", problem) : connect_failed("image", c, &se);
    else if (s->json)
        printf("%s\n", json);
    else if (json_parse(json, strlen(json), 0, &doc, NULL) == 0)
        print_images(json_get(json_root(doc), "images"), s->name);
    image_files_free(p.files);
    return r;
}

/* ---- export */

struct output {
    struct progress progress;
    int fd, err;
    int64_t bytes;
};

static int export_data(const void *data, size_t n, void *user)
{
    struct output *o = user;
    int r = write_all(o->fd, data, n);
    o->bytes += (int64_t)n;
    o->err = r < 0 ? -r : 0;
    if (r == 0)
        show(&o->progress, "received", o->bytes, 0);
    return r;
}

/* Into a file beside the target first: a target that is there is whole. */
static int export(const struct image_settings *s, struct silica_client *c)
{
    const char *path = s->count > 2 ? s->operands[2] : "-";
    struct output o = {.progress.terminal = isatty(STDERR_FILENO), .fd = STDOUT_FILENO};
    struct silica_error e;
    auto_free char *part = NULL;
    bool file = strcmp(path, "-") != 0;
    if (!file && isatty(STDOUT_FILENO))
        return cli_error("image", "an archive is nothing for a terminal; name a file");
    if (file && asprintf(&part, "%s.part", path) < 0)
        return cli_error("image", "out of memory");
    auto_close int fd = file ? open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
    if (file && fd < 0)
        return cli_error("image", "%s: %s", part, strerror(errno));
    if (file)
        o.fd = fd;
    int r = silica_image_export(c, s->operands[1], !s->plain, export_data, &o, &e);
    show_end(&o.progress);
    if (r < 0 && o.err)
        r = cli_error("image", "%s: %s", path, strerror(o.err));
    else if (r < 0)
        r = connect_failed("image", c, &e);
    else if (file && rename(part, path) < 0)
        r = cli_error("image", "%s: %s", path, strerror(errno));
    if (r != 0 && file)
        (void)unlink(part);
    return r;
}

/* ---- save */

static void put_words(struct json_writer *w, const char *key, const struct words *list)
{
    if (!list->count)
        return;
    json_put_key(w, key);
    json_array_begin(w);
    for (size_t i = 0; i < list->count; i++)
        json_put_string(w, list->list[i]);
    json_array_end(w);
}

static void put_labels(struct json_writer *w, const struct words *list)
{
    if (!list->count)
        return;
    json_put_key(w, "labels");
    json_object_begin(w);
    for (size_t i = 0; i < list->count; i++) {
        char key[256];
        const char *equals = strchr(list->list[i], '='); /* value_label saw to it */
        (void)snprintf(key, sizeof key, "%.*s", (int)(equals - list->list[i]), list->list[i]);
        json_member_string(w, key, equals + 1);
    }
    json_object_end(w);
}

static int save(const struct image_settings *s, struct silica_client *c)
{
    struct buf config = BUF_INIT(1024 * 1024);
    struct json_writer w;
    struct silica_error e;
    auto_free char *json = NULL;
    auto_json struct json_doc *doc = NULL;
    json_writer_init(&w, &config);
    json_object_begin(&w);
    put_words(&w, "env", &s->env);
    if (s->workdir)
        json_member_string(&w, "workdir", s->workdir);
    if (s->user)
        json_member_string(&w, "user", s->user);
    put_words(&w, "entrypoint", &s->entrypoint);
    put_words(&w, "cmd", &s->cmd);
    put_words(&w, "exposedPorts", &s->ports);
    put_labels(&w, &s->labels);
    json_object_end(&w);
    int r = w.err || !buf_cstr(&config) ? cli_error("image", "the settings are too long")
            : silica_image_save(c, s->operands[1], s->operands[2], buf_cstr(&config), &json, &e) < 0
                ? connect_failed("image", c, &e)
                : 0;
    buf_done(&config);
    if (r == 0 && s->json)
        printf("%s\n", json);
    else if (r == 0 && json_parse(json, strlen(json), 0, &doc, NULL) == 0)
        printf("%s\n", json_text(json_root(doc), "id"));
    return r;
}

/* ---- the rest */

static int tag(const struct image_settings *s, struct silica_client *c)
{
    struct buf body = BUF_INIT(16 * 1024);
    struct json_writer w;
    auto_answer struct json_answer a = {0};
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_member_string(&w, "image", s->operands[1]);
    json_member_string(&w, "name", s->operands[2]);
    json_object_end(&w);
    struct silica_request q = {
        .method = "POST", .path = "/v1/images/tag", .body = buf_data(&body), .body_bytes = buf_len(&body)};
    int r = w.err ? cli_error("image", "the name is too long") : json_call("image", c, &q, &a);
    buf_done(&body);
    if (r == 0)
        printf("%s\n", s->json ? a.json : json_text(json_root(a.doc), "id"));
    return r;
}

/* inspect and rm: each of the names; the rest is tried even when one fails. */
static int for_names(const struct image_settings *s, struct silica_client *c, bool removes)
{
    int result = 0;
    for (size_t i = 1; i < s->count; i++) {
        struct buf path = BUF_INIT(8192);
        const char *name = s->operands[i], *said = removes && !s->json ? name : NULL;
        const char *to = image_path(&path, name, removes && s->force ? "?force=true" : "");
        int r = to ? json_print("image", c, removes ? "DELETE" : "GET", to, said)
                   : cli_error("image", "the name is too long");
        buf_done(&path);
        result = r ? r : result;
    }
    return result;
}

static int prune(const struct image_settings *s, struct silica_client *c)
{
    char size[FORMAT_SIZE];
    int64_t layers = 0, bytes = 0;
    auto_answer struct json_answer a = {0};
    if (s->all)
        build_cache_forget(c);
    int r = json_call("image", c, &(struct silica_request){.method = "POST", .path = "/v1/images/prune"}, &a);
    if (r != 0)
        return r;
    (void)json_integer(json_get(json_root(a.doc), "layers"), 0, INT64_MAX, &layers);
    (void)json_integer(json_get(json_root(a.doc), "bytes"), 0, INT64_MAX, &bytes);
    format_bytes((uint64_t)bytes, size);
    if (s->json)
        printf("%s\n", a.json);
    else
        printf("%zu images and %lld layers removed, %s given back\n",
               json_count(json_get(json_root(a.doc), "deleted")), (long long)layers, size);
    return 0;
}

enum { LS, IMPORT, EXPORT, SAVE, TAG, INSPECT, RM, PRUNE, BUILD };

static const struct action actions[] = {
    [LS] = {"ls", 0, 0, {NULL}},
    [IMPORT] = {"import", 1, 1, {"an archive, a directory with an OCI layout, or -,"}},
    [EXPORT] = {"export", 1, 2, {"the name of an image"}},
    [SAVE] = {"save", 2, 2, {"the id of a sandbox", "a name for the image"}},
    [TAG] = {"tag", 2, 2, {"the name of an image", "its new name"}},
    [INSPECT] = {"inspect", 1, OPERANDS_MAX, {"the name of an image"}},
    [RM] = {"rm", 1, OPERANDS_MAX, {"the name of an image"}},
    [PRUNE] = {"prune", 0, 0, {NULL}},
    [BUILD] = {"build", 0, OPERANDS_MAX, {NULL}},
};

static int run(const struct image_settings *s)
{
    auto_client struct silica_client *c = NULL;
    int what = action_find("image", actions, ARRAY_SIZE(actions), s->operands, s->count);
    if (what == BUILD) /* image_build_asked did not find it */
        return cli_error("image", "the options of build stand behind the word 'build'");
    int r = what < 0 ? CLI_ERROR : connect_open("image", &s->connect, &c);
    if (r != 0)
        return r;
    switch (what) {
    case LS:
        return list(s, c);
    case IMPORT:
        return import(s, c);
    case EXPORT:
        return export(s, c);
    case SAVE:
        return save(s, c);
    case TAG:
        return tag(s, c);
    case PRUNE:
        return prune(s, c);
    default:
        return for_names(s, c, what == RM);
    }
}

static int add_word(struct words *w, const char *source, const char *value, struct error *reterr)
{
    if (w->count == LIST_MAX)
        return error_set(reterr, E2BIG, "%s can be given %d times", source, LIST_MAX);
    w->list[w->count++] = value;
    return 0;
}

static int take(struct image_settings *s, const char *source, int key, const char *value,
                struct error *reterr)
{
    int r;
    switch (key) {
    case KEY_NAME:
        s->name = value;
        return 0;
    case KEY_JSON:
        s->json = true;
        return 0;
    case KEY_FORCE:
        s->force = true;
        return 0;
    case KEY_ALL:
        s->all = true;
        return 0;
    case KEY_PLAIN:
        s->plain = true;
        return 0;
    case KEY_WORKDIR:
        s->workdir = value;
        return 0;
    case KEY_USER:
        s->user = value;
        return 0;
    case 'e':
        r = value_env(source, value, reterr);
        return r < 0 ? r : add_word(&s->env, source, value, reterr);
    case KEY_LABEL:
        r = value_label(source, value, reterr);
        return r < 0 ? r : add_word(&s->labels, source, value, reterr);
    case KEY_ENTRYPOINT:
        return add_word(&s->entrypoint, source, value, reterr);
    case KEY_CMD:
        return add_word(&s->cmd, source, value, reterr);
    default:
        return add_word(&s->ports, source, value, reterr);
    }
}

int cmd_image(int argc, char **argv)
{
    struct image_settings s = {0};
    struct command_line line = command_line_of("image", image_options, &s.connect, argc, argv);
    command_line_collect(&line, s.operands, OPERANDS_MAX);
    const char *value;
    struct error e;
    int key;
    if (image_build_asked(argc, argv))
        return cmd_image_build(argc, argv);
    while ((key = command_line_next(&line, &value)) > 0)
        if (take(&s, options_source(&line.options), key, value, &e) < 0)
            return cli_usage_error("image", &e);
    s.count = line.count;
    return key < 0 ? line.exit_code : run(&s);
}
