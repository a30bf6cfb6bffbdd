/* Makes untrusted text safe for terminals and JSON. Pure. */
#ifndef BELFRY_BASE_TEXT_H
#define BELFRY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces invalid UTF-8 and all control characters, except newline and tab, by '?'. Returns `text`. */
char *bf_plain(char *text);
/* Whether the text ends within `room` bytes and is printable ASCII only. */
bool bf_is_line(const char *text, size_t room);

#endif
