/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_api.c: silica api: any request, with URL and token filled in. */
#include "cli/cli.h"
#include "cli/command_line.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The largest body a server takes. */
#define BODY_MAX ((size_t)128 << 20)

const struct option api_options[] = {
    {'d', "data", 'd', "TEXT", NULL,
     "the body of the request; @FILE reads it from a file, @- from standard input"},
    {'H', "header", 'H', "NAME: VALUE", NULL, "one more header; may be repeated"},
    {'i', "include", 'i', NULL, NULL, "print status and type of the answer on standard error"},
    {0, NULL, 0, NULL, NULL, NULL},
};

struct api_settings {
    struct connect_settings connect;
    struct silica_request request;
    const char **headers;
    size_t header_count;
    const char *data;
    bool include;
    struct buf body;
};

struct api_answer {
    bool include;
    int status;
    char last; /* byte written */
};

static int answer_head(int status, const char *content_type, void *user)
{
    struct api_answer *a = user;
    a->status = status;
    if (a->include)
        (void)fprintf(stderr, "HTTP %d %s\n", status, content_type);
    return 0;
}

static int answer_data(const void *data, size_t n, void *user)
{
    struct api_answer *a = user;
    a->last = ((const char *)data)[n - 1];
    if (fwrite(data, 1, n, stdout) != n || fflush(stdout) != 0)
        return -EIO;
    return 0;
}

static int read_body(struct api_settings *s, struct error *reterr)
{
    if (s->data[0] != '@')
        return buf_puts(&s->body, s->data);
    const char *path = s->data + 1;
    auto_close int opened = -1;
    int fd = STDIN_FILENO;
    if (strcmp(path, "-") != 0) {
        fd = opened = open(path, O_RDONLY | O_CLOEXEC);
        if (opened < 0)
            return error_sys(reterr, errno, "cannot open '%.200s'", path);
    }
    for (;;) {
        char *room = buf_reserve(&s->body, 65536);
        if (!room)
            return error_set(reterr, EFBIG, "the body is larger than %zu MiB", BODY_MAX >> 20);
        ssize_t n = read(fd, room, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(reterr, errno, "cannot read '%.200s'", path);
        if (n == 0)
            return 0;
        buf_commit(&s->body, (size_t)n);
    }
}

static int send_request(struct api_settings *s)
{
    auto_client struct silica_client *c = NULL;
    int r = connect_open("api", &s->connect, &c);
    if (r != 0)
        return r;
    struct error e = {0};
    if (s->data) {
        if (read_body(s, &e) < 0)
            return cli_error("api", "%s", e.code ? e.msg : "the body is too large");
        s->request.body = buf_cstr(&s->body);
        s->request.body_bytes = buf_len(&s->body);
        if (!s->request.body)
            return cli_error("api", "out of memory");
    }
    struct api_answer a = {.include = s->include};
    struct silica_receiver receiver = {answer_head, answer_data, &a};
    struct silica_error failure;
    if (silica_request_stream(c, &s->request, &receiver, &failure) < 0)
        return failure.kind == SILICA_ERROR_STOPPED ? cli_error("api", "cannot write the output")
                                                    : connect_failed("api", c, &failure);
    if (a.last && a.last != '\n' && isatty(STDOUT_FILENO))
        printf("\n");
    return a.status >= 400 ? cli_error("api", "the server answered with HTTP status %d", a.status) : 0;
}

static int check_request(const struct silica_request *q)
{
    if (!q->method || !q->path)
        return cli_missing("api", q->method ? "the path" : "the method (GET, POST, ...)");
    struct error e;
    size_t n = strlen(q->method);
    if (n == 0 || n > 20 || strspn(q->method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != n) {
        (void)error_set(&e, EINVAL, "'%.60s' is not a method; use GET, POST, PUT or DELETE", q->method);
        return cli_usage_error("api", &e);
    }
    if (q->path[0] != '/' || q->path[strcspn(q->path, " \t\r\n#")]) {
        (void)error_set(&e, EINVAL, "'%.60s' is not a path; it begins with / and contains no blanks",
                        q->path);
        return cli_usage_error("api", &e);
    }
    return 0;
}

int cmd_api(int argc, char **argv)
{
    auto_free const char **headers = calloc((size_t)argc + 1, sizeof *headers);
    if (!headers)
        return cli_error("api", "out of memory");
    struct api_settings s = {.headers = headers, .body = BUF_INIT(BODY_MAX)};

    const char *operands[2] = {NULL, NULL}, *value;
    struct command_line line = command_line_of("api", api_options, &s.connect, argc, argv);
    command_line_collect(&line, operands, ARRAY_SIZE(operands));
    int key;
    while ((key = command_line_next(&line, &value)) > 0)
        switch (key) {
        case 'd':
            s.data = value;
            break;
        case 'H':
            s.headers[s.header_count++] = value;
            break;
        case 'i':
            s.include = true;
            break;
        }
    s.request.method = operands[0];
    s.request.path = operands[1];
    int r = key < 0 ? line.exit_code : check_request(&s.request);
    if (key == 0 && r == 0) {
        s.request.headers = s.headers;
        r = send_request(&s);
    }
    buf_done(&s.body);
    return r;
}
