/* SPDX-License-Identifier: Apache-2.0 */
/* shell_files.h: the FIFOs and files of a shell, and what /proc tells about its reading. All return 0 (or a
 * descriptor) or -errno. */
#pragma once

#include "agent/shell_script.h"

int fifo_make(const char *path); /* replaces whatever is there */
/* Non-blocking; the FIFO is made again when somebody has removed it. */
int fifo_open(const char *path, int flags);

/* Empties data into the file; on failure there is no file. */
int shell_file_write(const char *path, struct buf *data);
/* The text of a command, as its eval reads it. */
int shell_text_write(const char *path, const struct shell_script *script);

/* True when the process sleeps in a read(2) of the pipe whose other end is pipe_fd. False when /proc does not
 * tell. */
bool process_reads_pipe(pid_t pid, int pipe_fd);
