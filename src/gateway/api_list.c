/* SPDX-License-Identifier: Apache-2.0 */
/* api_list.c: GET /v1/sandbox: every sandbox with its use of resources, oldest first.
 *
 *   ?label=KEY=VALUE   only those with this label; may be repeated, then with all of them
 *   ?state=STATE       only those in this state
 *   ?olderThan=1h      only those made so long ago, or longer
 *   ?newerThan=10m     only those made since
 *   ?idle=5m           only those nobody has used for so long
 *
 * A token sees what it may use, see auth.h. */
#include "gateway/duration.h"
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"
#include "gateway/sandbox_json.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>

enum { LABELS_MAX = 16, PIECE_MAX = 3 * (CONFIG_LABEL_KEY + CONFIG_LABEL_VALUE) + 16 };

/* "key\0value" */
struct label_filter {
    char text[CONFIG_LABEL_KEY + CONFIG_LABEL_VALUE + 2];
};

struct listing {
    struct gateway *g;
    struct http_request *req; /* NULL: the caller is gone */
    struct auth_identity who; /* the token lives while req is not NULL */
    struct label_filter labels[LABELS_MAX];
    size_t label_count;
    char state[16];                      /* "" = any */
    int64_t older_ms, newer_ms, idle_ms; /* 0 = any */
    struct sandbox **found;
    size_t count, cap;
    bool no_memory;
};

static void listing_free(struct listing *l)
{
    free(l->found);
    free(l);
}

static void caller_gone(struct http_request *req)
{
    struct listing *l = req->user;
    l->req = NULL;
}

static bool wanted(const struct listing *l, const struct sandbox *sb)
{
    int64_t now = clock_wall_ms();
    if (!auth_may_see(&l->who, sb->id, sb))
        return false;
    if (l->state[0] && strcmp(l->state, sandbox_state_name(sb->state)) != 0)
        return false;
    for (size_t i = 0; i < l->label_count; i++) {
        const char *key = l->labels[i].text;
        if (!sandbox_config_has_label(&sb->config, key, key + strlen(key) + 1))
            return false;
    }
    if (sb->is_container && !l->label_count) /* the engine's own list has them */
        return false;
    return (!l->older_ms || now - sb->created_ms >= l->older_ms) &&
           (!l->newer_ms || now - sb->created_ms < l->newer_ms) &&
           (!l->idle_ms || (!sb->holding && now - sb->last_used_ms >= l->idle_ms));
}

static void add(struct sandbox *sb, void *arg)
{
    struct listing *l = arg;
    if (!wanted(l, sb))
        return;
    if (l->count == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct sandbox **found = realloc(l->found, cap * sizeof(struct sandbox *));
        if (!found) {
            l->no_memory = true;
            return;
        }
        l->found = found;
        l->cap = cap;
    }
    l->found[l->count++] = sb;
}

static int by_age(const void *a, const void *b)
{
    const struct sandbox *x = *(struct sandbox *const *)a, *y = *(struct sandbox *const *)b;
    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

static void answer(struct listing *l)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    lifecycle_for_each(l->g->lifecycle, add, l);
    if (l->no_memory) {
        reply_error(l->req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    if (l->count)
        qsort(l->found, l->count, sizeof(struct sandbox *), by_age);
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_put_key(&w, "sandboxes");
    json_array_begin(&w);
    for (size_t i = 0; i < l->count; i++)
        sandbox_put_json(&w, l->found[i], l->g->images);
    json_array_end(&w);
    json_member_int(&w, "count", (int64_t)l->count);
    json_object_end(&w);
    reply_json(l->req, 200, &w);
}

static void listed(void *arg, const struct keeper_reply *reply, int fd)
{
    struct listing *l = arg;
    close_fd(&fd);
    if (reply->type == KEEPER_ITEM) {
        struct sandbox *sb = lifecycle_find(l->g->lifecycle, reply->id);
        if (sb)
            sb->usage = reply->usage;
        return;
    }
    if (l->req)
        answer(l); /* also when the keeper failed: what is known is worth showing */
    listing_free(l);
}

static int read_state(struct listing *l, const char *query, struct problem *p)
{
    if (!http_query_get(query, "state", l->state, sizeof l->state))
        return 0;
    for (int s = SANDBOX_STARTING; s < SANDBOX_STATE_COUNT; s++)
        if (strcmp(l->state, sandbox_state_name((enum sandbox_state)s)) == 0)
            return 0;
    return problem_field(p, "state",
                         "state must be starting, running, frozen, stopping, asleep or destroying");
}

/* Every label=, one piece of the query after the other. */
static int read_labels(struct listing *l, const char *query, struct problem *p)
{
    while (*query) {
        char piece[PIECE_MAX], text[sizeof l->labels[0].text];
        size_t n = strcspn(query, "&");
        bool label = strncmp(query, "label=", 6) == 0;
        if (label && n < sizeof piece) {
            memcpy(piece, query, n);
            piece[n] = '\0';
        }
        if (label && (n >= sizeof piece || !http_query_get(piece, "label", text, sizeof text) ||
                      !strchr(text, '=') || text[0] == '='))
            return problem_field(p, "label", "label must be of the form key=value");
        if (label && l->label_count == LABELS_MAX)
            return problem_field(p, "label", "at most %d labels can be asked for", LABELS_MAX);
        if (label) {
            *strchr(text, '=') = '\0';
            memcpy(l->labels[l->label_count++].text, text, sizeof text);
        }
        query += n + (query[n] == '&');
    }
    return 0;
}

static int read_duration(const char *query, const char *name, int64_t *ret_ms, struct problem *p)
{
    char text[32];
    if (!http_query_get(query, name, text, sizeof text))
        return 0;
    return duration_parse(text, ret_ms) < 0
               ? problem_field(p, name, "%s must be a time such as 30s, 10m or 1h", name)
               : 0;
}

static int read_filters(struct listing *l, const char *query, struct problem *p)
{
    int r;
    if ((r = read_state(l, query, p)) < 0 || (r = read_labels(l, query, p)) < 0 ||
        (r = read_duration(query, "olderThan", &l->older_ms, p)) < 0 ||
        (r = read_duration(query, "newerThan", &l->newer_ms, p)) < 0 ||
        (r = read_duration(query, "idle", &l->idle_ms, p)) < 0)
        return r;
    return 0;
}

void api_sandbox_list(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct problem p;
    struct listing *l = calloc(1, sizeof *l);
    if (!l) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    l->g = g;
    l->req = req;
    l->who = m->who;
    if (read_filters(l, req->query, &p) < 0) {
        listing_free(l);
        reply_problem(req, NULL, &p);
        return;
    }
    req->user = l;
    req->on_gone = caller_gone;
    struct keeper_request request = {.type = KEEPER_LIST};
    keeper_link_send(g->link, &request, -1, listed, l);
}
