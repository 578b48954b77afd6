/* SPDX-License-Identifier: Apache-2.0 */
/* doc_write.c: an image's description as our config.json, as an OCI configuration, and as what a sandbox
 * gets. */
#include "image/doc.h"

#include <string.h>

static void put_list(struct json_writer *w, const char *key, const struct doc_list *l)
{
    if (!l->set)
        return;
    json_put_key(w, key);
    json_array_begin(w);
    for (size_t i = 0; i < l->count; i++)
        json_put_string(w, l->items[i]);
    json_array_end(w);
}

static void put_labels(struct json_writer *w, const char *key, const struct doc_list *l)
{
    if (!l->count)
        return;
    json_put_key(w, key);
    json_object_begin(w);
    for (size_t i = 0; i + 1 < l->count; i += 2)
        json_member_string(w, l->items[i], l->items[i + 1]);
    json_object_end(w);
}

static void put_text(struct json_writer *w, const char *key, const char *text)
{
    if (text && *text)
        json_member_string(w, key, text);
}

static void put_digest(struct json_writer *w, const char *key, const char *hex)
{
    char text[8 + SHA256_HEX] = "sha256:";
    memcpy(text + 7, hex, SHA256_HEX);
    text[7 + SHA256_HEX] = '\0';
    if (key)
        json_member_string(w, key, text);
    else
        json_put_string(w, text);
}

void doc_write(const struct doc *d, struct json_writer *w)
{
    json_object_begin(w);
    put_text(w, "createdAt", d->created);
    put_text(w, "parent", d->parent);
    put_text(w, "architecture", d->architecture);
    put_text(w, "os", d->os);
    json_put_key(w, "layers");
    json_array_begin(w);
    for (size_t i = 0; i < d->layer_count; i++) {
        json_object_begin(w);
        if (d->layers[i].plain)
            json_member_string(w, "image", d->layers[i].name);
        else
            put_digest(w, "digest", d->layers[i].name);
        if (!d->layers[i].plain)
            json_member_int(w, "size", (int64_t)d->layers[i].bytes);
        json_object_end(w);
    }
    json_array_end(w);
    json_put_key(w, "config");
    json_object_begin(w);
    put_list(w, "env", &d->env);
    put_text(w, "workdir", d->workdir);
    put_text(w, "user", d->user);
    put_list(w, "entrypoint", &d->entrypoint);
    put_list(w, "cmd", &d->cmd);
    put_list(w, "shell", &d->shell);
    put_list(w, "exposedPorts", &d->ports);
    put_text(w, "stopSignal", d->stop_signal);
    put_labels(w, "labels", &d->labels);
    json_object_end(w);
    put_list(w, "notes", &d->notes);
    json_object_end(w);
}

void doc_write_oci(const struct doc *d, char (*diff_ids)[SHA256_HEX + 1], size_t count, struct json_writer *w)
{
    json_object_begin(w);
    put_text(w, "created", d->created);
    json_member_string(w, "architecture", d->architecture[0] ? d->architecture : doc_architecture);
    json_member_string(w, "os", d->os[0] ? d->os : "linux");
    json_put_key(w, "config");
    json_object_begin(w);
    put_text(w, "User", d->user);
    if (d->ports.count) {
        json_put_key(w, "ExposedPorts");
        json_object_begin(w);
        for (size_t i = 0; i < d->ports.count; i++) {
            json_put_key(w, d->ports.items[i]);
            json_object_begin(w);
            json_object_end(w);
        }
        json_object_end(w);
    }
    put_list(w, "Env", &d->env);
    put_list(w, "Entrypoint", &d->entrypoint);
    put_list(w, "Cmd", &d->cmd);
    put_list(w, "Shell", &d->shell);
    put_text(w, "WorkingDir", d->workdir);
    put_text(w, "StopSignal", d->stop_signal);
    put_labels(w, "Labels", &d->labels);
    json_object_end(w);
    json_put_key(w, "rootfs");
    json_object_begin(w);
    json_member_string(w, "type", "layers");
    json_put_key(w, "diff_ids");
    json_array_begin(w);
    for (size_t i = 0; i < count; i++)
        put_digest(w, NULL, diff_ids[i]);
    json_array_end(w);
    json_object_end(w);
    json_put_key(w, "history"); /* some readers want as many as there are layers */
    json_array_begin(w);
    for (size_t i = 0; i < count; i++) {
        json_object_begin(w);
        json_member_string(w, "created_by", "silica");
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

int doc_write_run(const struct doc *d, struct buf *out)
{
    const char *first[] = {d->workdir ? d->workdir : "", d->user ? d->user : ""};
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(first); i++)
        r = buf_append(out, first[i], strlen(first[i]) + 1);
    for (size_t i = 0; r == 0 && i < d->env.count; i++)
        r = buf_append(out, d->env.items[i], strlen(d->env.items[i]) + 1);
    return r;
}
