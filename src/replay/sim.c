#include "replay/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* Approximately an H200 (docs/measurements.md). */
const struct sim_manners sim_nvidia = {
	.switch_ns = 200000,
	.stop_ns = 700000,
	.resume_ns = 350000,
	.news_ns = 100000,
	.noticed_ns = 1000000,
	.timer_ns = 50000,
	.measure_ns = 2000000,
	.timeslice_us = 2048,
};

/* The software GPU has no contexts to load, and the GPU server meters it. */
const struct sim_manners sim_soft = {
	.switch_ns = 20000,
	.stop_ns = 200000,
	.resume_ns = 100000,
	.news_ns = 100000,
	.noticed_ns = 300000,
	.timer_ns = 100000,
	.measure_ns = 20000000,
	.timeslice_us = 2048,
};

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

/* Only the first error is kept, because later ones may follow from it. */
static void __attribute__((format(printf, 2, 3))) note_wrong(struct sim *sim, const char *format, ...)
{
	va_list args;

	if (sim->wrong[0])
		return;
	va_start(args, format);
	vsnprintf(sim->wrong, sizeof(sim->wrong), format, args);
	va_end(args);
}

static void must(struct sim *sim, bool is_so, const char *what)
{
	if (!is_so)
		note_wrong(sim, "%s, at %.3f ms", what, (double)sim->now_ns / 1e6);
}

struct sim *sim_open(const struct sched_options *options, const struct sim_manners *manners,
		     const struct sim_hooks *hooks, uint64_t seed, uint64_t now_ns)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	if (!sim)
		return NULL;
	sim->options = *options;
	sim->manners = *manners;
	sim->hooks = *hooks;
	sim->seed = seed;
	sim->now_ns = now_ns;
	sim->sched = sched_new(options, now_ns);
	sim->wake_ns = SCHED_NEVER;
	sim->tell_used_ns = options->is_measured ? now_ns + manners->measure_ns : SCHED_NEVER;
	if (!sim->sched) {
		free(sim);
		return NULL;
	}
	return sim;
}

void sim_close(struct sim *sim)
{
	if (!sim)
		return;
	sched_free(sim->sched);
	for (unsigned i = 0; i < sim->count; i++)
		free(sim->vgpus[i]);
	free(sim->vgpus);
	free(sim);
}

static void begin(struct sim_vgpu *v)
{
	v->count = v->passed = 0;
	v->is_halted = v->knows_running = false;
	v->halt_ns = v->stopped_ns = v->resumed_ns = SCHED_NEVER;
	v->tell_waits_ns = v->tell_runs_ns = v->tell_done_ns = SCHED_NEVER;
	v->timeslice_us = v->sim->manners.timeslice_us;
	v->interleave = -1;
	for (unsigned i = 0; i < v->hands; i++)
		v->submit_ns[i] = SCHED_NEVER;
}

void sim_submit_later(struct sim_vgpu *v, uint64_t ns)
{
	for (unsigned i = 0; i < v->hands; i++)
		if (v->submit_ns[i] == SCHED_NEVER) {
			v->submit_ns[i] = v->sim->now_ns + ns;
			return;
		}
}

static void pass_on(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;

	v->is_open = true;
	v->passed = v->count;
	v->knows_running |= v->passed > 0; /* sched knew that this work waited, or will be told */
	if (v->is_halted && v->resumed_ns == SCHED_NEVER)
		v->resumed_ns = sim->now_ns + sim->manners.resume_ns;
}

static void stop(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;

	v->stops++;
	v->halt_ns = sim->now_ns + within(sim, sim->manners.stop_ns);
	v->stopped_ns = sim->now_ns + sim->manners.stop_ns;
}

static void carry_out(struct sim *sim, const struct sched_order *order)
{
	struct sim_vgpu *v = sched_owner(order->vgpu);

	must(sim, v->vgpu == order->vgpu, "an order for another vGPU");
	must(sim, !v->is_benched || order->kind == SCHED_SLICE, "an order for a vGPU that is held back");
	switch (order->kind) {
	case SCHED_OPEN:
		must(sim, !v->is_open && v->is_present,
		     "an open order for an open gate, or without programs");
		must(sim, v->stopped_ns == SCHED_NEVER, "an open order during a stop");
		pass_on(v);
		break;
	case SCHED_CLOSE:
		must(sim, v->is_open, "a close order for a closed gate");
		v->is_open = false;
		v->closes++;
		break;
	case SCHED_STOP:
		must(sim, !v->is_open && v->knows_running, "a stop order with an open gate or without work");
		must(sim, v->stopped_ns == SCHED_NEVER, "a stop order during a stop");
		stop(v);
		break;
	case SCHED_SLICE:
		must(sim, v->is_present, "a slice order without programs");
		v->slices++;
		v->timeslice_us = order->timeslice_us ? order->timeslice_us : sim->manners.timeslice_us;
		v->interleave = order->interleave;
		break;
	}
}

static void ask(struct sim *sim)
{
	struct sched_order order;
	uint64_t orders = 0, wake;

	while (!sim->wrong[0] && sched_next(sim->sched, sim->now_ns, &order)) {
		carry_out(sim, &order);
		must(sim, ++orders <= 8 * ((size_t)sim->count + 1), "too many orders");
	}
	if (orders > sim->most_orders)
		sim->most_orders = orders;
	if (sim->hooks.asked)
		sim->hooks.asked(sim);
	wake = sched_wake_ns(sim->sched);
	sim->wake_ns = wake == SCHED_NEVER ? wake
					   : (wake > sim->now_ns ? wake : sim->now_ns) +
						     within(sim, sim->manners.timer_ns);
}

static int make_room(struct sim *sim)
{
	unsigned room = sim->room ? 2 * sim->room : 16;
	struct sim_vgpu **vgpus;

	if (sim->count < sim->room)
		return 0;
	vgpus = realloc(sim->vgpus, room * sizeof(struct sim_vgpu *));
	if (!vgpus)
		return -1;
	sim->vgpus = vgpus;
	sim->room = room;
	return 0;
}

struct sim_vgpu *sim_vgpu_add(struct sim *sim, const struct sched_share *share, unsigned hands, void *owner)
{
	struct sim_vgpu *v = calloc(1, sizeof(*v));

	if (!v || make_room(sim)) {
		free(v);
		return NULL;
	}
	v->sim = sim;
	v->share = *share;
	v->hands = hands < SIM_MOST_IN_FLIGHT ? hands : SIM_MOST_IN_FLIGHT;
	v->owner = owner;
	v->busy = 1;
	v->vgpu = sched_add(sim->sched, share, v, sim->now_ns);
	if (!v->vgpu) {
		free(v);
		return NULL;
	}
	begin(v);
	sim->vgpus[sim->count++] = v;
	return v;
}

static void leave_gpu(struct sim_vgpu *v)
{
	if (v->sim->on == v)
		v->sim->on = NULL;
	if (v->sim->last_on == v)
		v->sim->last_on = NULL;
}

void sim_vgpu_remove(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;
	unsigned at = 0;

	leave_gpu(v);
	while (sim->vgpus[at] != v)
		at++;
	sim->vgpus[at] = sim->vgpus[--sim->count];
	sched_remove(sim->sched, v->vgpu, sim->now_ns);
	free(v);
	ask(sim);
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

void sim_set_present(struct sim_vgpu *v, bool is_present)
{
	if (is_present == v->is_present)
		return;
	leave_gpu(v);
	v->is_present = is_present;
	begin(v);
	if (is_present)
		v->sim->hooks.begins(v);
	sched_set_present(v->sim->sched, v->vgpu, is_present, v->sim->now_ns);
	ask(v->sim);
}

void sim_bench(struct sim_vgpu *v, bool is_benched)
{
	if (is_benched == v->is_benched)
		return;
	v->is_benched = is_benched;
	v->is_open = false;
	sched_hold(v->sim->sched, v->vgpu, is_benched, v->sim->now_ns);
	ask(v->sim);
}

bool sim_can_run(const struct sim_vgpu *v)
{
	return v->passed && !v->is_halted && !v->is_benched;
}

static void submit(struct sim_vgpu *v, unsigned hand)
{
	struct sim *sim = v->sim;
	struct sim_kernel kernel = { .submitted_ns = sim->now_ns };

	v->submit_ns[hand] = SCHED_NEVER;
	if (!sim->hooks.submits(v, &kernel))
		return;
	v->kernels[v->count++] = kernel;
	if (v->is_open) {
		v->passed = v->count;
		if (!v->knows_running && v->tell_runs_ns == SCHED_NEVER)
			v->tell_runs_ns = sim->now_ns + within(sim, sim->manners.news_ns);
	} else if (v->tell_waits_ns == SCHED_NEVER) {
		v->tell_waits_ns = sim->now_ns + within(sim, sim->manners.news_ns);
	}
}

static void end_kernel(struct sim_vgpu *v)
{
	struct sim *sim = v->sim;
	uint64_t took = sim->now_ns - v->kernels[0].submitted_ns;

	memmove(v->kernels, v->kernels + 1, --v->count * sizeof(v->kernels[0]));
	v->passed--;
	v->kernels_done++;
	sim->hooks.ended(v, took);
	if (!v->passed)
		v->tell_done_ns = sim->now_ns + within(sim, sim->manners.noticed_ns);
}

static void choose_context(struct sim *sim)
{
	struct sim_vgpu *next = NULL;

	if (sim->on && sim_can_run(sim->on) && sim->now_ns < sim->turn_ends_ns)
		return;
	for (unsigned i = 1; i <= sim->count && !next; i++) {
		unsigned at = (sim->turn + i) % sim->count;

		if (sim->vgpus[at] != sim->on && sim_can_run(sim->vgpus[at])) {
			next = sim->vgpus[at];
			sim->turn = at;
		}
	}
	if (!next && sim->on && sim_can_run(sim->on))
		return;
	sim->on = next;
	if (!next)
		return;
	sim->switched_ns = sim->now_ns + (next != sim->last_on ? sim->manners.switch_ns : 0);
	sim->turn_ends_ns = sim->switched_ns + next->timeslice_us * 1000;
	sim->last_on = next;
}

static uint64_t gpu_ns(const struct sim *sim)
{
	bool is_alone = true;
	uint64_t at;

	if (!sim->on)
		return SCHED_NEVER;
	at = (sim->now_ns < sim->switched_ns ? sim->switched_ns : sim->now_ns) + sim->on->kernels[0].left_ns;
	for (unsigned i = 0; i < sim->count; i++)
		is_alone &= sim->vgpus[i] == sim->on || !sim_can_run(sim->vgpus[i]);
	return is_alone ? at : bf_min(at, sim->turn_ends_ns > sim->now_ns ? sim->turn_ends_ns : sim->now_ns);
}

static uint64_t next_event_ns(const struct sim *sim, uint64_t until)
{
	uint64_t at = bf_min(until, bf_min(sim->wake_ns, bf_min(gpu_ns(sim), sim->tell_used_ns)));

	for (unsigned i = 0; i < sim->count; i++) {
		const struct sim_vgpu *v = sim->vgpus[i];

		at = bf_min(at, bf_min(v->halt_ns, bf_min(v->stopped_ns, v->resumed_ns)));
		at = bf_min(at, bf_min(v->tell_waits_ns, bf_min(v->tell_runs_ns, v->tell_done_ns)));
		for (unsigned hand = 0; hand < v->hands; hand++)
			at = bf_min(at, v->submit_ns[hand]);
	}
	return at > sim->now_ns ? at : sim->now_ns;
}

/* Accounts for the GPU's work until `to`. */
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
	v->used_ns += (uint64_t)((double)(to - from) * v->busy);
	sim->ran_ns += to - from;
}

/* Tells sched in the order of the events: work waits, work runs, work is done. */
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
			v->tell_done_ns = sim->now_ns + sim->manners.news_ns;
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
	sim->tell_used_ns = sim->now_ns + sim->manners.measure_ns;
	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];

		if (v->used_ns > v->told_ns)
			sched_used(sim->sched, v->vgpu, v->used_ns - v->told_ns, sim->now_ns);
		v->told_ns = v->used_ns;
	}
}

/* Carries out all events that are due. True: sched was told of one. */
static bool happen(struct sim *sim)
{
	bool is_news = false;

	for (unsigned i = 0; i < sim->count; i++) {
		struct sim_vgpu *v = sim->vgpus[i];

		for (unsigned hand = 0; hand < v->hands; hand++)
			if (v->submit_ns[hand] <= sim->now_ns)
				submit(v, hand);
		is_news |= stop_and_go(v);
		is_news |= tell(v);
	}
	return is_news;
}

void sim_go(struct sim *sim, uint64_t until_ns, uint64_t most)
{
	uint64_t last = most < SCHED_NEVER - sim->events ? sim->events + most : SCHED_NEVER;

	choose_context(sim);
	while (sim->now_ns < until_ns && sim->events < last && !sim->wrong[0]) {
		uint64_t to = next_event_ns(sim, until_ns);
		bool is_news = to >= sim->wake_ns || to >= sim->tell_used_ns;

		sim->events++;
		if (sim->hooks.passes)
			sim->hooks.passes(sim, to);
		run_gpu(sim, to);
		sim->now_ns = to;
		if (sim->on && sim->on->passed && !sim->on->kernels[0].left_ns)
			end_kernel(sim->on);
		tell_used(sim);
		is_news |= happen(sim);
		if (is_news)
			ask(sim);
		choose_context(sim);
	}
}
