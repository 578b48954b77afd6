/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: silica-agent: PID 1 of a sandbox, or a plain program that serves the same protocol.
 *
 *     silica-agent --sandbox [--soon]                 started by the keeper, sockets inherited (control.h);
 *                                                     soon: somebody waits for it
 *     silica-agent [--listen HOST:PORT] [CMD ARG...]  plain program; CMD is started beside it */
#include "agent/agent.h"
#include "agent/cloudflared.h"
#include "agent/container.h"
#include "agent/context.h"
#include "agent/fifo_dir.h"
#include "agent/intercept_ca.h"
#include "agent/keeper_line.h"
#include "agent/process.h"
#include "agent/process_kill.h"
#include "agent/reply.h"
#include "agent/routes.h"
#include "agent/rpc.h"
#include "agent/session.h"
#include "agent/spare_shell.h"
#include "agent/supervisor.h"
#include "agent/tap.h"
#include "agent/watch_share.h"
#include "agent/websockets.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* SLEEP_GRACE_MS is below the keeper's patience with us. */
enum {
    SLEEP_GRACE_MS = 1500,
    SLEEP_LOOK_MS = 5,
    SHUTDOWN_GRACE_MS = 2000,
    SCRATCH_KEEP_MS = 1000,
    IDLE_TIMEOUT_MS = 255000,
    ROOTS_MAX = 4096
};

struct program {
    struct agent agent;
    struct source signals;
    struct keeper_line *keeper;
    struct supervisor *supervisor;
    const char *listen;
    char *const *command; /* NULL: none */
    struct rlimit nofile; /* as it was */
    bool stopping;
    int exit_code;
    struct timer end;
    int64_t end_at_us;
};

static const struct http_header common_headers[] = {
    {"Access-Control-Allow-Origin", "*"},
    {"Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, OPTIONS"},
    {"Access-Control-Allow-Headers", "Content-Type, Authorization, X-Session-Id, X-Sandbox-Id, X-Trace-Id"},
};

static const char *const spool_dirs[] = {"/var/tmp", AGENT_WORKSPACE, "/tmp", NULL};

/* ------------------------------------------------------------------ what agent.h promises */

static void release_scratch(struct timer *t)
{
    struct agent *a = container_of(t, struct agent, scratch_timer);
    if (a->scratch_used) {
        a->scratch_used = false;
        loop_timer_start(a->loop, t, SCRATCH_KEEP_MS, release_scratch);
        return;
    }
    (void)madvise(a->scratch, AGENT_SCRATCH, MADV_DONTNEED);
}

char *agent_scratch(struct agent *a)
{
    a->scratch_used = true;
    if (!loop_timer_running(&a->scratch_timer))
        loop_timer_start(a->loop, &a->scratch_timer, SCRATCH_KEEP_MS, release_scratch);
    return a->scratch;
}

const char *agent_getenv(const struct agent *a, const char *name)
{
    const char *value = env_get(&a->env, name);
    return value && *value ? value : NULL;
}

const char *agent_workdir(const struct agent *a)
{
    return a->settings.workdir ? a->settings.workdir : AGENT_WORKSPACE;
}

const char *agent_home(const struct agent *a)
{
    const char *const homes[] = {agent_getenv(a, "HOME"), "/root"};
    struct stat st;
    for (size_t i = 0; i < ARRAY_SIZE(homes); i++)
        if (homes[i] && stat(homes[i], &st) == 0 && S_ISDIR(st.st_mode))
            return homes[i];
    return "/";
}

/* ------------------------------------------------------------------ the end */

static void all_dead(void *arg, bool gone)
{
    struct program *p = arg;
    (void)gone;
    loop_stop(p->agent.loop);
}

/* Whoever is still there when the grace is over goes with us: the kernel kills what PID 1 leaves behind. */
static void look_for_the_rest(struct timer *t)
{
    struct program *p = container_of(t, struct program, end);
    if ((kill(-1, 0) < 0 && errno == ESRCH) || clock_mono_us() >= p->end_at_us)
        loop_stop(p->agent.loop);
    else
        loop_timer_start(p->agent.loop, t, SLEEP_LOOK_MS, look_for_the_rest);
}

/* Everything the agent has started dies with it. */
static void shut_down(struct program *p, int code, bool now)
{
    struct agent *a = &p->agent;
    pid_t roots[ROOTS_MAX];
    size_t count = 0;
    if (p->stopping)
        return;
    p->stopping = true;
    p->exit_code = code;
    if (a->server)
        http_server_stop_listening(a->server);
    muxes_leave(a);
    if (a->sandbox) {
        (void)kill(-1, SIGTERM); /* all of the namespace but us, asked politely ... */
        (void)kill(-1, SIGCONT); /* ... the stopped ones, too */
        p->end_at_us = clock_mono_us() + (now ? 0 : (int64_t)SLEEP_GRACE_MS * 1000);
        look_for_the_rest(&p->end);
        return;
    }
    if (supervisor_pid(p->supervisor))
        roots[count++] = supervisor_pid(p->supervisor);
    count += session_pids(a, roots + count, ROOTS_MAX - count);
    count += contexts_pids(a, roots + count, ROOTS_MAX - count);
    count += terminal_pids(a, roots + count, ROOTS_MAX - count);
    list_for_each(i, &a->processes_running)
    {
        if (count < ROOTS_MAX)
            roots[count++] = list_entry(i, struct process, running)->pid;
    }
    struct process_tag ours = process_tags_all(a);
    struct killing_config config = {.roots = roots,
                                    .count = count,
                                    .tags = &ours,
                                    .tag_count = 1,
                                    .sessions = true,
                                    .signal = SIGTERM,
                                    .grace_ms = SHUTDOWN_GRACE_MS,
                                    .done = all_dead,
                                    .arg = p};
    if ((!count && !ours.last) || !killing_start(a, &config))
        loop_stop(a->loop);
}

void agent_end(struct agent *a, int code, bool now)
{
    shut_down(container_of(a, struct program, agent), code, now);
}

static void command_ended(struct agent *a, int code)
{
    agent_end(a, code, false);
}

/* As PID 1 only signals from outside the sandbox count: those have no sender in our namespace. */
static void signals_ready(struct source *s, uint32_t events)
{
    struct program *p = container_of(s, struct program, signals);
    struct signalfd_siginfo si;
    bool children = false;
    (void)events;
    while (read(s->fd, &si, sizeof si) == (ssize_t)sizeof si) {
        if (si.ssi_signo == SIGCHLD)
            children = true;
        else if (!p->agent.sandbox || si.ssi_pid == 0)
            shut_down(p, 0, false);
    }
    if (children)
        reaper_run(p->agent.reaper);
}

static int follow_signals(struct program *p, struct error *reterr)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int r = fd < 0 ? -errno : loop_add(p->agent.loop, &p->signals, fd, EPOLLIN, signals_ready);
    return r < 0 ? error_sys(reterr, -r, "follow signals") : 0;
}

/* ------------------------------------------------------------------ the beginning */

/* A number of bytes, or one with K, M or G behind it. */
static uint64_t log_limit(const char *text)
{
    static const char units[] = "KMG";
    char *end;
    unsigned long long n = text ? strtoull(text, &end, 10) : 0;
    if (!n)
        return PROCESS_LOG_DEFAULT;
    const char *unit = *end && !end[1] ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    return MIN(MAX(n, (unsigned long long)PROCESS_LOG_MIN >> shift), (unsigned long long)INT64_MAX >> shift)
           << shift;
}

static void read_settings(struct agent *a)
{
    enum log_level level = LOG_INFO;
    enum log_format format = LOG_TEXT;
    const char *text = agent_getenv(a, "SANDBOX_LOG_LEVEL");
    if (text)
        (void)log_level_parse(text, &level);
    text = agent_getenv(a, "SANDBOX_LOG_FORMAT");
    if (text)
        (void)log_format_parse(text, &format);
    log_init("agent", level, format);
    text = agent_getenv(a, "COMMAND_TIMEOUT_MS");
    long long ms = text ? strtoll(text, NULL, 10) : 0;
    a->command_timeout_ms = ms > 0 ? ms : -1;
    a->spools.cap_bytes = log_limit(agent_getenv(a, "SILICA_LOG_LIMIT"));
}

static int serve(struct agent *a, int listen_fd, struct error *reterr)
{
    struct http_server_config config = {
        .loop = a->loop,
        .limits = http_limits_default,
        .request = routes_request,
        .error_body = reply_server_error,
        .arg = a,
        .common_headers = common_headers,
        .common_count = ARRAY_SIZE(common_headers),
    };
    config.limits.idle_timeout_ms = IDLE_TIMEOUT_MS;
    config.limits.collected_max = AGENT_BODIES_MAX;
    int r = http_server_new(&config, &a->server, reterr);
    return r < 0 ? r : http_server_listen(a->server, listen_fd, reterr);
}

static void booted(struct agent *a)
{
    struct error e;
    if (settings_apply(a, &e) < 0) {
        log_error("%s", e.msg);
        (void)snprintf(a->refusal, sizeof a->refusal, "%.*s", (int)sizeof a->refusal - 1, e.msg);
    }
    read_settings(a);
    spare_shell_owned(a);
    (void)fcntl(AGENT_HTTP_FD, F_SETFL, O_NONBLOCK);
    if (serve(a, AGENT_HTTP_FD, &e) < 0) {
        log_error("%s", e.msg);
        loop_stop(a->loop);
    }
}

static void wake(void *arg)
{
    struct agent *a = arg;
    spawner_poll(a->spawner);
}

static int start_sandbox(struct program *p, struct error *reterr)
{
    struct agent *a = &p->agent;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)fcntl(AGENT_HTTP_FD, F_SETFD, FD_CLOEXEC);
    (void)fcntl(AGENT_CONTROL_FD, F_SETFD, FD_CLOEXEC);
    int r = keeper_line_new(a, AGENT_CONTROL_FD, booted, &p->keeper, reterr);
    if (r < 0)
        return r;
    struct spawner_config config = {.loop = a->loop,
                                    .reaper = a->reaper,
                                    .confine = true,
                                    .control_fd = keeper_line_fd,
                                    .arg = p->keeper};
    return spawner_new(&config, &a->spawner, reterr);
}

/* Before anything is served: the certificate may still be on its way. */
static int wait_for_certificate(struct agent *a, struct error *reterr)
{
    int64_t deadline = clock_mono_ms() + INTERCEPT_CA_WAIT_MS;
    int r = intercept_ca_take(a, reterr);
    while (r == -ENOENT && clock_mono_ms() < deadline) {
        (void)poll(NULL, 0, INTERCEPT_CA_LOOK_MS);
        r = intercept_ca_take(a, reterr);
    }
    return r;
}

static int start_plain(struct program *p, struct error *reterr)
{
    struct agent *a = &p->agent;
    int fd;
    int ca = intercept_ca_wanted(a) ? wait_for_certificate(a, reterr) : 0;
    if (ca < 0)
        return ca;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    struct spawner_config config = {.loop = a->loop, .reaper = a->reaper, .nofile = p->nofile};
    int r = spawner_new(&config, &a->spawner, reterr);
    if (r == 0)
        r = socket_listen_tcp(p->listen, &fd, reterr);
    if (r == 0)
        r = serve(a, fd, reterr);
    if (r < 0)
        return r;
    char name[80];
    if (socket_local_name(fd, name, sizeof name) == 0)
        log_info("listening on %s", name);
    struct supervisor_config command = {.argv = p->command, .ended = command_ended};
    return p->command ? supervisor_start(a, &command, &p->supervisor, reterr) : 0;
}

/* Sessions, streams and spools hold descriptors; the soft limit is meant for programs that use select(2). */
static void raise_nofile(struct program *p)
{
    if (getrlimit(RLIMIT_NOFILE, &p->nofile) < 0)
        return;
    struct rlimit high = {.rlim_cur = p->nofile.rlim_max, .rlim_max = p->nofile.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &high);
}

static int start(struct program *p, struct error *reterr)
{
    struct agent *a = &p->agent;
    raise_nofile(p);
    list_init(&a->sessions);
    list_init(&a->processes);
    list_init(&a->processes_running);
    list_init(&a->leftovers);
    process_tags_init(a);
    list_init(&a->muxes);
    list_init(&a->rpcs);
    rpc_budget_init(a);
    list_init(&a->cloudflareds);
    list_init(&a->terminals);
    a->spools = (struct spool_pool){.memory_max_bytes = 8 << 20, .dirs = spool_dirs};
    int r = env_merge(&a->env, environ);
    if (r == 0)
        r = settings_take_all(&a->settings, environ);
    if (r < 0)
        return error_sys(reterr, -r, "read the environment");
    read_settings(a);
    a->scratch = mmap(NULL, AGENT_SCRATCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a->scratch == MAP_FAILED)
        return error_sys(reterr, errno, "allocate memory");
    (void)umask(022);
    r = loop_new(&a->loop, reterr);
    if (r == 0)
        r = follow_signals(p, reterr);
    if (r == 0)
        r = reaper_new(a->loop, &a->reaper, reterr);
    if (r == 0)
        r = fifo_dir_choose(a, reterr);
    if (r < 0)
        return r;
    r = a->sandbox ? start_sandbox(p, reterr) : start_plain(p, reterr);
    if (r == 0)
        reaper_on_wake(a->reaper, wake, a);
    return r;
}

/* What was made is unmade, so that a leak is a leak. */
static void stop(struct program *p)
{
    struct agent *a = &p->agent;
    websockets_free(a);
    http_server_free(a->server);
    watches_free(a->watches);
    exposed_ports_free(a->exposed);
    container_execs_free(a);
    main_command_free(a);
    cloudflareds_free(a);
    contexts_free(a);
    sessions_free(a);
    spare_shell_free(a);
    processes_free(a);
    if (a->loop) {
        loop_del(a->loop, &p->signals); /* nobody is left to hear of a child's end */
        leftovers_free(a);
        spawner_free(a->spawner);
        (void)loop_step(a->loop, 0); /* what was to be reclaimed at the end of the batch */
        loop_timer_stop(a->loop, &a->scratch_timer);
    }
    fifo_dir_remove(a);
    reaper_free(a->reaper);
    loop_free(a->loop);
    env_done(&a->env);
    settings_done(&a->settings);
}

/* The list of relocations lies in the first segment, behind the headers, and is read once, before main. It
 * stays in the file; what is given back is its place in this process's memory, a tenth of all it has. */
static void forget_relocations(void)
{
    const ElfW(Phdr) *segments = (const void *)getauxval(AT_PHDR);
    uintptr_t begin = (uintptr_t)segments & ~((uintptr_t)getpagesize() - 1);
    for (size_t i = 0; i < getauxval(AT_PHNUM); i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_offset == 0 && segments[i].p_flags == PF_R) {
            (void)madvise((void *)begin, segments[i].p_memsz, MADV_DONTNEED); /* on failure it just stays */
            return;
        }
}

/* musl takes its first page from the end of the program break, which the kernel puts far away from everything
 * else: with the tables that lead to it the page costs four. Where the break cannot grow it takes the page
 * from mmap. */
static void block_the_break(void)
{
    uintptr_t page = (uintptr_t)getpagesize(), end = (uintptr_t)syscall(SYS_brk, 0);
    (void)mmap((void *)((end + page - 1) & ~(page - 1)), page, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0); /* on failure it just grows */
}

static int usage(void)
{
    (void)fputs("usage: silica-agent [--listen HOST:PORT] [CMD ARG...]\n       silica-agent --sandbox\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static struct program program = {.listen = "0.0.0.0:3000", .signals = {.fd = -1}};
    struct program *p = &program;
    struct error e = {0};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--sandbox") == 0)
            p->agent.sandbox = true;
        else if (strcmp(argv[i], "--soon") == 0)
            p->agent.soon = true;
        else if (strcmp(argv[i], "--bare") == 0)
            p->agent.bare = true;
        else if (strcmp(argv[i], "--listen") == 0 && i + 1 < argc)
            p->listen = argv[++i];
        else if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        } else
            return usage();
    }
    p->command = i < argc ? argv + i : NULL;
    forget_relocations();
    block_the_break();
    int r = start(p, &e);
    if (r == 0)
        r = loop_run(p->agent.loop);
    if (r < 0) {
        log_error("%s", e.code ? e.msg : strerror(-r));
        p->exit_code = 1;
    }
    keeper_line_say_exit(p->keeper, p->exit_code);
    stop(p);
    return p->exit_code;
}
