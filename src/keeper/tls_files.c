/* SPDX-License-Identifier: Apache-2.0 */
/* tls_files.c: see tls_files.h. */
#include "keeper/tls_files.h"
#include "gateway/gateway_boot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Appends a whole file, which must be a regular one. */
static int append_file(const char *path, char *out, size_t *len, uint32_t *ret_n, struct error *reterr)
{
    struct stat st;
    size_t n = 0;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_sys(reterr, errno, "open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > TLS_FILE_MAX)
        return error_set(reterr, EINVAL, "%s is no file of at most %d bytes", path, TLS_FILE_MAX);
    while (n < TLS_FILE_MAX) {
        ssize_t got = read(fd, out + *len + n, TLS_FILE_MAX - n);
        if (got < 0)
            return error_sys(reterr, errno, "read %s", path);
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *len += n;
    *ret_n = (uint32_t)n;
    return 0;
}

int tls_files_load(const struct keeper_config *config, int memfd, struct error *reterr)
{
    struct gateway_tls head = {.pair_count = (uint32_t)config->tls_count};
    size_t len = sizeof head, cap = sizeof head + (size_t)2 * TLS_PAIRS_MAX * TLS_FILE_MAX;
    char *out = malloc(cap);
    int r = out ? 0 : error_sys(reterr, ENOMEM, "read the TLS certificates");
    for (size_t i = 0; i < config->tls_count && r == 0; i++) {
        r = append_file(config->tls_cert[i], out, &len, &head.lengths[2 * i], reterr);
        if (r == 0)
            r = append_file(config->tls_key[i], out, &len, &head.lengths[2 * i + 1], reterr);
    }
    if (r == 0) {
        memcpy(out, &head, sizeof head);
        if (ftruncate(memfd, 0) < 0 || pwrite(memfd, out, len, 0) != (ssize_t)len)
            r = error_sys(reterr, errno, "hand over the TLS certificates");
    }
    if (out)
        explicit_bzero(out, cap);
    free(out);
    return r;
}
