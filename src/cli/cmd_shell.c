/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_shell.c: silica shell: an interactive terminal in a sandbox. */
#include "cli/cli.h"
#include "cli/command_line.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

enum { KEY_SHELL = OPTION_KEY_FIRST };

const struct option shell_options[] = {
    {'s', "session", 's', "NAME", NULL, "join the terminal of the session NAME instead of the default one's"},
    {KEY_SHELL, "shell", 0, "PROGRAM", NULL,
     "start PROGRAM instead of bash, unless the terminal is there already"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct shell_settings {
    struct connect_settings connect;
    const char *id, *session, *shell;
};

/* What the user's terminal was like; restored on every way out, also by signals. */
static struct termios before;
static volatile sig_atomic_t is_raw;

static void make_cooked(void)
{
    if (is_raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    is_raw = 0;
}

static void on_deadly_signal(int sig)
{
    make_cooked();
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

static void make_raw(void)
{
    static const int deadly[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT};
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(deadly); i++)
        (void)signal(deadly[i], on_deadly_signal);
    struct termios raw = before;
    cfmakeraw(&raw);
    is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static bool terminal_size(int *cols, int *rows, void *user)
{
    struct winsize size;
    (void)user;
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col || !size.ws_row)
        return false;
    *cols = size.ws_col;
    *rows = size.ws_row;
    return true;
}

/* A descriptor that becomes readable when the window changes, -1 when there is none. */
static int follow_window(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGWINCH);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int run(const struct shell_settings *s, struct silica_client *c)
{
    struct silica_error e;
    int exit_code = 0;
    auto_close int window = follow_window();
    struct silica_terminal_options options = {.session = s->session,
                                              .shell = s->shell,
                                              .input_fd = STDIN_FILENO,
                                              .output_fd = STDOUT_FILENO,
                                              .resize_fd = window,
                                              .size = terminal_size};
    make_raw();
    int r = silica_terminal(c, s->id, &options, &exit_code, &e);
    make_cooked();
    return r < 0 ? connect_failed("shell", c, &e) : exit_code;
}

int cmd_shell(int argc, char **argv)
{
    struct shell_settings s = {.id = ""};
    auto_client struct silica_client *c = NULL;
    struct command_line line = command_line_of("shell", shell_options, &s.connect, argc, argv);
    command_line_collect(&line, &s.id, 1);
    const char *value;
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        *(key == KEY_SHELL ? &s.shell : &s.session) = value;
    if (key < 0)
        return line.exit_code;
    if (!*s.id || (s.session && !*s.session))
        return cli_missing("shell", *s.id ? "the name of the session" : "the id of the sandbox");
    int r = connect_open("shell", &s.connect, &c);
    return r != 0 ? r : run(&s, c);
}
