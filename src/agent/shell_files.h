/* SPDX-License-Identifier: Apache-2.0 */
/* shell_files.h: the FIFOs and files of a shell, and what /proc tells about its doings. All return 0 (or a
 * descriptor) or -errno. */
#pragma once

#include "agent/shell_script.h"

#define AGENT_BASH "/bin/bash"

/* The bash to execute: the image's statically linked one, if it has such a thing and it is of the same build
 * as the usual one. It starts in half the time and has a third less memory of its own. */
const char *bash_program(void);

int fifo_make(const char *path); /* replaces whatever is there */
/* Non-blocking; the FIFO is made again when somebody has removed it. */
int fifo_open(const char *path, int flags);

/* Empties data into the file; on failure there is no file. */
int shell_file_write(const char *path, struct buf *data);
/* What `build` makes of the script. */
int shell_text_write(const char *path, const struct shell_script *script,
                     int (*build)(struct buf *out, const struct shell_script *s));

/* True when the process sleeps in a read(2) of the pipe whose other end is pipe_fd. False when /proc does not
 * tell. */
bool process_reads_pipe(pid_t pid, int pipe_fd);
/* What a process that sleeps would do if it woke up, as far as /proc tells. */
struct process_rest {
    uint64_t naps;   /* how often it has gone to sleep, the nap counted that it is about to take: the number
                      * changes when it executes anything */
    uint64_t caught; /* the signals that it has handlers for; bit 0 is signal 1 */
};
int process_rest_open(pid_t pid); /* a descriptor for it, or -errno */
bool process_rest_read(int fd, struct process_rest *ret);
