#include "base/text.h"

#include <stdint.h>
#include <string.h>

/* The length of a UTF-8 sequence by its first byte; 0: the byte is invalid there. */
static size_t length_of(unsigned char first)
{
	if (first < 0x80)
		return 1;
	if (first >= 0xc2 && first <= 0xdf)
		return 2;
	if (first >= 0xe0 && first <= 0xef)
		return 3;
	return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* The code point of a sequence of `length` bytes; UINT32_MAX: the sequence is truncated or overlong. */
static uint32_t value_of(const unsigned char *at, size_t length)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t value = length == 1 ? at[0] : at[0] & (0x7fu >> length);

	for (size_t i = 1; i < length; i++) {
		if ((at[i] & 0xc0) != 0x80) /* also true at the terminating 0 */
			return UINT32_MAX;
		value = value << 6 | (at[i] & 0x3f);
	}
	return value < least[length] ? UINT32_MAX : value;
}

static bool is_plain(uint32_t value)
{
	if (value < 0x20)
		return value == '\n' || value == '\t';
	if (value >= 0x7f && value < 0xa0) /* DEL and the C1 control characters */
		return false;
	if (value >= 0xd800 && value < 0xe000) /* surrogates */
		return false;
	return value <= 0x10ffff;
}

char *bf_plain(char *text)
{
	unsigned char *at = (unsigned char *)text;

	while (*at) {
		size_t length = length_of(*at);

		if (length && is_plain(value_of(at, length))) {
			at += length;
			continue;
		}
		*at++ = '?';
	}
	return text;
}

bool bf_is_line(const char *text, size_t room)
{
	size_t length = strnlen(text, room);

	for (size_t i = 0; i < length; i++)
		if (text[i] < ' ' || text[i] > '~')
			return false;
	return length < room;
}
