/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_reach.c: see sandbox_reach.h. */
#include "gateway/sandbox_reach.h"
#include "gateway/allow_list.h"

#include <errno.h>
#include <string.h>

enum { ALLOW_BYTES = ALLOW_ENTRIES_MAX * (ALLOW_ENTRY_CHARS + 1) };

static const struct {
    const char *name;
    enum keeper_network network;
} modes[] = {{"none", KEEPER_NETWORK_NONE},
             {"public", KEEPER_NETWORK_PUBLIC},
             {"allowlist", KEEPER_NETWORK_ALLOWLIST}};

int sandbox_reach_copy(struct sandbox_reach *dst, const struct sandbox_reach *src)
{
    *dst = *src;
    dst->allow = src->allow ? strdup(src->allow) : NULL;
    return src->allow && !dst->allow ? -ENOMEM : 0;
}

void sandbox_reach_done(struct sandbox_reach *r)
{
    free(r->allow);
    r->allow = NULL;
}

bool sandbox_reach_equal(const struct sandbox_reach *a, const struct sandbox_reach *b)
{
    return a->network == b->network && strcmp(a->allow ? a->allow : "", b->allow ? b->allow : "") == 0 &&
           a->bytes_per_second == b->bytes_per_second && a->connections == b->connections;
}

static bool has_line(const struct buf *list, const char *line)
{
    size_t n = strlen(line);
    for (const char *p = buf_data(list); p && *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (strncmp(p, line, n) == 0 && (p[n] == '\n' || p[n] == '\0'))
            return true;
    return false;
}

/* Adds a checked entry unless it is there. */
static int add_entry(struct buf *list, const char *text, struct error *reterr)
{
    char entry[ALLOW_ENTRY_CHARS + 1];
    int r = allow_entry_check(text, entry, reterr);
    if (r < 0 || (buf_cstr(list) && has_line(list, entry)))
        return r;
    if ((buf_len(list) && buf_putc(list, '\n') < 0) || buf_puts(list, entry) < 0)
        return error_set(reterr, E2BIG, "the list is too long");
    return 0;
}

/* Takes what list has; checks what only the whole can be wrong about. */
static int take_list(struct sandbox_reach *r, struct buf *list, struct error *reterr)
{
    struct allow_list *parsed = NULL;
    char *text = buf_len(list) ? strdup(buf_cstr(list) ? buf_data(list) : "") : NULL;
    int err = buf_len(list) && !text ? error_sys(reterr, ENOMEM, "read a list")
                                     : allow_list_parse(text, &parsed, reterr);
    allow_list_free(parsed);
    if (err < 0) {
        free(text);
        return err;
    }
    free(r->allow);
    r->allow = text;
    return 0;
}

static int apply_allow(struct sandbox_reach *r, const struct json_value *v, struct problem *p)
{
    struct buf list = BUF_INIT(ALLOW_BYTES);
    struct error e;
    int err = 0;
    if (json_type_of(v) != JSON_ARRAY)
        return problem_field(p, "network.allow",
                             "network.allow must be an array such as [\"*.example.org:443\"]");
    json_for_each (child, v) {
        const char *text = json_string(child, NULL);
        if (!text) {
            buf_done(&list);
            return problem_field(p, "network.allow",
                                 "network.allow must have strings in it and nothing else");
        }
        if (err == 0)
            err = add_entry(&list, text, &e);
    }
    if (err == 0)
        err = take_list(r, &list, &e);
    buf_done(&list);
    return err < 0 ? problem_field(p, "network.allow", "network.allow: %s", e.msg) : 0;
}

static int apply_mode(struct sandbox_reach *r, const char *mode, struct problem *p)
{
    for (size_t i = 0; mode && i < ARRAY_SIZE(modes); i++)
        if (strcmp(mode, modes[i].name) == 0) {
            r->network = modes[i].network;
            if (r->network != KEEPER_NETWORK_ALLOWLIST)
                sandbox_reach_done(r);
            return 0;
        }
    return problem_field(p, "network.mode", "network.mode must be none, public or allowlist");
}

/* Unknown members are refused: what was meant to close a door must not be ignored. */
int sandbox_reach_apply(struct sandbox_reach *r, const struct json_value *v, struct problem *p)
{
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (json_type_of(v) == JSON_STRING)
        return apply_mode(r, json_string(v, NULL), p);
    if (json_type_of(v) != JSON_OBJECT)
        return problem_field(
            p, "network",
            "network must be \"none\", \"public\" or an object such as {\"mode\": \"allowlist\"}");
    json_for_each (child, v)
        if (strcmp(json_key(child), "mode") != 0 && strcmp(json_key(child), "allow") != 0)
            return problem_field(p, "network", "network has the members mode and allow and no others");
    int err = apply_mode(r, json_string(json_get(v, "mode"), NULL), p);
    const struct json_value *allow = json_get(v, "allow");
    if (err < 0 || json_type_of(allow) == JSON_NULL)
        return err;
    if (r->network != KEEPER_NETWORK_ALLOWLIST)
        return problem_field(p, "network.allow", "network.allow goes with the mode allowlist only");
    return apply_allow(r, allow, p);
}

int sandbox_reach_allow_words(struct sandbox_reach *r, const char *words, struct error *reterr)
{
    struct buf list = BUF_INIT(ALLOW_BYTES);
    int err = r->allow ? buf_puts(&list, r->allow) : 0;
    for (const char *p = words; *p && err == 0;) {
        char entry[ALLOW_ENTRY_CHARS + 2];
        size_t n = strcspn(p, ", ");
        if (n >= sizeof entry)
            err = error_set(reterr, EINVAL, "'%.80s' is too long", p);
        memcpy(entry, p, MIN(n, sizeof entry - 1));
        entry[MIN(n, sizeof entry - 1)] = '\0';
        if (err == 0 && n)
            err = add_entry(&list, entry, reterr);
        p += n + (p[n] != '\0');
    }
    if (err == 0)
        err = take_list(r, &list, reterr);
    buf_done(&list);
    return err;
}

void sandbox_reach_put_json(struct json_writer *w, const struct sandbox_reach *r, bool has_network)
{
    const char *mode = has_network ? "public" : "none";
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        if (modes[i].network == r->network)
            mode = modes[i].name;
    if (r->network == KEEPER_NETWORK_SIDECAR)
        mode = "sidecar";
    json_object_begin(w);
    json_member_string(w, "mode", mode);
    if (r->network == KEEPER_NETWORK_ALLOWLIST) {
        json_put_key(w, "allow");
        json_array_begin(w);
        for (const char *p = r->allow ? r->allow : ""; *p;) {
            size_t n = strcspn(p, "\n");
            json_put_bytes(w, p, n);
            p += n + (p[n] == '\n');
        }
        json_array_end(w);
    }
    json_object_end(w);
}

static bool has_entry(const struct sandbox_reach *r, const char *line, size_t n)
{
    for (const char *p = r->allow ? r->allow : ""; *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (strcspn(p, "\n") == n && strncmp(p, line, n) == 0)
            return true;
    return false;
}

bool sandbox_reach_extends(const struct sandbox_reach *r, const struct sandbox_reach *before)
{
    if (r->network != KEEPER_NETWORK_ALLOWLIST || before->network != KEEPER_NETWORK_ALLOWLIST)
        return false;
    for (const char *p = before->allow ? before->allow : ""; *p;) {
        size_t n = strcspn(p, "\n");
        if (!has_entry(r, p, n))
            return false;
        p += n + (p[n] == '\n');
    }
    return true;
}

bool sandbox_reach_opens_private(const struct sandbox_reach *r, const struct sandbox_reach *before)
{
    for (const char *p = r->allow ? r->allow : ""; *p;) {
        char entry[ALLOW_ENTRY_CHARS + 1];
        size_t n = MIN(strcspn(p, "\n"), sizeof entry - 1);
        memcpy(entry, p, n);
        entry[n] = '\0';
        if (!has_entry(before, p, n) && allow_entry_is_private(entry))
            return true;
        p += n + (p[n] == '\n');
    }
    return false;
}

void sandbox_reach_policy(const struct sandbox_reach *r, struct keeper_policy *ret)
{
    struct allow_list *list = NULL;
    *ret = (struct keeper_policy){.bytes_per_second = r->bytes_per_second, .connections = r->connections};
    /* what cannot be read opens nothing */
    if (r->network == KEEPER_NETWORK_ALLOWLIST && allow_list_parse(r->allow, &list, NULL) == 0)
        allow_list_rules(list, ret);
    allow_list_free(list);
}
