/* The GPU demand of programs, extracted from a record: for each vGPU when its programs started and ended, and
 * the bursts of work in between, each a pause after the previous one was done. Under another policy, a
 * program that is served sooner continues sooner. The record is untrusted. */
#ifndef BELFRY_REPLAY_WORKLOAD_H
#define BELFRY_REPLAY_WORKLOAD_H

#include "replay/record.h"
#include "replay/tally.h"

enum {
	WORKLOAD_VGPUS_MAX = BELFRY_VGPUS_MAX,
	WORKLOAD_STEPS_MAX = 1 << 22,
	WORKLOAD_CHANGES_MAX = 1 << 16,
};
#define WORKLOAD_ENDLESS UINT64_MAX

/* Times count from the beginning of the record. */
enum workload_kind { WORKLOAD_HERE, WORKLOAD_BURST, WORKLOAD_GONE };
struct workload_step {
	enum workload_kind kind;
	uint32_t pieces;     /* BURST: number of kernels, one after the other */
	uint64_t after_ns;   /* HERE: the absolute time; otherwise the pause after the previous step */
	uint64_t gpu_ns;     /* BURST: of all its kernels; WORKLOAD_ENDLESS: unlimited */
	uint64_t took_ns;    /* BURST: as recorded */
	uint64_t held_ns;    /* of that, time let in */
	uint64_t settled_ns; /* of that, time that gpu_ns covers */
};

/* Results: recorded or played. */
struct workload_figures {
	uint64_t gpu_ns;
	uint64_t done, late;	  /* bursts; late: longer than the objective */
	uint64_t p50_ns;	  /* median time from submission to completion */
	uint64_t tail_ns;	  /* the same at the objective's percentile, or p99 */
	uint64_t longest_wait_ns; /* longest time with work and none of it running; only of a play */
	uint64_t slices, stops;
};

struct workload_vgpu {
	uint64_t id;
	char name[BELFRY_NAME_SIZE];
	struct sched_share share; /* at the beginning */
	struct workload_step *steps;
	size_t count, room;
	size_t again;	    /* the step to continue with after the last one; count: none */
	uint64_t again_ns;  /* minimum pause before that */
	uint64_t kernel_ns; /* of an endless burst */
	/* A vGPU is let in for longer than it uses the GPU. If its bursts have only one or two kernels: for
	 * rest_ns after each, until the end is noticed. Otherwise: it uses the part `busy` (0 to 1) of the
	 * time. */
	uint64_t rest_ns;
	double busy;
	struct workload_figures was;
};

/* Changes by users, and their times. */
enum workload_change_kind { WORKLOAD_SET, WORKLOAD_HELD, WORKLOAD_FREE, WORKLOAD_CONFIGURED };
struct workload_change {
	enum workload_change_kind kind;
	unsigned vgpu;
	uint64_t at_ns;
	union {
		struct sched_share share;     /* SET */
		struct sched_options options; /* CONFIGURED */
	} to;
};

struct workload {
	struct sched_options options; /* at the beginning */
	bool is_soft;
	char policy[BELFRY_NAME_SIZE]; /* the recorded policy; "" if there were several */
	uint64_t ns;		       /* length of the record */
	struct workload_vgpu *vgpus;   /* those that had work */
	unsigned vgpu_count;
	size_t idle_count; /* vGPUs without work, which are left out */
	struct workload_change *changes;
	size_t change_count;
};

/* Reads the record twice, from its beginning, up to the last whole entry. -ENODATA: it contains no work;
 * -E2BIG: too much to play. */
int workload_read(FILE *record, struct workload *workload, struct bf_error *err);
void workload_free(struct workload *workload);

#endif
