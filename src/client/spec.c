#include "client/spec.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

#define MEM_MOST ((1ull << 53) - 1)
#define DAY_US 86400000000ull

enum {
	PERCENT_PPM = SPEC_WHOLE_PPM / 100,
	DECIMALS = 4, /* of a percentage: 0.0001 % is one in a million */
	PERCENTILE_LEAST_PPM = 50 * PERCENT_PPM,
	PERCENTILE_MOST_PPM = 9999 * (PERCENT_PPM / 100),
};

const struct spec spec_default = { .limit_ppm = SPEC_WHOLE_PPM, .interleave = -1 };
const char *const spec_class_names[2] = { "throughput", "latency" };
const char *const spec_interleave_names[3] = { "low", "medium", "high" };

int spec_check_name(const char *name, struct bf_error *err)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	static const char rest[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t length = strlen(name);

	if (!length || length > SPEC_NAME_MAX || !strchr(first, name[0]) || strspn(name, rest) != length)
		return bf_fail(
			err, EINVAL,
			"name '%.64s': not a name; use 1 to 63 of a-z 0-9 . _ -, a letter or digit first",
			name);
	return 0;
}

bool spec_is_of_job(const char *name)
{
	const char *number = name + strlen(SPEC_JOB_PREFIX);

	return !strncmp(name, SPEC_JOB_PREFIX, strlen(SPEC_JOB_PREFIX)) && *number &&
	       strspn(number, "0123456789") == strlen(number);
}

/* Parse the percentage at the start of text, exactly. -EINVAL: there is none. -EDOM: it has too many decimals.
 * -ERANGE: it is above 100. */
static int parse_percent(const char *text, uint32_t *ppm, const char **rest)
{
	uint32_t value = 0, unit = SPEC_WHOLE_PPM / 100;
	const char *start = text;

	for (; isdigit((unsigned char)*text); text++) {
		value = value * 10 + (uint32_t)(*text - '0');
		if (value > 100)
			return -ERANGE;
	}
	if (text == start)
		return -EINVAL;
	value *= PERCENT_PPM;
	if (*text == '.') {
		start = ++text;
		for (; isdigit((unsigned char)*text); text++) {
			if (text - start == DECIMALS)
				return -EDOM;
			unit /= 10;
			value += (uint32_t)(*text - '0') * unit;
		}
		if (text == start)
			return -EINVAL;
	}
	*ppm = value;
	*rest = text;
	return value > SPEC_WHOLE_PPM ? -ERANGE : 0;
}

/* ppm in percent: "40", "33.3333". room: at least 12 bytes. */
static const char *format_percent(uint32_t ppm, char *to, size_t room)
{
	int used = snprintf(to, room, "%u.%04u", ppm / PERCENT_PPM, ppm % PERCENT_PPM);

	while (used > 0 && (size_t)used < room && to[used - 1] == '0')
		to[--used] = 0;
	if (used > 0 && (size_t)used < room && to[used - 1] == '.')
		to[used - 1] = 0;
	return to;
}

/* A part that is REQUEST:LIMIT in percent. */
struct range {
	const char *name, *of, *with_none, *example;
};
static const struct range range_of_time = {
	.name = "time",
	.of = "the GPU's time",
	.with_none = "with a limit of 0 nothing would ever run; the least is 0.0001",
	.example = "40:100",
};
static const struct range range_of_sm = {
	.name = "sm",
	.of = "the GPU's SMs",
	.with_none = "with a limit of 0 nothing would ever run; the least is 0.0001, and none removes it",
	.example = "25:100",
};

static int check_range(const struct range *range, uint32_t request_ppm, uint32_t limit_ppm,
		       struct bf_error *err)
{
	char request[16], limit[16];

	format_percent(request_ppm, request, sizeof(request));
	format_percent(limit_ppm, limit, sizeof(limit));
	if (request_ppm > SPEC_WHOLE_PPM || limit_ppm > SPEC_WHOLE_PPM)
		return bf_fail(err, ERANGE, "%s '%s:%s': more than all of it; the most is 100:100",
			       range->name, request, limit);
	if (!limit_ppm)
		return bf_fail(err, EINVAL, "%s '%s:%s': %s", range->name, request, limit, range->with_none);
	if (request_ppm > limit_ppm)
		return bf_fail(err, EINVAL,
			       "%s '%s:%s': the request, %s percent, is above the limit, %s percent",
			       range->name, request, limit, request, limit);
	return 0;
}

static int fail_range(const struct range *range, const char *text, int why, struct bf_error *err)
{
	if (why == -EDOM)
		return bf_fail(err, EINVAL,
			       "%s '%.64s': more than four decimals; write for example 33.3333:100",
			       range->name, text);
	if (why == -ERANGE)
		return bf_fail(err, ERANGE, "%s '%.64s': more than all of it; the most is 100:100",
			       range->name, text);
	return bf_fail(err, EINVAL, "%s '%.64s': not REQUEST:LIMIT in percent of %s; write for example %s",
		       range->name, text, range->of, range->example);
}

static int parse_range(const struct range *range, const char *text, uint32_t *request, uint32_t *limit,
		       struct bf_error *err)
{
	uint32_t request_ppm, limit_ppm = SPEC_WHOLE_PPM;
	const char *rest;
	int rc = parse_percent(text, &request_ppm, &rest);

	if (!rc && *rest == ':')
		rc = parse_percent(rest + 1, &limit_ppm, &rest);
	if (!rc && *rest)
		rc = -EINVAL;
	if (rc)
		return fail_range(range, text, rc, err);
	rc = check_range(range, request_ppm, limit_ppm, err);
	if (rc)
		return rc;
	*request = request_ppm;
	*limit = limit_ppm;
	return 0;
}

static int parse_time(struct spec *spec, const char *text, struct bf_error *err)
{
	return parse_range(&range_of_time, text, &spec->request_ppm, &spec->limit_ppm, err);
}

static int parse_sm(struct spec *spec, const char *text, struct bf_error *err)
{
	if (strcmp(text, "none") != 0)
		return parse_range(&range_of_sm, text, &spec->sm_request_ppm, &spec->sm_limit_ppm, err);
	spec->sm_request_ppm = spec->sm_limit_ppm = 0;
	return 0;
}

static int parse_objective(struct spec *spec, const char *text, struct bf_error *err)
{
	uint32_t percentile_ppm = 0;
	const char *rest = text;
	int rc;

	if (!strcmp(text, "none")) {
		spec->percentile_ppm = 0;
		spec->objective_us = 0;
		return 0;
	}
	rc = *text == 'p' ? parse_percent(text + 1, &percentile_ppm, &rest) : -EINVAL;
	if (rc == -EINVAL || rc == -EDOM || (!rc && *rest != '='))
		return bf_fail(err, EINVAL,
			       "objective '%.64s': not PERCENTILE=TIME; write for example p99=2ms, or none",
			       text);
	if (rc || percentile_ppm < PERCENTILE_LEAST_PPM || percentile_ppm > PERCENTILE_MOST_PPM)
		return bf_fail(err, ERANGE, "objective '%.64s': the percentile is not from p50 to p99.99",
			       text);
	rc = bf_parse_time(rest + 1, &spec->objective_us, err);
	if (rc)
		return rc;
	spec->percentile_ppm = percentile_ppm;
	return 0;
}

static int parse_class(struct spec *spec, const char *text, struct bf_error *err)
{
	for (uint32_t i = 0; i < 2; i++)
		if (!strcmp(text, spec_class_names[i])) {
			spec->class = i;
			return 0;
		}
	return bf_fail(err, EINVAL, "class '%.64s': not latency or throughput", text);
}

static int parse_interleave(struct spec *spec, const char *text, struct bf_error *err)
{
	for (int i = 0; i < 3; i++)
		if (!strcmp(text, spec_interleave_names[i])) {
			spec->interleave = i;
			return 0;
		}
	return bf_fail(err, EINVAL, "interleave level '%.64s': not low, medium or high", text);
}

static int parse_public(struct spec *spec, const char *text, struct bf_error *err)
{
	if (strcmp(text, "yes") && strcmp(text, "no"))
		return bf_fail(err, EINVAL, "public '%.64s': not yes or no", text);
	spec->is_public = !strcmp(text, "yes");
	return 0;
}

static int parse_domain(struct spec *spec, const char *text, struct bf_error *err)
{
	if (!strcmp(text, "none")) { /* one of its own */
		spec->domain[0] = 0;
		return 0;
	}
	if (spec_check_name(text, err))
		return bf_fail(
			err, EINVAL,
			"domain '%.64s': not a name; use 1 to 63 of a-z 0-9 . _ -, a letter or digit first",
			text);
	snprintf(spec->domain, sizeof(spec->domain), "%s", text);
	return 0;
}

static int parse_mem(struct spec *spec, const char *text, struct bf_error *err)
{
	return bf_parse_size(text, &spec->mem_bytes, err);
}

static int parse_timeslice(struct spec *spec, const char *text, struct bf_error *err)
{
	return bf_parse_time(text, &spec->timeslice_us, err);
}

static const struct {
	const char *key;
	enum spec_part part;
	int (*parse)(struct spec *spec, const char *text, struct bf_error *err);
} known[] = {
	{ "mem", SPEC_MEM, parse_mem },
	{ "time", SPEC_TIME, parse_time },
	{ "class", SPEC_CLASS, parse_class },
	{ "objective", SPEC_OBJECTIVE, parse_objective },
	{ "domain", SPEC_DOMAIN, parse_domain },
	{ "sm", SPEC_SM, parse_sm },
	{ "timeslice", SPEC_TIMESLICE, parse_timeslice },
	{ "interleave", SPEC_INTERLEAVE, parse_interleave },
	{ "public", SPEC_PUBLIC, parse_public },
};
enum { KNOWN = sizeof(known) / sizeof(known[0]) };

bool spec_has(const char *key)
{
	for (size_t i = 0; i < KNOWN; i++)
		if (!strcmp(key, known[i].key))
			return true;
	return false;
}

int spec_parse(struct spec *spec, uint32_t *parts, const char *key, const char *value, struct bf_error *err)
{
	for (size_t i = 0; i < KNOWN; i++)
		if (!strcmp(key, known[i].key)) {
			int rc = known[i].parse(spec, value, err);

			if (!rc)
				*parts |= known[i].part;
			return rc;
		}
	return bf_fail(err, EINVAL, "'%.64s': unknown; a vGPU has " SPEC_KEYS, key);
}

void spec_merge(struct spec *spec, const struct spec *from, uint32_t parts)
{
	if (parts & SPEC_MEM)
		spec->mem_bytes = from->mem_bytes;
	if (parts & SPEC_TIME) {
		spec->request_ppm = from->request_ppm;
		spec->limit_ppm = from->limit_ppm;
	}
	if (parts & SPEC_CLASS)
		spec->class = from->class;
	if (parts & SPEC_OBJECTIVE) {
		spec->percentile_ppm = from->percentile_ppm;
		spec->objective_us = from->objective_us;
	}
	if (parts & SPEC_DOMAIN)
		memcpy(spec->domain, from->domain, sizeof(spec->domain));
	if (parts & SPEC_SM) {
		spec->sm_request_ppm = from->sm_request_ppm;
		spec->sm_limit_ppm = from->sm_limit_ppm;
	}
	if (parts & SPEC_TIMESLICE)
		spec->timeslice_us = from->timeslice_us;
	if (parts & SPEC_INTERLEAVE)
		spec->interleave = from->interleave;
	if (parts & SPEC_PUBLIC)
		spec->is_public = from->is_public;
}

uint32_t spec_difference(const struct spec *a, const struct spec *b)
{
	uint32_t parts = 0;

	if (a->mem_bytes != b->mem_bytes)
		parts |= SPEC_MEM;
	if (a->request_ppm != b->request_ppm || a->limit_ppm != b->limit_ppm)
		parts |= SPEC_TIME;
	if (a->class != b->class)
		parts |= SPEC_CLASS;
	if (a->percentile_ppm != b->percentile_ppm || a->objective_us != b->objective_us)
		parts |= SPEC_OBJECTIVE;
	if (strcmp(a->domain, b->domain) != 0)
		parts |= SPEC_DOMAIN;
	if (a->sm_request_ppm != b->sm_request_ppm || a->sm_limit_ppm != b->sm_limit_ppm)
		parts |= SPEC_SM;
	if (a->timeslice_us != b->timeslice_us)
		parts |= SPEC_TIMESLICE;
	if (a->interleave != b->interleave)
		parts |= SPEC_INTERLEAVE;
	if (a->is_public != b->is_public)
		parts |= SPEC_PUBLIC;
	return parts;
}

static int check_objective(const struct spec *spec, struct bf_error *err)
{
	char text[32];

	if (!spec->percentile_ppm && !spec->objective_us)
		return 0;
	if (spec->percentile_ppm < PERCENTILE_LEAST_PPM || spec->percentile_ppm > PERCENTILE_MOST_PPM)
		return bf_fail(err, ERANGE,
			       "objective: its percentile, %u millionths, is not from p50 to p99.99",
			       spec->percentile_ppm);
	if (!spec->objective_us || spec->objective_us > DAY_US)
		return bf_fail(err, ERANGE, "objective: its time, %llu us, is not from 1us to one day",
			       (unsigned long long)spec->objective_us);
	if (spec->class != SPEC_LATENCY)
		return bf_fail(
			err, EINVAL,
			"objective '%.64s': it goes with class latency only; say class latency as well, or "
			"objective none",
			spec_format_objective(spec, text, sizeof(text)));
	return 0;
}

static int check_domain(const struct spec *spec, struct bf_error *err)
{
	if (!memchr(spec->domain, 0, sizeof(spec->domain)))
		return bf_fail(err, EINVAL, "domain: its name does not end; the most is 63 characters");
	return spec->domain[0] ? spec_check_name(spec->domain, err) : 0;
}

static int check_sm(const struct spec *spec, struct bf_error *err)
{
	char text[32];
	int rc;

	if (!spec->sm_request_ppm && !spec->sm_limit_ppm)
		return 0;
	rc = check_range(&range_of_sm, spec->sm_request_ppm, spec->sm_limit_ppm, err);
	if (rc || spec->domain[0])
		return rc;
	return bf_fail(err, EINVAL,
		       "sm '%s': it divides the SMs among the vGPUs of a domain; name the domain as well",
		       spec_format_sm(spec, text, sizeof(text)));
}

int spec_check(const struct spec *spec, struct bf_error *err)
{
	int rc;

	if (spec->mem_bytes > MEM_MOST)
		return bf_fail(err, ERANGE, "memory limit of %llu bytes: too large; the most is 8191T",
			       (unsigned long long)spec->mem_bytes);
	rc = check_range(&range_of_time, spec->request_ppm, spec->limit_ppm, err);
	if (rc)
		return rc;
	if (spec->class > SPEC_LATENCY)
		return bf_fail(err, EINVAL, "class %u: not 0, throughput, or 1, latency", spec->class);
	rc = check_objective(spec, err);
	if (rc)
		return rc;
	if (spec->timeslice_us > DAY_US)
		return bf_fail(err, ERANGE, "timeslice of %llu us: too long; the most is one day",
			       (unsigned long long)spec->timeslice_us);
	if (spec->interleave < -1 || spec->interleave > 2)
		return bf_fail(err, ERANGE, "interleave level %d: not 0, 1 or 2, or -1 for none",
			       spec->interleave);
	if (spec->is_public > 1)
		return bf_fail(err, ERANGE, "public %u: not 0 or 1", spec->is_public);
	rc = check_domain(spec, err);
	return rc ? rc : check_sm(spec, err);
}

static const char *format_range(uint32_t request_ppm, uint32_t limit_ppm, char *to, size_t room)
{
	char request[16], limit[16];

	snprintf(to, room, "%s:%s", format_percent(request_ppm, request, sizeof(request)),
		 format_percent(limit_ppm, limit, sizeof(limit)));
	return to;
}

const char *spec_format_time(const struct spec *spec, char *to, size_t room)
{
	return format_range(spec->request_ppm, spec->limit_ppm, to, room);
}

const char *spec_format_sm(const struct spec *spec, char *to, size_t room)
{
	return format_range(spec->sm_request_ppm, spec->sm_limit_ppm, to, room);
}

const char *spec_format_objective(const struct spec *spec, char *to, size_t room)
{
	unsigned long long us = spec->objective_us;
	char percentile[16];

	format_percent(spec->percentile_ppm, percentile, sizeof(percentile));
	if (!spec->percentile_ppm)
		snprintf(to, room, "-");
	else if (us && us % 1000000 == 0)
		snprintf(to, room, "p%s=%llus", percentile, us / 1000000);
	else if (us && us % 1000 == 0)
		snprintf(to, room, "p%s=%llums", percentile, us / 1000);
	else
		snprintf(to, room, "p%s=%lluus", percentile, us);
	return to;
}

const char *spec_part_name(enum spec_part part)
{
	for (size_t i = 0; i < KNOWN; i++)
		if (known[i].part == part)
			return known[i].key;
	return "?";
}

const char *spec_format_part(const struct spec *spec, enum spec_part part, char *to, size_t room)
{
	snprintf(to, room, "none");
	switch (part) {
	case SPEC_MEM:
		return spec->mem_bytes ? bf_format_size(spec->mem_bytes, to, room) : to;
	case SPEC_TIME:
		return spec_format_time(spec, to, room);
	case SPEC_CLASS:
		return spec_class_names[spec->class % 2];
	case SPEC_OBJECTIVE:
		return spec->percentile_ppm ? spec_format_objective(spec, to, room) : to;
	case SPEC_DOMAIN:
		if (spec->domain[0])
			snprintf(to, room, "%s", spec->domain);
		return to;
	case SPEC_SM:
		return spec_has_sm(spec) ? spec_format_sm(spec, to, room) : to;
	case SPEC_TIMESLICE:
		if (spec->timeslice_us)
			snprintf(to, room, "%lluus", (unsigned long long)spec->timeslice_us);
		return to;
	case SPEC_INTERLEAVE:
		return spec->interleave >= 0 ? spec_interleave_names[spec->interleave % 3] : to;
	default:
		return spec->is_public ? "yes" : "no";
	}
}
