/* policy_cost OBJECT [calls]: what a call of a policy costs, in us: of a hook that does nothing, and of a pick that looks at
 * everybody in the table, by how many there are. A line each: name, median, p99. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/own.h"
#include "policy/policy.h"

enum { CALLS = 20000, OBJECT_BYTES_MAX = 1 << 20 };

static int compare(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return (one > other) - (one < other);
}

static void report(const char *name, uint64_t *took, size_t calls)
{
	size_t median = calls / 2, p99 = calls * 99 / 100;

	qsort(took, calls, sizeof(*took), compare);
	printf("%s\t%.2f\t%.2f\n", name, (double)took[median] / 1e3, (double)took[p99] / 1e3);
}

static int measure_tick(struct policy *policy, uint64_t *took, size_t calls)
{
	for (size_t i = 0; i < calls; i++) {
		struct belfry_tick tick = {
			.head = { .hook = BELFRY_HOOK_TICK, .size = sizeof(tick), .count = 1 }
		};
		uint64_t begin = bf_now_ns();

		if (policy_call(policy, BELFRY_HOOK_TICK, &tick, sizeof(tick)))
			return -1;
		took[i] = bf_now_ns() - begin;
	}
	report("nothing", took, calls);
	return 0;
}

static int measure_pick(struct policy *policy, uint32_t vgpus, uint64_t *took, size_t calls)
{
	struct belfry_vgpu *table = policy_table(policy);
	char name[32];

	for (size_t i = 0; i < calls; i++) {
		struct belfry_pick pick = {
			.head = { .hook = BELFRY_HOOK_PICK, .size = sizeof(pick), .count = vgpus }
		};
		uint64_t begin;

		for (uint32_t j = 0; j < vgpus; j++)
			table[j] = (struct belfry_vgpu){ .id = j,
							 .flags = BELFRY_MAY_HAVE,
							 .pass_ns = (int64_t)((i + j) % vgpus) };
		begin = bf_now_ns();
		if (policy_call(policy, BELFRY_HOOK_PICK, &pick, sizeof(pick)))
			return -1;
		took[i] = bf_now_ns() - begin;
		if ((i + pick.choice) % vgpus)
			return -1;
	}
	snprintf(name, sizeof(name), "pick of %u", vgpus);
	report(name, took, calls);
	return 0;
}

static int measure(struct policy *policy, size_t calls)
{
	static const uint32_t vgpus[] = { 2, 8, 64 };
	cleanup_free uint64_t *took = calloc(calls, sizeof(*took));
	int rc = took ? measure_tick(policy, took, calls) : -1;

	for (size_t i = 0; i < sizeof(vgpus) / sizeof(vgpus[0]) && !rc; i++)
		rc = measure_pick(policy, vgpus[i], took, calls);
	return rc;
}

static struct policy *load(const char *path, struct bf_error *err)
{
	/* What is late is measured here, not punished. */
	const struct policy_options options = { .budget_ns = 1000000000 };
	cleanup_file FILE *file = fopen(path, "re");
	cleanup_free char *bytes = malloc(OBJECT_BYTES_MAX);

	if (!file || !bytes) {
		bf_fail(err, errno, "%s", strerror(errno));
		return NULL;
	}
	return policy_load(bytes, fread(bytes, 1, OBJECT_BYTES_MAX, file), &options, NULL, err);
}

int main(int argc, char **argv)
{
	size_t calls = argc > 2 ? strtoul(argv[2], NULL, 10) : CALLS;
	struct policy *policy;
	struct bf_error err;
	int rc;

	if (argc < 2 || !calls) {
		fprintf(stderr, "usage: policy_cost OBJECT [calls]\n");
		return 2;
	}
	policy = load(argv[1], &err);
	if (!policy) {
		fprintf(stderr, "policy_cost: %s: %s\n", argv[1], err.text);
		return err.code == EPERM ? 77 : 1;
	}
	rc = measure(policy, calls);
	if (rc)
		fprintf(stderr, "policy_cost: a call failed or chose wrongly\n");
	policy_put(policy);
	return rc ? 1 : 0;
}
