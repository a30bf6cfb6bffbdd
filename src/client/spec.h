/* The spec of a vGPU: the keys and values of `belfry create` and of the configuration file. */
#ifndef BELFRY_CLIENT_SPEC_H
#define BELFRY_CLIENT_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { SPEC_NAME_MAX = 63, SPEC_WHOLE_PPM = 1000000 };

enum spec_class { SPEC_THROUGHPUT = 0, SPEC_LATENCY = 1 };

/* The parts of a spec. A mask of them says which parts are set. */
enum spec_part {
	SPEC_MEM = 1,
	SPEC_TIME = 2,
	SPEC_CLASS = 4,
	SPEC_OBJECTIVE = 8,
	SPEC_DOMAIN = 16,
	SPEC_TIMESLICE = 32,
	SPEC_INTERLEAVE = 64,
	SPEC_PUBLIC = 128,
	SPEC_SM = 256,
	SPEC_ALL = 511,
};

/* Sent over sockets and saved in files: fixed sizes, no pointers. */
struct spec {
	uint64_t mem_bytes;   /* limit of device memory, which is reserved; 0: no limit, nothing reserved */
	uint32_t request_ppm; /* requested share of the GPU's time */
	uint32_t limit_ppm;   /* part of the GPU's time that is not exceeded over a window */
	uint32_t class;	      /* enum spec_class */
	uint32_t percentile_ppm;	/* of the objective: 990000 for p99; 0: no objective */
	uint64_t objective_us;		/* this percentile of submissions should be done within this time */
	uint64_t timeslice_us;		/* 0: the server chooses */
	int32_t interleave;		/* 0 to 2; -1: the server chooses */
	uint32_t is_public;		/* every user may run programs on it, not only its owner */
	uint32_t sm_request_ppm;	/* part of the SMs within its domain */
	uint32_t sm_limit_ppm;		/* 0: not set */
	char domain[SPEC_NAME_MAX + 1]; /* empty: a domain of its own */
};

/* The programs of its domain then share a GPU context. */
static inline bool spec_has_sm(const struct spec *spec)
{
	return spec->sm_limit_ppm != 0;
}

/* No memory limit, time 0:100, throughput. */
extern const struct spec spec_default;

/* [a-z0-9][a-z0-9._-]{0,62} */
int spec_check_name(const char *name, struct bf_error *err);
/* Whether this is the name of the vGPU of a Slurm job, "slurm-42". Ordinary users may not create or change those. */
#define SPEC_JOB_PREFIX "slurm-"
bool spec_is_of_job(const char *name);
/* Parse one part: "mem" "40G", "time" "40:100" (percent, with up to four decimals; "40" is 40:100), "class"
 * "latency", "objective" "p99=2ms" ("none" removes it), "domain" NAME, "sm" "25:100" (as time; "none" removes it),
 * "timeslice" "200us", "interleave" "high", "public" "yes". Sets the bit of the part in *parts. */
int spec_parse(struct spec *spec, uint32_t *parts, const char *key, const char *value, struct bf_error *err);
#define SPEC_KEYS "mem, time, class, objective, domain, sm, timeslice, interleave, public"
bool spec_has(const char *key); /* whether there is a part of that name */
/* Copy the given parts of `from`. */
void spec_merge(struct spec *spec, const struct spec *from, uint32_t parts);
/* The parts in which a and b differ; 0: none. */
uint32_t spec_difference(const struct spec *a, const struct spec *b);
/* Whether the spec is valid as a whole: request within limit, numbers in range, text terminated. Every spec from
 * outside is checked with this first. */
int spec_check(const struct spec *spec, struct bf_error *err);

/* "40:100", "0.5:12.25"; "p99=2ms" or "-". room: at least 32 bytes. */
const char *spec_format_time(const struct spec *spec, char *to, size_t room);
const char *spec_format_sm(const struct spec *spec, char *to, size_t room);
const char *spec_format_objective(const struct spec *spec, char *to, size_t room);
/* One part for display: its name, "mem", and its value, "64 MiB", "none". room: at least 64 bytes. */
const char *spec_part_name(enum spec_part part);
const char *spec_format_part(const struct spec *spec, enum spec_part part, char *to, size_t room);
extern const char *const spec_class_names[2];
extern const char *const spec_interleave_names[3];

#endif
