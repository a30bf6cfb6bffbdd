#ifndef BELFRY_BASE_UNITS_H
#define BELFRY_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* "8G", "1.5GiB", "4096": K M G T are powers of 1024. What is not a positive whole number of bytes is refused. */
int bf_parse_size(const char *text, uint64_t *bytes, struct bf_error *err);
/* "200us", "2ms", "1.5s" to whole microseconds, at least 1. */
int bf_parse_time(const char *text, uint64_t *us, struct bf_error *err);
/* A decimal number between min and max. `what` names it in the message. */
int bf_parse_number(const char *what, const char *text, long min, long max, long *value,
		    struct bf_error *err);
/* "7.5 GiB": for people; at least 16 bytes of room. */
const char *bf_format_size(uint64_t bytes, char *to, size_t room);

#endif
