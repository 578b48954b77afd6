/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_env.c: using the objects that a sandbox_config keeps as text: variables for the keeper, labels for
 * filters. */
#include "gateway/sandbox_config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

/* Parses a copy of text; *ret_copy owns the strings of the document. */
static int parse_copy(const char *text, char **ret_copy, struct json_doc **ret)
{
    struct error e;
    auto_free char *copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    int r = json_parse(copy, strlen(copy), 0, ret, &e);
    if (r == 0)
        *ret_copy = take_ptr(copy);
    return r;
}

static int put_variables(struct buf *out, const struct json_value *env)
{
    json_for_each (child, env) {
        const char *value = json_string(child, NULL);
        if (!value)
            return -EBADMSG;
        int r = buf_puts(out, json_key(child));
        r = r < 0 ? r : buf_putc(out, '=');
        r = r < 0 ? r : buf_append(out, value, strlen(value) + 1);
        if (r < 0)
            return r;
    }
    return 0;
}

static int sealed_copy(const struct buf *data, int *ret_fd)
{
    auto_close int fd = memfd_create("env", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    for (size_t done = 0; done < buf_len(data);) {
        ssize_t n = write(fd, buf_data(data) + done, buf_len(data) - done);
        if (n < 0)
            return -errno;
        done += (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return -errno;
    *ret_fd = take_fd(fd);
    return 0;
}

int sandbox_config_boot_fd(const struct sandbox_config *c, const char *shared, size_t shared_bytes,
                           int *ret_fd, struct error *reterr)
{
    *ret_fd = -1;
    auto_free char *copy = NULL;
    auto_json struct json_doc *doc = NULL;
    int r = c->env ? parse_copy(c->env, &copy, &doc) : 0;
    if (r < 0)
        return error_set(reterr, -r, "the stored variables cannot be read");

    struct buf out = BUF_INIT(CONFIG_ENV_BYTES + CONFIG_SETTINGS_BYTES + shared_bytes);
    r = shared_bytes ? buf_append(&out, shared, shared_bytes) : 0;
    if (r == 0 && doc)
        r = put_variables(&out, json_root(doc));
    if (r == 0)
        r = sandbox_settings_put_boot(&out, &c->settings);
    if (r == 0 && buf_len(&out) > 0)
        r = sealed_copy(&out, ret_fd);
    buf_done(&out);
    return r < 0 ? error_sys(reterr, -r, "hand over the variables") : 0;
}

bool sandbox_config_has_label(const struct sandbox_config *c, const char *key, const char *value)
{
    if (!c->labels)
        return false;
    auto_free char *copy = NULL;
    auto_json struct json_doc *doc = NULL;
    if (parse_copy(c->labels, &copy, &doc) < 0)
        return false;
    const char *have = json_string(json_get(json_root(doc), key), NULL);
    return have && strcmp(have, value) == 0;
}
