/* SPDX-License-Identifier: Apache-2.0 */
/* doc.h: what an image says about itself: read from OCI and docker configurations and from our own
 * config.json, changed, and written again. */
#pragma once

#include "base/json.h"
#include "image/sha256.h"
#include "keeper/proto_image.h"

enum {
    DOC_STRINGS_MAX = 512,      /* of one list */
    DOC_BYTES_MAX = 128 * 1024, /* of one list; exec(2) takes not much more */
    DOC_TEXT_MAX = 1024 * 1024, /* the whole document */
    DOC_PATH_MAX = 4096,
};

struct doc_list {
    char **items;
    size_t count, bytes;
    bool set; /* an empty list is not the same as none */
};

struct doc_layer {
    char name[SHA256_HEX + 1]; /* of the layer; or of the plain image below all others */
    bool plain;
    uint64_t bytes;
};

struct doc {
    char created[40], architecture[32], os[32];
    char parent[IMAGE_NAME_MAX + 1]; /* "": none */
    struct doc_list env, entrypoint, cmd, ports, labels /* key, value, key, value */, shell, notes;
    char *workdir, *user, *stop_signal; /* NULL: not set */
    struct doc_layer layers[IMAGE_LAYERS_MAX];
    size_t layer_count;
};

void doc_done(struct doc *d);

/* A "config.json" of ours, or of a directory made by scripts/image (its members without the frame). All
 * return 0, -EBADMSG with a sentence, or -ENOMEM. */
int doc_read(struct doc *d, const struct json_value *v, struct error *reterr);
/* The configuration of an OCI image or of a docker archive, without its layers. */
int doc_read_oci(struct doc *d, const struct json_value *v, struct error *reterr);
/* Lays {"env", "workdir", "user", "entrypoint", "cmd", "exposedPorts", "labels", "stopSignal", "shell",
 * "notes"} over it: env by name, others as a whole; null takes away; unknown members are refused. */
int doc_override(struct doc *d, const struct json_value *v, struct error *reterr);
int doc_note(struct doc *d, const char *note, struct error *reterr);

void doc_write(const struct doc *d, struct json_writer *w);
/* diff_ids: one for each layer, as hexadecimal digits. */
void doc_write_oci(const struct doc *d, char (*diff_ids)[SHA256_HEX + 1], size_t count,
                   struct json_writer *w);
/* What the keeper hands to a sandbox: "WORKDIR\0USER\0K=V\0K=V\0". */
int doc_write_run(const struct doc *d, struct buf *out);

/* "amd64": what this program was built for. */
extern const char doc_architecture[];
