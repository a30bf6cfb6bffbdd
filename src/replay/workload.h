/* What programs wanted of a GPU, out of a record: for each vGPU when they came and went, and in between bursts of work, each
 * a while after the one before was done. So it can be played again under another policy: who is served sooner goes on
 * sooner. Reads a record, and believes nothing in it that was not checked. */
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

/* Times are counted from the beginning of the record. */
enum workload_kind { WORKLOAD_HERE, WORKLOAD_BURST, WORKLOAD_GONE };
struct workload_step {
	enum workload_kind kind;
	uint32_t pieces;     /* BURST: so many kernels, one after the other */
	uint64_t after_ns;   /* HERE: the time; else, so long after what came before it was done */
	uint64_t gpu_ns;     /* BURST: of all its kernels; WORKLOAD_ENDLESS: it wants all it can get */
	uint64_t took_ns;    /* BURST: as it was */
	uint64_t held_ns;    /* of that, it was let in */
	uint64_t settled_ns; /* of that, gpu_ns is of */
};

/* What came of it: as it was, or as it was played. */
struct workload_figures {
	uint64_t gpu_ns;
	uint64_t done, late;	  /* bursts; late: longer than the objective */
	uint64_t p50_ns;	  /* from when they came until they were done */
	uint64_t tail_ns;	  /* likewise: the objective's percentile, or p99 */
	uint64_t longest_wait_ns; /* it had work, and nothing of it ran; of a play alone */
	uint64_t slices, stops;
};

struct workload_vgpu {
	uint64_t id;
	char name[BELFRY_NAME_SIZE];
	struct sched_share share; /* at first */
	struct workload_step *steps;
	size_t count, room;
	size_t again;	    /* where it goes on after the last step; count: nowhere */
	uint64_t again_ns;  /* after so long at least */
	uint64_t kernel_ns; /* of a burst that is endless */
	/* It is let in for longer than it uses the GPU. Where bursts are of a kernel or two: for so long after each, until it
	 * is noticed that all is done. Otherwise: of the time it is let in it uses so much, 0 to 1. */
	uint64_t rest_ns;
	double busy;
	struct workload_figures was;
};

/* What people did, at the time they did it. */
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
	struct sched_options options; /* at first */
	bool is_soft;
	char policy[BELFRY_NAME_SIZE]; /* under which it was recorded; "" if there were several */
	uint64_t ns;		       /* from its beginning to its end */
	struct workload_vgpu *vgpus;   /* that had work */
	unsigned vgpu_count;
	size_t idle_count; /* that had none: they are left out */
	struct workload_change *changes;
	size_t change_count;
};

/* From the beginning of the record, which is read twice, as far as there are whole entries. -ENODATA: it says nothing of
 * work; -E2BIG: too much of it to be played. */
int workload_read(FILE *record, struct workload *workload, struct bf_error *err);
void workload_free(struct workload *workload);

#endif
