/* A simulated GPU under sched, on a clock of its own: programs that submit kernels, gates, contexts that take turns, stops
 * that take their time, and news that come late. What the programs submit is said by whoever plays. Everything follows from
 * that and the seed: no files, no threads, no clock. */
#ifndef BELFRY_REPLAY_SIM_H
#define BELFRY_REPLAY_SIM_H

#include "sched/sched.h"

enum { SIM_MOST_IN_FLIGHT = 32 };

/* How long things take on a GPU. Of stops, news and what is noticed: up to so long. */
struct sim_manners {
	uint64_t switch_ns;  /* from one context to another */
	uint64_t stop_ns;    /* what runs, in mid-kernel */
	uint64_t resume_ns;  /* let it go again */
	uint64_t news_ns;    /* until sched hears of what rang */
	uint64_t noticed_ns; /* until it hears that all is done */
	uint64_t timer_ns;   /* sched wakes up so much late */
	uint64_t measure_ns; /* how often it is told the use of the GPU */
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
	void *owner; /* for whoever plays */
	double busy; /* of the time that its kernels are on, so much is told as used: 1 if nobody sets it */
	bool is_present, is_benched;

	/* What is so. */
	bool is_open, is_halted;
	struct sim_kernel kernels[SIM_MOST_IN_FLIGHT]; /* oldest first; the first `passed` are on the GPU */
	unsigned count, passed;
	unsigned hands;				/* of the program's: so many kernels are submitted at once */
	uint64_t submit_ns[SIM_MOST_IN_FLIGHT]; /* when each of them submits; SCHED_NEVER: it waits */
	uint64_t halt_ns, stopped_ns, resumed_ns;
	uint64_t timeslice_us;
	int interleave;

	/* What sched is told, in this order. */
	uint64_t tell_waits_ns, tell_runs_ns, tell_done_ns;
	bool knows_running;

	/* What came of it. */
	uint64_t ran_ns, kernels_done;
	uint64_t used_ns, told_ns; /* as it is told; as it was */
	uint64_t longest_start_ns; /* from the bell to the first of it that ran */
	unsigned closes, stops, slices;
};

/* Whoever plays. */
struct sim_hooks {
	/* Its programs have come: their hands are to be set. */
	void (*begins)(struct sim_vgpu *v);
	/* A hand's time has come. False: it submits nothing now. */
	bool (*submits)(struct sim_vgpu *v, struct sim_kernel *kernel);
	void (*ended)(struct sim_vgpu *v, uint64_t took_ns); /* a kernel */
	/* Sched has given its orders; the clock is about to go on. Either may be NULL. */
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
	struct sim_vgpu *on, *last_on; /* whose kernels the GPU runs; whose context is loaded */
	unsigned turn;
	uint64_t switched_ns, turn_ends_ns;
	uint64_t ran_ns, most_orders, events;
	char wrong[128]; /* what sched ordered though it must not; "": nothing, as it should be */
};

/* NULL: out of memory. */
struct sim *sim_open(const struct sched_options *options, const struct sim_manners *manners,
		     const struct sim_hooks *hooks, uint64_t seed, uint64_t now_ns);
void sim_close(struct sim *sim); /* with all its vGPUs; NULL is fine */
struct sim_vgpu *sim_vgpu_add(struct sim *sim, const struct sched_share *share, unsigned hands, void *owner);
void sim_vgpu_remove(struct sim_vgpu *v);
void sim_configure(struct sim *sim, const struct sched_options *options);
void sim_set_policy(struct sim *sim, const struct sched_policy *policy); /* NULL: the built-in */
void sim_set(struct sim_vgpu *v, const struct sched_share *share);
void sim_set_present(struct sim_vgpu *v, bool is_present);
/* Somebody outside closes its gate and stops it, and lets it go again. */
void sim_bench(struct sim_vgpu *v, bool is_benched);
/* Let a hand that waits submit so much later. */
void sim_submit_later(struct sim_vgpu *v, uint64_t ns);
/* It has work that can run: it is on the GPU, and neither stopped nor held. */
bool sim_can_run(const struct sim_vgpu *v);
/* Until then, or until something is wrong, or there were `most` events more. */
void sim_go(struct sim *sim, uint64_t until_ns, uint64_t most);

uint64_t sim_random(uint64_t *seed);
uint64_t sim_between(uint64_t *seed, uint64_t least, uint64_t most);

#endif
