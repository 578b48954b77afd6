/* SPDX-License-Identifier: Apache-2.0 */
/* settings_files.c: see settings_files.h.
 *
 * A sandbox's programs may have put anything where these files are, before it slept: what is no ordinary file
 * is left alone, and nothing is read without end. */
#include "agent/settings_files.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CA_FILE  "/usr/local/share/ca-certificates/silica-extra.crt"
#define CA_BEGIN "# certificates of this server's operator\n"
#define CA_END   "# end of the certificates of this server's operator\n"

enum { TEXT_MAX = 8 << 20, SOURCES_MAX = 64 };

/* ------------------------------------------------------------------ reading and writing */

/* Reads an ordinary file. -ENOENT; -EINVAL: something else is there. */
static int read_file(const char *path, struct buf *out, mode_t *ret_mode)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT : -EINVAL;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > TEXT_MAX)
        return -EINVAL;
    *ret_mode = st.st_mode & 07777;
    char chunk[16 * 1024];
    ssize_t n;
    int r = 0;
    while (r == 0 && (n = read(fd, chunk, sizeof chunk)) > 0)
        r = buf_append(out, chunk, (size_t)n);
    return r;
}

static int write_file(const char *path, const void *data, size_t n, mode_t mode)
{
    char aside[512];
    if ((size_t)snprintf(aside, sizeof aside, "%s.new", path) >= sizeof aside)
        return -ENAMETOOLONG;
    (void)unlink(aside);
    auto_close int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    ssize_t done = write(fd, data, n);
    if (done != (ssize_t)n || fchmod(fd, mode) < 0 || rename(aside, path) < 0) {
        int r = done < 0 ? -errno : -ENOSPC;
        (void)unlink(aside);
        return r;
    }
    return 0;
}

/* Changes a file by one of the text functions. -ENOENT when it is missing and must not be made. */
static int change_file(const char *path, bool make, const char *value,
                       int (*text)(const char *text, size_t n, const char *value, struct buf *out))
{
    struct buf before = BUF_INIT(TEXT_MAX), after = BUF_INIT(2 * (size_t)TEXT_MAX);
    mode_t mode = 0644;
    int r = read_file(path, &before, &mode);
    if (r == -ENOENT && make)
        r = 0;
    if (r == 0)
        r = text(buf_data(&before), buf_len(&before), value, &after);
    bool same = r == 0 && buf_len(&before) == buf_len(&after) &&
                (!buf_len(&after) || memcmp(buf_data(&before), buf_data(&after), buf_len(&after)) == 0);
    if (r == 0 && !same)
        r = write_file(path, buf_data(&after), buf_len(&after), mode);
    buf_done(&before);
    buf_done(&after);
    if (r < 0 && r != -ENOENT)
        log_warn("%s cannot be changed: %s", path, strerror(-r));
    return r;
}

/* Whatever was there: the value, as whole lines. */
static int whole_text(const char *text, size_t n, const char *value, struct buf *out)
{
    size_t len = strlen(value);
    (void)text;
    (void)n;
    int r = buf_puts(out, value);
    return r == 0 && len && value[len - 1] != '\n' ? buf_putc(out, '\n') : r;
}

/* ------------------------------------------------------------------ certificates */

static int put(struct buf *out, const char *text, size_t n)
{
    return n ? buf_append(out, text, n) : 0;
}

/* The line in text[at..n), as an offset; n when there is none. */
static size_t find_line(const char *text, size_t n, size_t at, const char *line)
{
    size_t len = strlen(line);
    for (const char *p; at < n && (p = memmem(text + at, n - at, line, len)); at = (size_t)(p - text) + 1)
        if (p == text || p[-1] == '\n')
            return (size_t)(p - text);
    return n;
}

int settings_bundle_text(const char *text, size_t n, const char *pem, struct buf *out)
{
    size_t pem_len = strlen(pem);
    int r = 0;
    for (size_t at = 0; at < n && r == 0;) { /* all but what is between marks */
        size_t begin = find_line(text, n, at, CA_BEGIN);
        size_t end = find_line(text, n, begin, CA_END);
        r = put(out, text + at, begin - at);
        at = end < n ? end + strlen(CA_END) : n;
    }
    if (r == 0 && buf_len(out) && buf_data(out)[buf_len(out) - 1] != '\n')
        r = buf_putc(out, '\n');
    if (r == 0)
        r = buf_puts(out, CA_BEGIN);
    if (r == 0)
        r = put(out, pem, pem_len);
    if (r == 0 && pem_len && pem[pem_len - 1] != '\n')
        r = buf_putc(out, '\n');
    return r < 0 ? r : buf_puts(out, CA_END);
}

/* Makes the directories above path. */
static void make_parents(const char *path)
{
    char part[256];
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(p - path), path);
        (void)mkdir(part, 0755); /* usually it is there */
    }
}

void settings_write_ca(const char *pem)
{
    /* Debian and its relatives; Red Hat's; SUSE's; Alpine's, where it is no link to the first */
    static const char *const bundles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                          "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                          "/etc/ssl/cert.pem"};
    for (size_t i = 0; i < ARRAY_SIZE(bundles); i++) {
        if (i == 0)
            make_parents(bundles[i]); /* the variables name this one */
        (void)change_file(bundles[i], i == 0, pem, settings_bundle_text);
    }
    make_parents(CA_FILE);
    (void)change_file(CA_FILE, true, pem, whole_text);
}

/* ------------------------------------------------------------------ sources of packages */

/* The length of "http://HOST" at p when HOST is an archive's, 0 otherwise. */
static size_t archive_at(const char *p, size_t n)
{
    static const char *const schemes[] = {"http://", "https://"};
    static const char *const hosts[] = {"deb.debian.org",     "ftp.debian.org",      "security.debian.org",
                                        "archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"};
    for (size_t s = 0; s < ARRAY_SIZE(schemes); s++) {
        size_t len = strlen(schemes[s]);
        if (n < len || memcmp(p, schemes[s], len) != 0)
            continue;
        for (size_t h = 0; h < ARRAY_SIZE(hosts); h++) {
            size_t host = strlen(hosts[h]);
            if (n > len + host && memcmp(p + len, hosts[h], host) == 0 && p[len + host] == '/')
                return len + host;
        }
    }
    return 0;
}

int settings_sources_text(const char *text, size_t n, const char *url, struct buf *out)
{
    size_t url_len = strlen(url);
    int r = 0;
    while (url_len && url[url_len - 1] == '/')
        url_len--;
    for (size_t i = 0; i < n && r == 0;) {
        size_t found = archive_at(text + i, n - i);
        r = found ? put(out, url, url_len) : buf_putc(out, text[i]);
        i += found ? found : 1;
    }
    return r;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

void settings_write_apt(const char *url)
{
    char path[512];
    unsigned count = 0;
    (void)change_file("/etc/apt/sources.list", false, url, settings_sources_text);
    DIR *d = opendir("/etc/apt/sources.list.d");
    for (struct dirent *e; d && (e = readdir(d)) && count < SOURCES_MAX;)
        if (ends_with(e->d_name, ".list") || ends_with(e->d_name, ".sources")) {
            (void)snprintf(path, sizeof path, "/etc/apt/sources.list.d/%s", e->d_name);
            (void)change_file(path, false, url, settings_sources_text);
            count++;
        }
    if (d)
        (void)closedir(d);
}

/* ------------------------------------------------------------------ the machine's name */

static bool line_has(const char *line, size_t n, const char *name)
{
    size_t want = strlen(name);
    for (size_t i = 0; i < n;) {
        while (i < n && (line[i] == ' ' || line[i] == '\t'))
            i++;
        size_t len = 0;
        while (i + len < n && line[i + len] != ' ' && line[i + len] != '\t' && line[i + len] != '#')
            len++;
        if (len == want && memcmp(line + i, name, want) == 0)
            return true;
        if (!len)
            return false;
        i += len;
    }
    return false;
}

int settings_hosts_text(const char *text, size_t n, const char *name, struct buf *out)
{
    bool found = false;
    for (size_t i = 0; i < n && !found;) {
        const char *end = memchr(text + i, '\n', n - i);
        size_t len = end ? (size_t)(end - text) - i : n - i;
        found = line_has(text + i, len, name);
        i += len + 1;
    }
    int r = put(out, text, n);
    if (found || r < 0)
        return r;
    if (n && text[n - 1] != '\n')
        r = buf_putc(out, '\n');
    if (r == 0)
        r = buf_puts(out, "127.0.1.1\t");
    if (r == 0)
        r = buf_puts(out, name);
    return r < 0 ? r : buf_putc(out, '\n');
}

void settings_write_hostname(const char *name)
{
    (void)change_file("/etc/hostname", true, name, whole_text);
    (void)change_file("/etc/hosts", true, name, settings_hosts_text);
}
