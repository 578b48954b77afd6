/* SPDX-License-Identifier: Apache-2.0 */
/* shell_script.c: see shell_script.h.
 *
 * Theory of operation
 * A plain foreground command becomes two lines:
 *
 *     \builtin eval '{
 *     TEXT
 *
 *     }
 *     ! 2>D/7c >"$?"/' </dev/null >D/7o 2>D/7e
 *     ! 2>D/7c >e"$?"/
 *
 * The eval keeps syntax errors and aborted expansions from ending the shell; the empty line makes a
 * trailing backslash harmless. The status is noted inside the eval, which then returns 0: otherwise `set -e`
 * would end the shell for statuses it is meant to ignore (`! true`, `false && x`). The second line, which
 * most commands do without (shell.c), is a command of its own, because some errors discard the rest of the
 * line they occur in. The redirections belong to the eval itself, so its own trace goes to bash's stderr,
 * which is /dev/null.
 *
 * With a cwd or variables an outer eval is put around it. Its text is pasted together from quoted pieces and
 * expansions of the old values, so that the old values live in that text and not in variables of the user's
 * shell:
 *
 *     \builtin eval 'if \builtin cd -- '\''/etc'\''; then
 *     \builtin export A='\''1'\'' || ! 2>D/7c >v0/
 *     (the eval of above)
 *     ! 2>D/7c >s"$?"/
 *     '"${A+#}"'\builtin unset -v A||>/dev/null
 *     '"${A+\builtin declare -g +x A||>/dev/null}"'
 *     '"${A+\builtin declare -g${A@a} A=${A@Q}||>/dev/null}"'
 *     \builtin cd -- '"${PWD+${PWD@Q}}"'||>/dev/null
 *     ...
 *     else ! 2>D/7c >d/
 *     fi'
 *
 * A syntax error inside $(...), <(...) or >(...) ends a bash that is not interactive, eval or not. Texts with
 * one of these are therefore parsed by a subshell first, with `set -n`, which costs a fork:
 *
 *     if ( \builtin eval '\builtin set -n
 *     '"$(<D/7t)" ); then
 *     (the eval of above)
 *     else ( (the same) ) >D/7o 2>D/7e || ! 2>D/7c >2/
 *     fi
 *
 * A background process is a subshell of a subshell. The inner one notes its pid and then blocks in opening
 * its output FIFO until the agent opens the other end. The agent does so only after the outer one has been
 * waited for: by then the inner one is the agent's own child, and nobody else can take its exit status. Job
 * control is switched on in the outer one for a moment, because it gives the inner one a process group of its
 * own and keeps SIGINT and SIGQUIT from being ignored in it.
 *
 *     ( \builtin set -m
 *     ( \builtin set +m
 *     \builtin ulimit -x TAG||>/dev/null
 *     ! 2>D/7c >p"$BASHPID"/
 *     { \builtin eval '{
 *     TEXT
 *
 *     }' </dev/null 2>D/p3e
 *     } >D/p3o
 *     ) & )
 *
 * What is between the braces, the errand, may as well be read from a file when the time has come: then the
 * process can be forked before anybody knows what it is for. Its trace goes to bash's stderr, as above. */
#include "agent/shell_script.h"
#include "agent/command_request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NOTE_DIGITS_MAX = 9 };

/* A string builder with a sticky error; `quotes` open single quotes are taken into account. */
struct script {
    struct buf *out;
    const struct shell_script *s;
    unsigned quotes; /* 0, 1: inside the outer eval's '...' */
    int err;
};

static void put_raw(struct script *b, const char *data, size_t n)
{
    if (!b->err)
        b->err = buf_append(b->out, data, n);
}

/* Appends text as it is to be seen inside b->quotes + extra levels of single quotes. */
static void put_quoted(struct script *b, const char *data, size_t n, unsigned extra)
{
    static const char *const quote[] = {"'", "'\\''", "'\\''\\'\\'''\\''"};
    const char *q = quote[b->quotes + extra];
    while (n) {
        const char *hit = memchr(data, '\'', n);
        size_t plain = hit ? (size_t)(hit - data) : n;
        put_raw(b, data, plain);
        data += plain;
        n -= plain;
        if (n) {
            put_raw(b, q, strlen(q));
            data++;
            n--;
        }
    }
}

static void put(struct script *b, const char *text)
{
    put_quoted(b, text, strlen(text), 0);
}

/* A word in single quotes. */
static void put_word(struct script *b, const char *data, size_t n)
{
    put(b, "'");
    put_quoted(b, data, n, 1);
    put(b, "'");
}

static void put_path(struct script *b, enum shell_path_kind kind, char letter)
{
    char path[SHELL_PATH_MAX];
    shell_path(path, b->s->dir, kind, kind == SHELL_PATH_SESSION ? b->s->shell : b->s->process, letter);
    put(b, path);
}

static void put_guard(struct script *b)
{
    put(b, b->s->plain_command ? "\\command " : "\\builtin ");
}

/* `! 2>NOTES ><note>/` */
static void put_note(struct script *b, const char *note)
{
    put(b, "! 2>");
    put_path(b, SHELL_PATH_SESSION, 'c');
    put(b, " >");
    put(b, note);
    put(b, "/");
}

void shell_path(char out[SHELL_PATH_MAX], const char *dir, enum shell_path_kind kind, unsigned number,
                char letter)
{
    (void)snprintf(out, SHELL_PATH_MAX, "%s/%s%u%c", dir, kind == SHELL_PATH_PROCESS ? "p" : "", number,
                   letter);
}

bool shell_dir_valid(const char *dir)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    size_t n = strlen(dir);
    return n && n <= SHELL_DIR_MAX && dir[0] == '/' && strspn(dir, safe) == n;
}

/* Only blanks, newlines and comments: a brace group needs a command. */
static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '#') {
            const char *nl = memchr(text + i, '\n', n - i);
            if (!nl)
                return true;
            i = (size_t)(nl - text);
        } else if (text[i] != ' ' && text[i] != '\t' && text[i] != '\n') {
            return false;
        }
    }
    return true;
}

static void put_body(struct script *b, unsigned extra)
{
    const struct shell_script *s = b->s;
    put(b, "{\n");
    if (is_blank(s->text, s->len))
        put(b, ">/dev/null");
    else
        put_quoted(b, s->text, s->len, extra);
    put(b, "\n\n}");
}

int shell_script_body(struct buf *out, const struct shell_script *s)
{
    struct script b = {.out = out, .s = s};
    put_body(&b, 0);
    return b.err;
}

static bool has_substitution(const struct shell_script *s)
{
    return memmem(s->text, s->len, "$(", 2) || memmem(s->text, s->len, "<(", 2) ||
           memmem(s->text, s->len, ">(", 2);
}

bool shell_script_needs_file(const struct shell_script *s)
{
    return s->len > SHELL_TEXT_INLINE || has_substitution(s);
}

static void put_file(struct script *b, enum shell_path_kind kind)
{
    put(b, "\"$(<");
    put_path(b, kind, 't');
    put(b, ")\"");
}

static void put_outputs(struct script *b)
{
    put(b, " >");
    put_path(b, SHELL_PATH_SESSION, 'o');
    put(b, " 2>");
    put_path(b, SHELL_PATH_SESSION, 'e');
}

/* A subshell that reads the text without running it. */
static void put_parser(struct script *b)
{
    put(b, "( ");
    put_guard(b);
    put(b, "eval '");
    put_guard(b);
    put(b, "set -n\n'");
    put_file(b, SHELL_PATH_SESSION);
    put(b, " )");
}

static void put_eval(struct script *b)
{
    bool check = b->s->text_in_file && has_substitution(b->s);
    if (check) {
        put(b, "if ");
        put_parser(b);
        put(b, "; then\n");
    }
    put_guard(b);
    put(b, "eval ");
    if (b->s->text_in_file)
        put_file(b, SHELL_PATH_SESSION);
    put(b, "'");
    if (!b->s->text_in_file)
        put_body(b, 1);
    put(b, "\n");
    put_note(b, "\"$?\"");
    put(b, "' </dev/null");
    put_outputs(b);
    put(b, "\n");
    if (check) {
        put(b, "else ");
        put_parser(b);
        put_outputs(b);
        put(b, "||");
        put_note(b, "2");
        put(b, "\nfi\n");
    }
}

static void put_cd(struct script *b)
{
    put_guard(b);
    put(b, "cd -- ");
    put(b, "'");
    if (b->s->cwd[0] != '/')
        put(b, "./"); /* neither "-" nor $CDPATH has a say */
    put_quoted(b, b->s->cwd, strlen(b->s->cwd), 1);
    put(b, "'");
}

static size_t name_length(const char *var)
{
    return (size_t)(strchr(var, '=') - var);
}

static void put_export(struct script *b, const char *var)
{
    size_t name = name_length(var);
    put_guard(b);
    put(b, "export ");
    put_raw(b, var, name + 1);
    put_word(b, var + name + 1, strlen(var + name + 1));
}

/* Leaves the outer quotes for an expansion that bash makes before the outer eval starts. */
static void put_expansion(struct script *b, const char *fmt_with_name, const char *name, size_t n)
{
    put_raw(b, "'\"", 2);
    for (const char *p = fmt_with_name; *p; p++) {
        if (*p == '%')
            put_raw(b, name, n);
        else if (*p == '@' && p[1] == '!') {
            const char *guard = b->s->plain_command ? "\\command " : "\\builtin ";
            put_raw(b, guard, strlen(guard));
            p++;
        } else
            put_raw(b, p, 1);
    }
    put_raw(b, "\"'", 2);
}

/* Former value and attributes, or unset. An array keeps its other elements: only element 0 was touched. */
static void put_restore(struct script *b, const char *name, size_t n)
{
    put_expansion(b, "${%+#}", name, n);
    put_guard(b);
    put(b, "unset -v ");
    put_raw(b, name, n);
    put(b, "||>/dev/null\n");
    put_expansion(b, "${%+@!declare -g +x %||>/dev/null}", name, n);
    put(b, "\n");
    put_expansion(b, "${%+@!declare -g${%@a} %=${%@Q}||>/dev/null}", name, n);
    put(b, "\n");
}

int shell_script_foreground(struct buf *out, const struct shell_script *s)
{
    struct script b = {.out = out, .s = s};
    size_t vars = s->env ? s->env->count : 0;
    if (!s->cwd && !vars) {
        put_eval(&b);
    } else {
        put_guard(&b);
        put(&b, "eval '");
        b.quotes = 1;
        if (s->cwd) {
            put(&b, "if ");
            put_cd(&b);
            put(&b, "; then\n");
        }
        for (size_t i = 0; i < vars; i++) {
            char note[24];
            (void)snprintf(note, sizeof note, "v%zu", i);
            put_export(&b, s->env->vars[i]);
            put(&b, "||");
            put_note(&b, note);
            put(&b, "\n");
        }
        put_eval(&b);
        put_note(&b, "s\"$?\"");
        put(&b, "\n");
        for (size_t i = 0; i < vars; i++)
            put_restore(&b, s->env->vars[i], name_length(s->env->vars[i]));
        if (s->cwd) {
            put_guard(&b);
            put(&b, "cd -- ");
            put_expansion(&b, "${PWD+${PWD@Q}}", "", 0);
            put(&b, "||>/dev/null\n");
            put_expansion(&b, "${OLDPWD+#}", "", 0);
            put_guard(&b);
            put(&b, "unset -v OLDPWD\n");
            put_expansion(&b, "${OLDPWD+OLDPWD=${OLDPWD@Q}}", "", 0);
            put(&b, "\nelse ");
            put_note(&b, "d");
            put(&b, "\nfi");
        }
        b.quotes = 0;
        put(&b, "'\n");
    }
    return b.err;
}

static void put_errand(struct script *b)
{
    const struct shell_script *s = b->s;
    if (s->cwd) {
        put(b, "if ");
        put_cd(b);
        put(b, "; then\n");
    }
    for (size_t i = 0; s->env && i < s->env->count; i++) {
        put_export(b, s->env->vars[i]);
        put(b, "||>/dev/null\n");
    }
    put_guard(b);
    put(b, "eval '");
    put_body(b, 1);
    put(b, "' </dev/null 2>");
    put_path(b, SHELL_PATH_PROCESS, 'e');
    put(b, "\n");
    if (s->cwd) {
        put(b, "else ");
        put_guard(b);
        put(b, "printf ");
        put_word(b, BAD_CWD_FORMAT "\\n", sizeof BAD_CWD_FORMAT + 1);
        put(b, " ");
        put_word(b, s->cwd, strlen(s->cwd));
        put(b, " >");
        put_path(b, SHELL_PATH_PROCESS, 'e');
        put(b, "\n! >/dev/null\nfi\n"); /* status 1 */
    }
}

int shell_script_errand(struct buf *out, const struct shell_script *s)
{
    struct script b = {.out = out, .s = s};
    put_errand(&b);
    return b.err;
}

int shell_script_background(struct buf *out, const struct shell_script *s)
{
    struct script b = {.out = out, .s = s};
    put(&b, "( ");
    put_guard(&b);
    put(&b, "set -m\n( ");
    put_guard(&b);
    put(&b, "set +m\n");
    if (s->tag) {
        char value[40];
        (void)snprintf(value, sizeof value, "ulimit -x %llu", (unsigned long long)s->tag);
        put_guard(&b);
        put(&b, value);
        put(&b, "||>/dev/null\n");
    }
    put_note(&b, "p\"$BASHPID\"");
    put(&b, "\n{ ");
    if (s->text_in_file) {
        put_guard(&b);
        put(&b, "eval ");
        put_file(&b, SHELL_PATH_PROCESS);
        put(&b, "\n");
    } else {
        put_errand(&b);
    }
    put(&b, "} >");
    put_path(&b, SHELL_PATH_PROCESS, 'o');
    put(&b, "\n) & )\n");
    return b.err;
}

int shell_script_from_file(struct buf *out, const struct shell_script *s)
{
    struct script b = {.out = out, .s = s};
    put_guard(&b);
    put(&b, "eval \"$(<");
    put_path(&b, SHELL_PATH_SESSION, 'w');
    put(&b, ")\"\n");
    return b.err;
}

int shell_script_end(struct buf *out, const struct shell_script *s)
{
    struct script b = {.out = out, .s = s};
    put_note(&b, "e\"$?\"");
    put(&b, "\n");
    return b.err;
}

/* The last "/: " of the line is bash's own: behind it comes the system's word for the error. */
static const char *last_mark(const char *line, size_t n)
{
    for (const char *p = line + n; p - line >= 3; p--)
        if (memcmp(p - 3, "/: ", 3) == 0)
            return p - 3;
    return NULL;
}

struct shell_note shell_note_parse(const char *line, size_t n)
{
    static const struct {
        char letter;
        enum shell_note_kind kind;
    } kinds[] = {
        {'s', SHELL_NOTE_EVAL}, {'e', SHELL_NOTE_END},     {'d', SHELL_NOTE_BAD_CWD},
        {'p', SHELL_NOTE_PID},  {'v', SHELL_NOTE_BAD_VAR}, {' ', SHELL_NOTE_STATUS},
    };
    struct shell_note note = {0};
    const char *end = last_mark(line, n), *digits = end;
    if (!end)
        return note;
    while (digits > line && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    if (digits - line < 2 || end - digits > NOTE_DIGITS_MAX)
        return note;
    const char *letter = digits - 1;
    if (*letter != ' ' && letter[-1] != ' ')
        return note;

    enum shell_note_kind kind = SHELL_NOTE_NONE;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (*letter == kinds[i].letter)
            kind = kinds[i].kind;
    if (digits == end && kind != SHELL_NOTE_BAD_CWD)
        return note;
    for (const char *p = digits; p < end; p++)
        note.value = note.value * 10 + (*p - '0');
    note.kind = kind;
    return note;
}
