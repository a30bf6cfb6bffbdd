#ifndef BELFRY_BASE_UNITS_H
#define BELFRY_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define BF_DAY_US 86400000000ull

/* Parses "8G", "1.1GiB" or "4096"; K, M, G and T are powers of 1024. The result is rounded down to whole bytes, at
 * least 1. */
int bf_parse_size(const char *text, uint64_t *bytes, struct bf_error *err);
/* Parses "200us", "2ms" or "1.5s" to whole microseconds, at least 1. */
int bf_parse_time(const char *text, uint64_t *us, struct bf_error *err);
/* Parses a decimal number between min and max. `what` names it in the message. */
int bf_parse_number(const char *what, const char *text, long min, long max, long *value,
		    struct bf_error *err);
/* Formats a size for people, like "7.5 GiB". `room` is at least 16. */
const char *bf_format_size(uint64_t bytes, char *to, size_t room);

#endif
