#include "sched_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SWITCH_NS (200 * US)
#define STOP_NS (700 * US)
#define RESUME_NS (350 * US)
#define NEWS_NS (100 * US)
#define DONE_NOTICED_NS (1 * MS)
#define TIMER_NS (50 * US)
#define MEASURE_NS (2 * MS)
#define DEFAULT_SLICE_US 2048

uint64_t sim_random(uint64_t *seed)
{
	*seed += 0x9e3779b97f4a7c15ull;
	uint64_t z = *seed;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t sim_between(uint64_t *seed, uint64_t least, uint64_t most)
{
	return least + sim_random(seed) % (most - least + 1);
}

static uint64_t within(struct sim *sim, uint64_t most)
{
	return sim_between(&sim->seed, 1, most);
}

static uint64_t any_magnitude(struct sim *sim, uint64_t least, uint64_t most)
{
	unsigned doublings = 0;
	uint64_t low, high;

	if (!least)
		return sim_between(&sim->seed, 0, most);
	while (least << (doublings + 1) <= most)
		doublings++;
	low = least << sim_between(&sim->seed, 0, doublings);
	high = 2 * low < most ? 2 * low : most;
	return sim_between(&sim->seed, low, high);
}

struct sim *sim_new(const struct sched_options *options, uint64_t seed, uint64_t longest_ns)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	assert_non_null(sim);
	sim->options = *options;
	sim->seed = seed;
	sim->now_ns = SIM_BEGIN_NS;
	sim->marked_ns = sim->now_ns;
	sim->end_ns = sim->now_ns + longest_ns;
	sim->sched = sched_new(options, sim->now_ns);
	sim->wake_ns = SCHED_NEVER;
	sim->tell_used_ns = options->is_measured ? sim->now_ns + MEASURE_NS : SCHED_NEVER;
	assert_non_null(sim->sched);
	return sim;
}

static void begin(struct sim_vgpu *v)
{
	v->count = v->passed = 0;
	v->is_halted = v->knows_running = false;
	v->halt_ns = v->stopped_ns = v->resumed_ns = SCHED_NEVER;
	v->tell_waits_ns = v->tell_runs_ns = v->tell_done_ns = SCHED_NEVER;
	v->timeslice_us = DEFAULT_SLICE_US;
	v->interleave = -1;
	for (unsigned i = 0; i < SIM_MOST_IN_FLIGHT; i++)
		v->submit_ns[i] = SCHED_NEVER;
	for (unsigned i = 0; i < v->load.in_flight; i++)
		v->submit_ns[i] = v->sim->now_ns + within(v->sim, NEWS_NS);
}

static void submit_later(struct sim_vgpu *v, uint64_t ns)
{
	for (unsigned i = 0; i < SIM_MOST_IN_FLIGHT; i++)
		if (v->submit_ns[i] == SCHED_NEVER) {
			v->submit_ns[i] = v->sim->now_ns + ns;
			return;
		}
}

static bool is_plain(const struct sched_share *share)
{
	return !share->request_ppm && share->limit_ppm == SCHED_WHOLE_PPM && share->class == SCHED_THROUGHPUT;
}

static void check_counters(const struct sched_report *was, const struct sched_report *is)
{
	assert_true(is->gpu_ns >= was->gpu_ns && is->held_ns >= was->held_ns);
	assert_true(is->waited_ns >= was->waited_ns && is->limited_ns >= was->limited_ns);
	assert_true(is->grants >= was->grants && is->expiries >= was->expiries);
	assert_true(is->given_back >= was->given_back && is->stops >= was->stops);
	assert_true(is->stopped_ns >= was->stopped_ns && is->samples >= was->samples);
	assert_true(is->missed >= was->missed && is->since_ns >= was->since_ns);
}

/* What sched says of everybody now. */
static void look(struct sim *sim)
{
	uint64_t gpu_ns = 0;

	sim->has_tokens = sim->options.how == SCHED_TOKENS;
	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];
		struct sched_report was = v->report;

		sched_report(sim->sched, v->vgpu, &v->report);
		check_counters(&was, &v->report);
		gpu_ns += v->report.gpu_ns;
		sim->has_tokens |= sim->options.how == SCHED_AUTO && !is_plain(&v->share) && v->is_present &&
				   !v->is_benched && v->report.state != SCHED_IS_IDLE;
	}
	if (!sim->options.is_measured)
		assert_true(gpu_ns <= sim->now_ns - SIM_BEGIN_NS);
}

static bool are_together(const struct sim_vgpu *a, const struct sim_vgpu *b)
{
	return a == b || (a->share.domain && a->share.domain == b->share.domain);
}

static void check_gates(const struct sim *sim)
{
	const struct sim_vgpu *open = NULL;

	if (!sim->has_tokens)
		return;
	for (unsigned i = 0; i < sim->count; i++) {
		const struct sim_vgpu *v = sim->vgpus[i];

		if (!v->is_open || v->is_benched || v->report.is_rider)
			continue;
		if (open && !are_together(open, v))
			fail_msg("two have the token at %g ms", (double)sim->now_ns / 1e6);
		open = v;
	}
}

static void pass_on(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;

	v->is_open = true;
	v->passed = v->count;
	v->knows_running |= v->passed > 0; /* it knew that this waited, or will hear of it */
	if (v->is_halted && v->resumed_ns == SCHED_NEVER)
		v->resumed_ns = sim->now_ns + RESUME_NS;
}

static void carry_out(struct sim *sim, const struct sched_order *order)
{
	struct sim_vgpu *v = sched_owner(order->vgpu);

	assert_ptr_equal(v->vgpu, order->vgpu);
	assert_false(v->is_benched && order->kind != SCHED_SLICE);
	switch (order->kind) {
	case SCHED_OPEN:
		assert_false(v->is_open);
		assert_true(v->is_present);
		assert_int_equal(v->stopped_ns, SCHED_NEVER);
		pass_on(v);
		break;
	case SCHED_CLOSE:
		assert_true(v->is_open);
		v->is_open = false;
		v->closes++;
		break;
	case SCHED_STOP:
		assert_false(v->is_open);
		assert_true(v->knows_running);
		assert_int_equal(v->stopped_ns, SCHED_NEVER);
		v->stops++;
		v->halt_ns = sim->now_ns + within(sim, STOP_NS);
		v->stopped_ns = sim->now_ns + STOP_NS;
		break;
	case SCHED_SLICE:
		assert_true(v->is_present);
		v->slices++;
		v->timeslice_us = order->timeslice_us ? order->timeslice_us : DEFAULT_SLICE_US;
		v->interleave = order->interleave;
		break;
	}
}

static void ask(struct sim *sim)
{
	struct sched_order order;
	uint64_t orders = 0, wake;

	while (sched_next(sim->sched, sim->now_ns, &order)) {
		carry_out(sim, &order);
		if (++orders > 8 * ((size_t)sim->count + 1))
			fail_msg("%u vGPUs, and orders without end", sim->count);
	}
	if (orders > sim->most_orders)
		sim->most_orders = orders;
	look(sim);
	check_gates(sim);
	wake = sched_wake_ns(sim->sched);
	sim->wake_ns = wake == SCHED_NEVER
			       ? wake
			       : (wake > sim->now_ns ? wake : sim->now_ns) + within(sim, TIMER_NS);
}

struct sim_vgpu *sim_add(struct sim *sim, const struct sched_share *share, const struct sim_load *load)
{
	struct sim_vgpu *v = calloc(1, sizeof(*v));

	assert_non_null(v);
	assert_true(sim->count < SIM_MOST_VGPUS);
	v->sim = sim;
	v->share = *share;
	v->load = *load;
	v->ran_in_ms = calloc((sim->end_ns - SIM_BEGIN_NS) / MS + 2, sizeof(*v->ran_in_ms));
	assert_non_null(v->ran_in_ms);
	v->vgpu = sched_add(sim->sched, share, v, sim->now_ns);
	assert_non_null(v->vgpu);
	sim->vgpus[sim->count++] = v;
	sim_set_present(v, true);
	return v;
}

static void leave_gpu(struct sim_vgpu *v)
{
	if (v->sim->on == v)
		v->sim->on = NULL;
	if (v->sim->last_on == v)
		v->sim->last_on = NULL;
}

static void sim_vgpu_free(struct sim_vgpu *v)
{
	free(v->ran_in_ms);
	free(v);
}

void sim_remove(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;
	unsigned at = 0;

	leave_gpu(v);
	while (sim->vgpus[at] != v)
		at++;
	sim->vgpus[at] = sim->vgpus[--sim->count];
	sched_remove(sim->sched, v->vgpu, sim->now_ns);
	sim_vgpu_free(v);
	ask(sim);
}

void sim_free(struct sim *sim)
{
	sched_free(sim->sched);
	for (unsigned i = 0; i < sim->count; i++)
		sim_vgpu_free(sim->vgpus[i]);
	free(sim);
}

void sim_configure(struct sim *sim, const struct sched_options *options)
{
	sim->options = *options;
	sched_configure(sim->sched, options, sim->now_ns);
	ask(sim);
}

void sim_set_policy(struct sim *sim, const struct sched_policy *policy)
{
	sched_set_policy(sim->sched, policy, sim->now_ns);
	ask(sim);
}

void sim_set(struct sim_vgpu *v, const struct sched_share *share)
{
	v->share = *share;
	sched_set(v->sim->sched, v->vgpu, share, v->sim->now_ns);
	ask(v->sim);
}

void sim_set_load(struct sim_vgpu *v, const struct sim_load *load)
{
	unsigned busy = v->count;

	v->load = *load;
	for (unsigned i = 0; i < SIM_MOST_IN_FLIGHT; i++)
		v->submit_ns[i] = SCHED_NEVER;
	for (unsigned i = 0; i + busy < load->in_flight; i++)
		v->submit_ns[i] = v->sim->now_ns + within(v->sim, NEWS_NS);
}

void sim_set_present(struct sim_vgpu *v, bool is_present)
{
	if (is_present == v->is_present)
		return;
	leave_gpu(v);
	v->is_present = is_present;
	begin(v);
	if (!is_present)
		for (unsigned i = 0; i < SIM_MOST_IN_FLIGHT; i++)
			v->submit_ns[i] = SCHED_NEVER;
	sched_set_present(v->sim->sched, v->vgpu, is_present, v->sim->now_ns);
	ask(v->sim);
}

void sim_bench(struct sim_vgpu *v, bool is_benched)
{
	if (is_benched == v->is_benched)
		return;
	v->is_benched = is_benched;
	v->is_open = false;
	sched_bench(v->sim->sched, v->vgpu, is_benched, v->sim->now_ns);
	ask(v->sim);
}

static bool can_run(const struct sim_vgpu *v)
{
	return v->passed && !v->is_halted && !v->is_benched;
}

/* A hand of the program submits. */
static void submit(struct sim_vgpu *v, unsigned hand)
{
	struct sim *sim = v->sim;

	v->submit_ns[hand] = SCHED_NEVER;
	v->kernels[v->count++] = (struct sim_kernel){
		any_magnitude(sim, v->load.kernel_least_ns, v->load.kernel_most_ns),
		sim->now_ns,
		false,
	};
	if (v->is_open) {
		v->passed = v->count;
		if (!v->knows_running && v->tell_runs_ns == SCHED_NEVER)
			v->tell_runs_ns = sim->now_ns + within(sim, NEWS_NS);
	} else if (v->tell_waits_ns == SCHED_NEVER) {
		v->tell_waits_ns = sim->now_ns + within(sim, NEWS_NS);
	}
}

static void end_kernel(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;
	uint64_t took = sim->now_ns - v->kernels[0].submitted_ns;
	unsigned busy;

	memmove(v->kernels, v->kernels + 1, --v->count * sizeof(v->kernels[0]));
	busy = v->count;
	v->passed--;
	v->kernels_done++;
	for (unsigned i = 0; i < SIM_MOST_IN_FLIGHT; i++)
		busy += v->submit_ns[i] != SCHED_NEVER;
	if (busy < v->load.in_flight)
		submit_later(v, any_magnitude(sim, v->load.gap_least_ns, v->load.gap_most_ns));
	if (!v->passed)
		v->tell_done_ns = sim->now_ns + within(sim, DONE_NOTICED_NS);
	if (v->share.objective_ns)
		sched_took(sim->sched, v->vgpu, took, sim->now_ns);
}

static void choose_context(struct sim *sim)
{
	struct sim_vgpu *next = NULL;

	if (sim->on && can_run(sim->on) && sim->now_ns < sim->turn_ends_ns)
		return;
	for (unsigned i = 1; i <= sim->count && !next; i++) {
		unsigned at = (sim->turn + i) % sim->count;

		if (sim->vgpus[at] != sim->on && can_run(sim->vgpus[at])) {
			next = sim->vgpus[at];
			sim->turn = at;
		}
	}
	if (!next && sim->on && can_run(sim->on))
		return;
	sim->on = next;
	if (!next)
		return;
	sim->switched_ns = sim->now_ns + (next != sim->last_on ? SWITCH_NS : 0);
	sim->turn_ends_ns = sim->switched_ns + next->timeslice_us * US;
	sim->last_on = next;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t gpu_ns(const struct sim *sim)
{
	bool is_alone = true;
	uint64_t at;

	if (!sim->on)
		return SCHED_NEVER;
	at = (sim->now_ns < sim->switched_ns ? sim->switched_ns : sim->now_ns) + sim->on->kernels[0].left_ns;
	for (unsigned i = 0; i < sim->count; i++)
		is_alone &= sim->vgpus[i] == sim->on || !can_run(sim->vgpus[i]);
	return is_alone ? at : earlier(at, sim->turn_ends_ns > sim->now_ns ? sim->turn_ends_ns : sim->now_ns);
}

static uint64_t next_event_ns(const struct sim *sim, uint64_t until)
{
	uint64_t at = earlier(until, earlier(sim->wake_ns, earlier(gpu_ns(sim), sim->tell_used_ns)));

	for (unsigned i = 0; i < sim->count; i++) {
		const struct sim_vgpu *v = sim->vgpus[i];

		at = earlier(at, earlier(v->halt_ns, earlier(v->stopped_ns, v->resumed_ns)));
		at = earlier(at, earlier(v->tell_waits_ns, earlier(v->tell_runs_ns, v->tell_done_ns)));
		for (unsigned hand = 0; hand < SIM_MOST_IN_FLIGHT; hand++)
			at = earlier(at, v->submit_ns[hand]);
	}
	return at > sim->now_ns ? at : sim->now_ns;
}

/* The GPU has been at it until `to`. */
static void run_gpu(struct sim *sim, uint64_t to)
{
	uint64_t from = sim->switched_ns > sim->now_ns ? sim->switched_ns : sim->now_ns;
	struct sim_vgpu *v = sim->on;

	if (!v || to <= from)
		return;
	if (!v->kernels[0].has_begun && from - v->kernels[0].submitted_ns > v->longest_start_ns)
		v->longest_start_ns = from - v->kernels[0].submitted_ns;
	v->kernels[0].has_begun = true;
	v->kernels[0].left_ns -= to - from;
	v->ran_ns += to - from;
	v->measured_ns += to - from;
	sim->ran_ns += to - from;
	for (uint64_t at = from; at < to;) {
		uint64_t ms = at / MS, end = earlier(to, (ms + 1) * MS);

		v->ran_in_ms[ms - SIM_BEGIN_NS / MS] += (uint32_t)(end - at);
		at = end;
	}
}

static void count_time(struct sim *sim, uint64_t to)
{
	const struct sim_vgpu *taker = NULL;
	bool is_wanted = false, is_overlapping = false;

	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];
		bool is_limited = v->report.reason == SCHED_FOR_LIMIT;

		if (!v->count || v->is_benched || is_limited || (v == sim->on && to > sim->switched_ns)) {
			v->starves_since_ns = to;
		} else if (to - v->starves_since_ns > v->longest_starve_ns) {
			v->longest_starve_ns = to - v->starves_since_ns;
		}
		is_wanted |= v->count && !v->is_benched && !is_limited;
		if (!sim->has_tokens || !can_run(v) || v->is_benched || v->report.is_rider)
			continue;
		is_overlapping |= taker && !are_together(taker, v);
		taker = v;
	}
	sim->wanted_ns += is_wanted ? to - sim->now_ns : 0;
	sim->overlap_ns += is_overlapping ? to - sim->now_ns : 0;
}

/* In the order in which it came about: what waited, then what ran, then that nothing does. */
static bool tell(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;
	bool is_news = false;

	if (v->tell_waits_ns <= sim->now_ns) {
		v->tell_waits_ns = SCHED_NEVER;
		sched_waits(sim->sched, v->vgpu, sim->now_ns);
		is_news = true;
	}
	if (v->tell_runs_ns <= sim->now_ns) {
		v->tell_runs_ns = SCHED_NEVER;
		v->knows_running = true;
		sched_runs(sim->sched, v->vgpu, sim->now_ns);
		is_news = true;
	}
	if (v->tell_done_ns <= sim->now_ns) {
		v->tell_done_ns = SCHED_NEVER;
		if (v->passed)
			return is_news;
		if (v->tell_runs_ns != SCHED_NEVER || (v->is_open && v->tell_waits_ns != SCHED_NEVER)) {
			v->tell_done_ns = sim->now_ns + NEWS_NS;
			return is_news;
		}
		v->knows_running = false;
		sched_done(sim->sched, v->vgpu, sim->now_ns);
		is_news = true;
	}
	return is_news;
}

static bool stop_and_go(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;

	if (v->halt_ns <= sim->now_ns) {
		v->halt_ns = SCHED_NEVER;
		v->is_halted = true;
	}
	if (v->stopped_ns <= sim->now_ns) {
		v->stopped_ns = SCHED_NEVER;
		sched_stopped(sim->sched, v->vgpu, sim->now_ns);
		return true;
	}
	if (v->resumed_ns <= sim->now_ns) {
		v->resumed_ns = SCHED_NEVER;
		v->is_halted = false;
		sched_resumed(sim->sched, v->vgpu, sim->now_ns);
		return true;
	}
	return false;
}

static void tell_used(struct sim *sim)
{
	if (sim->tell_used_ns > sim->now_ns)
		return;
	sim->tell_used_ns = sim->now_ns + MEASURE_NS;
	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];

		if (v->measured_ns)
			sched_used(sim->sched, v->vgpu, v->measured_ns, sim->now_ns);
		v->measured_ns = 0;
	}
}

void sim_run(struct sim *sim, uint64_t ns)
{
	uint64_t until = sim->now_ns + ns;

	assert_true(until <= sim->end_ns);
	choose_context(sim);
	while (sim->now_ns < until) {
		uint64_t to = next_event_ns(sim, until);
		bool is_news = to >= sim->wake_ns || to >= sim->tell_used_ns;

		count_time(sim, to);
		run_gpu(sim, to);
		sim->now_ns = to;
		if (sim->on && sim->on->passed && !sim->on->kernels[0].left_ns)
			end_kernel(sim->on);
		tell_used(sim);
		for (unsigned i = 0; i < sim->count; i++) {
			struct sim_vgpu *v = sim->vgpus[i];

			for (unsigned hand = 0; hand < SIM_MOST_IN_FLIGHT; hand++)
				if (v->submit_ns[hand] <= to)
					submit(v, hand);
			is_news |= stop_and_go(v);
			is_news |= tell(v);
		}
		if (is_news)
			ask(sim);
		choose_context(sim);
	}
}

void sim_mark(struct sim *sim)
{
	sim->marked_ns = sim->now_ns;
	sim->ran_ns = sim->wanted_ns = sim->overlap_ns = sim->most_orders = 0;
	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];

		v->ran_ns = v->kernels_done = v->longest_start_ns = v->longest_starve_ns = 0;
		v->closes = v->stops = v->slices = 0;
	}
}

double sim_share(const struct sim_vgpu *v)
{
	return v->sim->ran_ns ? 100.0 * (double)v->ran_ns / (double)v->sim->ran_ns : 0;
}

double sim_use(const struct sim_vgpu *v)
{
	return 100.0 * (double)v->ran_ns / (double)(v->sim->now_ns - v->sim->marked_ns);
}

double sim_busy(const struct sim *sim)
{
	return sim->wanted_ns ? 100.0 * (double)sim->ran_ns / (double)sim->wanted_ns : 100;
}

double sim_most_in_window(const struct sim_vgpu *v, uint64_t from_ns, uint64_t window_ns)
{
	uint64_t first = (from_ns - SIM_BEGIN_NS) / MS, end = (v->sim->now_ns - SIM_BEGIN_NS) / MS,
		 n = window_ns / MS;
	uint64_t sum = 0, most = 0;

	for (uint64_t ms = first; ms < end; ms++) {
		sum += v->ran_in_ms[ms];
		if (ms >= first + n)
			sum -= v->ran_in_ms[ms - n];
		if (ms + 1 >= first + n && sum > most)
			most = sum;
	}
	return 100.0 * (double)most / (double)window_ns;
}

const struct sim_load sim_busy_load = { 4, 10 * US, 100 * MS, 0, 20 * US };
const struct sim_load sim_synchronous = { 1, 10 * US, 100 * MS, 20 * US, 20 * US };
const struct sim_load sim_small = { 8, 20 * US, 200 * US, 0, 20 * US };
const struct sim_load sim_graphs = { 2, 30 * MS, 30 * MS, 0, 20 * US };
const struct sim_load sim_now_and_then = { 1, 100 * US, 800 * US, 5 * MS, 40 * MS };
const struct sim_load sim_none = { 0 };

struct sched_share sim_limit(double request_percent, double limit_percent)
{
	return (struct sched_share){
		.request_ppm = (uint32_t)(request_percent * 1e4),
		.limit_ppm = (uint32_t)(limit_percent * 1e4),
		.interleave = -1,
	};
}

struct sched_share sim_request(double percent)
{
	return sim_limit(percent, 100);
}

struct sched_share sim_latency(double percent)
{
	struct sched_share share = sim_limit(percent, 100);

	share.class = SCHED_LATENCY;
	return share;
}

void sim_assert_near(const char *what, double is, double wanted, double off)
{
	if (is < wanted - off || is > wanted + off)
		fail_msg("%s: %.2f, not %.2f +- %.2f", what, is, wanted, off);
}

void sim_print(const char *name, const struct sim *sim)
{
	print_message("%-28s", name);
	for (unsigned i = 0; i < sim->count; i++)
		print_message(" %.2f", sim_share(sim->vgpus[i]));
	print_message("  busy %.1f  hand-overs/s %.0f  overlap %.2f ms\n", sim_busy(sim),
		      (double)sched_handovers(sim->sched) * 1e9 / (double)(sim->now_ns - SIM_BEGIN_NS),
		      (double)sim->overlap_ns / 1e6);
}
