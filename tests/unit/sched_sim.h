/* Loads for the simulated GPU (replay/sim.h), and what must hold whatever they are. Everything follows from the seed. */
#ifndef BELFRY_TESTS_SCHED_SIM_H
#define BELFRY_TESTS_SCHED_SIM_H

#include "replay/sim.h"

#define US 1000ull
#define MS 1000000ull
#define S 1000000000ull
#define SIM_BEGIN_NS (1000 * S) /* a clock does not begin at 0 */

/* What a program does: so many kernels at once (up to SIM_MOST_IN_FLIGHT; 0: none), each followed by a gap and the
 * next. Lengths lie between the two, every magnitude as often as every other. */
struct sim_load {
	unsigned in_flight;
	uint64_t kernel_least_ns, kernel_most_ns;
	uint64_t gap_least_ns, gap_most_ns;
};

/* What the tests see of a vGPU: since sim_mark, but for the report. */
struct sim_seen {
	struct sim_load load;
	struct sched_report report; /* what sched says */
	uint64_t longest_starve_ns; /* it had work, was within its limit, and nothing of it ran */
	uint64_t starves_since_ns;
	uint32_t *ran_in_ms; /* since the beginning, for sim_most_in_window */
};
struct sim_seen *sim_seen(const struct sim_vgpu *v);

struct sim *sim_new(const struct sched_options *options, uint64_t seed, uint64_t longest_ns);
void sim_free(struct sim *sim);
struct sim_vgpu *sim_add(struct sim *sim, const struct sched_share *share, const struct sim_load *load);
void sim_remove(struct sim_vgpu *v);
void sim_set_load(struct sim_vgpu *v, const struct sim_load *load);
void sim_run(struct sim *sim, uint64_t ns);
/* One change at random: somebody comes with that share and load, goes, is given them, is benched, or everything is configured
 * otherwise. */
void sim_disturb(struct sim *sim, uint64_t *seed, const struct sched_share *share,
		 const struct sim_load *load);

/* Count from here. */
void sim_mark(struct sim *sim);
/* In percent: of what the GPU ran; of the clock; how much of the time in which anybody had work it ran something. */
double sim_share(const struct sim_vgpu *v);
double sim_use(const struct sim_vgpu *v);
double sim_busy(const struct sim *sim);
/* For how long vGPUs that may not share the token were on the GPU together. */
uint64_t sim_overlap_ns(const struct sim *sim);
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

/* What is checked on the way fails the test: gates open and close in turn, only what runs is stopped, orders come to an end
 * (replay/sim.h); one domain of those that take the token at a time, counters do not run backwards. */

#endif
