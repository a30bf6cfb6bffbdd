/* probe: how a run ends that breaks a rule which only a run can show. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "probe_code.h"
#include "probe_rig.h"

/* Runs one thread. */
static uint64_t run_program(const struct bpf_insn *insns, size_t count,
			    const struct belfry_probe_ctx *context, struct probe_area *head, void *values)
{
	struct bf_error err;
	struct probe_rig rig;
	struct probe *probe;
	uint64_t result;

	if (make(insns, count, NULL, &probe, &err))
		fail_msg("%s", err.text);
	probe_rig_open(&rig, probe, 0, true, 1);
	probe_rig_run(&rig, context, &result, 1, 1);
	*head = *(struct probe_area *)probe_rig_area(&rig);
	memcpy(values, (char *)probe_rig_area(&rig) + probe_map_at(probe, 0)->values, 32);
	probe_rig_close(&rig);
	probe_free(probe);
	return result;
}

static void endless_loop_runs_out_of_fuel(void **state)
{
	const struct bpf_insn loops[][4] = {
		{ MOV(0, 5), JUMP(-1), EXIT },
		{ MOV(0, 5), ADD(0, 2), INSN(BPF_JMP | BPF_JNE | BPF_K, 0, 0, -2, 0), EXIT },
	};
	const struct belfry_probe_ctx context = { 0 };
	struct probe_area head;
	uint64_t values[4];

	(void)state;
	for (unsigned i = 0; i < COUNT(loops); i++) {
		assert_int_equal(run_program(loops[i], i ? 4 : 3, &context, &head, values), 0);
		assert_int_equal(head.out_of_fuel, 1);
		assert_int_equal(head.out_of_bounds, 0);
	}
}

/* 99 backward jumps need 100 units of fuel. */
static void fuel_is_what_the_caller_says(void **state)
{
	const struct bpf_insn loop[] = { MOV(0, 0), ADD(0, 1), INSN(BPF_JMP | BPF_JLT | BPF_K, 0, 0, -2, 100),
					 EXIT };

	(void)state;
	for (uint32_t fuel = 99; fuel <= 100; fuel++) {
		struct probe_options options = { .fuel = fuel };
		const struct belfry_probe_ctx context = { 0 };
		struct bf_error err;
		struct probe_rig rig;
		struct probe *probe;
		uint64_t result;

		assert_int_equal(make(loop, COUNT(loop), &options, &probe, &err), 0);
		assert_true(probe_program_at(probe, 0)->has_loops);
		probe_rig_open(&rig, probe, 0, true, 1);
		probe_rig_run(&rig, &context, &result, 1, 1);
		assert_int_equal(result, fuel == 100 ? 100 : 0);
		probe_rig_close(&rig);
		probe_free(probe);
	}
}

static void null_is_not_accessed(void **state)
{
	const struct bpf_insn reads[] = { LOOKUP(0, 2), LOAD(BPF_DW, 0, 0, 0), EXIT };
	const struct bpf_insn writes[] = { LOOKUP(0, 2), MOV(2, 1), STORE(BPF_DW, 0, 8, 2), MOV(0, 7), EXIT };
	const struct belfry_probe_ctx context = { 0 };
	struct probe_area head;
	uint64_t values[4];

	(void)state;
	assert_int_equal(run_program(reads, COUNT(reads), &context, &head, values), 0);
	assert_int_equal(head.out_of_bounds, 1);
	assert_int_equal(run_program(writes, COUNT(writes), &context, &head, values), 0);
	assert_int_equal(head.out_of_bounds, 1);
}

/* The last pointer that was compared with NULL was the result of another lookup. */
static void test_of_one_lookup_proves_nothing_about_another(void **state)
{
	const struct bpf_insn insns[] = {
		LOOKUP(0, 2),	       COPY(6, 0), LOOKUP(0, 0), INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0),
		LOAD(BPF_DW, 0, 6, 0), EXIT,	   MOV(0, 3),	 EXIT,
	};
	/* The same lookup twice, in a loop: r6 is the result of the first round, which found nothing. */
	const struct bpf_insn loop[] = {
		MOV(7, 2),
		MOV(6, 0),
		MOV(8, 0),
		STORE(BPF_W, 10, -4, 7),
		COPY(2, 10),
		ADD(2, -4),
		MAP(1, 0),
		CALL(map_lookup_elem),
		INSN(BPF_JMP | BPF_JEQ | BPF_K, 8, 0, 2, 0),
		INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 5, 0),
		JUMP(6),
		COPY(6, 0),
		MOV(8, 1),
		MOV(7, 0),
		JUMP(-13),
		MOV(0, 3),
		EXIT,
		LOAD(BPF_DW, 0, 6, 0),
		EXIT,
	};
	const struct belfry_probe_ctx context = { 0 };
	struct probe_area head;
	uint64_t values[4];

	(void)state;
	assert_int_equal(run_program(insns, COUNT(insns), &context, &head, values), 0);
	assert_int_equal(head.out_of_bounds, 1);
	assert_int_equal(run_program(loop, COUNT(loop), &context, &head, values), 0);
	assert_int_equal(head.out_of_bounds, 1);
}

static void value_is_not_left_at_an_unknown_offset(void **state)
{
	/* 9 into the byte at value + site. */
	const struct bpf_insn insns[] = {
		COPY(6, 1),
		LOOKUP(0, 0),
		INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 4, 0),
		LOAD(BPF_DW, 2, 6, offsetof(struct belfry_probe_ctx, address)),
		SUM(0, 2),
		INSN(BPF_ST | BPF_MEM | BPF_H, 0, 0, 0, 9),
		MOV(0, 1),
		EXIT,
	};
	static const struct {
		int64_t offset;
		bool is_fine;
	} cases[] = {
		{ 0, true },  { 14, true },  { 30, true },  { 32, false },	  { 31, false },
		{ 1, false }, { -2, false }, { -1, false }, { INT64_MIN, false }, { INT64_MAX, false }
	};

	(void)state;
	for (unsigned i = 0; i < COUNT(cases); i++) {
		struct belfry_probe_ctx context = { .address = (uint64_t)cases[i].offset };
		struct probe_area head;
		uint8_t values[32];

		assert_int_equal(run_program(insns, COUNT(insns), &context, &head, values), cases[i].is_fine);
		assert_int_equal(head.out_of_bounds, !cases[i].is_fine);
		if (cases[i].is_fine)
			assert_int_equal(values[cases[i].offset], 9);
	}
}

/* The function's array is below its caller's variable. */
static void frame_is_not_left_at_an_unknown_offset(void **state)
{
	const struct bpf_insn insns[] = {
		INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 5),
		LOAD(BPF_DW, 1, 1, offsetof(struct belfry_probe_ctx, address)),
		INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 2),
		LOAD(BPF_DW, 0, 10, -8),
		EXIT,
		COPY(2, 10),
		ADD(2, -16),
		SUM(2, 1),
		INSN(BPF_ST | BPF_MEM | BPF_DW, 2, 0, 0, 9),
		MOV(0, 0),
		EXIT,
	};

	(void)state;
	for (int64_t offset = -16; offset <= 24; offset += 8) {
		bool is_fine = offset == 0 || offset == 8;
		struct belfry_probe_ctx context = { .address = (uint64_t)offset };
		struct probe_area head;
		uint64_t values[4];

		assert_int_equal(run_program(insns, COUNT(insns), &context, &head, values), is_fine ? 5 : 0);
		assert_int_equal(head.out_of_bounds, !is_fine);
	}
}

/* A pointer survives a spill, and a call does not change its caller's registers. */
static void spilled_pointers_and_saved_registers_keep_their_values(void **state)
{
	const struct bpf_insn insns[] = {
		LOOKUP(0, 1),
		INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 8, 0),
		STORE(BPF_DW, 10, -16, 0),
		MOV(6, 40),
		INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 6),
		LOAD(BPF_DW, 2, 10, -16),
		SUM(6, 0),
		STORE(BPF_DW, 2, 8, 6),
		COPY(0, 6),
		EXIT,
		EXIT,
		MOV(6, 1),
		MOV(0, 2),
		STORE(BPF_DW, 10, -16, 6),
		EXIT,
	};
	const struct belfry_probe_ctx context = { 0 };
	struct probe_area head;
	uint64_t values[4];

	(void)state;
	assert_int_equal(run_program(insns, COUNT(insns), &context, &head, values), 42);
	assert_int_equal(values[3], 42);
	assert_int_equal(head.out_of_bounds, 0);
}

/* Comparisons of constants: one way is never taken, and what is there need not follow the rules. */
static void ways_that_are_never_taken_have_no_text(void **state)
{
	const struct bpf_insn programs[][6] = {
		{ MOV(0, 5), INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1, 4), EXIT, LOAD(BPF_DW, 0, 0, 0), EXIT },
		{ MOV(0, 5), INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 5), LOAD(BPF_DW, 0, 0, 0), EXIT, EXIT },
		{ MOV(0, 5), INSN(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 1, 5), EXIT, LOAD(BPF_DW, 0, 0, 0), EXIT },
		{ MOV(0, 5), INSN(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 2, 6), LOAD(BPF_DW, 0, 0, 0), EXIT, EXIT },
	};
	const struct belfry_probe_ctx context = { 0 };
	struct probe_area head;
	uint64_t values[4];

	(void)state;
	for (unsigned i = 0; i < COUNT(programs); i++) {
		assert_int_equal(run_program(programs[i], 5, &context, &head, values), 5);
		assert_int_equal(head.out_of_bounds, 0);
	}
}

/* The program in which the probe runs can set the head to any number. */
static void records_stay_in_the_ring_wherever_its_head_is(void **state)
{
	const struct bpf_insn insns[] = {
		INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 7),
		INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, 7),
		COPY(2, 10),
		ADD(2, -16),
		MOV(3, 16),
		MOV(4, 0),
		MAP(1, 1),
		CALL(ringbuf_output),
		EXIT,
	};
	const uint64_t heads[] = { 0, 4095, 4088, 3, UINT64_MAX, 1ull << 63 | 5, 1 << 20 };
	const struct belfry_probe_ctx context = { 0 };

	(void)state;
	for (unsigned i = 0; i < COUNT(heads); i++) {
		const struct probe_map *map;
		struct bf_error err;
		struct probe_rig rig;
		struct probe *probe;
		struct probe_ring *ring;
		uint64_t result;
		uint8_t *area;

		assert_int_equal(make(insns, COUNT(insns), NULL, &probe, &err), 0);
		probe_rig_open(&rig, probe, 0, true, 1);
		map = probe_map_at(probe, 1);
		area = probe_rig_area(&rig);
		ring = (void *)(area + map->states);
		ring->head = ring->tail = heads[i];
		probe_rig_run(&rig, &context, &result, 1, 1);
		assert_int_equal(result, 0);
		assert_int_equal(ring->head, heads[i] + 24);
		for (uint64_t at = map->values + map->value_area_bytes; at < probe_area_bytes(probe); at++)
			assert_int_equal(area[at], 0);
		assert_true(probe_ring_take(map, area, &result, sizeof(result)) ==
			    (heads[i] % 8 ? -EPROTO : 16));
		probe_rig_close(&rig);
		probe_free(probe);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(endless_loop_runs_out_of_fuel),
		cmocka_unit_test(fuel_is_what_the_caller_says),
		cmocka_unit_test(null_is_not_accessed),
		cmocka_unit_test(test_of_one_lookup_proves_nothing_about_another),
		cmocka_unit_test(value_is_not_left_at_an_unknown_offset),
		cmocka_unit_test(frame_is_not_left_at_an_unknown_offset),
		cmocka_unit_test(spilled_pointers_and_saved_registers_keep_their_values),
		cmocka_unit_test(ways_that_are_never_taken_have_no_text),
		cmocka_unit_test(records_stay_in_the_ring_wherever_its_head_is),
	};

	return cmocka_run_group_tests_name("probe_checks", tests, NULL, NULL);
}
