/* SPDX-License-Identifier: Apache-2.0 */
/* silica.h: libsilica, the C client of a Silica server.
 *
 *     struct silica_client *c;
 *     struct silica_error e;
 *     struct silica_exec_result r;
 *     if (silica_client_new(NULL, &c, &e) < 0 ||
 *         silica_exec(c, "demo", "python3 -c 'print(2+2)'", NULL, &r, &e) < 0)
 *         die("%s", e.message);
 *     printf("%s (exit code %d)\n", r.out, r.exit_code);
 *     silica_exec_result_done(&r);
 *     silica_client_free(c);
 *
 * Every call blocks until it is done. Functions return 0, or a negative errno and fill *reterr (NULL is
 * fine). What a function stores behind a ret pointer it stores only on success; the matching _done function
 * releases it. Strings are UTF-8 and end with NUL. A client belongs to one thread at a time; different
 * clients are independent. No signal handlers are installed, and a broken connection raises no SIGPIPE.
 *
 * This header needs C11 and nothing else of the project. */
#ifndef SILICA_H
#define SILICA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SILICA_DEFAULT_URL  "http://127.0.0.1:8787"
#define SILICA_DEFAULT_DATA "/var/lib/silica"

/* ------------------------------------------------------------------ errors */

/* Who failed. */
enum silica_error_kind {
    SILICA_ERROR_NONE,
    SILICA_ERROR_ARGUMENT, /* what the caller gave cannot be used */
    SILICA_ERROR_CONNECT,  /* nobody answers at the URL */
    SILICA_ERROR_BROKEN,   /* the connection broke or timed out before the answer was complete */
    SILICA_ERROR_PROTOCOL, /* the answer is not what a Silica server says */
    SILICA_ERROR_SERVER,   /* the server refused: see code, message and http_status */
    SILICA_ERROR_STOPPED,  /* a callback of the caller said so */
    SILICA_ERROR_SYSTEM,   /* memory or the operating system of the caller */
};

struct silica_error {
    enum silica_error_kind kind;
    int http_status;   /* of the server's answer, 0 when there was none */
    int exit_code;     /* SESSION_TERMINATED: what the shell ended with; otherwise -1 */
    char code[64];     /* of the server's error, for example "SESSION_TERMINATED"; "" when there was none */
    char message[512]; /* one sentence */
    char suggestion[256]; /* what the server advises, "" when nothing */
};

/* ------------------------------------------------------------------ client */

struct silica_client;

/* Everything may be left zero. */
struct silica_options {
    const char
        *url; /* "http://HOST:PORT[/path]" or "unix:/path"; else $SILICA_URL, else SILICA_DEFAULT_URL */
    const char
        *token; /* else token_file, else $SILICA_TOKEN, else the file admin.token in the data directory */
    const char *token_file;
    const char *data_dir;   /* else $SILICA_DATA, else SILICA_DEFAULT_DATA */
    int connect_timeout_ms; /* 0: 5 seconds */
    int answer_timeout_ms;  /* longest silence before the head of an answer; 0: as long as it takes */
};

/* Reads settings; connects to nobody yet. The token of the data directory is only used for a server on this
 * machine (loopback or unix socket), so that it never travels to a stranger. */
int silica_client_new(const struct silica_options *options, struct silica_client **ret,
                      struct silica_error *reterr);
void silica_client_free(struct silica_client *c); /* NULL is fine */
const char *silica_client_url(const struct silica_client *c);
/* Why there is no token, as a sentence; NULL when there is one. */
const char *silica_client_token_problem(const struct silica_client *c);

/* ------------------------------------------------------------------ any request */

/* A body that is made while it is sent. */
struct silica_upload {
    /* Up to n bytes; 0: the end; negative: ends the request with SILICA_ERROR_STOPPED. */
    long (*read)(void *data, size_t n, void *user);
    void *user;
    int64_t bytes; /* all of it; -1: not known */
};

struct silica_request {
    const char *method;         /* "GET" */
    const char *path;           /* "/v1/sandbox?x=y", behind the URL's own path */
    const char *const *headers; /* "Name: value", ends with NULL; may be NULL */
    const void *body;           /* NULL: none; sent as application/json unless headers say otherwise */
    size_t body_bytes;
    const struct silica_upload *upload; /* instead of body; sent as application/octet-stream */
};

/* The answer as it arrives. Both may be NULL; a negative return value ends the request with
 * SILICA_ERROR_STOPPED. */
struct silica_receiver {
    int (*head)(int status, const char *content_type, void *user);
    int (*data)(const void *data, size_t n, void *user);
    void *user;
};

struct silica_response {
    int status;
    char *content_type; /* "" when the server sent none */
    char *body;         /* with a NUL behind it */
    size_t body_bytes;
};

/* Any status is a success here: silica_response_error makes an error of those that are. */
int silica_request(struct silica_client *c, const struct silica_request *request, struct silica_response *ret,
                   struct silica_error *reterr);
int silica_request_stream(struct silica_client *c, const struct silica_request *request,
                          const struct silica_receiver *receiver, struct silica_error *reterr);
int silica_response_error(const struct silica_response *r, struct silica_error *reterr); /* 0 below 400 */
void silica_response_done(struct silica_response *r);

/* One event of a stream of server-sent events: its data (JSON with a NUL behind it), which may be changed in
 * place and is valid during the call only. A negative return value ends the request with
 * SILICA_ERROR_STOPPED. */
typedef int (*silica_event)(char *data, size_t n, void *user);
/* A request whose answer is such a stream; 0 when the server ended it. */
int silica_request_events(struct silica_client *c, const struct silica_request *request, silica_event event,
                          void *user, struct silica_error *reterr);

/* ------------------------------------------------------------------ images */

/* An archive (OCI layout or `docker save`, tar) becomes an image. name: NULL: the archive's own. event (may
 * be NULL) hears of progress; *ret_json: {"images": [...]}, see docs/images.md. */
int silica_image_import(struct silica_client *c, const char *name, const struct silica_upload *archive,
                        silica_event event, void *user, char **ret_json, struct silica_error *reterr);
/* The archive, as it arrives. A negative return value of data ends it with SILICA_ERROR_STOPPED. */
int silica_image_export(struct silica_client *c, const char *name, bool compress,
                        int (*data)(const void *data, size_t n, void *user), void *user,
                        struct silica_error *reterr);
/* What a sandbox has changed becomes a layer of a new image. config: JSON, see docs/images.md; NULL: as its
 * image's. *ret_json: the image. */
int silica_image_save(struct silica_client *c, const char *sandbox, const char *name, const char *config,
                      char **ret_json, struct silica_error *reterr);

/* ------------------------------------------------------------------ sandboxes */

struct silica_label {
    char *key;
    char *value;
};

struct silica_sandbox {
    char *id;
    char *state;         /* "starting", "running", "frozen", "stopping", "asleep", "destroying" */
    char *image;         /* its id, or the name of a directory; these five may be NULL */
    char *image_name;    /* the first of the names it has now; none: it has none */
    char *instance_type; /* none when the limits were given one by one */
    char *created_at;    /* ISO 8601, UTC */
    char *last_used_at;
    int64_t memory_bytes; /* in use; -1: not known */
    int64_t tasks;
    int64_t sleep_after_ms; /* idle time after which it falls asleep; -1: not known */
    struct silica_label *labels;
    size_t label_count;
    char *json; /* everything the server said about it */
};

struct silica_sandbox_list {
    struct silica_sandbox *items;
    size_t count;
    char *json;
};

/* What is left zero stays as it is, or gets the server's default when the sandbox is new. */
struct silica_sandbox_config {
    const char *image;
    const char *instance_type;
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t tasks;
    uint32_t cpu_milli;         /* 1000 = one core */
    const char *const *env;     /* "NAME=VALUE", ends with NULL */
    const char *const *labels;  /* "KEY=VALUE", ends with NULL */
    int64_t sleep_after_ms;     /* idle time after which it falls asleep */
    const char *user;           /* who runs its commands: name or number, perhaps with ":GROUP" */
    const char *workdir;        /* where they start */
    const char *hostname;       /* what it calls itself */
    const char *const *volumes; /* "NAME:/path" or "NAME:/path:ro", ends with NULL */
    const char *network;        /* "none", "public" or "allowlist" */
    const char *const
        *allow; /* with "allowlist": names, addresses, networks, perhaps with ":PORT"; ends with NULL */
    uint64_t network_bps; /* bytes a second, each way */
    uint32_t connections; /* at a time */
    bool set_keep_alive;  /* keep_alive counts */
    bool keep_alive;
};

/* The server's own words about itself, as JSON; needs no token. */
int silica_health(struct silica_client *c, char **ret_json, struct silica_error *reterr);

int silica_sandbox_put(struct silica_client *c, const char *id, const struct silica_sandbox_config *config,
                       struct silica_sandbox *ret, struct silica_error *reterr);
int silica_sandbox_get(struct silica_client *c, const char *id, struct silica_sandbox *ret,
                       struct silica_error *reterr);
int silica_sandbox_list(struct silica_client *c, struct silica_sandbox_list *ret,
                        struct silica_error *reterr);
int silica_sandbox_destroy(struct silica_client *c, const char *id, struct silica_error *reterr);
/* Ends the processes and keeps the files, or starts it again; *ret is the sandbox as it is then. */
int silica_sandbox_sleep(struct silica_client *c, const char *id, struct silica_sandbox *ret,
                         struct silica_error *reterr);
int silica_sandbox_wake(struct silica_client *c, const char *id, struct silica_sandbox *ret,
                        struct silica_error *reterr);
void silica_sandbox_done(struct silica_sandbox *s);
void silica_sandbox_list_done(struct silica_sandbox_list *l);

/* ------------------------------------------------------------------ ports */

struct silica_port {
    int port;
    char *url; /* of an exposed one; all of these may be NULL */
    char *name;
    char *exposed_at; /* ISO 8601, UTC */
    char *address;    /* of one that is listened on: where */
    char *process;    /* and by whom */
};

struct silica_port_list {
    struct silica_port *items;
    size_t count;
    char *json;
};

/* Gives a service inside a sandbox an address for browsers. name and token (1 to 16 of a-z, 0-9, _: the
 * secret part of the address) may be NULL. Exposing a port again returns the same address. */
int silica_port_expose(struct silica_client *c, const char *id, int port, const char *name, const char *token,
                       struct silica_port *ret, struct silica_error *reterr);
int silica_port_close(struct silica_client *c, const char *id, int port, struct silica_error *reterr);
int silica_port_list(struct silica_client *c, const char *id, struct silica_port_list *ret,
                     struct silica_error *reterr);
/* On which ports something listens inside right now; wakes the sandbox. */
int silica_port_listening(struct silica_client *c, const char *id, struct silica_port_list *ret,
                          struct silica_error *reterr);
void silica_port_done(struct silica_port *p);
void silica_port_list_done(struct silica_port_list *l);

/* ------------------------------------------------------------------ commands */

struct silica_exec_options {
    const char *session;    /* NULL: the default session, whose state (directory, variables) persists */
    const char *cwd;        /* for this command only */
    const char *const *env; /* "NAME=VALUE", ends with NULL; for this command only */
    int64_t timeout_ms;     /* 0: none */
};

struct silica_exec_result {
    int exit_code;
    char *out; /* standard output, without its last newline; may contain NUL bytes */
    size_t out_bytes;
    char *err; /* standard error, likewise */
    size_t err_bytes;
    char *json; /* the server's whole answer */
};

enum silica_stream { SILICA_STDOUT = 1, SILICA_STDERR = 2 };

/* A piece of output, as soon as the server sends it. A negative return value ends the call with
 * SILICA_ERROR_STOPPED; the command itself goes on. */
typedef int (*silica_output)(enum silica_stream stream, const char *data, size_t n, void *user);

/* Runs shell text in a sandbox, which is created when it does not exist. A command that fails is no error of
 * the call: see exit_code. */
int silica_exec(struct silica_client *c, const char *id, const char *command,
                const struct silica_exec_options *options, struct silica_exec_result *ret,
                struct silica_error *reterr);
/* The same with live output. */
int silica_exec_stream(struct silica_client *c, const char *id, const char *command,
                       const struct silica_exec_options *options, silica_output output, void *user,
                       int *ret_exit_code, struct silica_error *reterr);
void silica_exec_result_done(struct silica_exec_result *r);

/* ------------------------------------------------------------------ terminals */

struct silica_terminal_options {
    const char *session; /* NULL: "default" */
    const char *shell;   /* program, for a terminal that does not exist yet; NULL: bash */
    int input_fd;        /* what is typed: a terminal in raw mode, a pipe or a socket */
    int output_fd;
    int resize_fd; /* readable when the size may have changed; -1: it never does */
    /* The size now; false: unknown. */
    bool (*size)(int *cols, int *rows, void *user);
    void *user;
};

/* Joins the terminal of a session (made if there is none) to the caller's descriptors until its shell ends.
 */
int silica_terminal(struct silica_client *c, const char *id, const struct silica_terminal_options *options,
                    int *ret_exit_code, struct silica_error *reterr);

#ifdef __cplusplus
}
#endif
#endif
