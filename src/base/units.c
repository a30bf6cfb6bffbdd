#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number at the start of text, without signs, exponents, hexadecimal or "inf", which strtold would take. */
static int parse_decimal(const char *text, long double *value, const char **rest)
{
	size_t digits = strspn(text, "0123456789");
	size_t used = digits;

	if (text[used] == '.') {
		size_t more = strspn(text + used + 1, "0123456789");

		if (!more)
			return -EINVAL;
		used += 1 + more;
	}
	if (!digits || used > 40)
		return -EINVAL;
	*value = 0;
	for (size_t i = 0; i < digits; i++)
		*value = *value * 10 + (text[i] - '0');
	long double scale = 1;
	for (size_t i = digits + 1; i < used; i++) {
		scale /= 10;
		*value += (text[i] - '0') * scale;
	}
	*rest = text + used;
	return 0;
}

int bf_parse_size(const char *text, uint64_t *bytes, struct bf_error *err)
{
	static const char units[] = "KMGT";
	long double value;
	const char *rest;
	unsigned shift = 0;

	if (parse_decimal(text, &value, &rest))
		return bf_fail(err, EINVAL,
			       "size '%s': not a positive number; write bytes or a number with K, M, G or T",
			       text);
	if (*rest) {
		const char *unit = strchr(units, toupper((unsigned char)*rest));

		if (unit) {
			shift = 10u * (unsigned)(unit - units + 1);
			rest++;
			if (!strcmp(rest, "iB") || !strcmp(rest, "B"))
				rest = "";
		} else if (!strcmp(rest, "B")) {
			rest = "";
		}
		if (*rest)
			return bf_fail(err, EINVAL,
				       "size '%s': unknown unit; use K, M, G or T (powers of 1024)", text);
	}
	value *= (long double)(1ull << shift);
	if (value < 1 || value != floorl(value))
		return bf_fail(err, EINVAL, "size '%s': not a positive whole number of bytes", text);
	if (value >= 9007199254740992.0L)
		return bf_fail(err, ERANGE, "size '%s': too large; the most is 8191T", text);
	*bytes = (uint64_t)value;
	return 0;
}

int bf_parse_time(const char *text, uint64_t *us, struct bf_error *err)
{
	long double value;
	const char *rest;
	long double unit_us;

	if (parse_decimal(text, &value, &rest))
		return bf_fail(err, EINVAL,
			       "time '%s': not a positive number; write for example 200us, 2ms or 1s", text);
	if (!strcmp(rest, "us"))
		unit_us = 1;
	else if (!strcmp(rest, "ms"))
		unit_us = 1000;
	else if (!strcmp(rest, "s"))
		unit_us = 1000000;
	else
		return bf_fail(err, EINVAL, "time '%s': %s unit; use us, ms or s", text,
			       *rest ? "unknown" : "no");
	value *= unit_us;
	if (value < 1 || value != floorl(value))
		return bf_fail(err, EINVAL, "time '%s': less than, or not a whole number of, microseconds",
			       text);
	if (value > 86400e6L)
		return bf_fail(err, ERANGE, "time '%s': too long; the most is one day", text);
	*us = (uint64_t)value;
	return 0;
}

int bf_parse_number(const char *what, const char *text, long min, long max, long *value, struct bf_error *err)
{
	char *end;

	errno = 0;
	*value = strtol(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || *value < min || *value > max)
		return bf_fail(err, EINVAL, "%s '%s': not a number from %ld to %ld", what, text, min, max);
	return 0;
}

const char *bf_format_size(uint64_t bytes, char *to, size_t room)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	unsigned i = 0;

	while (value >= 1024 && i < 4) {
		value /= 1024;
		i++;
	}
	if (i == 0 || value == floor(value))
		snprintf(to, room, "%.0f %s", value, units[i]);
	else
		snprintf(to, room, "%.2f %s", value, units[i]);
	return to;
}
