/* probe: which programs and maps are refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "probe_code.h"

static void expect_refused(const struct bpf_insn *insns, size_t count, const char *words, int line)
{
	struct bf_error err = { 0 };
	struct probe *probe;

	if (!make(insns, count, NULL, &probe, &err))
		fail_msg("line %d: it is not refused: %s", line, words);
	if (!strstr(err.text, words))
		fail_msg("line %d: '%s' does not say '%s'", line, err.text, words);
}
#define REFUSED(words, ...) expect_refused(PROGRAM(__VA_ARGS__), PROGRAM_SIZE(__VA_ARGS__), words, __LINE__)

static void registers_must_be_set(void **state)
{
	(void)state;
	REFUSED("register r0 is not set", EXIT);
	REFUSED("register r3 is not set", COPY(0, 3), EXIT);
	REFUSED("register r7 is not set on every path", LOAD(BPF_W, 0, 1, 0),
		INSN(BPF_JMP | BPF_JEQ, 0, 0, 1, 0), MOV(7, 1), COPY(0, 7), EXIT);
	REFUSED("register r1 is not set", MOV(6, 0), CALL(ktime_get_ns), COPY(0, 1), EXIT);
	REFUSED("register r10 cannot be written", MOV(10, 0), EXIT);
	REFUSED("register r11 cannot be written", MOV(11, 0), EXIT);
	REFUSED("there is no register r12", COPY(0, 12), EXIT);
}

static void addresses_must_be_pointers_in_bounds(void **state)
{
	(void)state;
	REFUSED("a number as an address", MOV(2, 4096), LOAD(BPF_DW, 0, 2, 0), EXIT);
	REFUSED("outside of the function's 512 bytes", MOV(0, 0), STORE(BPF_DW, 10, -520, 0), EXIT);
	REFUSED("outside of the function's 512 bytes", MOV(0, 0), STORE(BPF_DW, 10, -4, 0), EXIT);
	REFUSED("not aligned", MOV(0, 0), STORE(BPF_W, 10, -6, 0), EXIT);
	REFUSED("outside of a value of map array", LOOKUP(0, 0), INSN(BPF_JMP | BPF_JEQ, 0, 0, 1, 0),
		LOAD(BPF_DW, 0, 0, 16), EXIT);
	REFUSED("outside of a value of map array", LOOKUP(0, 0), INSN(BPF_JMP | BPF_JEQ, 0, 0, 1, 0),
		LOAD(BPF_DW, 0, 0, -8), EXIT);
	REFUSED("without a lookup", MAP(2, 0), LOAD(BPF_DW, 0, 2, 0), EXIT);
	REFUSED("the constants in .rodata", DATA(2, 2, 0), MOV(0, 0), STORE(BPF_DW, 2, 0, 0), EXIT);
	REFUSED("outside of a value of map .rodata", DATA(2, 2, 12), LOAD(BPF_DW, 0, 2, 0), EXIT);
	REFUSED("address of a value of map array", DATA(2, 0, 0), LOAD(BPF_DW, 0, 2, 0), EXIT);
	REFUSED("map that does not exist", MAP(2, 4), MOV(0, 0), EXIT);
}

/* A pointer to the stack on one path, and to the context on the other. */
static void pointers_of_different_kinds_do_not_meet(void **state)
{
	(void)state;
	REFUSED("depends on the path", COPY(2, 10), LOAD(BPF_W, 0, 1, 0), INSN(BPF_JMP | BPF_JEQ, 0, 0, 1, 0),
		COPY(2, 1), LOAD(BPF_W, 0, 2, -8), EXIT);
	/* One byte of a spilled pointer is overwritten. */
	REFUSED("a number as an address", COPY(2, 10), STORE(BPF_DW, 10, -8, 2), MOV(3, 0),
		STORE(BPF_B, 10, -8, 3), LOAD(BPF_DW, 4, 10, -8), LOAD(BPF_DW, 0, 4, -8), EXIT);
	/* The same, at an unknown offset. */
	REFUSED("a number as an address", COPY(2, 10), STORE(BPF_DW, 10, -8, 2), LOAD(BPF_W, 3, 1, 0),
		ADD(2, -8), SUM(2, 3), STORE(BPF_B, 2, 0, 3), LOAD(BPF_DW, 4, 10, -8), LOAD(BPF_DW, 0, 4, -8),
		EXIT);
}

/* The next function that is called has its frame at the same place. */
static void pointer_into_an_ended_frame_is_no_pointer(void **state)
{
	(void)state;
	/* The called function returns its r10. */
	REFUSED("a number as an address", INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 3), MOV(2, 0),
		STORE(BPF_DW, 0, -8, 2), EXIT, COPY(0, 10), EXIT);
	/* It leaves its r10 in the frame of its caller. */
	REFUSED("a number as an address", COPY(1, 10), INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 3),
		LOAD(BPF_DW, 3, 10, -8), STORE(BPF_DW, 3, -8, 3), EXIT, STORE(BPF_DW, 1, -8, 10), MOV(0, 0),
		EXIT);
}

static void context_is_read_by_field(void **state)
{
	(void)state;
	REFUSED("read-only", MOV(0, 0), STORE(BPF_W, 1, 0, 0), EXIT);
	REFUSED("outside of the context", LOAD(BPF_W, 0, 1, sizeof(struct belfry_probe_ctx)), EXIT);
	REFUSED("not one field", LOAD(BPF_DW, 0, 1, 0), EXIT);
	REFUSED("unknown offset", LOAD(BPF_W, 2, 1, 0), SUM(1, 2), LOAD(BPF_W, 0, 1, 0), EXIT);
	REFUSED("copy the field to a variable", COPY(2, 1), MAP(1, 0), CALL(map_lookup_elem), EXIT);
}

static void calls_are_of_known_helpers_with_right_arguments(void **state)
{
	(void)state;
	REFUSED("it calls bpf_probe_read", CALL(probe_read), EXIT);
	REFUSED("an unknown helper", INSN(BPF_JMP | BPF_CALL, 0, 0, 0, 9999), EXIT);
	REFUSED("a function of the kernel", INSN(BPF_JMP | BPF_CALL, 0, 2, 0, 1), EXIT);
	REFUSED("is not a map", COPY(2, 10), ADD(2, -8), CALL(map_lookup_elem), EXIT);
	REFUSED("is not possible on ring", COPY(2, 10), ADD(2, -8), MAP(1, 1), CALL(map_lookup_elem), EXIT);
	REFUSED("must be a constant", LOAD(BPF_W, 3, 1, 0), COPY(2, 10), ADD(2, -8), MOV(4, 0), MAP(1, 1),
		CALL(ringbuf_output), EXIT);
	REFUSED("a record has 513 bytes", MOV(3, 513), COPY(2, 10), ADD(2, -8), MOV(4, 0), MAP(1, 1),
		CALL(ringbuf_output), EXIT);
	REFUSED("outside of the function's", MOV(3, 16), COPY(2, 10), ADD(2, -8), MOV(4, 0), MAP(1, 1),
		CALL(ringbuf_output), EXIT);
}

static void jumps_and_calls_stay_inside(void **state)
{
	(void)state;
	REFUSED("ends without a return", MOV(0, 0));
	REFUSED("leaves its function", MOV(0, 0), JUMP(5), EXIT);
	REFUSED("leaves its function", MOV(0, 0), JUMP(-3), EXIT);
	REFUSED("inside an instruction", MOV(0, 0), JUMP(1), MAP(1, 0), EXIT);
	REFUSED("half an instruction", INSN(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 0));
	REFUSED("a call leaves the program", INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 9), EXIT);
	REFUSED("recursion is not possible", MOV(0, 0), INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, -2),
		EXIT);
	REFUSED("a function ends without a return", INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 2),
		INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 1), EXIT, MOV(0, 0));
	/* A jump from a function into another one. */
	REFUSED("leaves its function", INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 1), EXIT, MOV(0, 0),
		JUMP(-3), EXIT);
}

static void unknown_instructions_are_refused(void **state)
{
	(void)state;
	REFUSED("unknown instruction", INSN(0xff, 0, 0, 0, 0), EXIT);
	REFUSED("unknown instruction", INSN(BPF_LD | BPF_ABS | BPF_W, 0, 0, 0, 0), EXIT);
	REFUSED("unknown instruction", MOV(0, 1), INSN(BPF_ALU | BPF_END, 0, 0, 0, 8), EXIT);
	REFUSED("unknown instruction", MOV(0, 1), INSN(BPF_ALU64 | BPF_DIV, 0, 0, 2, 8), EXIT);
	REFUSED("unknown instruction", MOV(0, 1), INSN(BPF_JMP | 0xe0, 0, 0, 0, 8), EXIT);
	REFUSED("unknown atomic instruction", MOV(0, 1), INSN(BPF_STX | BPF_ATOMIC | BPF_DW, 10, 0, -8, 0x20),
		EXIT);
	REFUSED("unknown atomic instruction", MOV(0, 1),
		INSN(BPF_STX | BPF_ATOMIC | BPF_B, 10, 0, -8, BPF_ADD), EXIT);
}

static void stack_of_all_functions_is_limited(void **state)
{
	(void)state;
	REFUSED("uses 520 bytes of stack", MOV(0, 0), STORE(BPF_DW, 10, -256, 0),
		INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 1), EXIT, MOV(0, 0),
		STORE(BPF_DW, 10, -264, 0), EXIT);
}

static void program_of_too_many_instructions_is_refused(void **state)
{
	/* Each function calls the next one eight times. */
	enum { LEVELS = 6, CALLS = 8 };
	struct bpf_insn insns[LEVELS * (CALLS + 2)];
	struct bf_error err;
	struct probe *probe;
	size_t count = 0;

	(void)state;
	for (unsigned level = 0; level < LEVELS; level++) {
		size_t next = (size_t)(level + 1) * (CALLS + 2);

		insns[count++] = (struct bpf_insn)MOV(0, 0);
		for (unsigned i = 0; i < CALLS; i++, count++)
			insns[count] = level + 1 == LEVELS
					       ? (struct bpf_insn)MOV(0, 1)
					       : (struct bpf_insn)INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL,
								       0, (int)(next - count - 1));
		insns[count++] = (struct bpf_insn)EXIT;
	}
	assert_int_equal(make(insns, count, NULL, &probe, &err), -EINVAL);
	assert_text_has(err.text, "more than 63 calls");
}

static void maps_have_limits(void **state)
{
	static const struct {
		struct probe_map map;
		const char *words;
	} cases[] = {
		{ { .name = "m",
		    .kind = PROBE_MAP_HASH,
		    .key_bytes = 65,
		    .value_bytes = 8,
		    .max_entries = 1 },
		  "a key has 65 bytes" },
		{ { .name = "m", .kind = PROBE_MAP_HASH, .key_bytes = 8, .value_bytes = 0, .max_entries = 1 },
		  "a value has 0 bytes" },
		{ { .name = "m",
		    .kind = PROBE_MAP_ARRAY,
		    .key_bytes = 8,
		    .value_bytes = 8,
		    .max_entries = 1 },
		  "the key of an array has 4 bytes" },
		{ { .name = "m", .kind = PROBE_MAP_ARRAY, .key_bytes = 4, .value_bytes = 8 },
		  "it has 0 entries" },
		{ { .name = "m", .kind = PROBE_MAP_RING, .max_entries = 5000 }, "a power of two" },
		{ { .name = "m",
		    .kind = PROBE_MAP_HASH,
		    .key_bytes = 8,
		    .value_bytes = 8,
		    .max_entries = 1 << 27 },
		  "the maps are too large" },
	};
	const struct bpf_insn insns[] = { MOV(0, 0), EXIT };

	(void)state;
	for (unsigned i = 0; i < COUNT(cases); i++) {
		struct probe_code code = {
			.insns = insns, .insn_count = COUNT(insns), .maps = &cases[i].map, .map_count = 1
		};
		struct bf_error err;
		struct probe *probe;

		assert_true(probe_make(&code, NULL, &probe, &err) < 0);
		assert_text_has(err.text, cases[i].words);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registers_must_be_set),
		cmocka_unit_test(addresses_must_be_pointers_in_bounds),
		cmocka_unit_test(pointers_of_different_kinds_do_not_meet),
		cmocka_unit_test(pointer_into_an_ended_frame_is_no_pointer),
		cmocka_unit_test(context_is_read_by_field),
		cmocka_unit_test(calls_are_of_known_helpers_with_right_arguments),
		cmocka_unit_test(jumps_and_calls_stay_inside),
		cmocka_unit_test(unknown_instructions_are_refused),
		cmocka_unit_test(stack_of_all_functions_is_limited),
		cmocka_unit_test(program_of_too_many_instructions_is_refused),
		cmocka_unit_test(maps_have_limits),
	};

	return cmocka_run_group_tests_name("probe_rules", tests, NULL, NULL);
}
