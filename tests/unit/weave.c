/* weave: programs run as often as the definition of their event says, and kernels compute what they did. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "policy_rig.h"
#include "probe_rig.h"
#include "skipping.h"
#include "weave_rig.h"

#define HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"

struct count {
	uint64_t runs, lanes, bytes, sum;
};

/* A kernel with a probe, its output, and its counts. */
struct trial {
	struct rig rig;
	struct probe *probe;
	struct weave_result result;
	uint64_t area, out;
};

enum { OUT_WORDS = 4096 };

static void trial_open(struct trial *trial, const char *probe, const char *text, uint32_t period)
{
	struct weave_probe list = { .area = 0x7f0010000000, .period = period };

	trial->probe = weave_rig_probe("tests/probes", probe);
	list.probe = trial->probe;
	weave_rig_text(text, &list, 1, &trial->result);
	assert_non_null(trial->result.text);
	if (probe_can_assemble())
		probe_assemble_for("-arch=sm_80", trial->result.text);
	rig_open_text(&trial->rig, trial->result.text);
	assert_int_equal(trial->rig.span_count, 0); /* variables would be placed before the area */
	trial->area = weave_rig_area(&trial->rig, trial->probe);
	assert_int_equal(trial->area, list.area);
	trial->out = rig_alloc(&trial->rig, OUT_WORDS * sizeof(uint32_t), NULL);
}

static struct count count_of(struct trial *trial, uint32_t event)
{
	struct count count;

	memcpy(&count,
	       probe_value(probe_map_find(trial->probe, "counts"), rig_host(&trial->rig, trial->area), &event,
			   0),
	       sizeof(count));
	return count;
}

static void trial_close(struct trial *trial)
{
	weave_rig_check(rig_host(&trial->rig, trial->area));
	rig_close(&trial->rig);
	weave_result_free(&trial->result);
	probe_free(trial->probe);
}

/* Runs the same text without probes; the outputs must be equal. */
static void trial_run(struct trial *trial, const char *text, struct rig_shape shape)
{
	struct rig plain;
	uint64_t out;

	rig_open_text(&plain, text);
	while (plain.span_count < 1)
		rig_alloc(&plain, 64, NULL); /* so that addresses are equal too */
	out = rig_alloc(&plain, OUT_WORDS * sizeof(uint32_t), NULL);
	assert_int_equal(out, trial->out);
	rig_launch(&plain, "k", shape, &out, sizeof(out));
	rig_launch(&trial->rig, "k", shape, &trial->out, sizeof(trial->out));
	assert_memory_equal(rig_host(&plain, out), rig_host(&trial->rig, trial->out),
			    OUT_WORDS * sizeof(uint32_t));
	rig_close(&plain);
}

/* Threads 0-9 of each block leave early, odd ones of the rest at a guarded ret, the others run past the end. Each
 * first stores its number. */
static const char early[] = HEAD
	".visible .entry k(.param .u64 out)\n{\n"
	".reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<4>;\n"
	"ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
	"mad.lo.u32 %r4, %r1, %r2, %r3; mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;\n"
	"st.global.u32 [%rd3], %r4;\n"
	"setp.lt.u32 %p1, %r3, 10; @!%p1 bra $more; st.u32 [%rd3], 7; exit;\n"
	"$more: and.b32 %r5, %r3, 1; setp.eq.u32 %p2, %r5, 1;\n"
	"@%p2 ret; // those that remain\n"
	"add.u32 %r4, %r4, 1; /* ret; */ st.global.u32 [%rd3], %r4;\n}\n";

static void each_block_and_grid_begins_and_ends_once(void **state)
{
	enum { BLOCKS = 9, THREADS = 100, LAUNCHES = 3 };
	struct rig_shape shape = { .grid = { BLOCKS }, .threads = { THREADS } };
	struct trial trial;
	struct count count;

	(void)state;
	trial_open(&trial, "events", early, 1);
	for (unsigned i = 0; i < LAUNCHES; i++)
		trial_run(&trial, early, shape);
	for (uint32_t event = BELFRY_PROBE_KERNEL_ENTER; event <= BELFRY_PROBE_BLOCK_EXIT; event++) {
		bool is_block = event >= BELFRY_PROBE_BLOCK_ENTER;

		count = count_of(&trial, event);
		assert_int_equal(count.runs, is_block ? BLOCKS * LAUNCHES : LAUNCHES);
		assert_int_equal(count.lanes, count.runs);
		if (is_block)
			assert_int_equal(count.sum, BLOCKS * (BLOCKS - 1) / 2 * LAUNCHES);
	}
	assert_int_equal(count_of(&trial, BELFRY_PROBE_KERNEL_EXIT).sum, LAUNCHES * weave_kernel_id("k"));
	count = count_of(&trial, BELFRY_PROBE_WARP_ENTER);
	assert_int_equal(count.runs, 4 * BLOCKS * LAUNCHES);
	assert_int_equal(count.lanes, THREADS * BLOCKS * LAUNCHES);
	count = count_of(&trial, BELFRY_PROBE_WARP_EXIT);
	assert_int_equal(count.lanes, THREADS * BLOCKS * LAUNCHES);
	assert_int_equal(count.runs,
			 (3 + 3 * 2) * BLOCKS * LAUNCHES); /* the first warp leaves in three parts */
	trial_close(&trial);
}

static void one_warp_is_a_whole_block(void **state)
{
	struct rig_shape shape = { .grid = { 2, 3 }, .threads = { 8, 2, 2 } };
	static const char text[] = HEAD ".visible .entry k(.param .u64 out)\n{\nret;\n}\n";
	struct trial trial;

	(void)state;
	trial_open(&trial, "events", text, 1);
	trial_run(&trial, text, shape);
	assert_int_equal(count_of(&trial, BELFRY_PROBE_BLOCK_EXIT).runs, 6);
	assert_int_equal(count_of(&trial, BELFRY_PROBE_BLOCK_EXIT).sum, 3 * 1 + 2000 * 3);
	assert_int_equal(count_of(&trial, BELFRY_PROBE_KERNEL_EXIT).runs, 1);
	assert_int_equal(count_of(&trial, BELFRY_PROBE_WARP_EXIT).lanes, 6 * 32);
	trial_close(&trial);
}

static void accesses_count_lanes_and_bytes(void **state)
{
	enum { BLOCKS = 4, THREADS = 64, ALL = BLOCKS * THREADS };
	struct rig_shape shape = { .grid = { BLOCKS }, .threads = { THREADS } };
	struct trial trial;
	struct count count;

	(void)state;
	trial_open(&trial, "events", early, 1);
	trial_run(&trial, early, shape);
	count = count_of(&trial, BELFRY_PROBE_MEM_ACCESS);
	assert_int_equal(count.lanes, ALL + 10 * BLOCKS + 27 * BLOCKS);
	assert_int_equal(count.bytes, 4 * count.lanes);
	assert_int_equal(trial.result.kernels[0].accesses, 3);
	assert_int_equal(trial.result.kernels[0].exits, 3);
	assert_int_equal(trial.result.kernels[0].skipped, 0);
	trial_close(&trial);
}

/* Nested scopes that declare the same names, a loop in each, several forms of accesses. */
static const char forms[] = HEAD
	".file 1 \"a.cu\"\n"
	".func (.param .b32 r) twice(.param .b32 a)\n{\n.reg .b32 %r<2>;\nld.param.b32 %r0, [a];\n"
	"add.u32 %r1, %r0, %r0; st.param.b32 [r], %r1; ret;\n}\n"
	".visible .entry k(.param .u64 out);\n"
	".visible .entry k(\n\t.param .u64 out // the output\n)\n.maxntid 64, 1, 1\n.minnctapersm 2\n{\n"
	".loc 1 2 3\n.pragma \"nounroll\";\n"
	".reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p; .reg .f32 %f<4>; .shared .align 4 .b8 tile[256];\n"
	"ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 16; add.s64 %rd1, %rd1, %rd2;\n"
	"mov.u32 %r2, 0;\nloop:\n{\n.reg .b32 %r<3>; mov.u32 %r1, 0;\n"
	"loop: add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 3; @%p bra loop;\n}\n"
	"{\n.reg .pred %p; setp.eq.u32 %p, %r2, 9; @%p bra leave;\nleave:\n}\n"
	"add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 5; @%p bra.uni loop;\n"
	"{ // callseq\n.param .b32 in; .param .b32 back; st.param.b32 [in], %r1;\n"
	"call.uni (back), twice, (in); ld.param.b32 %r3, [back];\n}\n"
	"st.global.v2.u32 [%rd1+8], {%r3, %r2};\n"
	"mov.u64 %rd3, tile; cvta.shared.u64 %rd4, %rd3; st.u32 [%rd4+4], %r1;\n"
	"ld.global.nc.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1];\n"
	"setp.gt.u32 %p, %r1, 3; @!%p atom.global.add.u32 %r4, [%rd1+-0], 1;\n"
	"@%p red.relaxed.gpu.global.add.u32 [%rd1+4], 1;\n"
	"fma.rn.f32 %f0, %f1, %f2, %f3;\nbar.sync 0;\n"
	"ret;\n}\n";

struct access {
	uint64_t address;
	uint32_t size, is_write, site, thread;
};

static void loops_are_branches_to_earlier_labels(void **state)
{
	enum { THREADS = 64 };
	struct rig_shape shape = { .threads = { THREADS } };
	struct trial trial;

	(void)state;
	trial_open(&trial, "events", forms, 1);
	assert_int_equal(trial.result.kernel_count, 2);
	assert_int_equal(trial.result.kernels[1].loops, 2);
	trial_run(&trial, forms, shape);
	assert_int_equal(count_of(&trial, BELFRY_PROBE_LOOP).lanes, THREADS * (5 * 2 + 4));
	assert_int_equal(count_of(&trial, BELFRY_PROBE_SECTION).sum, THREADS * 2);
	trial_close(&trial);
}

static void access_has_its_address_size_and_kind(void **state)
{
	enum { THREADS = 8 };
	static const struct access wanted[] = {
		{ 8, 8, 1, 0, 0 }, { 0, 16, 0, 2, 0 }, { 0, 4, 2, 3, 0 }, { 4, 4, 2, 4, 0 }
	};
	struct rig_shape shape = { .threads = { THREADS } };
	const struct probe_map *ring;
	unsigned seen[COUNT(wanted)] = { 0 };
	struct access access;
	struct trial trial;

	(void)state;
	trial_open(&trial, "addresses", forms, 1);
	trial_run(&trial, forms, shape);
	ring = probe_map_find(trial.probe, "accesses");
	while (probe_ring_take(ring, rig_host(&trial.rig, trial.area), &access, sizeof(access)) > 0) {
		bool is_known = false;

		for (unsigned i = 0; i < COUNT(wanted); i++) {
			if (access.site != wanted[i].site)
				continue;
			assert_int_equal(access.address,
					 trial.out + 16ull * access.thread + wanted[i].address);
			assert_int_equal(access.size, wanted[i].size);
			assert_int_equal(access.is_write, wanted[i].is_write);
			is_known = true;
			seen[i]++;
		}
		assert_true(is_known); /* the store to shared memory, site 1, is none */
	}
	assert_int_equal(seen[0], THREADS);
	assert_int_equal(seen[1], THREADS);
	assert_int_equal(seen[2], 4); /* threads 0 to 3 */
	assert_int_equal(seen[3], 4);
	trial_close(&trial);
}

/* Each thread makes 3 accesses or 2; every fifth one of a thread is sampled, from a start that depends on its warp. */
static void samples_stand_for_all_accesses(void **state)
{
	enum { BLOCKS = 40, THREADS = 64, PERIOD = 5 };
	struct rig_shape shape = { .grid = { BLOCKS }, .threads = { THREADS } };
	uint64_t all, sampled;
	struct trial trial;

	(void)state;
	trial_open(&trial, "events", early, 1);
	trial_run(&trial, early, shape);
	all = count_of(&trial, BELFRY_PROBE_MEM_ACCESS).lanes;
	trial_close(&trial);
	trial_open(&trial, "events", early, PERIOD);
	trial_run(&trial, early, shape);
	sampled = count_of(&trial, BELFRY_PROBE_MEM_ACCESS).lanes;
	assert_in_range(sampled * PERIOD, all / 2, all * 3 / 2);
	trial_close(&trial);
}

static void pattern_selects_kernels_and_what_they_call(void **state)
{
	static const char text[] = HEAD
		".func f()\n{\n.reg .b64 %a; mov.u64 %a, 4096; st.global.u32 [%a], 1; ret;\n}\n"
		".func g()\n{\n.reg .b64 %a; mov.u64 %a, 4096; st.global.u32 [%a], 1; ret;\n}\n"
		".visible .entry _ZN5space9attentionILi64EEEvPf()\n{\ncall f;\nret;\n}\n"
		".visible .entry other()\n{\ncall g;\nret;\n}\n";
	struct probe *probe = weave_rig_probe("tests/probes", "events");
	struct weave_probe list = { .probe = probe, .area = 4096, .kernels = "x,att*" };
	struct weave_result result;

	(void)state;
	weave_rig_text(text, &list, 1, &result);
	assert_int_equal(result.kernel_count, 4);
	assert_true(result.kernels[0].probes == 1 && result.kernels[0].accesses == 1);
	assert_true(result.kernels[1].probes == 0);
	assert_true(result.kernels[2].probes == 1 && result.kernels[2].is_entry);
	assert_true(result.kernels[3].probes == 0);
	assert_text_has(result.kernels[3].reason, "no pattern matches");
	weave_result_free(&result);
	list.kernels = "none*";
	weave_rig_text(text, &list, 1, &result);
	assert_null(result.text);
	assert_int_equal(result.kernel_count, 4);
	weave_result_free(&result);
	probe_free(probe);
}

static void plain_name_is_the_name_in_the_source(void **state)
{
	static const struct {
		const char *name, *plain;
	} cases[] = { { "k", "k" },
		      { "_Z5saxpyfPKfPf", "saxpy" },
		      { "_ZN5space9attentionILi64EEEvPf", "space::attention" },
		      { "_Z9999x", "_Z9999x" },
		      { "_Z", "_Z" },
		      { "_ZN", "_ZN" } };
	char plain[64];

	(void)state;
	for (unsigned i = 0; i < COUNT(cases); i++) {
		weave_plain_name(cases[i].name, plain, sizeof(plain));
		assert_string_equal(plain, cases[i].plain);
	}
	assert_true(weave_matches("sax*", "_Z5saxpyfPKfPf"));
	assert_false(weave_matches("", "k"));
}

static void what_is_not_understood_is_refused(void **state)
{
	static const struct {
		const char *text, *words;
		int rc;
	} cases[] = {
		{ "", "no version", -EINVAL },
		{ ".version 7.0\n.target sm_80\n", "32-bit", -ENOTSUP },
		{ ".version 7.0\n.target sm_52\n.address_size 64\n", "sm_52", -ENOTSUP },
		{ ".version 6.0\n.target sm_70\n.address_size 64\n", "6.0", -ENOTSUP },
		{ HEAD ".entry k() { ret;", "no end", -EINVAL },
		{ HEAD ".entry k() { ret; } }", "not open", -EINVAL },
		{ HEAD ".entry k() { ld.global.u32 %r1, [%rd1; }", "not closed", -EINVAL },
		{ HEAD ".entry k() { @ret; }", "an instruction expected", -EINVAL },
		{ HEAD ".entry () { }", "without a name", -EINVAL },
		{ HEAD ".entry k() { .section .x { } }", "does not belong", -EINVAL },
		{ HEAD "\x80", "character", -EINVAL },
	};
	struct probe *probe = weave_rig_probe("tests/probes", "events");
	struct weave_probe list = { .probe = probe, .area = 4096 };

	(void)state;
	for (unsigned i = 0; i < COUNT(cases); i++) {
		struct weave_result result;
		struct bf_error err = { 0 };

		assert_int_equal(weave_text(cases[i].text, strlen(cases[i].text), &list, 1, &result, &err),
				 cases[i].rc);
		assert_text_has(err.text, cases[i].words);
		assert_null(result.text);
		assert_int_equal(result.kernel_count, 0);
	}
	probe_free(probe);
}

/* A thread that ends in a device function would not be counted. */
static void exit_in_a_function_rules_out_ends(void **state)
{
	static const char text[] = HEAD ".func f()\n{\nexit;\n}\n.visible .entry k()\n{\ncall f;\nret;\n}\n";
	static const char trap[] = HEAD
		".func f()\n{\ntrap; exit;\n}\n.visible .entry k()\n{\ncall f;\nret;\n}\n";
	struct probe *probe = weave_rig_probe("tests/probes", "events");
	struct weave_probe list = { .probe = probe, .area = 4096 };
	struct weave_result result;

	(void)state;
	weave_rig_text(text, &list, 1, &result);
	assert_null(result.text);
	assert_text_has(result.kernels[1].reason, "function f ends threads");
	weave_result_free(&result);
	weave_rig_text(trap, &list, 1, &result);
	assert_non_null(result.text);
	weave_result_free(&result);
	probe_free(probe);
}

/* ---- the time of submission */

static uint64_t submitted_of(struct trial *trial)
{
	uint32_t key = 0;
	uint64_t time_ns;

	memcpy(&time_ns,
	       probe_value(probe_map_find(trial->probe, "counts"), rig_host(&trial->rig, trial->area), &key,
			   0),
	       sizeof(time_ns));
	return time_ns;
}

static const char no_params[] = HEAD ".visible .entry k\n{\nret;\n}\n";
static const char empty_params[] = HEAD ".visible .entry k()\n.maxntid 64, 1, 1\n{\nret;\n}\n";
static const char mixed_params[] = HEAD ".entry k(.param .u8 a, .param .align 16 .b8 b[20],\n"
					".param .u64 .ptr .global .align 4 c)\n{\nret;\n}\n";

static void trial_open_timed(struct trial *trial, const char *text)
{
	struct weave_probe list = { .area = 0x7f0010000000, .has_times = true };

	trial->probe = weave_rig_probe("tests/probes", "submitted");
	list.probe = trial->probe;
	weave_rig_text(text, &list, 1, &trial->result);
	if (probe_can_assemble())
		probe_assemble_for("-arch=sm_80", trial->result.text);
	rig_open_text(&trial->rig, trial->result.text);
	trial->area = weave_rig_area(&trial->rig, trial->probe);
	assert_int_equal(trial->area, list.area);
	trial->out = rig_alloc(&trial->rig, OUT_WORDS * sizeof(uint32_t), NULL);
}

static void a_timed_form_has_the_time_of_its_launch(void **state)
{
	struct rig_shape shape = { .grid = { 9 }, .threads = { 100 } };
	struct {
		uint64_t out, time;
	} params = { .time = 1234567890123 };
	struct trial trial;
	uint64_t at;

	(void)state;
	trial_open_timed(&trial, early);
	assert_int_equal(trial.result.kernel_count, 1);
	assert_string_not_equal(trial.result.kernels[0].timed, "k");
	assert_int_equal(trial.result.kernels[0].params, 1);
	trial_run(&trial, early, shape); /* the kernel itself has the program's parameters */
	assert_int_equal(submitted_of(&trial), 0);
	params.out = trial.out;
	rig_launch(&trial.rig, trial.result.kernels[0].timed, shape, &params, sizeof(params));
	assert_int_equal(submitted_of(&trial), 1234567890123);
	at = rig_alloc(&trial.rig, sizeof(at), &(uint64_t){ 777 });
	params.time = WEAVE_TIME_IS_ADDRESS | at;
	rig_launch(&trial.rig, trial.result.kernels[0].timed, shape, &params, sizeof(params));
	assert_int_equal(submitted_of(&trial), 777);
	assert_int_equal(*(uint32_t *)rig_host(&trial.rig, trial.out), 7); /* thread 0 left early */
	trial_close(&trial);
}

static void a_timed_form_follows_any_list_of_parameters(void **state)
{
	static const struct {
		const char *text;
		uint32_t count, offset;
	} lists[] = { { no_params, 0, 0 }, { empty_params, 0, 0 }, { mixed_params, 3, 48 } };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct rig_shape shape = { .grid = { 1 }, .threads = { 32 } };
		uint64_t params[8] = { 0 };
		struct trial trial;

		trial_open_timed(&trial, lists[i].text);
		assert_non_null(trial.result.kernels[0].timed);
		assert_int_equal(trial.result.kernels[0].params, lists[i].count);
		params[lists[i].offset / 8] = 42 + i;
		rig_launch(&trial.rig, trial.result.kernels[0].timed, shape, params, lists[i].offset + 8);
		assert_int_equal(submitted_of(&trial), 42 + i);
		trial_close(&trial);
	}
}

/* The debugger's sections name labels of the body, which would not be unique. */
static void kernels_for_a_debugger_have_no_timed_form(void **state)
{
	static const char text[] = HEAD ".visible .entry k()\n{\nret;\n}\n"
					".section .debug_info\n{\n.b32 0\n}\n";
	struct weave_probe list = { .area = 0x7f0010000000, .has_times = true };
	struct weave_result result;

	(void)state;
	list.probe = weave_rig_probe("tests/probes", "submitted");
	weave_rig_text(text, &list, 1, &result);
	assert_int_equal(result.kernels[0].probes, 1);
	assert_null(result.kernels[0].timed);
	weave_result_free(&result);
	probe_free((struct probe *)list.probe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_block_and_grid_begins_and_ends_once),
		cmocka_unit_test(a_timed_form_has_the_time_of_its_launch),
		cmocka_unit_test(a_timed_form_follows_any_list_of_parameters),
		cmocka_unit_test(kernels_for_a_debugger_have_no_timed_form),
		cmocka_unit_test(one_warp_is_a_whole_block),
		cmocka_unit_test(accesses_count_lanes_and_bytes),
		cmocka_unit_test(loops_are_branches_to_earlier_labels),
		cmocka_unit_test(access_has_its_address_size_and_kind),
		cmocka_unit_test(samples_stand_for_all_accesses),
		cmocka_unit_test(pattern_selects_kernels_and_what_they_call),
		cmocka_unit_test(plain_name_is_the_name_in_the_source),
		cmocka_unit_test(what_is_not_understood_is_refused),
		cmocka_unit_test(exit_in_a_function_rules_out_ends),
	};

	return cmocka_run_group_tests_name("weave", tests, NULL, NULL);
}
