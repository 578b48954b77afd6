/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_file.c: reading and writing the small files of a control group. */
#include "keeper/cgroup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static const char *const dir_suffix[] = {
    [CGROUP_DIR_SLOT] = "",
    [CGROUP_DIR_AGENT] = "/agent",
    [CGROUP_DIR_WORK] = "/work",
};
_Static_assert(ARRAY_SIZE(dir_suffix) == CGROUP_DIR_COUNT, "name every directory");

const char *cgroup_path(char out[CGROUP_PATH_SIZE], unsigned slot, enum cgroup_dir dir, const char *file)
{
    /* the longest of our file names has 33 bytes, so that nothing is ever cut */
    (void)snprintf(out, CGROUP_PATH_SIZE, "%u%s%s%s", slot, dir_suffix[dir], *file ? "/" : "", file);
    return out;
}

int cgroup_file_write(int dir_fd, const char *path, const char *value)
{
    auto_close int fd = openat(dir_fd, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;

    /* one write is one command to the kernel: it must never be continued after a part of it */
    size_t n = strlen(value);
    ssize_t done;
    do
        done = write(fd, value, n);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return -errno;
    return (size_t)done == n ? 0 : -EIO;
}

int cgroup_file_read(int dir_fd, const char *path, char *out, size_t size)
{
    auto_close int fd = openat(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;

    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, out + len, size - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    out[len] = '\0';
    return (int)len;
}

static bool number_parse(const char *s, uint64_t *ret)
{
    if (*s < '0' || *s > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno || (*end && *end != '\n'))
        return false;
    *ret = v;
    return true;
}

int cgroup_file_number(int dir_fd, const char *path, uint64_t *ret)
{
    char text[64];
    int r = cgroup_file_read(dir_fd, path, text, sizeof text);
    if (r < 0)
        return r;
    return number_parse(text, ret) ? 0 : -EBADMSG;
}

bool cgroup_text_key(const char *text, const char *key, uint64_t *ret)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            return number_parse(line + n + 1, ret);
    }
    return false;
}

int cgroup_file_key(int dir_fd, const char *path, const char *key, uint64_t *ret)
{
    char text[2048];
    int r = cgroup_file_read(dir_fd, path, text, sizeof text);
    if (r < 0)
        return r;
    return cgroup_text_key(text, key, ret) ? 0 : -ENOENT;
}

bool cgroup_text_has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = text; *p; p += strcspn(p, " \n")) {
        p += strspn(p, " \n");
        if (strncmp(p, word, n) == 0 && (p[n] == '\0' || p[n] == ' ' || p[n] == '\n'))
            return true;
    }
    return false;
}
