#ifndef BELFRY_BASE_LOG_H
#define BELFRY_BASE_LOG_H

enum bf_log_level { BF_LOG_ERROR = 0, BF_LOG_WARN, BF_LOG_INFO, BF_LOG_DEBUG };

void bf_log_setup(const char *who, enum bf_log_level max);
/* Parses "error", "warn", "info" or "debug"; -1 for anything else. */
int bf_log_level_parse(const char *text);
/* Writes one line to stderr with a single write(), so that lines of several processes do not mix. */
void bf_log(enum bf_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
