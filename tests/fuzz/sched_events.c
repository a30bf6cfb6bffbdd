/* Bytes as what happens on a GPU: vGPUs come and go, work begins, waits and is done, shares change, time passes. Whatever
 * the order, decisions come to an end, and no more than one taker's domain is let in at a time. Build with clang
 * -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a main() that makes histories: sched_events [inputs]. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/sched.h"

enum { VGPUS = 8, ORDERS_MAX = 16 * (VGPUS + 1) };

struct world {
	struct sched *sched;
	uint64_t now_ns;
	struct sched_vgpu *vgpus[VGPUS];
	bool is_open[VGPUS], is_present[VGPUS];
	uint64_t seen_gpu_ns[VGPUS];
};

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "sched_events: violated: %s\n", what);
	abort();
}

static size_t index_of(const struct world *world, const struct sched_vgpu *vgpu)
{
	for (size_t i = 0; i < VGPUS; i++)
		if (world->vgpus[i] == vgpu)
			return i;
	check(false, "an order is about a vGPU that there is");
	return 0;
}

static void carry_out(struct world *world, const struct sched_order *order)
{
	size_t i = index_of(world, order->vgpu);

	check(world->is_present[i] || order->kind == SCHED_CLOSE, "nothing is let in that is not there");
	switch (order->kind) {
	case SCHED_OPEN:
		check(!world->is_open[i], "a gate is opened once");
		world->is_open[i] = true;
		sched_resumed(world->sched, order->vgpu, world->now_ns += 350000);
		break;
	case SCHED_CLOSE:
		check(world->is_open[i], "what is closed was open");
		world->is_open[i] = false;
		break;
	case SCHED_STOP:
		check(!world->is_open[i], "a gate is closed before what runs is stopped");
		sched_stopped(world->sched, order->vgpu, world->now_ns += 700000);
		break;
	case SCHED_SLICE:
		check(order->interleave >= -1 && order->interleave <= 2, "an interleave level");
		break;
	}
}

static void decide(struct world *world)
{
	struct sched_order order;
	unsigned orders = 0;

	while (sched_next(world->sched, world->now_ns, &order)) {
		carry_out(world, &order);
		check(++orders < ORDERS_MAX, "decisions come to an end");
	}
	check(sched_wake_ns(world->sched) > 0, "there is a next time");
}

static void look(struct world *world)
{
	struct sched_report report;

	for (size_t i = 0; i < VGPUS; i++) {
		if (!world->vgpus[i])
			continue;
		sched_report(world->sched, world->vgpus[i], &report);
		check(report.gpu_ns >= world->seen_gpu_ns[i], "what was used stays used");
		world->seen_gpu_ns[i] = report.gpu_ns;
	}
	check(sched_promised_ppm(world->sched) <= SCHED_WHOLE_PPM, "no more is promised than there is");
}

static struct sched_share share_of(uint8_t a, uint8_t b)
{
	uint32_t limit = 10000u * (1 + b % 100);

	return (struct sched_share){ .limit_ppm = limit,
				     .request_ppm = limit < 10000u * (a % 60) ? limit : 10000u * (a % 60),
				     .class = a & 64 ? SCHED_LATENCY : SCHED_THROUGHPUT,
				     .objective_ns = a & 128 ? 2000000 : 0,
				     .percentile_ppm = a & 128 ? 990000 : 0,
				     .domain = b & 128 ? 7 : 0,
				     .interleave = -1 };
}

static void add_or_remove(struct world *world, size_t i, uint8_t a, uint8_t b)
{
	struct sched_share share = share_of(a, b);

	if (world->vgpus[i]) {
		sched_remove(world->sched, world->vgpus[i], world->now_ns);
		world->vgpus[i] = NULL;
		world->is_open[i] = world->is_present[i] = false;
		world->seen_gpu_ns[i] = 0;
	} else if (!sched_check(world->sched, &share, NULL, NULL)) {
		world->vgpus[i] = sched_add(world->sched, &share, world, world->now_ns);
		check(world->vgpus[i] && sched_owner(world->vgpus[i]) == world, "it is there");
	}
}

/* As the GPU server does it: it closes the gate of a vGPU that is held or has no programs. */
static void set_present(struct world *world, size_t i, bool is_present)
{
	world->is_present[i] = is_present;
	sched_set_present(world->sched, world->vgpus[i], is_present, world->now_ns);
	if (is_present)
		return;
	sched_hold(world->sched, world->vgpus[i], false, world->now_ns);
	world->is_open[i] = false;
}

static void happen(struct world *world, uint8_t what, uint8_t a, uint8_t b)
{
	size_t i = a % VGPUS;
	struct sched_vgpu *v = world->vgpus[i];
	struct sched_share share;

	if (what % 8 == 0) {
		add_or_remove(world, i, b, what);
		return;
	}
	if (!v)
		return;
	switch (what % 8) {
	case 1:
		set_present(world, i, !world->is_present[i]);
		break;
	case 2:
		if (world->is_present[i] && world->is_open[i])
			sched_runs(world->sched, v, world->now_ns);
		else if (world->is_present[i])
			sched_waits(world->sched, v, world->now_ns);
		break;
	case 3:
		sched_done(world->sched, v, world->now_ns);
		break;
	case 4:
		share = share_of(b, what);
		if (!sched_check(world->sched, &share, v, NULL))
			sched_set(world->sched, v, &share, world->now_ns);
		break;
	case 5:
		sched_took(world->sched, v, (uint64_t)b * 20000, world->now_ns);
		break;
	case 6:
		sched_used(world->sched, v, (uint64_t)b * 10000, world->now_ns);
		break;
	default:
		world->now_ns += (uint64_t)b * b * 2000; /* up to 130 ms */
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sched_options options = sched_default;
	struct world world = { .now_ns = 1000000000 };

	if (!size)
		return 0;
	options.how = (enum sched_how)(data[0] % 3);
	options.is_measured = data[0] & 4;
	world.sched = sched_new(&options, world.now_ns);
	if (!world.sched)
		return 0;
	for (size_t at = 1; at + 3 <= size; at += 3) {
		happen(&world, data[at], data[at + 1], data[at + 2]);
		world.now_ns += 1000;
		decide(&world);
		look(&world);
	}
	sched_free(world.sched);
	return 0;
}

#ifdef FUZZ_STANDALONE
int main(int argc, char **argv)
{
	long inputs = argc > 1 ? strtol(argv[1], NULL, 10) : 2000;
	uint8_t data[900];

	srand(1);
	for (long i = 0; i < inputs; i++) {
		for (size_t k = 0; k < sizeof(data); k++)
			data[k] = (uint8_t)rand();
		LLVMFuzzerTestOneInput(data, sizeof(data));
	}
	return 0;
}
#endif
