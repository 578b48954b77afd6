/* SPDX-License-Identifier: Apache-2.0 */
/* spill.c: see spill.h. */
#include "builder/spill.h"

#include <errno.h>
#include <fcntl.h>

int spill_open(struct error *reterr)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir && *dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? error_sys(reterr, errno, "cannot make a temporary file") : fd;
}

int spill_write(void *fd, const void *data, size_t n, struct error *reterr)
{
    const char *p = data;
    while (n > 0) {
        ssize_t done = write(*(const int *)fd, p, n);
        if (done < 0 && errno != EINTR)
            return error_sys(reterr, errno, "cannot write a temporary file");
        if (done > 0) {
            p += done;
            n -= (size_t)done;
        }
    }
    return 0;
}
