#include "sched_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"

#define NEWS_NS (sim_nvidia.news_ns)

/* Of a simulation: since sim_mark, but for the first two. */
struct own {
	uint64_t end_ns;
	bool has_tokens;
	uint64_t marked_ns, wanted_ns;
	uint64_t overlap_ns; /* two who may not be on the GPU together were */
};

static struct own *own_of(const struct sim *sim)
{
	return sim->owner;
}

struct sim_seen *sim_seen(const struct sim_vgpu *v)
{
	return v->owner;
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

static void set_hands(struct sim_vgpu *v, unsigned busy)
{
	for (unsigned i = 0; i < v->hands; i++)
		v->submit_ns[i] = SCHED_NEVER;
	for (unsigned i = 0; i + busy < sim_seen(v)->load.in_flight; i++)
		sim_submit_later(v, sim_between(&v->sim->seed, 1, NEWS_NS));
}

static void begins(struct sim_vgpu *v)
{
	set_hands(v, 0);
}

static bool submits(struct sim_vgpu *v, struct sim_kernel *kernel)
{
	const struct sim_load *load = &sim_seen(v)->load;

	kernel->left_ns = any_magnitude(v->sim, load->kernel_least_ns, load->kernel_most_ns);
	return true;
}

static void ended(struct sim_vgpu *v, uint64_t took_ns)
{
	const struct sim_load *load = &sim_seen(v)->load;
	unsigned busy = v->count;

	for (unsigned i = 0; i < v->hands; i++)
		busy += v->submit_ns[i] != SCHED_NEVER;
	if (busy < load->in_flight)
		sim_submit_later(v, any_magnitude(v->sim, load->gap_least_ns, load->gap_most_ns));
	if (v->share.objective_ns)
		sched_took(v->sim->sched, v->vgpu, took_ns, v->sim->now_ns);
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
	struct own *own = own_of(sim);
	uint64_t gpu_ns = 0;

	own->has_tokens = sim->options.how == SCHED_TOKENS;
	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];
		struct sched_report *report = &sim_seen(v)->report, was = *report;

		sched_report(sim->sched, v->vgpu, report);
		check_counters(&was, report);
		gpu_ns += report->gpu_ns;
		own->has_tokens |= sim->options.how == SCHED_AUTO && !is_plain(&v->share) && v->is_present &&
				   !v->is_benched && report->state != SCHED_IS_IDLE;
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

	if (!own_of(sim)->has_tokens)
		return;
	for (unsigned i = 0; i < sim->count; i++) {
		const struct sim_vgpu *v = sim->vgpus[i];

		if (!v->is_open || v->is_benched || sim_seen(v)->report.is_rider)
			continue;
		if (open && !are_together(open, v))
			fail_msg("two have the token at %g ms", (double)sim->now_ns / 1e6);
		open = v;
	}
}

static void asked(struct sim *sim)
{
	look(sim);
	check_gates(sim);
}

/* For sim_most_in_window. */
static void count_ms(const struct sim *sim, uint64_t to)
{
	uint64_t from = sim->switched_ns > sim->now_ns ? sim->switched_ns : sim->now_ns;

	for (uint64_t at = from; sim->on && at < to;) {
		uint64_t ms = at / MS, end = bf_min(to, (ms + 1) * MS);

		sim_seen(sim->on)->ran_in_ms[ms - SIM_BEGIN_NS / MS] += (uint32_t)(end - at);
		at = end;
	}
}

static void count_time(struct sim *sim, uint64_t to)
{
	const struct sim_vgpu *taker = NULL;
	struct own *own = own_of(sim);
	bool is_wanted = false, is_overlapping = false;

	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];
		struct sim_seen *seen = sim_seen(v);
		bool is_limited = seen->report.reason == SCHED_FOR_LIMIT;

		if (!v->count || v->is_benched || is_limited || (v == sim->on && to > sim->switched_ns)) {
			seen->starves_since_ns = to;
		} else if (to - seen->starves_since_ns > seen->longest_starve_ns) {
			seen->longest_starve_ns = to - seen->starves_since_ns;
		}
		is_wanted |= v->count && !v->is_benched && !is_limited;
		if (!own->has_tokens || !sim_can_run(v) || v->is_benched || seen->report.is_rider)
			continue;
		is_overlapping |= taker && !are_together(taker, v);
		taker = v;
	}
	own->wanted_ns += is_wanted ? to - sim->now_ns : 0;
	own->overlap_ns += is_overlapping ? to - sim->now_ns : 0;
}

static void passes(struct sim *sim, uint64_t to)
{
	count_time(sim, to);
	count_ms(sim, to);
}

static const struct sim_hooks hooks = { begins, submits, ended, asked, passes };

struct sim *sim_new(const struct sched_options *options, uint64_t seed, uint64_t longest_ns)
{
	struct sim *sim = sim_open(options, &sim_nvidia, &hooks, seed, SIM_BEGIN_NS);
	struct own *own = calloc(1, sizeof(*own));

	assert_non_null(sim);
	assert_non_null(own);
	own->marked_ns = sim->now_ns;
	own->end_ns = sim->now_ns + longest_ns;
	sim->owner = own;
	return sim;
}

struct sim_vgpu *sim_add(struct sim *sim, const struct sched_share *share, const struct sim_load *load)
{
	struct sim_seen *seen = calloc(1, sizeof(*seen));
	struct sim_vgpu *v;

	assert_non_null(seen);
	seen->load = *load;
	seen->ran_in_ms = calloc((own_of(sim)->end_ns - SIM_BEGIN_NS) / MS + 2, sizeof(*seen->ran_in_ms));
	assert_non_null(seen->ran_in_ms);
	v = sim_vgpu_add(sim, share, SIM_MOST_IN_FLIGHT, seen);
	assert_non_null(v);
	sim_set_present(v, true);
	return v;
}

static void seen_free(struct sim_seen *seen)
{
	free(seen->ran_in_ms);
	free(seen);
}

void sim_remove(struct sim_vgpu *v)
{
	struct sim_seen *seen = sim_seen(v);

	sim_vgpu_remove(v);
	seen_free(seen);
}

static void check(const struct sim *sim)
{
	if (sim->wrong[0])
		fail_msg("%s", sim->wrong);
}

void sim_free(struct sim *sim)
{
	check(sim);
	for (unsigned i = 0; i < sim->count; i++)
		seen_free(sim_seen(sim->vgpus[i]));
	free(sim->owner);
	sim_close(sim);
}

void sim_set_load(struct sim_vgpu *v, const struct sim_load *load)
{
	sim_seen(v)->load = *load;
	set_hands(v, v->count);
}

void sim_run(struct sim *sim, uint64_t ns)
{
	uint64_t until = sim->now_ns + ns;

	assert_true(until <= own_of(sim)->end_ns);
	sim_go(sim, until, SCHED_NEVER);
	check(sim);
}

void sim_mark(struct sim *sim)
{
	struct own *own = own_of(sim);

	own->marked_ns = sim->now_ns;
	sim->ran_ns = own->wanted_ns = own->overlap_ns = sim->most_orders = 0;
	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];

		v->ran_ns = v->kernels_done = v->longest_start_ns = sim_seen(v)->longest_starve_ns = 0;
		v->closes = v->stops = v->slices = 0;
	}
}

double sim_share(const struct sim_vgpu *v)
{
	return v->sim->ran_ns ? 100.0 * (double)v->ran_ns / (double)v->sim->ran_ns : 0;
}

double sim_use(const struct sim_vgpu *v)
{
	return 100.0 * (double)v->ran_ns / (double)(v->sim->now_ns - own_of(v->sim)->marked_ns);
}

double sim_busy(const struct sim *sim)
{
	uint64_t wanted_ns = own_of(sim)->wanted_ns;

	return wanted_ns ? 100.0 * (double)sim->ran_ns / (double)wanted_ns : 100;
}

uint64_t sim_overlap_ns(const struct sim *sim)
{
	return own_of(sim)->overlap_ns;
}

double sim_most_in_window(const struct sim_vgpu *v, uint64_t from_ns, uint64_t window_ns)
{
	uint64_t first = (from_ns - SIM_BEGIN_NS) / MS, end = (v->sim->now_ns - SIM_BEGIN_NS) / MS,
		 n = window_ns / MS;
	const uint32_t *ran_in_ms = sim_seen(v)->ran_in_ms;
	uint64_t sum = 0, most = 0;

	for (uint64_t ms = first; ms < end; ms++) {
		sum += ran_in_ms[ms];
		if (ms >= first + n)
			sum -= ran_in_ms[ms - n];
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
		      (double)sim_overlap_ns(sim) / 1e6);
}

void sim_disturb(struct sim *sim, uint64_t *seed, const struct sched_share *share,
		 const struct sim_load *load)
{
	struct sim_vgpu *v = sim->count ? sim->vgpus[sim_random(seed) % sim->count] : NULL;

	switch (v ? sim_random(seed) % 12 : 0) {
	case 0:
	case 1:
		if (sim->count < 10)
			sim_add(sim, share, load);
		break;
	case 2:
		sim_remove(v);
		break;
	case 3:
	case 4:
		sim_set(v, share);
		break;
	case 5:
	case 6:
		sim_set_present(v, !v->is_present);
		break;
	case 7:
	case 8:
		sim_bench(v, !v->is_benched);
		break;
	case 9:
		sim->options.how = (enum sched_how)(sim_random(seed) % 3);
		sim->options.window_ns = sim_random(seed) % 4 ? 1 * S : 300 * MS;
		sim_configure(sim, &sim->options);
		break;
	default:
		if (v->is_present)
			sim_set_load(v, load);
	}
}
