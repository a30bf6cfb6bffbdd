/* Text of somebody else's making, as people, terminals and JSON can have it. Pure. */
#ifndef BELFRY_BASE_TEXT_H
#define BELFRY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* What is not UTF-8, or is and could steer a terminal, becomes '?', but for newlines and tabs. */
char *bf_plain(char *text);
/* It ends within its room, and is nothing but ASCII that can be printed. */
bool bf_is_line(const char *text, size_t room);

/* After getopt_long has answered '?': which option it was, and what is wrong with it. `to` is returned. */
const char *bf_bad_option(char *const *argv, char *to, size_t room);

#endif
