/* A simulated GPU for the sched tests, on a clock of its own: programs with queues of kernels, gates, contexts that take
 * turns, stops that take their time, and news that come late. Everything follows from the seed. */
#ifndef BELFRY_TESTS_SCHED_SIM_H
#define BELFRY_TESTS_SCHED_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/sched.h"

#define US 1000ull
#define MS 1000000ull
#define S 1000000000ull
#define SIM_BEGIN_NS (1000 * S) /* a clock does not begin at 0 */

enum { SIM_MOST_IN_FLIGHT = 32, SIM_MOST_VGPUS = 64 };

/* What a program does: so many kernels at once (up to SIM_MOST_IN_FLIGHT; 0: none), each followed by a gap and the
 * next. Lengths lie between the two, every magnitude as often as every other. */
struct sim_load {
	unsigned in_flight;
	uint64_t kernel_least_ns, kernel_most_ns;
	uint64_t gap_least_ns, gap_most_ns;
};

struct sim_kernel {
	uint64_t left_ns, submitted_ns;
	bool has_begun;
};

struct sim_vgpu {
	struct sim *sim;
	struct sched_vgpu *vgpu;
	struct sched_share share;
	struct sim_load load;
	bool is_present, is_benched;

	/* What is so. */
	bool is_open, is_halted;
	struct sim_kernel kernels[SIM_MOST_IN_FLIGHT]; /* oldest first; the first `passed` are on the GPU */
	unsigned count, passed;
	uint64_t submit_ns
		[SIM_MOST_IN_FLIGHT]; /* when each of the program's hands submits; SCHED_NEVER: it waits */
	uint64_t halt_ns, stopped_ns, resumed_ns;
	uint64_t timeslice_us;
	int interleave;

	/* What sched is told, in this order. */
	uint64_t tell_waits_ns, tell_runs_ns, tell_done_ns;
	bool knows_running;
	struct sched_report report; /* what it says */

	/* Since sim_mark. */
	uint64_t ran_ns, kernels_done;
	uint64_t longest_start_ns;  /* from the bell to the first of it that ran */
	uint64_t longest_starve_ns; /* it had work, was within its limit, and nothing of it ran */
	unsigned closes, stops, slices;
	uint64_t starves_since_ns, measured_ns;
	uint32_t *ran_in_ms; /* since the beginning, for sim_most_in_window */
};

struct sim {
	struct sched *sched;
	struct sched_options options;
	uint64_t now_ns, seed, wake_ns, tell_used_ns, end_ns;
	struct sim_vgpu *vgpus[SIM_MOST_VGPUS];
	unsigned count;
	struct sim_vgpu *on, *last_on; /* whose kernels the GPU runs; whose context is loaded */
	unsigned turn;
	uint64_t switched_ns, turn_ends_ns;
	bool has_tokens;

	/* Since sim_mark. */
	uint64_t marked_ns, ran_ns, wanted_ns, most_orders;
	uint64_t overlap_ns; /* two who may not be on the GPU together were */
};

struct sim *sim_new(const struct sched_options *options, uint64_t seed, uint64_t longest_ns);
void sim_free(struct sim *sim);
struct sim_vgpu *sim_add(struct sim *sim, const struct sched_share *share, const struct sim_load *load);
void sim_remove(struct sim_vgpu *v);
void sim_configure(struct sim *sim, const struct sched_options *options);
void sim_set_policy(struct sim *sim, const struct sched_policy *policy); /* NULL: the built-in */
void sim_set(struct sim_vgpu *v, const struct sched_share *share);
void sim_set_load(struct sim_vgpu *v, const struct sim_load *load);
void sim_set_present(struct sim_vgpu *v, bool is_present);
/* Somebody outside closes its gate and stops it, and lets it go again. */
void sim_bench(struct sim_vgpu *v, bool is_benched);
void sim_run(struct sim *sim, uint64_t ns);

/* Count from here. */
void sim_mark(struct sim *sim);
/* In percent: of what the GPU ran; of the clock; how much of the time in which anybody had work it ran something. */
double sim_share(const struct sim_vgpu *v);
double sim_use(const struct sim_vgpu *v);
double sim_busy(const struct sim *sim);
/* The most it ran in any window that begins at or after `from_ns`, in percent of it. */
double sim_most_in_window(const struct sim_vgpu *v, uint64_t from_ns, uint64_t window_ns);

/* Loads: kernels of all lengths, four at once or one after the other; many small ones; graphs of 30 ms; now and then a
 * short one; nothing. */
extern const struct sim_load sim_busy_load, sim_synchronous, sim_small, sim_graphs, sim_now_and_then,
	sim_none;
struct sched_share sim_request(double percent);
struct sched_share sim_limit(double request_percent, double limit_percent);
struct sched_share sim_latency(double percent);
void sim_assert_near(const char *what, double is, double wanted, double off);
void sim_print(const char *name, const struct sim *sim);

uint64_t sim_random(uint64_t *seed);
uint64_t sim_between(uint64_t *seed, uint64_t least, uint64_t most);

/* What it checks by itself fails the test: gates open and close in turn, only what runs is stopped, one domain of those
 * that take the token at a time, orders come to an end, counters do not run backwards. */

#endif
