/* Names of kernels: numbers, plain names, patterns. */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "probe/weave.h"

uint64_t weave_kernel_id(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 0x100000001b3ull;
	return hash;
}

/* <length><name>; the end, or NULL. */
static const char *take_part(const char *at, char *to, size_t room, bool is_first)
{
	size_t length = 0, used = strlen(to);

	if (!isdigit((unsigned char)*at))
		return NULL;
	while (isdigit((unsigned char)*at) && length < 4096)
		length = 10 * length + (size_t)(*at++ - '0');
	if (!length || strnlen(at, length) < length)
		return NULL;
	snprintf(to + used, room - used, "%s%.*s", is_first ? "" : "::", (int)length, at);
	return at + length;
}

/* The names of the Itanium C++ ABI: _Z <name>, or _ZN <name>... E. */
void weave_plain_name(const char *name, char *to, size_t room)
{
	const char *at = name + 2;
	bool is_first = true;

	to[0] = '\0';
	if (!strncmp(name, "_Z", 2)) {
		bool is_nested = *at == 'N';

		at += is_nested;
		while (at && isdigit((unsigned char)*at)) {
			at = take_part(at, to, room, is_first);
			is_first = false;
			if (!is_nested)
				break;
		}
	}
	if (!to[0])
		snprintf(to, room, "%s", name);
}

static bool matches(const char *pattern, const char *name, const char *plain)
{
	const char *last = strrchr(plain, ':');

	return !fnmatch(pattern, name, 0) || !fnmatch(pattern, plain, 0) ||
	       (last && !fnmatch(pattern, last + 1, 0));
}

bool weave_matches(const char *patterns, const char *name)
{
	char plain[512], pattern[256];

	if (!patterns)
		return true;
	weave_plain_name(name, plain, sizeof(plain));
	while (*patterns) {
		size_t length = strcspn(patterns, ",");

		if (length && length < sizeof(pattern)) {
			memcpy(pattern, patterns, length);
			pattern[length] = '\0';
			if (matches(pattern, name, plain))
				return true;
		}
		patterns += length + (patterns[length] == ',');
	}
	return false;
}
