/* SPDX-License-Identifier: Apache-2.0 */
/* build_command.c: see build_command.h. */
#include "cli/build_command.h"

#include "base/buf.h"
#include "builder/dockerfile.h"
#include "builder/remote.h"
#include "cli/build_cache.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

enum { KEPT_IMAGES = 8 };

static int take_network(struct build_command *b, const char *source, const char *value, struct error *reterr)
{
    static const struct {
        const char *word, *network;
        bool if_any;
    } rows[] = {{"default", NULL, false},
                {"none", "none", false},
                {"public", "public", false},
                /* programs say it to be sure of a network; the host's own is never given */
                {"host", "public", true}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].word, value) == 0) {
            b->options.network = rows[i].network;
            b->options.network_if_any = rows[i].if_any;
            return 1;
        }
    return error_set(reterr, EINVAL, "%s: '%.40s' is not default, none, public or host", source, value);
}

/* NAME=VALUE, or NAME for our own variable of that name. */
static int take_arg(struct words *to, const char *source, const char *value, struct error *reterr)
{
    size_t n = strcspn(value, "=");
    const char *own = value[n] ? NULL : getenv(value);
    int r = 0;
    if (n == 0)
        return error_set(reterr, EINVAL, "%s: '%.60s' is not NAME=VALUE", source, value);
    if (value[n] || own)
        r = pairs_set(to, value, n, own ? own : value + n + 1);
    return r < 0 ? error_set(reterr, ENOMEM, "out of memory") : 1;
}

int build_command_take(struct build_command *b, const char *source, int key, const char *value,
                       struct error *reterr)
{
    switch (key) {
    case KEY_BUILD_TAG:
        return words_add(&b->options.tags, value, strlen(value)) < 0
                   ? error_set(reterr, ENOMEM, "out of memory")
                   : 1;
    case KEY_BUILD_FILE:
        b->file = value;
        return 1;
    case KEY_BUILD_ARG:
        return take_arg(&b->options.args, source, value, reterr);
    case KEY_BUILD_LABEL:
        return take_arg(&b->options.labels, source, value, reterr);
    case KEY_BUILD_TARGET:
        b->options.target = value;
        return 1;
    case KEY_BUILD_NO_CACHE:
        b->options.no_cache = true;
        return 1;
    case KEY_BUILD_NETWORK:
        return take_network(b, source, value, reterr);
    case KEY_BUILD_QUIET:
        b->quiet = true;
        return 1;
    default:
        return 0;
    }
}

void build_command_done(struct build_command *b)
{
    words_done(&b->options.tags);
    words_done(&b->options.args);
    words_done(&b->options.labels);
}

static int read_all(int fd, struct buf *out)
{
    for (;;) {
        char *room = buf_reserve(out, 4096);
        ssize_t n = room ? read(fd, room, 4096) : -1;
        if (!room)
            return -EFBIG;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return 0;
        buf_commit(out, n > 0 ? (size_t)n : 0);
    }
}

/* ret_path: where the Dockerfile lies, "" when it came from standard input. */
static int read_dockerfile(const char *verb, const struct build_command *b, struct buf *out,
                           char ret_path[PATH_MAX])
{
    bool input = b->file && strcmp(b->file, "-") == 0;
    int n = b->file ? snprintf(ret_path, PATH_MAX, "%s", input ? "" : b->file)
                    : snprintf(ret_path, PATH_MAX, "%s/Dockerfile", b->directory);
    if (n < 0 || n >= PATH_MAX)
        return cli_error(verb, "the path of the Dockerfile is too long");
    auto_close int file = input ? -1 : open(ret_path, O_RDONLY | O_CLOEXEC);
    if (!input && file < 0)
        return cli_error(verb, "cannot open the Dockerfile '%s': %s", ret_path, strerror(errno));
    int r = read_all(input ? STDIN_FILENO : file, out);
    return r < 0 ? cli_error(verb, "cannot read the Dockerfile: %s", strerror(-r)) : 0;
}

struct reconnect {
    const char *verb;
    const struct connect_settings *settings;
};

static int reconnect(void *user, struct silica_client **ret)
{
    const struct reconnect *r = user;
    return connect_open(r->verb, r->settings, ret);
}

/* Who cannot be reached, or does not let us in, has nothing to do with a line of the Dockerfile. */
static int check_server(const char *verb, struct silica_client *c)
{
    struct silica_request q = {.method = "GET", .path = "/v1/images/base"};
    struct silica_response a;
    struct silica_error e;
    if (silica_request(c, &q, &a, &e) < 0)
        return connect_failed(verb, c, &e);
    bool refused = a.status == 401 || a.status == 403;
    if (refused)
        (void)silica_response_error(&a, &e);
    silica_response_done(&a);
    return refused ? connect_failed(verb, c, &e) : 0;
}

/* Images of earlier starts of a Worker: the newest stay, with all their tags, since other starts may be
 * alive. */
static void forget_older(struct silica_client *c, const struct words *tags)
{
    static const char wrangler[] = "cloudflare-dev/";
    for (size_t i = 0; i < tags->count; i++) {
        const char *colon = strrchr(tags->items[i], ':');
        auto_free char *prefix = colon ? strndup(tags->items[i], (size_t)(colon - tags->items[i]) + 1) : NULL;
        if (prefix && strncmp(prefix, wrangler, sizeof wrangler - 1) == 0)
            remote_forget(c, prefix, tags->items[i], KEPT_IMAGES);
    }
}

int build_command_run(const char *verb, struct build_command *b)
{
    struct buf text = BUF_INIT(DOCKERFILE_MAX + 1);
    char path[PATH_MAX], id[BUILD_ID_SIZE];
    auto_client struct silica_client *c = NULL;
    struct reconnect again = {verb, &b->connect};
    struct error e;
    int r = read_dockerfile(verb, b, &text, path);
    if (r == 0)
        r = connect_open(verb, &b->connect, &c);
    if (r == 0)
        r = check_server(verb, c);
    if (r == 0) {
        b->options.dockerfile = buf_len(&text) ? buf_data(&text) : "";
        b->options.dockerfile_bytes = buf_len(&text);
        b->options.dockerfile_path = *path ? path : NULL;
        b->options.context = b->directory;
        b->options.out = b->quiet ? NULL : stderr;
        b->options.connect = reconnect;
        b->options.user = &again;
        r = build_run(c, &b->options, id, &e);
        if (r != 0)
            (void)cli_error(verb, "%s", e.msg);
        else
            printf("%s\n", id);
        if (r == 0 && b->tidy)
            forget_older(c, &b->options.tags);
    }
    buf_done(&text);
    return r;
}

bool build_cache_is_name(const char *name)
{
    return strncmp(name, BUILD_CACHE_NAME ":", sizeof BUILD_CACHE_NAME) == 0;
}

void build_cache_forget(struct silica_client *c)
{
    remote_forget(c, BUILD_CACHE_NAME ":", NULL, 0);
}
