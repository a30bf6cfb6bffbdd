/* SPDX-License-Identifier: MIT */
/* json: just enough to read what `belfry ls --json` prints. A value is a pointer to its first character in
 * the text; NULL means "not there" and may be passed on. Trusts the text to be well formed JSON. */
#ifndef TESTS_GPU_JSON_H
#define TESTS_GPU_JSON_H

#include <stdbool.h>
#include <stdint.h>

/* A member of an object; NULL when the value is no object or has no such member. */
const char *json_member(const char *object, const char *name);

/* The first element of an array, and the one after an element; NULL at the end. */
const char *json_first(const char *array);
const char *json_next(const char *element);

double json_number(const char *value, double fallback);
uint64_t json_u64(const char *value, uint64_t fallback);
bool json_is_text(const char *value, const char *text);

#endif
