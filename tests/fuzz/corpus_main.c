/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_main.c: runs a fuzz target over every file of the given directories, as an ordinary test.
 *
 * A target that finds a problem ends the process, so the file's name is printed first when it does. */
#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MAX = 16 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char current[512];

/* Only write(2): the target may have died anywhere. */
static void on_abort(int sig)
{
    (void)!write(STDERR_FILENO, "failed on ", 10);
    (void)!write(STDERR_FILENO, current, strlen(current));
    (void)!write(STDERR_FILENO, "\n", 1);
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

static int run_file(int dir, const char *name)
{
    auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return 0;
    if (st.st_size > FILE_MAX)
        return -EFBIG;
    size_t size = (size_t)st.st_size, have = 0;
    auto_free uint8_t *data = malloc(size ? size : 1); /* of exact size, for the address sanitizer */
    if (!data)
        return -ENOMEM;
    while (have < size) {
        ssize_t n = read(fd, data + have, size - have);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        have += (size_t)n;
    }
    (void)LLVMFuzzerTestOneInput(data, size);
    return 1;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    (void)signal(SIGABRT, on_abort);
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            printf("%s: %s\n", argv[i], strerror(errno));
            failed++;
            continue;
        }
        struct dirent *entry;
        while ((entry = readdir(dir))) {
            (void)snprintf(current, sizeof current, "%.250s/%.250s", argv[i], entry->d_name);
            int r = run_file(dirfd(dir), entry->d_name);
            if (r < 0) {
                printf("%s: %s\n", current, strerror(-r));
                failed++;
            } else {
                passed += r;
            }
        }
        (void)closedir(dir);
    }
    if (passed == 0) { /* an empty corpus is a wrong path */
        printf("no files in the corpus\n");
        failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
