/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_rpc.c (FUZ-06): any message is refused or understood, what is made of it is JSON, and plain JSON comes
 * back unchanged from being an expression. */
#include "agent/rpc_methods.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_MAX = 1 << 26 };

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* A copy of the text, parsed; the caller frees both. */
static struct json_doc *parse(const char *text, size_t n, char **ret_copy)
{
    struct json_doc *doc = NULL;
    struct error e;
    *ret_copy = malloc(n + 1);
    require(*ret_copy != NULL);
    if (n)
        memcpy(*ret_copy, text, n);
    if (json_parse(*ret_copy, n, JSON_ALLOW_NUL, &doc, &e) < 0)
        return NULL;
    return doc;
}

static void require_json(const struct buf *b)
{
    auto_free char *copy = NULL;
    auto_json struct json_doc *doc = parse(buf_data(b), buf_len(b), &copy);
    require(doc != NULL);
}

static int look(void *arg, enum rpc_form form, const struct json_value *at)
{
    size_t *count = arg;
    ++*count;
    require(form != RPC_FORM_UNKNOWN && form == rpc_form_of(at));
    if (form == RPC_FORM_REFERENCE)
        require(rpc_reference_of(at).id == rpc_id_of(at));
    return 0;
}

static int resolve(void *arg, const struct rpc_reference *ref, struct json_writer *w)
{
    (void)arg;
    require(!ref->args);
    json_put_bool(w, true);
    return w->err;
}

static void decode(const struct json_value *expr)
{
    struct buf out = BUF_INIT(OUT_MAX);
    struct json_writer w;
    json_writer_init(&w, &out);
    if (rpc_to_json(expr, &w, resolve, NULL) == 0)
        require_json(&out);
    buf_done(&out);
}

/* Every method is asked to make a request of the arguments. */
static void request(const struct json_value *path, const struct json_value *args)
{
    static const char *const names[] = {
        "commands.execute", "files.readFile",     "processes.getProcess", "interpreter.streamCode",
        "watch.watch",      "backup.uploadParts", "files.writeFile",      "tunnels.ensureTunnelRun"};
    (void)rpc_part_find("", path);
    (void)rpc_method_find("", path);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct rpc_method *m = rpc_method_find(names[i], NULL);
        struct buf body = BUF_INIT(OUT_MAX), target = BUF_INIT(OUT_MAX);
        require(m != NULL);
        if (rpc_request_build(m, args, &body, &target, resolve, NULL) == 0) {
            if (buf_len(&body))
                require_json(&body);
            for (size_t k = 0; k < buf_len(&target); k++)
                require(buf_data(&target)[k] > ' ' && buf_data(&target)[k] < 0x7f);
        }
        buf_done(&body);
        buf_done(&target);
    }
}

static void understand(const struct json_value *root)
{
    struct rpc_message m;
    size_t count = 0;
    if (rpc_message_read(root, &m) < 0 || !m.expr)
        return;
    bool known = rpc_walk(m.expr, look, &count) == 0;
    decode(m.expr);
    if (known && rpc_form_of(m.expr) == RPC_FORM_REFERENCE) {
        struct rpc_reference ref = rpc_reference_of(m.expr);
        request(ref.path, ref.args);
    }
}

/* As if the text was the answer of a route. */
static void answer(const char *text, size_t n, const struct json_value *root)
{
    struct rpc_member members[64];
    struct buf expr = BUF_INIT(OUT_MAX), plain = BUF_INIT(OUT_MAX), back = BUF_INIT(OUT_MAX);
    struct json_writer w;
    size_t count = rpc_members(text, n, members, ARRAY_SIZE(members));
    require(count == (json_type_of(root) == JSON_OBJECT ? MIN(json_count(root), ARRAY_SIZE(members)) : 0));
    for (size_t i = 0; i < count; i++)
        require(members[i].key >= text && members[i].value + members[i].value_len <= text + n);
    require(rpc_put_json(&expr, text, n) == 0);
    auto_free char *copy = NULL;
    auto_json struct json_doc *doc = parse(buf_data(&expr), buf_len(&expr), &copy);
    if (doc) { /* else it is nested too deeply for our own reader */
        json_writer_init(&w, &plain);
        json_put_value(&w, root);
        json_writer_init(&w, &back);
        /* a key with a NUL in it is cut there by this writer */
        if (!strstr(buf_cstr(&plain), "\\u0000")) {
            require(rpc_to_json(json_root(doc), &w, NULL, NULL) == 0);
            require(buf_len(&plain) == buf_len(&back) &&
                    memcmp(buf_data(&plain), buf_data(&back), buf_len(&plain)) == 0);
        }
    }
    struct rpc_result_extra extra = {.path = "p", .content_len = 1};
    static const char *const names[] = {"utils.ping", "files.renameFile", "interpreter.listCodeContexts",
                                        "interpreter.createCodeContext"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct buf out = BUF_INIT(OUT_MAX);
        (void)rpc_result_build(rpc_method_find(names[i], NULL), text, n, &extra, &out);
        buf_done(&out);
    }
    struct buf out = BUF_INIT(OUT_MAX);
    require(rpc_failure_build(500, text, n, &out) == 0);
    buf_done(&out);
    buf_done(&expr);
    buf_done(&plain);
    buf_done(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rpc_member members[4];
    auto_free char *copy = NULL;
    auto_json struct json_doc *doc = parse((const char *)data, size, &copy);
    if (!doc) { /* must not read outside of it all the same */
        (void)rpc_members((const char *)data, size, members, ARRAY_SIZE(members));
        return 0;
    }
    understand(json_root(doc));
    answer((const char *)data, size, json_root(doc));
    return 0;
}
