/* probe: random programs on random contexts. The translated program on the PTX interpreter, the eBPF
 * interpreter of the tests, and the kernel (where it may be used) must agree. */
#include <bpf/bpf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own.h"
#include "policy/policy.h"
#include "probe_interpreter.h"
#include "probe_maker.h"
#include "probe_rig.h"
#include "skipping.h"

enum { PROGRAMS = 300, INPUTS = 340, MAP_PROGRAMS = 150, MAP_INPUTS = 20 };

struct trial {
	struct bpf_insn insns[MADE_MAX];
	size_t count;
	struct probe *probe;
	struct probe_rig rig;
	struct belfry_probe_ctx contexts[INPUTS];
	uint64_t results[INPUTS];
	struct interpreted_map maps[MADE_MAPS];
	int map_fds[MADE_MAPS], fd; /* -1: not in the kernel */
};

static bool has_kernel;
static bool has_ptxas;
static struct bf_error no_kernel;
static unsigned made, taken, runs_in_kernel, assembled;
static bool has_code[256]; /* operation codes of the programs */

static void make_kernel_maps(struct trial *trial)
{
	static const enum bpf_map_type types[] = {
		[PROBE_MAP_ARRAY] = BPF_MAP_TYPE_ARRAY, [PROBE_MAP_HASH] = BPF_MAP_TYPE_HASH
	};

	for (unsigned i = 0; i < MADE_MAPS; i++) {
		trial->map_fds[i] = bpf_map_create(types[made_maps[i].kind], made_maps[i].name,
						   made_maps[i].key_bytes, made_maps[i].value_bytes,
						   made_maps[i].max_entries, NULL);
		assert_true(trial->map_fds[i] >= 0);
	}
}

static void load_kernel(struct trial *trial)
{
	struct bpf_prog_load_opts options = { .sz = sizeof(options), .prog_flags = BPF_F_SLEEPABLE };
	struct bpf_insn insns[MADE_MAX];

	trial->fd = -1;
	memset(trial->map_fds, 0xff, sizeof(trial->map_fds));
	if (!has_kernel)
		return;
	make_kernel_maps(trial);
	memcpy(insns, trial->insns, trial->count * sizeof(*insns));
	for (size_t i = 0; i < trial->count; i++)
		if (insns[i].code == (BPF_LD | BPF_IMM | BPF_DW) && insns[i].src_reg) {
			insns[i].src_reg = BPF_PSEUDO_MAP_FD;
			insns[i].imm = trial->map_fds[insns[i].imm];
		}
	trial->fd =
		bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "random", "Dual MIT/GPL", insns, trial->count, &options);
	made++;
	taken += trial->fd >= 0;
}

static struct trial *open_trial(const struct made_options *options, uint64_t *seed, unsigned inputs)
{
	struct trial *trial = calloc(1, sizeof(*trial));
	struct probe_code code = { .maps = made_maps, .map_count = MADE_MAPS };
	struct bf_error err;

	assert_non_null(trial);
	trial->count = program_draw(options, seed, trial->insns);
	assert_true(trial->count <= MADE_MAX);
	for (size_t i = 0; i < trial->count; i++)
		has_code[trial->insns[i].code] = true;
	code.insns = trial->insns;
	code.insn_count = trial->count;
	if (probe_make(&code, NULL, &trial->probe, &err))
		fail_msg("%s", err.text);
	probe_rig_open(&trial->rig, trial->probe, 0, true, INPUTS);
	for (unsigned i = 0; i < MADE_MAPS; i++)
		interpreted_map_init(&trial->maps[i], &made_maps[i]);
	for (unsigned i = 0; i < inputs; i++)
		trial->contexts[i] = probe_random_context(seed);
	load_kernel(trial);
	return trial;
}

static void close_trial(struct trial *trial)
{
	probe_rig_close(&trial->rig);
	probe_free(trial->probe);
	for (unsigned i = 0; i < MADE_MAPS; i++)
		if (trial->map_fds[i] >= 0)
			close(trial->map_fds[i]);
	if (trial->fd >= 0)
		close(trial->fd);
	free(trial);
}

static uint32_t run_kernel(const struct trial *trial, const struct belfry_probe_ctx *context)
{
	struct belfry_probe_ctx copy = *context;
	struct bpf_test_run_opts options = { .sz = sizeof(options),
					     .ctx_in = &copy,
					     .ctx_size_in = sizeof(copy) };

	if (bpf_prog_test_run_opts(trial->fd, &options))
		fail_msg("the kernel cannot run a program: %s", strerror(errno));
	runs_in_kernel++;
	return options.retval;
}

static void compare(struct trial *trial, unsigned input, unsigned number)
{
	uint64_t expected = interpret(trial->insns, &trial->contexts[input], trial->maps);
	uint32_t kernel = trial->fd >= 0 ? run_kernel(trial, &trial->contexts[input]) : (uint32_t)expected;

	if (trial->results[input] != expected)
		fail_msg("program %u, input %u: translated %#llx, interpreted %#llx", number, input,
			 (unsigned long long)trial->results[input], (unsigned long long)expected);
	if (kernel != (uint32_t)expected)
		fail_msg("program %u, input %u: in the kernel %#x, interpreted %#llx", number, input, kernel,
			 (unsigned long long)expected);
}

/* A sample: ptxas takes longer than all the rest. */
static void assemble_some(const struct trial *trial, unsigned number)
{
	cleanup_free char *text = NULL;
	struct bf_error err;

	if (number % 25 || !has_ptxas)
		return;
	assert_int_equal(probe_write_module(trial->probe, 0, true, &text, &err), 0);
	probe_assemble(text);
	assembled++;
}

static void programs_compute_what_ebpf_defines(void **state)
{
	uint64_t seed = 12345;

	(void)state;
	for (unsigned number = 0; number < PROGRAMS; number++) {
		struct made_options options = { .is_new = number % 2 };
		struct trial *trial = open_trial(&options, &seed, INPUTS);

		probe_rig_run(&trial->rig, trial->contexts, trial->results, INPUTS, 64);
		for (unsigned i = 0; i < INPUTS; i++)
			compare(trial, i, number);
		assemble_some(trial, number);
		close_trial(trial);
	}
}

static void compare_entry(struct trial *trial, unsigned map, const void *key, unsigned number)
{
	const struct probe_map *placed = probe_map_at(trial->probe, map);
	const uint64_t *expected = interpreted_value(&trial->maps[map], key);
	const void *found = probe_value(placed, probe_rig_area(&trial->rig), key, 0);
	uint8_t in_kernel[64];

	if (!found != !expected || (found && memcmp(found, expected, placed->value_bytes) != 0))
		fail_msg("program %u: map %s differs from the interpreter's", number, placed->name);
	if (trial->fd < 0)
		return;
	if (!bpf_map_lookup_elem(trial->map_fds[map], key, in_kernel) != !!expected ||
	    (expected && memcmp(in_kernel, expected, placed->value_bytes) != 0))
		fail_msg("program %u: map %s differs from the kernel's", number, placed->name);
}

static void compare_maps(struct trial *trial, unsigned number)
{
	struct probe_entry entry;
	uint64_t cursor = 0;
	unsigned count = 0;

	for (uint32_t i = 0; i < 32; i++) {
		uint32_t key[3] = { i, 77, UINT32_MAX };

		compare_entry(trial, MADE_HASH, key, number);
		if (i < made_maps[MADE_ARRAY].max_entries)
			compare_entry(trial, MADE_ARRAY, key, number);
	}
	while (probe_next(probe_map_at(trial->probe, MADE_HASH), probe_rig_area(&trial->rig), &cursor,
			  &entry))
		count++;
	assert_int_equal(count, trial->maps[MADE_HASH].count);
}

/* One context after the other, because the next run finds in the maps what the last one left there. */
static void programs_leave_in_maps_what_ebpf_defines(void **state)
{
	uint64_t seed = 777;

	(void)state;
	for (unsigned number = 0; number < MAP_PROGRAMS; number++) {
		struct made_options options = { .has_maps = true, .is_new = number % 2 };
		struct trial *trial = open_trial(&options, &seed, MAP_INPUTS);

		for (unsigned i = 0; i < MAP_INPUTS; i++) {
			probe_rig_run(&trial->rig, &trial->contexts[i], &trial->results[i], 1, 1);
			compare(trial, i, number);
		}
		compare_maps(trial, number);
		assemble_some(trial, number);
		close_trial(trial);
	}
}

static void damage(struct bpf_insn *insns, size_t count, uint64_t *seed)
{
	for (uint64_t n = rig_random(seed) % 3 + 1; n; n--) {
		struct bpf_insn *insn = &insns[rig_random(seed) % count];
		uint64_t drawn = rig_random(seed);

		switch (drawn >> 8 & 7) {
		case 0:
			insn->dst_reg = drawn & 15;
			break;
		case 1:
			insn->src_reg = drawn & 15;
			break;
		case 2:
			insn->off = (int16_t)(drawn & 1 ? drawn >> 16 : drawn >> 16 & 31);
			break;
		case 3:
			insn->off = (int16_t) - (int)(drawn >> 16 & 63);
			break;
		case 4:
			insn->imm = (int32_t)(drawn & 1 ? drawn >> 16 : drawn >> 16 & 15);
			break;
		case 5:
			insn->code = (uint8_t)drawn;
			break;
		default: /* another instruction of the program */
			*insn = insns[(drawn >> 16) % count];
		}
	}
}

/* Returns whether the damaged program was accepted. */
static bool run_damaged(uint64_t *seed)
{
	struct made_options options = { .has_maps = true, .is_new = true };
	struct probe_code code = { .maps = made_maps, .map_count = MADE_MAPS };
	struct probe_options few = { .fuel = 50 };
	struct belfry_probe_ctx context = probe_random_context(seed);
	struct bpf_insn insns[MADE_MAX];
	struct probe_rig rig;
	struct bf_error err;
	struct probe *probe;
	uint64_t result;

	code.insn_count = program_draw(&options, seed, insns);
	code.insns = insns;
	damage(insns, code.insn_count, seed);
	if (probe_make(&code, &few, &probe, &err)) {
		assert_int_equal(err.code, EINVAL);
		return false;
	}
	probe_rig_open(&rig, probe, 0, true, 1);
	probe_rig_run(&rig, &context, &result, 1, 1); /* fails the test after a fault */
	probe_rig_close(&rig);
	probe_free(probe);
	return true;
}

static void damaged_programs_are_refused_or_do_not_fault(void **state)
{
	enum { TRIES = 3000 };
	unsigned accepted = 0;
	uint64_t seed = 4242;

	(void)state;
	for (unsigned i = 0; i < TRIES; i++)
		accepted += run_damaged(&seed);
	print_message("%u of %d damaged programs were accepted\n", accepted, TRIES);
	assert_in_range(accepted, TRIES / 10, TRIES - TRIES / 10);
}

/* The comparisons are in the cases above. */
static void kernel_agrees_on_the_programs_that_it_accepts(void **state)
{
	(void)state;
	if (!has_kernel)
		skip_case(no_kernel.text);
	print_message("of %u programs the kernel's verifier took %u; it ran them on %u contexts\n", made,
		      taken, runs_in_kernel);
	assert_true(taken * 2 > made);
	assert_true(runs_in_kernel >= taken);
	/* A kernel that takes all programs has run 100,000 contexts at least. */
	assert_true(taken < made || runs_in_kernel >= 100000);
}

/* Every operation of ALU, ALU32, jumps, loads, stores and atomics that is translated: a program of the generator that lacks one
 * would not show anything about it. */
static void programs_have_every_kind_of_instruction(void **state)
{
	static const uint8_t alu[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR,  BPF_AND,
				       BPF_LSH, BPF_RSH, BPF_MOD, BPF_XOR, BPF_MOV, BPF_ARSH };
	static const uint8_t jumps[] = { BPF_JEQ,  BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT,
					 BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE };
	static const uint8_t sizes[] = { BPF_B, BPF_H, BPF_W, BPF_DW };
	unsigned count = 0, missing = 0;

	(void)state;
#define HAS(code) \
	do { \
		if (!has_code[(uint8_t)(code)]) { \
			print_message("no program has operation code %#x\n", (unsigned)(code)); \
			missing++; \
		} \
	} while (0)
	for (unsigned i = 0; i < sizeof(alu); i++)
		for (unsigned k = 0; k < 4; k++)
			HAS(alu[i] | (k & 1 ? BPF_ALU : BPF_ALU64) | (k & 2 ? BPF_X : BPF_K));
	for (unsigned i = 0; i < sizeof(jumps); i++)
		for (unsigned k = 0; k < 4; k++)
			HAS(jumps[i] | (k & 1 ? BPF_JMP32 : BPF_JMP) | (k & 2 ? BPF_X : BPF_K));
	for (unsigned i = 0; i < sizeof(sizes); i++) {
		HAS(BPF_LDX | BPF_MEM | sizes[i]);
		HAS(BPF_STX | BPF_MEM | sizes[i]);
		HAS(BPF_ST | BPF_MEM | sizes[i]);
	}
	HAS(BPF_ALU | BPF_NEG);
	HAS(BPF_ALU64 | BPF_NEG);
	HAS(BPF_ALU | BPF_END | BPF_TO_LE);
	HAS(BPF_ALU | BPF_END | BPF_TO_BE);
	HAS(BPF_STX | BPF_ATOMIC | BPF_W);
	HAS(BPF_STX | BPF_ATOMIC | BPF_DW);
	HAS(BPF_LD | BPF_IMM | BPF_DW);
	HAS(BPF_JMP | BPF_CALL);
	HAS(BPF_JMP | BPF_JA);
	HAS(BPF_JMP | BPF_EXIT);
#undef HAS
	for (unsigned i = 0; i < 256; i++)
		count += has_code[i];
	print_message("the programs have %u operation codes\n", count);
	assert_int_equal(missing, 0);
}

static void ptxas_assembles_a_sample_of_the_programs(void **state)
{
	(void)state;
	if (!has_ptxas)
		skip_case("there is no ptxas");
	assert_int_equal(assembled, PROGRAMS / 25 + MAP_PROGRAMS / 25);
}

static int look_around(void **state)
{
	(void)state;
	has_kernel = !policy_is_possible(&no_kernel);
	has_ptxas = probe_can_assemble();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_compute_what_ebpf_defines),
		cmocka_unit_test(programs_leave_in_maps_what_ebpf_defines),
		cmocka_unit_test(damaged_programs_are_refused_or_do_not_fault),
		cmocka_unit_test(kernel_agrees_on_the_programs_that_it_accepts),
		cmocka_unit_test(programs_have_every_kind_of_instruction),
		cmocka_unit_test(ptxas_assembles_a_sample_of_the_programs),
	};

	return cmocka_run_group_tests_name("probe_random", tests, look_around, NULL);
}
