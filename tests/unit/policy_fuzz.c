/* Limits and promises hold under policies of random eBPF programs, verified, compiled and called as any policy's are, for
 * BELFRY_FUZZ_MINUTES of the simulated GPU's time. */
#include "policy/policy.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/number.h"
#include "policy_program.h"
#include "sched_trial.h"
#include "skipping.h"

static const enum belfry_hook hooks[] = { BELFRY_HOOK_PICK, BELFRY_HOOK_TICK, BELFRY_HOOK_PREEMPT,
					  BELFRY_HOOK_ENQUEUE };
enum { HOOKS = sizeof(hooks) / sizeof(hooks[0]), TRIES = 20, MINUTES = 60 / TRIAL_FEWER };

struct random_policy {
	int table_fd;
	struct belfry_vgpu *table;
	size_t table_bytes;
	int fds[BELFRY_HOOKS];
	struct sched_policy policy;
	uint64_t made, taken, calls, wrong, starved;
};

static int load(struct random_policy *random, enum belfry_hook hook, uint64_t *seed)
{
	struct bpf_prog_load_opts options = { .sz = sizeof(options), .prog_flags = BPF_F_SLEEPABLE };
	struct bpf_insn insns[PROGRAM_MOST];
	int fd = -1;

	for (unsigned i = 0; i < TRIES && fd < 0; i++) {
		size_t count = program_make(hook, random->table_fd, seed, insns);

		assert_true(count <= PROGRAM_MOST);
		random->made++;
		fd = bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "random", "Dual MIT/GPL", insns, count, &options);
	}
	random->taken += fd >= 0;
	return fd;
}

static int ask(void *context, enum belfry_hook hook, void *ctx, size_t size)
{
	struct random_policy *random = context;
	struct bpf_test_run_opts options = { .sz = sizeof(options),
					     .ctx_in = ctx,
					     .ctx_size_in = (uint32_t)size };

	random->calls++;
	if (bpf_prog_test_run_opts(random->fds[hook], &options))
		fail_msg("a program cannot be called: %s", strerror(errno));
	if (options.retval == BELFRY_PROPOSE || options.retval == BELFRY_DEFAULT)
		return (int)options.retval;
	random->wrong++;
	return -EPROTO;
}

static void put_out(void *context, const char *why)
{
	struct random_policy *random = context;

	assert_string_equal(why, "it left a vGPU without the GPU for too long");
	random->starved++;
}

static void close_programs(struct random_policy *random)
{
	for (unsigned i = 0; i < BELFRY_HOOKS; i++) {
		if (random->fds[i] >= 0)
			close(random->fds[i]);
		random->fds[i] = -1;
	}
}

static const struct sched_policy *next(void *context, uint64_t *seed)
{
	struct random_policy *random = context;

	close_programs(random);
	random->policy = (struct sched_policy){
		.ask = ask, .fail = put_out, .context = random, .table = random->table
	};
	for (unsigned i = 0; i < HOOKS; i++) {
		if (sim_random(seed) % 4 == 0)
			continue;
		random->fds[hooks[i]] = load(random, hooks[i], seed);
		random->policy.hooks |= (uint32_t)(random->fds[hooks[i]] >= 0) << hooks[i];
	}
	return &random->policy;
}

/* As libbpf makes that of a policy. */
static void make_table(struct random_policy *random)
{
	struct bpf_map_create_opts options = { .sz = sizeof(options), .map_flags = BPF_F_MMAPABLE };
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = BELFRY_VGPUS_MAX * sizeof(struct belfry_vgpu);

	random->table_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "vgpus", sizeof(uint32_t),
					  sizeof(struct belfry_vgpu), BELFRY_VGPUS_MAX, &options);
	assert_true(random->table_fd >= 0);
	random->table_bytes = bf_round_up(bytes, page);
	random->table =
		mmap(NULL, random->table_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, random->table_fd, 0);
	assert_ptr_not_equal(random->table, MAP_FAILED);
	for (unsigned i = 0; i < BELFRY_HOOKS; i++)
		random->fds[i] = -1;
}

static uint64_t wanted_ns(void)
{
	const char *minutes = getenv("BELFRY_FUZZ_MINUTES");

	return (minutes ? strtoull(minutes, NULL, 10) : MINUTES) * 60 * S;
}

static void limits_and_promises_hold_under_random_programs(void **state)
{
	struct random_policy random = { 0 };
	struct trial_policies policies = { next, &random };
	struct trial_result result = { .limit = -100 };
	struct bf_error err;

	(void)state;
	if (policy_is_possible(&err)) {
		skip_case(err.text);
	}
	make_table(&random);
	for (uint64_t seed = 1; result.virtual_ns < wanted_ns(); seed++) {
		trial_steady(seed + 7000000, &policies, &result);
		trial_disturbed(seed + 7000000, &policies, &result);
	}
	print_message(
		"%.0f min: promise %.2f, hunger %.2f, limit %+.2f; of %u programs the verifier took %u; called %u times, %u policies gave no answer, %u starved somebody\n",
		(double)result.virtual_ns / 6e10, result.promise, result.hunger, result.limit,
		(unsigned)random.made, (unsigned)random.taken, (unsigned)random.calls, (unsigned)random.wrong,
		(unsigned)random.starved);
	assert_true(random.taken * 2 > random.made);
	close_programs(&random);
	munmap(random.table, random.table_bytes);
	close(random.table_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_and_promises_hold_under_random_programs),
	};

	return cmocka_run_group_tests_name("policy_fuzz", tests, NULL, NULL);
}
