#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MOST ((1ull << 53) - 1)
__extension__ typedef unsigned __int128 uint128;

/* An exact decimal number: digits / 10^places. */
struct decimal {
	uint64_t digits;
	unsigned places;
};

/* Parses the number at the start of text: digits, optionally a point and more digits; no sign, exponent or
 * "inf". */
static int parse_decimal(const char *text, struct decimal *number, const char **rest)
{
	enum { DIGITS_MAX = 18 };
	unsigned count = 0;

	*number = (struct decimal){ 0, 0 };
	for (bool is_past_point = false;; text++) {
		if (*text == '.' && count && !is_past_point && isdigit((unsigned char)text[1])) {
			is_past_point = true;
		} else if (isdigit((unsigned char)*text)) {
			if (++count > DIGITS_MAX)
				return -ERANGE;
			number->digits = number->digits * 10 + (uint64_t)(*text - '0');
			number->places += is_past_point;
		} else {
			break;
		}
	}
	*rest = text;
	return count ? 0 : -EINVAL;
}

/* *value = number * unit, rounded down. Returns -EINVAL if that is 0, -EDOM and the rounded value if it was not a whole
 * number, -ERANGE if it is above max. */
static int scale(struct decimal number, uint64_t unit, uint64_t max, uint64_t *value)
{
	uint64_t one = 1, whole, part;

	for (unsigned i = 0; i < number.places; i++)
		one *= 10;
	/* Remove common factors first, so that the product does not overflow. */
	while (one % 2 == 0 && unit % 2 == 0) {
		one /= 2;
		unit /= 2;
	}
	while (one % 5 == 0 && unit % 5 == 0) {
		one /= 5;
		unit /= 5;
	}
	whole = number.digits / one;
	part = number.digits % one;
	if (whole > max / unit)
		return -ERANGE;
	/* unit is at most 2^40 and one at most 10^18: the product needs more than 64 bits. */
	whole = whole * unit + (uint64_t)((uint128)part * unit / one);
	if (!whole)
		return -EINVAL;
	if (whole > max)
		return -ERANGE;
	*value = whole;
	return part ? -EDOM : 0;
}

int bf_parse_size(const char *text, uint64_t *bytes, struct bf_error *err)
{
	static const char units[] = "KMGT";
	struct decimal number;
	const char *rest;
	unsigned shift = 0;
	int rc = parse_decimal(text, &number, &rest);

	if (rc == -EINVAL)
		return bf_fail(
			err, EINVAL,
			"size '%.64s': not a positive number; write bytes or a number with K, M, G or T",
			text);
	if (!rc && *rest) {
		const char *unit = strchr(units, toupper((unsigned char)*rest));

		if (unit) {
			shift = 10u * (unsigned)(unit - units + 1);
			rest++;
		}
		if (!strcmp(rest, "B") || (unit && !strcmp(rest, "iB")))
			rest = "";
		if (*rest)
			return bf_fail(err, EINVAL,
				       "size '%.64s': unknown unit; use K, M, G or T (powers of 1024)", text);
	}
	if (!rc)
		rc = scale(number, 1ull << shift, SIZE_MOST, bytes);
	if (rc == -EDOM)
		rc = 0; /* rounded down to whole bytes */
	if (rc == -EINVAL)
		return bf_fail(err, EINVAL, "size '%.64s': less than one byte", text);
	return rc ? bf_fail(err, ERANGE, "size '%.64s': too large; the maximum is 8191T", text) : 0;
}

int bf_parse_time(const char *text, uint64_t *us, struct bf_error *err)
{
	struct decimal number;
	const char *rest;
	uint64_t unit_us = 0, whole_us = 0;
	int rc = parse_decimal(text, &number, &rest);

	if (rc == -EINVAL)
		return bf_fail(err, EINVAL,
			       "time '%.64s': not a positive number; write for example 200us, 2ms or 1s",
			       text);
	if (!rc && !strcmp(rest, "us"))
		unit_us = 1;
	else if (!rc && !strcmp(rest, "ms"))
		unit_us = 1000;
	else if (!rc && !strcmp(rest, "s"))
		unit_us = 1000000;
	else if (!rc)
		return bf_fail(err, EINVAL, "time '%.64s': %s unit; use us, ms or s", text,
			       *rest ? "unknown" : "no");
	if (!rc)
		rc = scale(number, unit_us, BF_DAY_US, &whole_us);
	if (!rc)
		*us = whole_us;
	if (rc == -EINVAL || rc == -EDOM)
		return bf_fail(err, EINVAL, "time '%.64s': not a positive whole number of microseconds",
			       text);
	return rc ? bf_fail(err, ERANGE, "time '%.64s': too long; the maximum is one day", text) : 0;
}

int bf_parse_number(const char *what, const char *text, long min, long max, long *value, struct bf_error *err)
{
	char *end;

	errno = 0;
	*value = strtol(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || *value < min || *value > max)
		return bf_fail(err, EINVAL, "%s '%.64s': not a number from %ld to %ld", what, text, min, max);
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
