/* SPDX-License-Identifier: Apache-2.0 */
/* http.h: a blocking HTTP/1.1 client for measuring: one connection kept open, every answer read to its end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_BUFFER = 256 * 1024, HTTP_CAPTURE = 64 * 1024, HTTP_ADDRESS_MAX = 160 };

struct http {
    char address[HTTP_ADDRESS_MAX]; /* "tcp:HOST:PORT", "gateway:HOST:PORT" (the same, with the token) or
                                       "unix:PATH" */
    int fd;                         /* -1: not connected */
    char *in;                       /* HTTP_BUFFER bytes: what was received and not yet consumed */
    size_t pos, len;
    unsigned connects;
};

struct http_call {
    const char *method, *path;
    const char *body; /* body_len bytes; NULL: none, or `fill` bytes made up on the way */
    size_t body_len;
    uint64_t fill;
    const char *mark; /* text in the answer's body whose arrival is timed; NULL: none */
    void (*piece)(void *arg, const char *data, size_t n); /* may be NULL */
    void *arg;
};

struct http_answer {
    int status;
    uint64_t bytes;                              /* of the body */
    int64_t start_ns, first_ns, mark_ns, end_ns; /* CLOCK_MONOTONIC; 0: did not happen */
    size_t text_len;
    char text[HTTP_CAPTURE + 1]; /* the beginning of the body, terminated */
};

int64_t now_ns(void);
int http_init(struct http *h, const char *address);
void http_done(struct http *h);
/* 0 when an answer was read to its end, whatever its status; otherwise -errno. Connects when needed. */
int http_do(struct http *h, const struct http_call *call, struct http_answer *ret);
