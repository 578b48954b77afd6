/* SPDX-License-Identifier: Apache-2.0 */
/* plan_settings.c: ENV, LABEL, EXPOSE, USER, CMD, ENTRYPOINT and SHELL. */
#include "builder/dockerfile_words.h"
#include "builder/plan_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Appends "NAME=VALUE" with the variables of both replaced. */
static int add_pair(struct planner *p, struct words *to, const char *name, size_t n, const char *value)
{
    auto_free char *raw_name = strndup(name, n), *real_name = NULL, *real_value = NULL;
    char *pair = NULL;
    int r = raw_name ? plan_expand(p, raw_name, &real_name) : plan_memory(p);
    if (r == 0)
        r = plan_expand(p, value, &real_value);
    if (r == 0 && !*real_name)
        r = plan_fail(p, EINVAL, "a name is empty");
    if (r == 0 && (asprintf(&pair, "%s=%s", real_name, real_value) < 0 || words_take(to, pair) < 0))
        r = plan_memory(p);
    return r;
}

/* "NAME=VALUE ..." or, the old way, "NAME all the rest". Values are looked up before any of them is set. */
static int read_pairs(struct planner *p, struct words *to)
{
    const struct instruction *at = p->at;
    const char *first = at->words.items[0];
    struct words pairs = {0};
    int r = 0;
    if (!strchr(first, '=')) {
        const char *value = at->rest + strlen(first);
        value += strspn(value, " \t");
        r = *value ? add_pair(p, &pairs, first, strlen(first), value)
                   : plan_fail(p, EINVAL, "'%s' has no value; write NAME=VALUE", first);
    } else {
        for (size_t i = 0; r == 0 && i < at->words.count; i++) {
            const char *word = at->words.items[i];
            size_t n = strcspn(word, "=");
            r = word[n] ? add_pair(p, &pairs, word, n, word + n + 1)
                        : plan_fail(p, EINVAL, "'%s' is not NAME=VALUE; blanks in a value need quotes", word);
        }
    }
    for (size_t i = 0; r == 0 && i < pairs.count; i++) {
        size_t n = strcspn(pairs.items[i], "=");
        if (pairs_set(to, pairs.items[i], n, pairs.items[i] + n + 1) < 0)
            r = plan_memory(p);
    }
    words_done(&pairs);
    return r;
}

int plan_env(struct planner *p)
{
    return read_pairs(p, &p->stage->config.env);
}

int plan_label(struct planner *p)
{
    return read_pairs(p, &p->stage->config.labels);
}

static bool read_port(const char **text, unsigned *ret)
{
    unsigned v = 0;
    const char *s = *text;
    for (; *s >= '0' && *s <= '9' && v < 100000; s++)
        v = v * 10 + (unsigned)(*s - '0');
    bool ok = s > *text && v >= 1 && v <= 65535;
    *text = s;
    *ret = v;
    return ok;
}

static int add_port(struct planner *p, unsigned port, const char *protocol)
{
    char text[24];
    struct words *ports = &p->stage->config.ports;
    (void)snprintf(text, sizeof text, "%u/%s", port, protocol);
    for (size_t i = 0; i < ports->count; i++)
        if (strcmp(ports->items[i], text) == 0)
            return 0;
    return words_add(ports, text, strlen(text)) < 0 ? plan_memory(p) : 0;
}

/* "8080", "8080/udp", "8000-8010/tcp". */
static int expose_one(struct planner *p, const char *word)
{
    const char *s = word;
    unsigned first, last;
    bool ok = read_port(&s, &first);
    last = first;
    if (ok && *s == '-') {
        s++;
        ok = read_port(&s, &last) && last >= first;
    }
    const char *protocol = ok && *s == '/' ? s + 1 : "tcp";
    ok = ok && (*s == '\0' || *s == '/') && (strcmp(protocol, "tcp") == 0 || strcmp(protocol, "udp") == 0);
    if (!ok)
        return plan_fail(p, EINVAL, "'%s' is not a port; write 8080, 8080/udp or 8000-8010", word);
    int r = 0;
    for (unsigned port = first; r == 0 && port <= last; port++)
        r = add_port(p, port, protocol);
    return r;
}

int plan_expose(struct planner *p)
{
    auto_free char *text = NULL;
    struct words words = {0};
    int r = plan_expand(p, p->at->rest, &text); /* a variable may hold several ports */
    if (r == 0 && dockerfile_split(text, '\\', false, &words) < 0)
        r = plan_memory(p);
    for (size_t i = 0; r == 0 && i < words.count; i++)
        r = expose_one(p, words.items[i]);
    words_done(&words);
    return r;
}

int plan_user(struct planner *p)
{
    char *user = NULL;
    int r = plan_expand(p, p->at->rest, &user);
    if (r == 0 && (!*user || user[strcspn(user, " \t'\"\\/$`")])) {
        r = plan_fail(p, EINVAL, "'%s' is not USER, USER:GROUP or their numbers", user);
        free(user);
    } else if (r == 0) {
        free(p->stage->config.user);
        p->stage->config.user = user;
    }
    return r;
}

int plan_command(struct planner *p, struct words *to)
{
    const struct instruction *at = p->at;
    const struct words *shell = &p->stage->config.shell;
    words_done(to);
    if (at->json)
        return words_copy(to, &at->words) < 0 ? plan_memory(p) : 0;
    if (!*at->rest)
        return 0;
    int r = shell->count ? words_copy(to, shell) : words_add(to, "/bin/sh", 7);
    if (r == 0 && !shell->count)
        r = words_add(to, "-c", 2);
    if (r == 0)
        r = words_add(to, at->rest, strlen(at->rest));
    return r < 0 ? plan_memory(p) : 0;
}

int plan_shell(struct planner *p)
{
    struct words *shell = &p->stage->config.shell;
    if (!p->at->json || p->at->words.count == 0)
        return plan_fail(p, EINVAL, "SHELL needs the JSON form: SHELL [\"/bin/bash\", \"-c\"]");
    words_done(shell);
    return words_copy(shell, &p->at->words) < 0 ? plan_memory(p) : 0;
}
