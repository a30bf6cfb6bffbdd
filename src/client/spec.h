/* What a vGPU is: the words of `belfry create` and of the configuration file, and what they mean. */
#ifndef BELFRY_CLIENT_SPEC_H
#define BELFRY_CLIENT_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { SPEC_NAME_MAX = 63, SPEC_WHOLE_PPM = 1000000 };

enum spec_class { SPEC_THROUGHPUT = 0, SPEC_LATENCY = 1 };

/* Which parts of a spec somebody has said something about. */
enum spec_part {
	SPEC_MEM = 1,
	SPEC_TIME = 2,
	SPEC_CLASS = 4,
	SPEC_OBJECTIVE = 8,
	SPEC_DOMAIN = 16,
	SPEC_TIMESLICE = 32,
	SPEC_INTERLEAVE = 64,
	SPEC_PUBLIC = 128,
};

/* Goes over sockets and into files: fixed sizes, no pointers. */
struct spec {
	uint64_t
		mem_bytes; /* the most device memory, set aside for it; 0: as much as there is, none set aside */
	uint32_t request_ppm;		/* of the GPU's time: guaranteed */
	uint32_t limit_ppm;		/* of the GPU's time: not passed over a window */
	uint32_t class;			/* enum spec_class */
	uint32_t percentile_ppm;	/* of the objective, 990000 for p99; 0: no objective */
	uint64_t objective_us;		/* that percentile of submissions is to be done within this */
	uint64_t timeslice_us;		/* by hand; 0: as the server finds best */
	int32_t interleave;		/* 0..2 by hand; -1: as the server finds best */
	uint32_t is_public;		/* anybody may run programs on it, not only its owner */
	char domain[SPEC_NAME_MAX + 1]; /* empty: one of its own */
};

/* No memory limit, time 0:100, throughput. */
extern const struct spec spec_default;

/* [a-z0-9][a-z0-9._-]{0,62} */
int spec_check_name(const char *name, struct bf_error *err);
/* One part: "mem" "40G", "time" "40:100" (percent, with up to four decimals; "40" is 40:100), "class" "latency",
 * "objective" "p99=2ms" ("none" takes it away), "domain" NAME, "timeslice" "200us", "interleave" "high",
 * "public" "yes". Sets the bit of what was said in *parts. */
int spec_parse(struct spec *spec, uint32_t *parts, const char *key, const char *value, struct bf_error *err);
#define SPEC_KEYS "mem, time, class, objective, domain, timeslice, interleave, public"
bool spec_has(const char *key); /* whether there is such a part */
/* Take over from `from` the parts named. */
void spec_merge(struct spec *spec, const struct spec *from, uint32_t parts);
/* The parts in which they differ; 0: they are the same. */
uint32_t spec_difference(const struct spec *a, const struct spec *b);
/* Whether the whole of it makes sense: request within limit, numbers in range, text ended. Specs from outside come
 * through here before anything else. */
int spec_check(const struct spec *spec, struct bf_error *err);

/* "40:100", "0.5:12.25"; "p99=2ms" or "-". At least 32 bytes of room. */
const char *spec_format_time(const struct spec *spec, char *to, size_t room);
const char *spec_format_objective(const struct spec *spec, char *to, size_t room);
/* One part for people: its name, "mem", and its value, "64 MiB", "none". At least 64 bytes of room. */
const char *spec_part_name(enum spec_part part);
const char *spec_format_part(const struct spec *spec, enum spec_part part, char *to, size_t room);
extern const char *const spec_class_names[2];
extern const char *const spec_interleave_names[3];

#endif
