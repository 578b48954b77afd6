/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_top.c: silica top: who uses how much, the busiest first, renewed until Ctrl-C. */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/format.h"
#include "cli/values.h"

#include "base/clock.h"
#include "base/json.h"

#include <string.h>
#include <time.h>

enum { KEY_ONCE = OPTION_KEY_FIRST, KEY_JSON, INTERVAL_MIN_MS = 200, FIRST_LOOK_MS = 500 };

const struct option top_options[] = {
    {KEY_ONCE, "once", '1', NULL, NULL, "print the table once"},
    {'n', "interval", 'n', "TIME", NULL, "time between two looks (default 2s)"},
    {KEY_JSON, "json", 0, NULL, NULL, "print JSON (implies --once)"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct top_settings {
    struct connect_settings connect;
    int64_t interval_ms;
    bool once, json;
};

static const struct table_column columns[] = {
    {"ID", false, 12}, {"STATE", false, 0}, {"CPU%", true, 0}, {"CPU", true, 0},   {"MEMORY", true, 0},
    {"PEAK", true, 0}, {"LIMIT", true, 0},  {"DISK", true, 0}, {"TASKS", true, 0}, {"OOM", true, 0},
};

/* One look at all sandboxes. */
struct look {
    struct silica_sandbox_list list;
    double *cpu_s; /* of each, in the order of the list */
    int64_t at_us;
};

struct line {
    const struct silica_sandbox *sandbox;
    double cpu_percent; /* below 0: not known */
};

static void look_done(struct look *l)
{
    silica_sandbox_list_done(&l->list);
    free(l->cpu_s);
    *l = (struct look){0};
}

/* A number of the sandbox's JSON; 0 when it is not there. */
static double member(const struct silica_sandbox *s, const char *name, const char *inner)
{
    auto_free char *text = strdup(s->json);
    auto_json struct json_doc *doc = NULL;
    double v = 0;
    if (!text || json_parse(text, strlen(text), JSON_ALLOW_NUL, &doc, NULL) < 0)
        return 0;
    const struct json_value *at = json_get(json_root(doc), name);
    (void)json_number(inner ? json_get(at, inner) : at, &v);
    return v;
}

static int take_look(struct silica_client *c, struct look *ret, struct silica_error *reterr)
{
    struct look l = {0};
    int r = silica_sandbox_list(c, &l.list, reterr);
    if (r < 0)
        return r;
    l.at_us = clock_mono_us();
    l.cpu_s = calloc(l.list.count ? l.list.count : 1, sizeof *l.cpu_s);
    for (size_t i = 0; l.cpu_s && i < l.list.count; i++)
        l.cpu_s[i] = member(&l.list.items[i], "cpuSeconds", NULL);
    *ret = l;
    return 0;
}

static double percent(const struct look *now, size_t i, const struct look *before)
{
    for (size_t k = 0; before->cpu_s && now->cpu_s && k < before->list.count; k++) {
        if (strcmp(before->list.items[k].id, now->list.items[i].id) != 0)
            continue;
        double seconds = (double)(now->at_us - before->at_us) / 1e6, used = now->cpu_s[i] - before->cpu_s[k];
        return seconds > 0 && used >= 0 ? 100 * used / seconds : -1; /* a new start counts from zero */
    }
    return -1;
}

static int by_use(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (x->cpu_percent != y->cpu_percent)
        return x->cpu_percent > y->cpu_percent ? -1 : 1;
    if (x->sandbox->memory_bytes != y->sandbox->memory_bytes)
        return x->sandbox->memory_bytes > y->sandbox->memory_bytes ? -1 : 1;
    return strcmp(x->sandbox->id, y->sandbox->id);
}

static int add_row(struct table *t, const struct line *l)
{
    char cpu[FORMAT_SIZE] = "-", time[FORMAT_SIZE], memory[FORMAT_SIZE], peak[FORMAT_SIZE],
         limit[FORMAT_SIZE], disk[FORMAT_SIZE], tasks[FORMAT_SIZE], oom[FORMAT_SIZE];
    const struct silica_sandbox *s = l->sandbox;
    if (l->cpu_percent >= 0)
        (void)snprintf(cpu, sizeof cpu, "%.1f", l->cpu_percent);
    (void)snprintf(time, sizeof time, "%.1fs", member(s, "cpuSeconds", NULL));
    format_bytes(s->memory_bytes > 0 ? (uint64_t)s->memory_bytes : 0, memory);
    format_bytes((uint64_t)member(s, "memoryPeakBytes", NULL), peak);
    format_bytes((uint64_t)member(s, "limits", "memoryBytes"), limit);
    format_bytes((uint64_t)member(s, "diskBytes", NULL), disk);
    (void)snprintf(tasks, sizeof tasks, "%lld", (long long)MAX(s->tasks, INT64_C(0)));
    (void)snprintf(oom, sizeof oom, "%.0f", member(s, "oomKills", NULL));
    const char *cells[] = {s->id, s->state, cpu, time, memory, peak, limit, disk, tasks, oom};
    return table_add(t, cells);
}

static int print_look(const struct look *now, const struct look *before, bool renew)
{
    struct table t = TABLE_INIT(columns);
    auto_free struct line *lines = calloc(now->list.count ? now->list.count : 1, sizeof *lines);
    int r = lines ? 0 : -1;
    for (size_t i = 0; r == 0 && i < now->list.count; i++)
        lines[i] = (struct line){&now->list.items[i], percent(now, i, before)};
    if (r == 0 && now->list.count)
        qsort(lines, now->list.count, sizeof *lines, by_use);
    for (size_t i = 0; r == 0 && i < now->list.count; i++)
        r = add_row(&t, &lines[i]);
    if (r == 0) {
        if (renew)
            printf("\033[H\033[J"); /* home, and clear from there */
        table_print(&t, stdout, terminal_width(STDOUT_FILENO));
        (void)fflush(stdout);
    }
    table_done(&t);
    return r < 0 ? cli_error("top", "out of memory") : 0;
}

static void pause_ms(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

static int run(const struct top_settings *s)
{
    auto_client struct silica_client *c = NULL;
    struct look before = {0}, now;
    struct silica_error e;
    int r = connect_open("top", &s->connect, &c);
    if (r != 0)
        return r;
    for (bool first = true; r == 0; first = false) {
        if (take_look(c, &now, &e) < 0) {
            r = connect_failed("top", c, &e);
            break;
        }
        if (s->json) {
            printf("%s\n", now.list.json);
        } else if (!first) {
            r = print_look(&now, &before, !s->once);
        }
        look_done(&before);
        before = now;
        if (s->once && (s->json || !first))
            break;
        pause_ms(first ? FIRST_LOOK_MS : s->interval_ms); /* a rate needs two looks */
    }
    look_done(&before);
    return r;
}

int cmd_top(int argc, char **argv)
{
    struct top_settings s = {.interval_ms = 2000, .once = !isatty(STDOUT_FILENO)};
    struct command_line line = command_line_of("top", top_options, &s.connect, argc, argv);
    const char *value;
    struct error e;
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        switch (key) {
        case OPTION_OPERAND:
            return cli_unexpected("top", value);
        case 'n':
            if (value_duration_ms(options_source(&line.options), value, &s.interval_ms, &e) < 0)
                return cli_usage_error("top", &e);
            s.interval_ms = MAX(s.interval_ms, (int64_t)INTERVAL_MIN_MS);
            break;
        case KEY_JSON:
            s.json = s.once = true;
            break;
        case KEY_ONCE:
            s.once = true;
            break;
        }
    return key < 0 ? line.exit_code : run(&s);
}
