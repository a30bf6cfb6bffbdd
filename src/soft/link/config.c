/* Parses "gpus=2,sms=16,mem=4G", the configuration of a software GPU. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "soft/link/link.h"

enum {
	CORES_MAX = 256,
	LINGER_MAX_S = 86400,
	TEXT_MAX = 255,
};
#define MEM_MIN (64ull << 20)
#define MEM_MAX (1ull << 40)
#define RATE_MIN 1000ull
#define RATE_MAX 1000000000000ull

const struct link_config link_default = {
	.gpus = 1,
	.sms = 16,
	.mem_bytes = 4ull << 30,
	.rate = 20000000,
	.is_paced = true,
	.linger_s = 10,
	.name = "default",
};

static int parse_number(const char *what, const char *text, long min, long max, uint32_t *value,
			struct bf_error *err)
{
	long number;
	int rc = bf_parse_number(what, text, min, max, &number, err);

	if (!rc)
		*value = (uint32_t)number;
	return rc;
}

static int parse_size(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *value,
		      struct bf_error *err)
{
	char least[16], most[16];
	struct bf_error why = { 0 };
	uint64_t size;
	int rc = bf_parse_size(text, &size, &why);

	if (rc)
		return bf_fail(err, -rc, "%s: %s", what, why.text);
	if (size < min || size > max)
		return bf_fail(err, EINVAL, "%s '%s': not from %s to %s", what, text,
			       bf_format_size(min, least, sizeof(least)),
			       bf_format_size(max, most, sizeof(most)));
	*value = size;
	return 0;
}

/* The units of a rate are powers of 1000, not of 1024. */
static int parse_rate(const char *text, uint64_t *rate, struct bf_error *err)
{
	static const char units[] = "KMGT";
	uint64_t value, scale = 1;
	const char *unit;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end && !end[1] && (unit = strchr(units, *end)))
		for (end++; unit >= units; unit--)
			scale *= 1000;
	if (text[0] < '0' || text[0] > '9' || *end || errno || value > RATE_MAX / scale ||
	    value * scale < RATE_MIN)
		return bf_fail(err, EINVAL, "rate '%s': not a number from 1K to 1T, such as 20M", text);
	*rate = value * scale;
	return 0;
}

static int parse_pace(const char *text, bool *is_paced, struct bf_error *err)
{
	if (strcmp(text, "on") && strcmp(text, "off"))
		return bf_fail(err, EINVAL, "pace '%s': not on or off", text);
	*is_paced = !strcmp(text, "on");
	return 0;
}

static int parse_name(const char *text, struct link_config *config, struct bf_error *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
	size_t length = strlen(text);

	if (!length || length >= sizeof(config->name) || strspn(text, letters) != length)
		return bf_fail(err, EINVAL, "name '%s': not a name; use 1 to 31 of a-z 0-9 _ -", text);
	memcpy(config->name, text, length + 1);
	return 0;
}

static int parse_part(const char *key, const char *value, struct link_config *config, struct bf_error *err)
{
	if (!strcmp(key, "name"))
		return parse_name(value, config, err);
	config->is_given = true;
	if (!strcmp(key, "gpus"))
		return parse_number(key, value, 1, SOFT_GPUS_MAX, &config->gpus, err);
	if (!strcmp(key, "sms"))
		return parse_number(key, value, 1, SOFT_SMS_MAX, &config->sms, err);
	if (!strcmp(key, "mem"))
		return parse_size(key, value, MEM_MIN, MEM_MAX, &config->mem_bytes, err);
	if (!strcmp(key, "rate"))
		return parse_rate(value, &config->rate, err);
	if (!strcmp(key, "pace"))
		return parse_pace(value, &config->is_paced, err);
	if (!strcmp(key, "cores"))
		return parse_number(key, value, 0, CORES_MAX, &config->cores, err);
	if (!strcmp(key, "linger"))
		return parse_number(key, value, 0, LINGER_MAX_S, &config->linger_s, err);
	return bf_fail(err, EINVAL,
		       "'%s': unknown; known are gpus, sms, mem, rate, pace, cores, linger and name", key);
}

int link_config_parse(const char *text, struct link_config *config, struct bf_error *err)
{
	char copy[TEXT_MAX + 1], *rest = copy;
	struct link_config parsed = link_default;
	int rc = 0;

	if (strlen(text) > TEXT_MAX)
		return bf_fail(err, EINVAL, "software GPU: more than %d characters", TEXT_MAX);
	strcpy(copy, text);
	for (char *part; !rc && *copy && (part = strsep(&rest, ","));) {
		char *value = strchr(part, '=');

		if (!value)
			return bf_fail(err, EINVAL, "'%s': not KEY=VALUE, as in gpus=2,sms=16,mem=4G", part);
		*value++ = 0;
		rc = parse_part(part, value, &parsed, err);
	}
	if (!rc)
		*config = parsed;
	return rc;
}

/* Formats a number as the configuration has it: 4G, not 4294967296. `step` is the factor between two
 * units. */
static const char *format_count(uint64_t value, uint64_t step, char *to, size_t room)
{
	static const char units[] = "KMGT";
	unsigned unit = 0;

	while (unit < strlen(units) && value && value % step == 0) {
		value /= step;
		unit++;
	}
	snprintf(to, room, "%" PRIu64 "%.1s", value, unit ? units + unit - 1 : "");
	return to;
}

int link_config_format(const struct link_config *config, char *to, size_t room)
{
	char mem[24], rate[24];
	int length = snprintf(to, room, "gpus=%u,sms=%u,mem=%s,rate=%s,pace=%s,cores=%u,linger=%u,name=%.31s",
			      config->gpus, config->sms,
			      format_count(config->mem_bytes, 1024, mem, sizeof(mem)),
			      format_count(config->rate, 1000, rate, sizeof(rate)),
			      config->is_paced ? "on" : "off", config->cores, config->linger_s, config->name);

	return length < 0 || (size_t)length >= room ? -ENAMETOOLONG : 0;
}
