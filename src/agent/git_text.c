/* SPDX-License-Identifier: Apache-2.0 */
/* git_text.c: pure text work for git checkouts.
 *
 * Credentials in a URL would show in the titles of git and of its helpers, for every process of the sandbox
 * to see. So git is given the URL without them, and a credential helper, configured through the environment
 * for this one host, that echoes them from two variables. When the clone is done, the URL as given is put
 * into .git/config, where git itself would have written it: later fetches work as after an ordinary clone.
 * All of this is done by builtins of the shell, whose arguments no one sees. */
#include "agent/git_text.h"
#include "agent/shell_quote.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

void git_url_done(struct git_url *u)
{
    free(u->plain);
    free(u->scope);
    free(u->user);
    free(u->password);
    free(u->raw);
    *u = (struct git_url){0};
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : -1;
}

/* Percent-decoded copy; a stray '%' stays, as in git. NULL with errno set. */
static char *decode(const char *s, size_t n)
{
    char *out = malloc(n + 1), *at = out;
    for (size_t i = 0; out && i < n; i++) {
        int high = i + 2 < n ? hex_value(s[i + 1]) : -1, low = i + 2 < n ? hex_value(s[i + 2]) : -1;
        unsigned char c = (unsigned char)s[i];
        if (c == '%' && high >= 0 && low >= 0) {
            c = (unsigned char)(high * 16 + low);
            i += 2;
        }
        if (c < 0x20 || c == 0x7f) {
            free(out);
            errno = EINVAL;
            return NULL;
        }
        *at++ = (char)c;
    }
    if (out)
        *at = '\0';
    return out;
}

/* Where the user information of an http(s) URL begins and how long it is (0: none); s points behind "://". */
static size_t userinfo_len(const char *s)
{
    size_t end = strcspn(s, "/?#'\"<> \t\r\n"), n = 0;
    for (size_t i = 0; i < end; i++)
        if (s[i] == '@')
            n = i + 1;
    return n;
}

static const char *http_authority(const char *url)
{
    if (strncasecmp(url, "https://", 8) == 0)
        return url + 8;
    return strncasecmp(url, "http://", 7) == 0 ? url + 7 : NULL;
}

int git_url_parse(const char *url, struct git_url *ret)
{
    struct git_url u = {0};
    const char *authority = http_authority(url);
    size_t info = authority ? userinfo_len(authority) : 0;
    if (info == 0) {
        u.plain = strdup(url);
        *ret = u;
        return u.plain ? 0 : -ENOMEM;
    }
    size_t scheme = (size_t)(authority - url), host = strcspn(authority + info, "/?#");
    const char *colon = memchr(authority, ':', info);
    size_t user = colon ? (size_t)(colon - authority) : info - 1;
    errno = ENOMEM;
    bool made = asprintf(&u.plain, "%.*s%s", (int)scheme, url, authority + info) >= 0 &&
                asprintf(&u.scope, "%.*s%.*s", (int)scheme, url, (int)host, authority + info) >= 0 &&
                (u.raw = strndup(authority, info - 1)) && (u.user = decode(authority, user)) &&
                (!colon || (u.password = decode(colon + 1, info - 1 - user - 1)));
    if (!made) {
        int r = -errno;
        git_url_done(&u);
        return r;
    }
    *ret = u;
    return 0;
}

int git_target_dir(const char *url, struct buf *out)
{
    const char *scheme = strstr(url, "://");
    size_t end = strlen(url), begin;
    const char *name = url;
    if (scheme) {
        name = scheme + 3 + strcspn(scheme + 3, "/?#"); /* the host is no name for a directory */
        end = strcspn(name, "?#");
    }
    while (end > 0 && name[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && name[begin - 1] != '/' && (scheme || name[begin - 1] != ':');)
        begin--;
    if (end - begin >= 4 && memcmp(name + end - 4, ".git", 4) == 0)
        end -= 4;
    name += begin;
    end -= begin;
    bool usable = end > 0 && !(name[0] == '.' && (end == 1 || (end == 2 && name[1] == '.')));
    int r = buf_puts(out, "/workspace/");
    if (r == 0)
        r = usable ? buf_append(out, name, end) : buf_puts(out, "repository");
    return r;
}

struct text {
    struct buf *out;
    int err;
};

static void put(struct text *t, const char *s)
{
    if (t->err == 0)
        t->err = buf_puts(t->out, s);
}

static void put_word(struct text *t, const char *before, const char *word)
{
    put(t, before);
    if (t->err == 0)
        t->err = shell_quote(t->out, word);
}

/* Seconds with up to three decimals, without trailing zeros. */
static void put_seconds(struct text *t, int64_t ms)
{
    char s[40];
    int n = snprintf(s, sizeof s, "%lld.%03d", (long long)(ms / 1000), (int)(ms % 1000));
    while (s[n - 1] == '0')
        n--;
    if (s[n - 1] == '.')
        n--;
    s[n] = '\0';
    put(t, s);
}

static void put_credentials(struct text *t, const struct git_url *u)
{
    auto_free char *key = NULL;
    if (asprintf(&key, "credential.%s.helper", u->scope) < 0) {
        t->err = t->err ? t->err : -ENOMEM;
        return;
    }
    put(t, "export -n " GIT_ENV_URL "\nn=${GIT_CONFIG_COUNT:-0}\n"); /* the user's own settings stay */
    put_word(t, "export GIT_CONFIG_COUNT=$((n + 2)) \"GIT_CONFIG_KEY_$n\"=", key);
    put_word(t, " \"GIT_CONFIG_KEY_$((n + 1))\"=", key);
    put(t, " \"GIT_CONFIG_VALUE_$n\"= \"GIT_CONFIG_VALUE_$((n + 1))\"="); /* the empty one removes other
                                                                             helpers */
    if (u->password)
        put_word(t, "",
                 "!printf 'username=%s\\npassword=%s\\n' \"$" GIT_ENV_USER "\" \"$" GIT_ENV_PASSWORD "\"; :");
    else
        put_word(t, "", "!printf 'username=%s\\n' \"$" GIT_ENV_USER "\"; :");
    put(t, "\n");
}

static void put_remember_url(struct text *t, const struct git_checkout *c, const struct git_url *u)
{
    put_word(t, "f=", c->dir);
    put_word(t, "/.git/config\nold=", u->plain);
    put(t, "\ntext=$(<\"$f\") && printf '%s\\n' \"${text/\"$old\"/\"$" GIT_ENV_URL "\"}\" >|\"$f\"\n");
}

int git_command(const struct git_checkout *c, const struct git_url *u, struct buf *out)
{
    struct text t = {.out = out};
    put(&t, "(\n{ set +xveuC; } 2>/dev/null\nexport GIT_TERMINAL_PROMPT=0\n"
            /* not "ext": it runs any command its URL says */
            "export GIT_ALLOW_PROTOCOL=file:git:http:https:ssh:ftp:ftps\n");
    if (u->scope)
        put_credentials(&t, u);
    put(&t, "timeout -k 5 ");
    put_seconds(&t, c->timeout_ms);
    put(&t, " git -c http.lowSpeedLimit=1024 -c http.lowSpeedTime=30 clone --filter=blob:none");
    if (c->branch)
        put_word(&t, " --branch ", c->branch);
    if (c->depth)
        put_word(&t, " --depth ", c->depth);
    put_word(&t, " -- ", u->plain);
    put_word(&t, " ", c->dir);
    put(&t, " || exit\n");
    if (u->scope)
        put_remember_url(&t, c, u);
    put(&t, "printf '\\0'\n");
    put_word(&t, "git -C ", c->dir);
    put(&t, " branch --show-current\nexit 0\n)");
    return t.err;
}

const char *git_error_code(int status, const char *errors)
{
    static const struct {
        const char *text, *code;
    } rules[] = {
        {"permission denied", "GIT_AUTH_FAILED"},  {"access denied", "GIT_AUTH_FAILED"},
        {"not found", "GIT_REPOSITORY_NOT_FOUND"}, {"does not exist", "GIT_REPOSITORY_NOT_FOUND"},
        {"already exists", "GIT_CLONE_FAILED"},    {"did not match", "GIT_BRANCH_NOT_FOUND"},
        {"pathspec", "GIT_BRANCH_NOT_FOUND"},      {"authentication", "GIT_AUTH_FAILED"},
        {"credentials", "GIT_AUTH_FAILED"},
    };
    if (status == 124 || status == 137) /* 137: it did not heed the first signal of timeout -k */
        return "GIT_NETWORK_ERROR";
    if (status == 128)
        return strcasestr(errors, "repository not found") && !strcasestr(errors, "not a git repository")
                   ? "GIT_REPOSITORY_NOT_FOUND"
                   : "GIT_OPERATION_FAILED";
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
        if (strcasestr(errors, rules[i].text))
            return rules[i].code;
    return "GIT_CLONE_FAILED";
}

static size_t secret_at(const char *s, const char *secret)
{
    size_t n = secret ? strlen(secret) : 0;
    return n >= 4 && strncmp(s, secret, n) == 0 ? n : 0; /* shorter ones would eat ordinary words */
}

/* The length of "?name=" or "&name=" when name is a secret's. */
static size_t secret_query_at(const char *s)
{
    static const char *const names[] = {
        "X-Amz-Credential=", "X-Amz-Signature=", "X-Amz-Security-Token=", "token=", "secret=", "password="};
    if (*s != '?' && *s != '&')
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strncasecmp(s + 1, names[i], strlen(names[i])) == 0)
            return 1 + strlen(names[i]);
    return 0;
}

int git_redact(const char *text, const struct git_url *u, struct buf *out)
{
    int r = 0;
    for (const char *s = text; *s && r == 0;) {
        const char *authority = http_authority(s);
        size_t query = secret_query_at(s), info = authority ? userinfo_len(authority) : 0;
        size_t own = !u                          ? 0
                     : secret_at(s, u->raw)      ? secret_at(s, u->raw)
                     : secret_at(s, u->password) ? secret_at(s, u->password)
                     : !u->password && u->user   ? secret_at(s, u->user)
                                                 : 0;
        if (info > 0) {
            r = buf_append(out, s, (size_t)(authority - s));
            if (r == 0)
                r = buf_puts(out, "******@");
            s = authority + info;
        } else if (query > 0) {
            r = buf_append(out, s, query);
            if (r == 0)
                r = buf_puts(out, "REDACTED");
            s += query + strcspn(s + query, "&#'\" \t\r\n");
        } else if (own > 0) {
            r = buf_puts(out, "******");
            s += own;
        } else {
            r = buf_putc(out, *s++);
        }
    }
    return r;
}
