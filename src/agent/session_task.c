/* SPDX-License-Identifier: Apache-2.0 */
/* session_task.c: session_task_start: a command in a session for the agent's own purposes, with its outputs
 * collected. */
#include "agent/session.h"
#include "agent/command_request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Owns copies of everything: the command may outlive the task when its time is over. */
struct session_task_state {
    struct agent *agent;
    struct session_task *task; /* NULL: already told */
    struct session *session;   /* while the lock is held */
    struct session_op op;
    struct shell_command command;
    struct timer timer;
    struct spool *spools[2];
    struct env_list env;
    char *text, *cwd;
};

static void state_free(struct session_task_state *s)
{
    loop_timer_stop(s->agent->loop, &s->timer);
    for (int i = 0; i < 2; i++)
        spool_unref(s->spools[i]);
    env_done(&s->env);
    free(s->text);
    free(s->cwd);
    free(s);
}

static void tell(struct session_task_state *s, const struct session_fault *fault, int status)
{
    struct session_task *t = take_ptr(s->task);
    if (!t)
        return;
    t->out = s->spools[0];
    t->err = s->spools[1];
    t->state = NULL;
    t->done(t, fault, status);
}

static void release(struct session_task_state *s)
{
    if (!s->session)
        return;
    s->session = NULL;
    session_op_done(&s->op);
}

static void on_output(struct shell_command *c, int stream, const char *data, size_t n)
{
    struct session_task_state *s = container_of(c, struct session_task_state, command);
    if (s->task)
        spool_append(s->spools[stream - 1], data, n);
}

static void on_done(struct shell_command *c, enum shell_end how, int status)
{
    struct session_task_state *s = container_of(c, struct session_task_state, command);
    if (how == SHELL_END_BAD_CWD) {
        char text[4300];
        int n = snprintf(text, sizeof text, BAD_CWD_FORMAT "\n", s->cwd);
        on_output(c, 2, text, MIN((size_t)n, sizeof text - 1));
    }
    struct session_fault fault = session_fault_of(s->session, how, status);
    bool ran = how == SHELL_END_STATUS || how == SHELL_END_BAD_CWD;
    tell(s, ran ? NULL : &fault, status);
    release(s);
    state_free(s);
}

static void time_over(struct timer *t)
{
    struct session_task_state *s = container_of(t, struct session_task_state, timer);
    bool running = !session_unrun(s->session, &s->command);
    tell(s, NULL, -ETIMEDOUT);
    release(s);
    if (!running)
        state_free(s);
}

static void op_run(struct session_op *op, struct session *session)
{
    struct session_task_state *s = container_of(op, struct session_task_state, op);
    s->session = session;
    if (s->task->timeout_ms >= 0)
        loop_timer_start(s->agent->loop, &s->timer, s->task->timeout_ms, time_over);
    s->command = (struct shell_command){
        .text = s->text,
        .len = strlen(s->text),
        .cwd = s->cwd,
        .env = &s->env,
        .output = on_output,
        .done = on_done,
    };
    session_run(session, &s->command);
}

static void op_fail(struct session_op *op, const struct session_fault *fault)
{
    struct session_task_state *s = container_of(op, struct session_task_state, op);
    tell(s, fault, 0);
    state_free(s);
}

int session_task_start(struct agent *a, const char *id, struct session_task *t)
{
    struct session_task_state *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->agent = a;
    s->task = t;
    t->state = s;
    s->text = strndup(t->text, t->len);
    for (int i = 0; i < 2; i++)
        s->spools[i] = spool_new(&a->spools);
    if (!s->text || (t->cwd && !(s->cwd = strdup(t->cwd))) || !s->spools[0] || !s->spools[1] ||
        (t->env && env_merge(&s->env, t->env->vars) < 0)) {
        state_free(s);
        return -ENOMEM;
    }
    s->op = (struct session_op){.run = op_run, .fail = op_fail};
    session_submit(a, id, &s->op);
    return 0;
}
