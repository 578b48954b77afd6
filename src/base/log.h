/* SPDX-License-Identifier: Apache-2.0 */
/* log.h: one line per event on stderr, as text or as JSON; control bytes never reach the terminal. */
#pragma once

#include "base/util.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* process: "keeper", "gateway", "agent"; must outlive the program. */
void log_init(const char *process, enum log_level level, enum log_format format);
void log_rename(const char *process); /* after a fork */
bool log_enabled(enum log_level level);
void log_msg(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define log_debug(...) (log_enabled(LOG_DEBUG) ? log_msg(LOG_DEBUG, __VA_ARGS__) : (void)0)
#define log_info(...)  log_msg(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_msg(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)

/* Parses "debug|info|warn|error" and "text|json"; false when unknown. */
bool log_level_parse(const char *s, enum log_level *ret);
bool log_format_parse(const char *s, enum log_format *ret);
