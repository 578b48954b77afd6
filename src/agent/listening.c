/* SPDX-License-Identifier: Apache-2.0 */
/* listening.c: GET /api/ports: which TCP ports are open inside the sandbox right now, and whose they are.
 *
 * The kernel's own tables (/proc/net/tcp and tcp6) name the sockets by inode; the owner is found by looking
 * for that inode among the open files of the processes. That part is a courtesy: a process that hides its
 * files from us stays nameless, and the search gives up after a bounded number of files. */
#include "agent/listening.h"
#include "agent/reply.h"
#include "agent/routes.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { LISTENING_MAX = 512, LOOKS_MAX = 8192, TCP_STATE_LISTEN = 0x0a, LINE_SIZE = 256 };

struct found {
    struct listening entries[LISTENING_MAX];
    size_t count, unnamed;
    unsigned looks;
};

/* "0100007F:1F90": groups of eight digits are 32-bit words in the machine's order. */
static bool parse_address(const char *hex, size_t digits, char *out, size_t cap)
{
    uint32_t words[4];
    for (size_t i = 0; i < digits / 8; i++) {
        char word[9];
        char *end;
        memcpy(word, hex + 8 * i, 8);
        word[8] = '\0';
        words[i] = (uint32_t)strtoul(word, &end, 16);
        if (*end)
            return false;
    }
    return inet_ntop(digits == 8 ? AF_INET : AF_INET6, words, out, (socklen_t)cap) != NULL;
}

bool listening_parse(const char *line, struct listening *ret)
{
    unsigned port, state;
    unsigned long inode;
    char local[40];
    /* sl: local:port remote:port state queues timer retransmits uid timeout inode */
    if (sscanf(line,
               " %*u: %32[0-9A-F]:%4X %*[0-9A-F]:%*4X %2X %*[0-9A-F]:%*[0-9A-F] %*[0-9A-F]:%*[0-9A-F] "
               "%*[0-9A-F] %*u %*u %lu",
               local, &port, &state, &inode) != 4 ||
        state != TCP_STATE_LISTEN || port == 0 || port > 65535)
        return false;
    size_t digits = strlen(local);
    if ((digits != 8 && digits != 32) || !parse_address(local, digits, ret->address, sizeof ret->address))
        return false;
    ret->port = (uint16_t)port;
    ret->inode = inode;
    ret->process[0] = '\0';
    return true;
}

static void read_table(struct found *f, const char *path)
{
    char line[LINE_SIZE];
    FILE *file = fopen(path, "re");
    if (!file)
        return; /* without IPv6 there is no tcp6 */
    while (f->count < LISTENING_MAX && fgets(line, sizeof line, file))
        if (listening_parse(line, &f->entries[f->count]))
            f->count++;
    (void)fclose(file);
}

static void name_socket(struct found *f, unsigned long inode, int process_fd)
{
    for (size_t i = 0; i < f->count; i++) {
        struct listening *e = &f->entries[i];
        if (e->inode != inode || e->process[0])
            continue;
        auto_close int fd = openat(process_fd, "comm", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, e->process, sizeof e->process - 1);
        e->process[n > 0 ? (size_t)n : 0] = '\0';
        e->process[strcspn(e->process, "\n")] = '\0';
        if (e->process[0])
            f->unnamed--;
    }
}

static void look_at_process(struct found *f, int process_fd)
{
    char target[64];
    unsigned long inode;
    auto_close int fd = openat(process_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return;
    fd = -1; /* the stream's now */
    for (struct dirent *d; f->unnamed && f->looks < LOOKS_MAX && (d = readdir(dir)); f->looks++) {
        ssize_t n = readlinkat(dirfd(dir), d->d_name, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        if (sscanf(target, "socket:[%lu]", &inode) == 1)
            name_socket(f, inode, process_fd);
    }
    (void)closedir(dir);
}

static void find_owners(struct found *f)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return;
    f->unnamed = f->count;
    for (struct dirent *d; f->unnamed && f->looks < LOOKS_MAX && (d = readdir(proc));) {
        if (!isdigit((unsigned char)d->d_name[0]))
            continue;
        auto_close int fd = openat(dirfd(proc), d->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            look_at_process(f, fd);
    }
    (void)closedir(proc);
}

static int by_port(const void *a, const void *b)
{
    const struct listening *x = a, *y = b;
    return x->port != y->port ? (x->port > y->port) - (x->port < y->port) : strcmp(x->address, y->address);
}

void route_ports(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct found *f = calloc(1, sizeof *f);
    struct reply r;
    (void)a;
    (void)call;
    if (!f) {
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    read_table(f, "/proc/net/tcp");
    read_table(f, "/proc/net/tcp6");
    find_owners(f);
    qsort(f->entries, f->count, sizeof f->entries[0], by_port);

    reply_begin(&r);
    json_put_key(&r.w, "ports");
    json_array_begin(&r.w);
    for (size_t i = 0; i < f->count; i++) {
        const struct listening *e = &f->entries[i];
        json_object_begin(&r.w);
        json_member_int(&r.w, "port", e->port);
        json_member_string(&r.w, "address", e->address);
        if (e->process[0]) {
            json_put_key(&r.w, "process");
            json_put_bytes(&r.w, e->process, strlen(e->process)); /* a name may be any bytes */
        }
        json_object_end(&r.w);
    }
    json_array_end(&r.w);
    json_member_int(&r.w, "count", (int64_t)f->count);
    reply_send(&r, req);
    free(f);
}
