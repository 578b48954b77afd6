/* SPDX-License-Identifier: Apache-2.0 */
/* write_all.c: see write_all.h. */
#include "net/write_all.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

int write_all(int fd, const void *data, size_t n)
{
    const char *at = data;
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            (void)poll(&p, 1, -1);
        } else if (done < 0 && errno != EINTR) {
            return -errno;
        } else if (done > 0) {
            at += done;
            n -= (size_t)done;
        }
    }
    return 0;
}
