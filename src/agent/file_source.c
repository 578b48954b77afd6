/* SPDX-License-Identifier: Apache-2.0 */
/* file_source.c: see file_source.h. */
#include "agent/file_source.h"
#include "agent/file_mime.h"

#include <errno.h>
#include <fcntl.h>

ssize_t file_source_read(const struct file_source *s, void *data, size_t n, uint64_t offset)
{
    size_t have = 0;
    while (have < n) {
        ssize_t got = pread(s->fd, (char *)data + have, n - have, (off_t)(offset + have));
        if (got > 0)
            have += (size_t)got;
        else if (got == 0)
            break;
        else if (errno != EINTR)
            return have ? (ssize_t)have : -errno;
    }
    return (ssize_t)have;
}

static int find_mime(struct file_source *s, const char *name)
{
    s->mime = file_mime_by_name(name);
    if (s->mime)
        return 0;
    auto_free char *sample = malloc(FILE_MIME_SAMPLE + 1);
    if (!sample)
        return -ENOMEM;
    size_t want =
        s->sized ? MIN((size_t)s->st.st_size + 1, (size_t)FILE_MIME_SAMPLE + 1) : FILE_MIME_SAMPLE + 1;
    ssize_t n = file_source_read(s, sample, want, 0);
    if (n < 0)
        return (int)n;
    bool whole = n <= FILE_MIME_SAMPLE;
    s->mime = file_mime_by_content(sample, whole ? (size_t)n : FILE_MIME_SAMPLE, whole);
    return 0;
}

int file_source_open(struct file_source *s, const char *path, const char *name)
{
    *s = (struct file_source){.fd = -1};
    /* opening a FIFO or a device may have effects: look first, and again at what was opened */
    if (stat(path, &s->st) < 0)
        return -errno;
    if (!S_ISREG(s->st.st_mode))
        return -ENOENT;
    auto_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s->st) < 0)
        return -errno;
    if (!S_ISREG(s->st.st_mode))
        return -ENOENT;
    s->fd = take_fd(fd);
    s->is_open = true;
    s->sized = s->st.st_size > 0;
    int r = find_mime(s, name);
    if (r < 0)
        file_source_close(s);
    return r;
}

void file_source_close(struct file_source *s)
{
    if (s->is_open)
        close_fd(&s->fd);
    s->is_open = false;
}
