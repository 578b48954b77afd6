/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: reading the plan and running one step of it between two looks at the clock. */
#include "step.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { TEMPLATE_MAX = 16 * 1024 };

extern char **environ;

static int body_read_file(struct step *s, const char *path)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    auto_free char *data = malloc((size_t)st.st_size + 1);
    if (!data)
        return -ENOMEM;
    ssize_t n = read(fd, data, (size_t)st.st_size);
    if (n != st.st_size)
        return -EIO;
    data[n] = '\0';
    s->body_len = (size_t)n;
    s->body = take_ptr(data);
    return 0;
}

static int body_set(struct step *s, const char *text)
{
    if (text[0] == '@')
        return body_read_file(s, text + 1);
    if (text[0] == '+') {
        s->fill = strtoull(text + 1, NULL, 10);
        return 0;
    }
    if (text[0]) {
        s->body = strdup(text);
        s->body_len = strlen(text);
        s->body_template = strstr(text, "{n}") || strstr(text, "{t}");
        if (s->body_template && s->body_len + 64 > TEMPLATE_MAX)
            return -E2BIG;
    }
    return text[0] && !s->body ? -ENOMEM : 0;
}

static int step_parse(struct step *s, char *line)
{
    char *fields[STEP_ARGS_MAX] = {0};
    size_t n = 0;
    for (char *rest = line, *f; (f = strsep(&rest, "\t"));) {
        if (n == STEP_ARGS_MAX)
            return -E2BIG;
        fields[n++] = f;
    }
    if (n < 3)
        return -EINVAL;
    s->name = fields[1];
    if (strcmp(fields[0], "spawn") == 0) {
        s->spawn = true;
        for (size_t i = 2; i < n; i++)
            s->argv[i - 2] = fields[i];
        return 0;
    }
    if (strcmp(fields[0], "http") != 0 || n != 8)
        return -EINVAL;
    s->address = fields[2];
    s->method = fields[3];
    s->path = fields[4];
    s->expect = fields[6];
    s->mark = fields[7][0] ? fields[7] : NULL;
    return body_set(s, fields[5]);
}

int plan_read(struct plan *p, FILE *in)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int r = 0;
    *p = (struct plan){0};
    while (r == 0 && (n = getline(&line, &room, in)) > 0) {
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        if (p->count == STEP_MAX) {
            r = -E2BIG;
            break;
        }
        struct step *s = &p->steps[p->count++];
        s->line = strdup(line);
        r = s->line ? step_parse(s, s->line) : -ENOMEM;
    }
    free(line);
    return r == 0 && !p->count ? -EINVAL : r;
}

void plan_done(struct plan *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->steps[i].line);
        free(p->steps[i].body);
    }
    p->count = 0;
}

int runner_init(struct runner *r)
{
    *r = (struct runner){0};
    r->answer = malloc(sizeof *r->answer);
    r->path = malloc(TEMPLATE_MAX);
    r->body = malloc(TEMPLATE_MAX);
    return r->answer && r->path && r->body ? 0 : -ENOMEM;
}

void runner_done(struct runner *r)
{
    for (size_t i = 0; i < r->connection_count; i++)
        http_done(&r->connections[i]);
    free(r->answer);
    free(r->path);
    free(r->body);
    free(r->samples);
    *r = (struct runner){0};
}

struct http *runner_connection(struct runner *r, const char *address)
{
    for (size_t i = 0; i < r->connection_count; i++)
        if (strcmp(r->connections[i].address, address) == 0)
            return &r->connections[i];
    if (r->connection_count == STEP_CONNECTIONS_MAX)
        return NULL;
    struct http *h = &r->connections[r->connection_count];
    if (http_init(h, address) < 0)
        return NULL;
    r->connection_count++;
    return h;
}

static void fill_in(char *out, size_t room, const char *text, unsigned n, unsigned t)
{
    size_t len = 0;
    while (*text && len + 16 < room) {
        if (strncmp(text, "{n}", 3) == 0 || strncmp(text, "{t}", 3) == 0) {
            len += (size_t)snprintf(out + len, room - len, "%u", text[1] == 'n' ? n : t);
            text += 3;
        } else {
            out[len++] = *text++;
        }
    }
    out[len] = '\0';
}

static int run_program(struct runner *r, const struct step *s, unsigned n, unsigned t, struct sample *sample)
{
    char *argv[STEP_ARGS_MAX + 1] = {0}, *room = r->body;
    size_t left = TEMPLATE_MAX;
    for (size_t i = 0; s->argv[i]; i++) {
        if (strlen(s->argv[i]) + 32 > left)
            return -E2BIG;
        fill_in(room, left, s->argv[i], n, t);
        argv[i] = room;
        left -= strlen(room) + 1;
        room += strlen(room) + 1;
    }
    posix_spawn_file_actions_t quiet;
    pid_t pid;
    int status;
    (void)posix_spawn_file_actions_init(&quiet);
    (void)posix_spawn_file_actions_addopen(&quiet, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    sample->at_ns = now_ns();
    int e = posix_spawn(&pid, argv[0], &quiet, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&quiet);
    if (e) {
        (void)snprintf(r->error, sizeof r->error, "%s: %s", argv[0], strerror(e));
        return -e;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    sample->total_ns = now_ns() - sample->at_ns;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    (void)snprintf(r->error, sizeof r->error, "%s ended with status 0x%x", argv[0], (unsigned)status);
    return -ECHILD;
}

static int run_request(struct runner *r, const struct step *s, unsigned n, unsigned t, struct sample *sample)
{
    struct http *h = runner_connection(r, s->address);
    struct http_answer *a = r->answer;
    if (!h) {
        (void)snprintf(r->error, sizeof r->error, "too many addresses");
        return -E2BIG;
    }
    fill_in(r->path, TEMPLATE_MAX, s->path, n, t);
    struct http_call call = {.method = s->method,
                             .path = r->path,
                             .body = s->body,
                             .body_len = s->body_len,
                             .fill = s->fill,
                             .mark = s->mark};
    if (s->body_template) {
        fill_in(r->body, TEMPLATE_MAX, s->body, n, t);
        call.body = r->body;
        call.body_len = strlen(r->body);
    }
    int e = http_do(h, &call, a);
    if (e < 0) {
        (void)snprintf(r->error, sizeof r->error, "%s %s: %s", s->method, r->path, strerror(-e));
        return e;
    }
    if (a->status / 100 != 2 || !strstr(a->text, s->expect) || (s->mark && !a->mark_ns)) {
        (void)snprintf(r->error, sizeof r->error, "HTTP %d from %s %s: %.200s", a->status, s->method, r->path,
                       a->text);
        return -EPROTO;
    }
    sample->at_ns = a->start_ns;
    sample->total_ns = a->end_ns - a->start_ns;
    sample->first_ns = a->first_ns ? a->first_ns - a->start_ns : 0;
    sample->mark_ns = a->mark_ns ? a->mark_ns - a->start_ns : 0;
    sample->bytes = a->bytes;
    return 0;
}

int step_run(struct runner *r, const struct step *s, unsigned n, unsigned t)
{
    struct sample sample = {.name = s->name};
    int e = s->spawn ? run_program(r, s, n, t, &sample) : run_request(r, s, n, t, &sample);
    if (e < 0 || s->name[0] == '-')
        return e;
    if (r->sample_count == r->sample_room) {
        size_t room = r->sample_room ? r->sample_room * 2 : 1024;
        struct sample *more = reallocarray(r->samples, room, sizeof *more);
        if (!more)
            return -ENOMEM;
        r->samples = more;
        r->sample_room = room;
    }
    r->samples[r->sample_count++] = sample;
    return 0;
}

void runner_print(const struct runner *r, int64_t zero_ns)
{
    for (size_t i = 0; i < r->sample_count; i++) {
        const struct sample *s = &r->samples[i];
        (void)printf("sample\t%s\t%lld\t%lld\t%lld\t%lld\t%llu\n", s->name, (long long)(s->at_ns - zero_ns),
                     (long long)s->total_ns, (long long)s->first_ns, (long long)s->mark_ns,
                     (unsigned long long)s->bytes);
    }
}
