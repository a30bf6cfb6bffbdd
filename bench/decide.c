/* What a decision costs: decide [OBJECT.bpf.o]. N vGPUs always have work and take tokens. Each line has the median and the 99th
 * percentile of the calls of sched_next() that pick the next vGPU, and the mean processor time of a whole hand-over:
 * all calls from one pick to the next, among them those that look at all vGPUs four times a round. The built-in policy is
 * measured, and the policy of the object if one is given. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "policy/policy.h"
#include "sched/sched.h"

enum { DECISIONS = 4000, OBJECT_MOST = 1 << 20 };
#define MS 1000000ull

static uint64_t read_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int ask(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	return policy_call(context, hook, ctx, size);
}

static void put_out(void *context, const char *why)
{
	(void)context;
	fprintf(stderr, "decide: the policy was put out: %s\n", why);
}

/* Orders are carried out at once, and what is stopped stops. */
static void carry_out(struct sched *sched, const struct sched_order *order, uint64_t at_ns)
{
	if (order->kind == SCHED_STOP)
		sched_stopped(sched, order->vgpu, at_ns);
	else if (order->kind == SCHED_OPEN)
		sched_resumed(sched, order->vgpu, at_ns);
}

static struct sched *make(unsigned count, struct policy *policy, uint64_t at_ns)
{
	struct sched_options options = sched_default;
	struct sched_share share = { .request_ppm = SCHED_WHOLE_PPM / count,
				     .limit_ppm = SCHED_WHOLE_PPM,
				     .interleave = -1 };
	struct sched_policy asked = { .ask = ask, .fail = put_out, .context = policy };
	struct sched *sched;

	options.how = SCHED_TOKENS;
	sched = sched_new(&options, at_ns);
	for (unsigned i = 0; i < count && sched; i++) {
		struct sched_vgpu *v = sched_add(sched, &share, NULL, at_ns);

		if (!v)
			return NULL;
		sched_set_present(sched, v, true, at_ns);
		sched_waits(sched, v, at_ns);
	}
	if (!policy || !sched)
		return sched;
	asked.table = policy_table(policy);
	for (unsigned hook = 0; hook < BELFRY_HOOKS; hook++)
		asked.hooks |= (uint32_t)policy_has(policy, (enum belfry_hook)hook) << hook;
	sched_set_policy(sched, &asked, at_ns);
	return sched;
}

static void note_pick(void *context, const struct sched_decision *decision, const void *ctx, size_t size,
		      const struct belfry_vgpu *table)
{
	(void)ctx, (void)size, (void)table;
	if (decision->hook == BELFRY_HOOK_PICK)
		*(bool *)context = true;
}

static int measure(const char *name, unsigned count, struct policy *policy)
{
	uint64_t at_ns = 1000 * MS, took[DECISIONS], began, wake_ns, all_ns;
	struct sched *sched = make(count, policy, at_ns);
	bool has_picked = false;
	struct sched_watch watch = { .decided = note_pick, .context = &has_picked };
	struct sched_order order;
	const size_t median = DECISIONS / 2, p99 = DECISIONS * 99 / 100;
	unsigned done = 0;

	if (!sched)
		return 1;
	sched_watch(sched, &watch);
	began = read_ns(CLOCK_THREAD_CPUTIME_ID);
	while (done < DECISIONS) {
		uint64_t from = now_ns(), ns;
		bool is_order = sched_next(sched, at_ns, &order);

		ns = now_ns() - from;
		if (has_picked)
			took[done++] = ns;
		has_picked = false;
		if (is_order) {
			carry_out(sched, &order, at_ns);
		} else {
			wake_ns = sched_wake_ns(sched);
			at_ns = wake_ns > at_ns ? wake_ns : at_ns + 1;
		}
	}
	all_ns = read_ns(CLOCK_THREAD_CPUTIME_ID) - began;
	sched_free(sched);
	qsort(took, DECISIONS, sizeof(took[0]), compare);
	printf("%-12s %4u vGPUs: pick median %8.2f us, p99 %8.2f us; hand-over mean %8.2f us\n", name, count,
	       (double)took[median] / 1e3, (double)took[p99] / 1e3, (double)all_ns / DECISIONS / 1e3);
	return 0;
}

static struct policy *load(const char *path)
{
	static uint8_t object[OBJECT_MOST];
	struct bf_error err;
	struct policy *policy;
	FILE *file = fopen(path, "re");
	size_t bytes;

	if (!file) {
		perror(path);
		return NULL;
	}
	bytes = fread(object, 1, sizeof(object), file);
	fclose(file);
	policy = policy_load(object, bytes, &(struct policy_options){ .budget_ns = 1000 * MS }, NULL, &err);
	if (!policy)
		fprintf(stderr, "decide: %s\n", err.text);
	return policy;
}

int main(int argc, char **argv)
{
	static const unsigned counts[] = { 2, 8, 64, 256, 1024 };
	struct policy *policy = argc > 1 ? load(argv[1]) : NULL;
	int status = argc > 1 && !policy;

	for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]) && !status; i++) {
		status = measure("built-in", counts[i], NULL);
		if (policy && !status)
			status = measure(policy_name(policy), counts[i], policy);
	}
	policy_put(policy);
	return status;
}
