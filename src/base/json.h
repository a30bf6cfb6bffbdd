/* Adds members to a JSON object. If memory runs out, a member is null or missing. */
#ifndef BELFRY_BASE_JSON_H
#define BELFRY_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <json-c/json.h>

static inline void json_add(struct json_object *to, const char *key, struct json_object *value)
{
	if (to)
		json_object_object_add(to, key, value);
	else
		json_object_put(value);
}

static inline void json_add_number(struct json_object *to, const char *key, uint64_t value)
{
	json_add(to, key, json_object_new_uint64(value));
}

static inline void json_add_real(struct json_object *to, const char *key, double value)
{
	json_add(to, key, json_object_new_double(value));
}

static inline void json_add_bool(struct json_object *to, const char *key, bool value)
{
	json_add(to, key, json_object_new_boolean(value));
}

/* A NULL value becomes null. */
static inline void json_add_text(struct json_object *to, const char *key, const char *value)
{
	json_add(to, key, value ? json_object_new_string(value) : NULL);
}

/* Returns the object as text, which the caller frees, and releases the object. NULL: out of memory. */
static inline char *json_text(struct json_object *top, size_t *bytes)
{
	const char *text = json_object_to_json_string_length(
		top, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, bytes);
	char *copy = text ? strdup(text) : NULL;

	json_object_put(top);
	return copy;
}

#endif
