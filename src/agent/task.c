/* SPDX-License-Identifier: Apache-2.0 */
/* task.c: see task.h. */
#include "agent/task.h"

#include <errno.h>
#include <string.h>

static void session_done(struct session_task *st, const struct session_fault *fault, int status)
{
    struct task *t = container_of(st, struct task, in_session);
    t->out = st->out;
    t->err = st->err;
    t->done(t, fault, status);
}

static void process_changed(struct process_watcher *w)
{
    struct task *t = container_of(w, struct task, watcher);
    struct process *p = t->process;
    if (!p->ended)
        return;
    process_ref(p); /* the spools must outlive the callback, the task need not */
    process_unwatch(p, w);
    t->out = p->spools[0];
    t->err = p->spools[1];
    t->done(t, NULL, p->exit_code);
    process_unref(p);
}

static void process_started(struct process *p, const struct process_failure *failure, void *arg)
{
    struct task *t = arg;
    if (failure) {
        struct session_fault fault = {.kind = SESSION_FAULT_NO_SHELL, .why = failure->why};
        t->done(t, &fault, 0);
        return;
    }
    t->process = p;
    t->watcher.changed = process_changed;
    process_watch(p, &t->watcher);
}

static int start_sessionless(struct agent *a, struct task *t, const char *text, const struct env_list *env)
{
    struct command_request c = {.command = strdup(text),
                                .session_id = strdup(AGENT_SESSIONLESS),
                                .sessionless = true,
                                .timeout_ms = -1};
    int r = c.command && c.session_id ? 0 : -ENOMEM;
    c.len = strlen(text);
    if (r == 0 && env)
        r = env_merge(&c.env, env->vars);
    if (r == 0)
        r = process_start(a, &c,
                          &(struct process_options){.hidden = true, .started = process_started, .arg = t});
    command_request_done(&c);
    return r;
}

int task_start(struct agent *a, const char *session_id, struct task *t, const char *text,
               const struct env_list *env,
               void (*done)(struct task *t, const struct session_fault *fault, int status))
{
    *t = (struct task){.done = done};
    if (strcmp(session_id, AGENT_SESSIONLESS) == 0)
        return start_sessionless(a, t, text, env);
    t->in_session = (struct session_task){
        .text = text, .len = strlen(text), .env = env, .timeout_ms = -1, .done = session_done};
    return session_task_start(a, session_id, &t->in_session);
}

static bool has_nul(const struct json_value *v)
{
    size_t n = 0;
    const char *s = json_string(v, &n);
    return s && strlen(s) != n;
}

bool task_body_has_nul(const struct json_value *body, const char **ret_key)
{
    json_for_each (member, body) {
        bool found = has_nul(member);
        json_for_each (inner, member) {
            found = found || has_nul(inner);
            json_for_each (innermost, inner)
                found = found || has_nul(innermost); /* the parts of an upload */
        }
        if (found) {
            *ret_key = json_key(member);
            return true;
        }
    }
    return false;
}

char *task_text(const struct spool *s, size_t max)
{
    size_t want = (size_t)MIN(spool_end(s), (uint64_t)max), have = 0;
    char *text = malloc(want + 1);
    while (text && have < want) {
        ssize_t n = spool_read(s, have, text + have, want - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    if (!text)
        return NULL;
    size_t kept = 0;
    for (size_t i = 0; i < have; i++)
        if (text[i] != '\0')
            text[kept++] = text[i];
    text[kept] = '\0';
    return text;
}
