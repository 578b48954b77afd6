/* SPDX-License-Identifier: Apache-2.0 */
/* shell_script.h: the text that makes a session's bash run one command, and the notes bash sends back.
 *
 * Every path below is <dir>/<shell number><letter>: o and e take the command's output, c takes notes, t holds
 * a long command text, w a long script; p<process number> instead of the shell's for a background process.
 *
 * A note is a redirection that must fail: `! 2>DIR/7c >"$?"/` makes bash itself write
 * "bash: line 1: 0/: Is a directory" into the FIFO (no file can be made under a name that ends in a slash,
 * wherever the shell is). No command name is involved, so no function, alias or disabled builtin of the user
 * can get in between; it prints nothing under `set -x`, the `!` keeps `set -e` and ERR traps quiet, and
 * nothing is forked (an input redirection would fork). */
#pragma once

#include "agent/environ.h"
#include "base/buf.h"

enum {
    SHELL_DIR_MAX = 40,  /* longest FIFO directory */
    SHELL_PATH_MAX = 64, /* longest FIFO path */
    SHELL_TEXT_INLINE =
        256, /* bash reads its input byte by byte (0.4 us each): longer texts come from a file */
    SHELL_SCRIPT_MAX = 1 << 28,
};

enum shell_path_kind { SHELL_PATH_SESSION, SHELL_PATH_PROCESS };
void shell_path(char out[SHELL_PATH_MAX], const char *dir, enum shell_path_kind kind, unsigned number,
                char letter);
/* True when the directory can stand in the script without quotes. */
bool shell_dir_valid(const char *dir);

struct shell_script {
    const char *dir;
    unsigned shell;   /* number of the session's shell */
    unsigned process; /* background only */
    uint64_t tag;     /* background only: process_tag.h; 0: none */
    const char *text;
    size_t len;
    const char *cwd;            /* NULL: the shell's */
    const struct env_list *env; /* NULL: none; names are valid */
    bool text_in_file;          /* shell_script_body, or the errand of a process, is to be read from t */
    bool plain_command;         /* protect by `command`: the user has redefined `builtin` */
};

/* What is evaluated: the text in a brace group, so that it is parsed as a whole before it runs. */
int shell_script_body(struct buf *out, const struct shell_script *s);
/* True when the text has to be put into t: it is long, or it has to be read twice (a substitution, see
 * shell_script.c). */
bool shell_script_needs_file(const struct shell_script *s);
/* The lines that bash executes. All: 0, -ENOBUFS or -ENOMEM. */
int shell_script_foreground(struct buf *out, const struct shell_script *s);
int shell_script_background(struct buf *out, const struct shell_script *s);
/* What a background process does once its output is open; for its file t. */
int shell_script_errand(struct buf *out, const struct shell_script *s);
/* The line that makes bash read these lines from w, and the line that ends every command. */
int shell_script_from_file(struct buf *out, const struct shell_script *s);
int shell_script_end(struct buf *out, const struct shell_script *s);

enum shell_note_kind {
    SHELL_NOTE_NONE,
    SHELL_NOTE_STATUS,  /* the command's own status */
    SHELL_NOTE_EVAL,    /* status of the eval; counts when there was no STATUS (syntax error) */
    SHELL_NOTE_END,     /* the shell is idle again */
    SHELL_NOTE_BAD_CWD, /* nothing was run */
    SHELL_NOTE_PID,     /* background: the process waits for its output to be opened */
    SHELL_NOTE_BAD_VAR, /* the variable with this index could not be set (readonly) */
};

struct shell_note {
    enum shell_note_kind kind;
    int value;
};

/* One line (without its newline) from the notes FIFO. Lines that are no notes give SHELL_NOTE_NONE. */
struct shell_note shell_note_parse(const char *line, size_t n);
