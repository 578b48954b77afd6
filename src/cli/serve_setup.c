/* SPDX-License-Identifier: Apache-2.0 */
/* serve_setup.c: see serve_setup.h. */
#include "cli/serve_setup.h"
#include "base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { TOKEN_BYTES = 32, TOKEN_TEXT_MAX = 256, TOKEN_TEXT_MIN = 16 };

/* Every missing part of the path, like mkdir -p; the last one gets the mode. */
static int make_path(const char *path, mode_t mode, struct error *reterr)
{
    char part[512];
    struct stat st;
    if (path[0] != '/')
        return error_set(reterr, EINVAL, "%s is not an absolute path", path);
    if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part)
        return error_set(reterr, ENAMETOOLONG, "%s is too long", path);
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char was = *p;
        *p = '\0';
        if (mkdir(part, was ? 0755 : mode) < 0 && errno != EEXIST)
            return error_sys(reterr, errno, "make the directory %s", part);
        if (!was)
            break;
        *p = was;
    }
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return error_set(reterr, ENOTDIR, "%s is not a directory", path);
    if (st.st_uid != geteuid())
        return error_set(reterr, EPERM, "%s belongs to somebody else", path);
    return 0;
}

int serve_directories(const char *data_dir, const char *run_dir, const char *images_dir, struct error *reterr)
{
    int r = make_path(data_dir, 0711, reterr);
    if (r == 0)
        r = make_path(run_dir, 0700, reterr);
    return r < 0 ? r : make_path(images_dir, 0755, reterr);
}

static int hash_token(const char *token, unsigned char hash[32], struct error *reterr)
{
    size_t n = strlen(token);
    if (n < TOKEN_TEXT_MIN || n > TOKEN_TEXT_MAX)
        return error_set(reterr, EINVAL, "a token has %d to %d characters", TOKEN_TEXT_MIN, TOKEN_TEXT_MAX);
    if (EVP_Digest(token, n, hash, NULL, EVP_sha256(), NULL) != 1)
        return error_set(reterr, EIO, "SHA-256 is not available");
    return 0;
}

int serve_token(const char *data_dir, const char *given, unsigned char hash[32], bool *ret_made,
                struct error *reterr)
{
    char path[512], token[TOKEN_TEXT_MAX + 2] = "";
    if (given)
        return hash_token(given, hash, reterr);
    (void)snprintf(path, sizeof path, "%s/admin.token", data_dir);
    auto_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, token, sizeof token - 1);
        if (n <= 0)
            return error_set(reterr, EIO, "%s is empty; remove it to have a new token made", path);
        token[strcspn(token, "\r\n")] = '\0';
        return hash_token(token, hash, reterr);
    }
    if (errno != ENOENT)
        return error_sys(reterr, errno, "open %s", path);
    unsigned char secret[TOKEN_BYTES];
    random_bytes(secret, sizeof secret);
    hex_encode(token, secret, sizeof secret);
    auto_close int new_fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t n = strlen(token);
    if (new_fd < 0 || write(new_fd, token, n) != (ssize_t)n || write(new_fd, "\n", 1) != 1 ||
        fsync(new_fd) < 0)
        return error_sys(reterr, errno, "write %s", path);
    *ret_made = true;
    return hash_token(token, hash, reterr);
}

int serve_agent_beside(char *out, size_t cap, struct error *reterr)
{
    char self[400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return error_sys(reterr, errno, "find this program");
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    if ((size_t)snprintf(out, cap, "%s/silica-agent", self) >= cap)
        return error_set(reterr, ENAMETOOLONG, "the path of this program is too long");
    if (access(out, R_OK) < 0)
        return error_sys(reterr, errno, "the agent %s (build it, or name it with --agent)", out);
    return 0;
}
