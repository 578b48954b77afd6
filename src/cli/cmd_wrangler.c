/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_wrangler.c: silica wrangler: the project's wrangler with this machine's engine instead of Docker.
 *
 * wrangler wants one path for its container tool and hands it no settings. So it gets a script of one line in
 * a directory that lives as long as wrangler does, which knows the server's address and where the token is.
 */
#include "cli/cli.h"
#include "cli/command_line.h"
#include "cli/docker.h"
#include "cli/format.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { KEY_HOST = OPTION_KEY_FIRST, JSON_FILE_MAX = 1 << 20, OLDEST_NODE = 20 };

const struct option wrangler_options[] = {
    {KEY_HOST, "host", 0, "ADDRESS", "WRANGLER_DOCKER_HOST",
     "the engine's socket, unix:///path (default: docker.sock in the run directory)"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct wrangler {
    struct docker docker;     /* where the server and the engine are */
    char program[PATH_MAX];   /* wrangler itself */
    char directory[PATH_MAX]; /* of the script */
    char script[PATH_MAX];
};

#define failed(...) cli_error("wrangler", __VA_ARGS__)

/* ------------------------------------------------------------------ what must be there */

static bool find_in_path(const char *name, char out[PATH_MAX])
{
    const char *path = getenv("PATH");
    for (const char *p = path ? path : ""; *p;) {
        size_t n = strcspn(p, ":");
        int len = snprintf(out, PATH_MAX, "%.*s/%s", (int)n, p, name);
        if (n > 0 && len > 0 && len < PATH_MAX && access(out, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

/* What a program prints first; false when it does not run. */
static bool first_line(const char *program, const char *argument, char *out, size_t size)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(pipe_fds[1], STDOUT_FILENO);
        (void)execl(program, program, argument, (char *)NULL);
        _exit(127);
    }
    (void)close(pipe_fds[1]);
    size_t n = 0;
    for (ssize_t got = 1; pid > 0 && got > 0 && n + 1 < size; n += got > 0 ? (size_t)got : 0)
        got = read(pipe_fds[0], out + n, size - 1 - n);
    (void)close(pipe_fds[0]);
    out[n] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    int status = -1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A member of a member of a JSON file, "" when there is none. */
static void json_file_member(const char *path, const char *outer, const char *inner, char *out, size_t size)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    auto_free char *text = malloc(JSON_FILE_MAX);
    auto_json struct json_doc *doc = NULL;
    ssize_t n = fd >= 0 && text ? read(fd, text, JSON_FILE_MAX) : -1;
    *out = '\0';
    if (n <= 0 || json_parse(text, (size_t)n, 0, &doc, NULL) < 0)
        return;
    const struct json_value *v = json_get(json_root(doc), outer);
    const char *s = json_string(inner ? json_get(v, inner) : v, NULL);
    (void)snprintf(out, size, "%s", s ? s : "");
}

/* node_modules/wrangler in this directory or one above. */
static bool find_package(char out[PATH_MAX])
{
    char dir[PATH_MAX - 64];
    if (!getcwd(dir, sizeof dir))
        return false;
    for (;;) {
        (void)snprintf(out, PATH_MAX, "%s/node_modules/wrangler", strcmp(dir, "/") == 0 ? "" : dir);
        if (access(out, X_OK) == 0)
            return true;
        char *slash = strrchr(dir, '/');
        if (!slash || strcmp(dir, "/") == 0)
            return false;
        slash[slash == dir ? 1 : 0] = '\0';
    }
}

static unsigned long first_number(const char *text)
{
    return strtoul(text + strcspn(text, "0123456789"), NULL, 10);
}

/* The Node that runs it must be as new as the package says. */
static int check_node(const char *package)
{
    char node[PATH_MAX], version[64], path[PATH_MAX + 16], wants[64], name[64];
    if (!find_in_path("node", node) || !first_line(node, "--version", version, sizeof version))
        return failed("there is no Node in the PATH; wrangler is a program for Node %d or newer",
                      OLDEST_NODE);
    (void)snprintf(path, sizeof path, "%s/package.json", package);
    json_file_member(path, "engines", "node", wants, sizeof wants);
    json_file_member(path, "version", NULL, name, sizeof name);
    unsigned long least = wants[0] ? first_number(wants) : OLDEST_NODE;
    if (first_number(version) < least)
        return failed(
            "wrangler %s wants Node %s, and this is Node %s.\n"
            "Install a newer Node, or the last wrangler for Node 20: npm install --save-dev wrangler@4.86.0",
            name, wants, version);
    return 0;
}

static int find_wrangler(struct wrangler *w)
{
    char package[PATH_MAX], npx[PATH_MAX];
    if (find_package(package)) {
        int r = check_node(package);
        size_t parent = strlen(package) - strlen("/wrangler");
        if (r == 0)
            (void)snprintf(w->program, sizeof w->program, "%.*s/.bin/wrangler", (int)parent, package);
        return r;
    }
    if (find_in_path("wrangler", w->program))
        return 0;
    if (!find_in_path("npx", npx))
        return failed("there is no npx in the PATH; install Node and npm");
    if (access("package.json", R_OK) < 0)
        return failed("there is no package.json in this directory; go to the Worker's project");
    return failed("wrangler is not installed in this project; run: npm install --save-dev wrangler");
}

static int check_engine(struct wrangler *w)
{
    struct docker_answer a;
    auto_client struct silica_client *c = NULL;
    struct silica_error e;
    auto_free char *json = NULL;
    int r = connect_open("wrangler", &w->docker.connect, &c);
    if (r != 0)
        return r;
    if (silica_health(c, &json, &e) < 0)
        return connect_failed("wrangler", c, &e);
    if (docker_must(&w->docker, "GET", "/_ping", &a) != 0)
        return failed(
            "the engine's socket %s does not answer; name another with --host or WRANGLER_DOCKER_HOST",
            docker_host(&w->docker));
    docker_answer_done(&a);
    return 0;
}

/* ------------------------------------------------------------------ starting it */

static int write_option(struct buf *out, const char *name, const char *value)
{
    if (!value)
        return 0;
    int r = buf_printf(out, " %s ", name);
    return r < 0 ? r : shell_quote(out, value);
}

static int script_text(const struct wrangler *w, struct buf *out)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return -errno;
    self[n] = '\0';
    int r = buf_puts(out, "#!/bin/sh\nexec ");
    if (r == 0)
        r = shell_quote(out, self);
    if (r == 0)
        r = buf_puts(out, " docker");
    if (r == 0)
        r = write_option(out, "--host", docker_host(&w->docker));
    if (r == 0)
        r = write_option(out, "--url", w->docker.connect.url);
    if (r == 0)
        r = write_option(out, "--token-file", w->docker.connect.token_file);
    const char *inherited = getenv("SILICA_TOKEN");
    if (r == 0 && !(inherited && w->docker.connect.token && strcmp(inherited, w->docker.connect.token) == 0))
        r = write_option(out, "--token", w->docker.connect.token);
    return r == 0 ? buf_puts(out, " \"$@\"\n") : r;
}

static int make_script(struct wrangler *w)
{
    struct buf text = BUF_INIT(16384);
    const char *dir = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    if (!dir || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || access(dir, W_OK) < 0)
        dir = "/tmp";
    (void)snprintf(w->directory, sizeof w->directory, "%.1000s/silica-wrangler-XXXXXX", dir);
    int r = script_text(w, &text);
    if (r == 0 && !mkdtemp(w->directory))
        r = -errno;
    if (r < 0)
        w->directory[0] = '\0';
    (void)snprintf(w->script, sizeof w->script, "%.2000s/docker", w->directory);
    auto_close int fd = r < 0 ? -1 : open(w->script, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (r == 0 && fd < 0)
        r = -errno;
    if (r == 0 && write(fd, buf_data(&text), buf_len(&text)) != (ssize_t)buf_len(&text))
        r = -EIO;
    buf_done(&text);
    return r < 0 ? failed("cannot write a script in %s: %s", dir, strerror(-r)) : 0;
}

static void remove_script(const struct wrangler *w)
{
    if (!w->directory[0])
        return;
    (void)unlink(w->script);
    (void)rmdir(w->directory);
}

static void set_environment(const struct wrangler *w)
{
    const char *host = docker_host(&w->docker);
    (void)setenv("WRANGLER_DOCKER_BIN", w->script, 1);
    (void)setenv("WRANGLER_DOCKER_HOST", host, 1);
    (void)setenv("DOCKER_HOST", host, 1);
    /* a start without the internet is quiet; who wants these reports has set them */
    (void)setenv("WRANGLER_SEND_METRICS", "false", 0);
    (void)setenv("WRANGLER_SEND_ERROR_REPORTS", "false", 0);
    (void)setenv("CLOUDFLARE_CF_FETCH_ENABLED", "false", 0);
}

static pid_t child_pid;

static void pass_on(int sig)
{
    if (child_pid > 0)
        (void)kill(child_pid, sig);
}

/* Waits for wrangler, which is told what we are told. Ctrl-C reaches it through the terminal. */
static int run(const struct wrangler *w, char **words)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, forward = {.sa_handler = pass_on}, before;
    child_pid = fork();
    if (child_pid < 0)
        return failed("cannot start a process: %s", strerror(errno));
    if (child_pid == 0) {
        set_environment(w);
        (void)execv(w->program, words);
        (void)failed("cannot start %s: %s", w->program, strerror(errno));
        _exit(127);
    }
    (void)sigaction(SIGINT, &ignore, &before);
    (void)sigaction(SIGTERM, &forward, NULL);
    (void)sigaction(SIGHUP, &forward, NULL);
    int status = 0;
    while (waitpid(child_pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int cmd_wrangler(int argc, char **argv)
{
    struct wrangler w = {0};
    struct command_line line = command_line_of("wrangler", wrangler_options, &w.docker.connect, argc, argv);
    const char *value;
    char **words = NULL;
    int key = 0, count = 0;
    while (!words && (key = command_line_next(&line, &value)) > 0)
        if (key == OPTION_OPERAND)
            words = options_rest(&line.options, &count);
        else
            w.docker.host = value;
    if (key < 0)
        return line.exit_code;
    if (!words)
        return cli_missing("wrangler", "what wrangler shall do (often 'dev')");
    auto_free char **all = calloc((size_t)count + 2, sizeof *all);
    if (!all)
        return failed("out of memory");
    all[0] = w.program;
    memcpy(all + 1, words, (size_t)count * sizeof *all);
    int r = find_wrangler(&w);
    if (r == 0)
        r = check_engine(&w);
    if (r == 0)
        r = make_script(&w);
    if (r == 0)
        r = run(&w, all);
    remove_script(&w);
    silica_client_free(w.docker.engine);
    return r;
}
