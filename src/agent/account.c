/* SPDX-License-Identifier: Apache-2.0 */
/* account.c: see account.h. */
#include "agent/account.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20, FIELDS = 7 };

struct field {
    const char *s;
    size_t n;
};

/* Cuts one line into fields; returns what follows the line, NULL at the end. */
static const char *cut(const char *line, struct field f[FIELDS], size_t *ret_count)
{
    size_t end = strcspn(line, "\n"), count = 0;
    for (const char *p = line; count < FIELDS;) {
        size_t n = strcspn(p, ":\n");
        f[count++] = (struct field){p, n};
        if (p[n] != ':')
            break;
        p += n + 1;
    }
    *ret_count = count;
    return line[end] ? line + end + 1 : NULL;
}

static bool is(const struct field *f, const char *s, size_t n)
{
    return f->n == n && memcmp(f->s, s, n) == 0;
}

static bool number(const char *s, size_t n, uint32_t *ret)
{
    uint32_t v = 0;
    if (n == 0 || n > 5)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (uint32_t)(s[i] - '0');
    }
    *ret = v;
    return v <= ACCOUNT_ID_MAX;
}

static void copy(char *out, size_t cap, const struct field *f)
{
    (void)snprintf(out, cap, "%.*s", (int)MIN(f->n, cap - 1), f->s);
}

/* The line of passwd with this name, or with this number; false when there is none. */
static bool find_user(const char *passwd, const char *text, size_t n, struct account *ret)
{
    uint32_t wanted, uid, gid;
    bool by_number = number(text, n, &wanted);
    for (const char *line = passwd; line && *line;) {
        struct field f[FIELDS];
        size_t count;
        line = cut(line, f, &count);
        if (count < 6 || !number(f[2].s, f[2].n, &uid) || !number(f[3].s, f[3].n, &gid))
            continue;
        if (by_number ? uid != wanted : !is(&f[0], text, n))
            continue;
        ret->uid = uid;
        ret->gid = gid;
        copy(ret->name, sizeof ret->name, &f[0]);
        if (f[5].n && f[5].s[0] == '/')
            copy(ret->home, sizeof ret->home, &f[5]);
        return true;
    }
    return false;
}

static bool find_group(const char *group, const char *text, uint32_t *ret)
{
    size_t n = strlen(text);
    if (number(text, n, ret))
        return true;
    for (const char *line = group; line && *line;) {
        struct field f[FIELDS];
        size_t count;
        line = cut(line, f, &count);
        if (count >= 3 && is(&f[0], text, n) && number(f[2].s, f[2].n, ret))
            return true;
    }
    return false;
}

static bool has_member(const struct field *members, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < members->n; i++) {
        size_t len = 0;
        while (i + len < members->n && members->s[i + len] != ',')
            len++;
        if (len == n && memcmp(members->s + i, name, n) == 0)
            return true;
        i += len;
    }
    return false;
}

/* Those that have the account as a member, as far as there is room. */
static void take_groups(const char *group, struct account *a)
{
    for (const char *line = group; line && *line && a->group_count < ACCOUNT_GROUPS_MAX;) {
        struct field f[FIELDS];
        size_t count;
        uint32_t gid;
        line = cut(line, f, &count);
        if (count >= 4 && number(f[2].s, f[2].n, &gid) && gid != a->gid && has_member(&f[3], a->name))
            a->groups[a->group_count++] = gid;
    }
}

int account_find(const char *text, const char *passwd, const char *group, struct account *ret,
                 struct error *reterr)
{
    size_t n = strcspn(text, ":");
    *ret = (struct account){.home = "/"};
    if (!find_user(passwd, text, n, ret)) {
        if (!number(text, n, &ret->uid))
            return error_set(reterr, ENOENT, "the image has no user '%.*s'", (int)MIN(n, (size_t)40), text);
        (void)snprintf(ret->name, sizeof ret->name, "%u", ret->uid);
    }
    if (!text[n])
        take_groups(group, ret);
    else if (!find_group(group, text + n + 1, &ret->gid))
        return error_set(reterr, ENOENT, "the image has no group '%.40s'", text + n + 1);
    return 0;
}

/* The sandbox's own programs may have put anything there: a FIFO must not stop us. */
static char *read_text(const char *path)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return NULL;
    char *text = malloc((size_t)st.st_size + 1);
    ssize_t n = text ? read(fd, text, (size_t)st.st_size) : -1;
    if (n < 0) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

int account_read(const char *text, struct account *ret, struct error *reterr)
{
    auto_free char *passwd = read_text("/etc/passwd");
    auto_free char *group = read_text("/etc/group");
    return account_find(text, passwd, group, ret, reterr);
}

int account_assume(const struct account *a)
{
    gid_t groups[ACCOUNT_GROUPS_MAX];
    for (uint32_t i = 0; i < a->group_count; i++)
        groups[i] = a->groups[i];
    if (setgroups(a->group_count, groups) < 0)
        return -errno;
    /* these calls cannot tell of a failure but by the value that is there afterwards */
    (void)syscall(SYS_setfsgid, a->gid);
    (void)syscall(SYS_setfsuid, a->uid);
    if ((uint32_t)syscall(SYS_setfsgid, -1) != a->gid || (uint32_t)syscall(SYS_setfsuid, -1) != a->uid)
        return -EPERM;
    return 0;
}
