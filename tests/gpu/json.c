/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_space(const char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

static const char *skip_string(const char *p)
{
	for (p++; *p && *p != '"'; p++)
		if (*p == '\\' && p[1])
			p++;
	return *p ? p + 1 : p;
}

/* Past a whole value: a nested one by counting brackets, with strings stepped over as one. */
static const char *skip_value(const char *p)
{
	int depth = 0;

	p = skip_space(p);
	if (*p == '"')
		return skip_string(p);
	for (; *p; p++) {
		if (*p == '"') {
			p = skip_string(p) - 1;
			continue;
		}
		if (*p == '{' || *p == '[')
			depth++;
		else if ((*p == '}' || *p == ']') && depth-- == 0)
			return p;
		else if (*p == ',' && depth == 0)
			return p;
		if ((*p == '}' || *p == ']') && depth == 0)
			return p + 1;
	}
	return p;
}

const char *json_member(const char *object, const char *name)
{
	size_t length = strlen(name);
	const char *p = object ? skip_space(object) : NULL;

	if (!p || *p != '{')
		return NULL;
	p = skip_space(p + 1);
	while (*p == '"') {
		bool found = !strncmp(p + 1, name, length) && p[1 + length] == '"';

		p = skip_space(skip_string(p));
		if (*p != ':')
			return NULL;
		p = skip_space(p + 1);
		if (found)
			return p;
		p = skip_space(skip_value(p));
		if (*p == ',')
			p = skip_space(p + 1);
	}
	return NULL;
}

const char *json_first(const char *array)
{
	const char *p = array ? skip_space(array) : NULL;

	if (!p || *p != '[')
		return NULL;
	p = skip_space(p + 1);
	return *p == ']' || !*p ? NULL : p;
}

const char *json_next(const char *element)
{
	const char *p = skip_space(skip_value(element));

	return *p == ',' ? skip_space(p + 1) : NULL;
}

double json_number(const char *value, double fallback)
{
	char *end;
	double number;

	if (!value)
		return fallback;
	number = strtod(value, &end);
	return end == value ? fallback : number;
}

uint64_t json_u64(const char *value, uint64_t fallback)
{
	if (!value || !isdigit((unsigned char)*value))
		return fallback;
	return strtoull(value, NULL, 10);
}

bool json_is_text(const char *value, const char *text)
{
	size_t length = strlen(text);

	return value && *value == '"' && !strncmp(value + 1, text, length) && value[1 + length] == '"';
}
