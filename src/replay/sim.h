/* A simulated GPU under sched, on a simulated clock: programs that submit kernels, gates, contexts that
 * alternate, and stops and notifications with delays. The caller's hooks decide what the programs submit. The
 * result depends only on that and on the seed: there are no files, threads or real clocks. */
#ifndef BELFRY_REPLAY_SIM_H
#define BELFRY_REPLAY_SIM_H

#include "sched/sched.h"

enum { SIM_MOST_IN_FLIGHT = 32 };

/* Delays of a GPU. Those of stops, notifications and noticing are maxima. */
struct sim_manners {
	uint64_t switch_ns;  /* context switch */
	uint64_t stop_ns;    /* stopping a running kernel */
	uint64_t resume_ns;  /* resuming it */
	uint64_t news_ns;    /* until sched is told of a ring */
	uint64_t noticed_ns; /* until sched is told that all work is done */
	uint64_t timer_ns;   /* delay of sched's timer */
	uint64_t measure_ns; /* interval between reports of GPU time to sched */
	uint64_t timeslice_us;
};
extern const struct sim_manners sim_nvidia, sim_soft;

struct sim_kernel {
	uint64_t left_ns, submitted_ns;
	bool has_begun;
};

struct sim_vgpu {
	struct sim *sim;
	struct sched_vgpu *vgpu;
	struct sched_share share;
	void *owner; /* for the caller */
	double busy; /* part of its kernels' time that is reported as used; 1 by default */
	bool is_present, is_benched;

	/* The actual state. */
	bool is_open, is_halted;
	struct sim_kernel kernels[SIM_MOST_IN_FLIGHT]; /* oldest first; the first `passed` are on the GPU */
	unsigned count, passed;
	unsigned hands;				/* kernels that its program submits concurrently */
	uint64_t submit_ns[SIM_MOST_IN_FLIGHT]; /* when each is submitted; SCHED_NEVER: not scheduled */
	uint64_t halt_ns, stopped_ns, resumed_ns;
	uint64_t timeslice_us;
	int interleave;

	/* When sched is told, in this order. */
	uint64_t tell_waits_ns, tell_runs_ns, tell_done_ns;
	bool knows_running;

	/* Results. */
	uint64_t ran_ns, kernels_done;
	uint64_t used_ns, told_ns; /* GPU time to report; GPU time reported */
	uint64_t longest_start_ns; /* from a ring to the start of its kernel */
	unsigned closes, stops, slices;
};

/* The caller's callbacks. */
struct sim_hooks {
	/* Its programs have started: schedule their first submissions. */
	void (*begins)(struct sim_vgpu *v);
	/* A submission is due. False: nothing is submitted now. */
	bool (*submits)(struct sim_vgpu *v, struct sim_kernel *kernel);
	void (*ended)(struct sim_vgpu *v, uint64_t took_ns); /* a kernel ended */
	/* asked: sched has given its orders. passes: the clock is about to advance. Both may be NULL. */
	void (*asked)(struct sim *sim);
	void (*passes)(struct sim *sim, uint64_t to_ns);
};

struct sim {
	struct sched *sched;
	struct sched_options options;
	struct sim_manners manners;
	struct sim_hooks hooks;
	void *owner;
	uint64_t now_ns, seed, wake_ns, tell_used_ns;
	struct sim_vgpu **vgpus;
	unsigned count, room;
	struct sim_vgpu *on, *last_on; /* the vGPU whose kernels run; the vGPU whose context is loaded */
	unsigned turn;
	uint64_t switched_ns, turn_ends_ns;
	uint64_t ran_ns, most_orders, events;
	char wrong[128]; /* an invalid order of sched; "": none */
};

/* NULL: out of memory. */
struct sim *sim_open(const struct sched_options *options, const struct sim_manners *manners,
		     const struct sim_hooks *hooks, uint64_t seed, uint64_t now_ns);
void sim_close(struct sim *sim); /* and all its vGPUs; NULL is allowed */
struct sim_vgpu *sim_vgpu_add(struct sim *sim, const struct sched_share *share, unsigned hands, void *owner);
void sim_vgpu_remove(struct sim_vgpu *v);
void sim_configure(struct sim *sim, const struct sched_options *options);
void sim_set_policy(struct sim *sim, const struct sched_policy *policy); /* NULL: the built-in policy */
void sim_set(struct sim_vgpu *v, const struct sched_share *share);
void sim_set_present(struct sim_vgpu *v, bool is_present);
/* Closes its gate and stops it from outside of sched, or ends that. */
void sim_bench(struct sim_vgpu *v, bool is_benched);
/* Schedules an unscheduled submission `ns` from now. */
void sim_submit_later(struct sim_vgpu *v, uint64_t ns);
/* Whether it has forwarded work and is neither stopped nor held back. */
bool sim_can_run(const struct sim_vgpu *v);
/* Runs until `until_ns`, an error, or `most` more events. */
void sim_go(struct sim *sim, uint64_t until_ns, uint64_t most);

uint64_t sim_random(uint64_t *seed);
uint64_t sim_between(uint64_t *seed, uint64_t least, uint64_t most);

#endif
