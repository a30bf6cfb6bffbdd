/* ptx: barriers in shared memory, asynchronous copies and reserved shared memory: kernels of tests/data/ptx/async.cu, as
 * nvcc makes them for sm_80 and for sm_90, against C on the CPU; and the barrier's instructions one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

static const char *const texts[] = { "async", "async_90" };

#define INTS 4096
#define THREADS 256

/* What a kernel (in, out, rounds) leaves in out, for both texts. */
typedef int expected_fn(const int *in, int i, int rounds);

static void check_kernel(const char *kernel, unsigned threads, int rounds, int outs, expected_fn *expected)
{
	static int in[INTS];
	uint64_t seed = 77;

	for (int i = 0; i < INTS; i++)
		in[i] = (int)(rig_random(&seed) % 1000);
	for (unsigned t = 0; t < 2; t++) {
		struct {
			uint64_t in, out;
			int rounds, pad;
		} p = { .rounds = rounds };
		struct rig rig;
		const int *got;

		rig_open(&rig, texts[t]);
		p.in = rig_alloc(&rig, sizeof(in), in);
		p.out = rig_alloc(&rig, (size_t)outs * 4, NULL);
		rig_launch(&rig, kernel, (struct rig_shape){ { 1 }, { threads }, 0 }, &p, rounds ? 20 : 16);
		got = rig_host(&rig, p.out);
		for (int i = 0; i < outs; i++)
			if (got[i] != expected(in, i, rounds))
				fail_msg("%s of %s: %d is %d, not %d", kernel, texts[t], i, got[i],
					 expected(in, i, rounds));
		rig_close(&rig);
	}
}

static int tokens(const int *in, int i, int rounds)
{
	int sum = 0;

	for (int r = 0; r < rounds; r++)
		sum += r + in[r * THREADS + (i + r + 1) % THREADS];
	return sum;
}

static void threads_wait_for_a_phase_by_its_token(void **state)
{
	(void)state;
	check_kernel("tokens", THREADS, 9, THREADS, tokens);
}

static int copies(const int *in, int i, int rounds)
{
	(void)rounds;
	return i < 256 ? in[255 - i] : in[256 + (i - 256) * 7 % 256];
}

static void copies_complete_on_a_barrier(void **state)
{
	(void)state;
	check_kernel("copies", 256, 0, 512, copies);
}

static int pipes(const int *in, int i, int rounds)
{
	int sum = 0;

	for (int r = 0; r < rounds; r++)
		sum += in[r * 128 + (i + r) % 128];
	return sum;
}

static void a_pipeline_loads_ahead(void **state)
{
	(void)state;
	check_kernel("pipes", 128, 11, 128, pipes);
}

static int roles(const int *in, int i, int rounds)
{
	int sum = 0;

	for (int r = 0; r < rounds; r++)
		sum += in[r * 64 + (i + 64 + r) % 64];
	return sum;
}

static void producers_and_consumers_take_turns(void **state)
{
	(void)state;
	check_kernel("roles", 128, 12, 64, roles);
}

static void threads_drop_out_of_a_barrier(void **state)
{
	(void)state;
	for (unsigned t = 0; t < 2; t++) {
		struct rig rig;
		uint64_t out;

		rig_open(&rig, texts[t]);
		out = rig_alloc(&rig, 512, NULL);
		rig_launch(&rig, "drops", (struct rig_shape){ { 1 }, { 128 }, 0 }, &out, sizeof(out));
		for (int i = 0; i < 128; i++)
			assert_int_equal(((int *)rig_host(&rig, out))[i], i % 4 == 3 ? 0 : 128);
		rig_close(&rig);
	}
}

static int big_tiles(const int *in, int i, int rounds)
{
	int first = i % 256 & ~63, sum = 0;

	(void)rounds;
	for (int k = 0; k < 64; k++)
		sum += in[first + k];
	return i < 256 ? sum : in[first + 5];
}

static int big_tiles_reserved(const int *in, int i, int rounds)
{
	int first = i % 256 & ~63, has_one = 0;

	for (int k = 0; k < 64; k++)
		has_one |= in[first + k] % 50 == 0;
	return i < 256 ? big_tiles(in, i, rounds) : has_one;
}

static void tiles_of_several_warps_use_reserved_memory(void **state)
{
	(void)state;
	check_kernel("big_tiles", 256, 0, 512, big_tiles);
	check_kernel("big_tiles_reserved", 256, 0, 512, big_tiles_reserved);
}

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
#define ENTRY \
	HEAD ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.shared .align 8 .b64 bar;\n" \
	     ".shared .align 16 .b8 room[64];\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<9>;\n" \
	     "ld.param.u64 %rd7, [in];\nld.param.u64 %rd8, [out];\nmov.u32 %r7, room;\nmov.u32 %r8, bar;\n"

static enum ptx_state run_text(const char *text, uint32_t out[8], struct ptx_fault *fault)
{
	static const uint32_t in[8] = { 11, 22, 33, 44, 55, 66, 77, 88 };
	struct {
		uint64_t in, out;
	} p;
	enum ptx_state end;
	struct rig rig;

	rig_open_text(&rig, text);
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, 32, NULL);
	end = rig_run(&rig, "k", (struct rig_shape){ { 1 }, { 1 }, 0 }, &p, sizeof(p));
	memcpy(out, rig_host(&rig, p.out), 32);
	*fault = rig.fault;
	rig_close(&rig);
	return end;
}

static void a_barrier_counts_arrivals_and_bytes(void **state)
{
	struct ptx_fault fault;
	uint32_t out[8];

	(void)state;
	assert_int_equal(run_text(ENTRY
				  "mbarrier.init.shared::cta.b64 [bar], 3;\n"
				  "fence.mbarrier_init.release.cluster;\n"
				  "mbarrier.arrive.release.cta.shared::cta.b64 %rd0, [%r8];\n"
				  "mbarrier.pending_count.b64 %r0, %rd0;\nst.global.u32 [%rd8], %r0;\n"
				  "mbarrier.arrive.noComplete.shared.b64 %rd1, [%r8], 1;\n"
				  "mbarrier.pending_count.b64 %r0, %rd1;\nst.global.u32 [%rd8+4], %r0;\n"
				  "mbarrier.test_wait.shared.b64 %p0, [bar], %rd0;\n"
				  "selp.u32 %r0, 1, 0, %p0;\nst.global.u32 [%rd8+8], %r0;\n"
				  /* the last arrival, but 16 bytes are owed */
				  "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;\n"
				  "mbarrier.try_wait.parity.shared.b64 %p0, [bar], 0, 100;\n"
				  "selp.u32 %r0, 1, 0, %p0;\nst.global.u32 [%rd8+12], %r0;\n"
				  "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;\n"
				  "mbarrier.try_wait.parity.shared.b64 %p0, [bar], 0;\n"
				  "selp.u32 %r0, 1, 0, %p0;\nst.global.u32 [%rd8+16], %r0;\n"
				  "mbarrier.test_wait.parity.shared.b64 %p0, [bar], 1;\n"
				  "selp.u32 %r0, 1, 0, %p0;\nst.global.u32 [%rd8+20], %r0;\n"
				  /* one fewer from now on */
				  "mbarrier.arrive_drop.shared.b64 %rd2, [bar];\n"
				  "mbarrier.arrive.shared.b64 _, [bar], 2;\n"
				  "cp.async.mbarrier.arrive.shared.b64 [bar];\n"
				  "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];\n"
				  "mbarrier.arrive.shared.b64 %rd3, [bar];\n"
				  "mbarrier.pending_count.b64 %r0, %rd3;\nst.global.u32 [%rd8+24], %r0;\n"
				  "mbarrier.inval.shared.b64 [bar];\nret;\n}\n",
				  out, &fault),
			 PTX_STATE_DONE);
	assert_int_equal(out[0], 3);
	assert_int_equal(out[1], 2);
	assert_int_equal(out[2], 0);
	assert_int_equal(out[3], 0);
	assert_int_equal(out[4], 1);
	assert_int_equal(out[5], 0);
	assert_int_equal(out[6], 1);
}

static void bulk_copies_move_both_ways(void **state)
{
	static const uint32_t expected[8] = { 11, 22, 33, 44, 55, 66, 77, 88 };
	struct ptx_fault fault;
	uint32_t out[8];

	(void)state;
	assert_int_equal(
		run_text(
			ENTRY
			"mbarrier.init.shared.b64 [bar], 1;\nmov.u32 %r0, 32;\n"
			"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd7], %r0, "
			"[%r8];\n"
			"mbarrier.arrive.expect_tx.shared.b64 %rd0, [bar], 32;\n"
			"w: mbarrier.try_wait.shared.b64 %p0, [bar], %rd0;\n@!%p0 bra w;\n"
			"fence.proxy.async.shared::cta;\ncp.async.bulk.prefetch.L2.global [%rd7], %r0;\n"
			"cp.async.bulk.global.shared::cta.bulk_group [%rd8], [%r7], %r0;\n"
			"cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nret;\n}\n",
			out, &fault),
		PTX_STATE_DONE);
	assert_memory_equal(out, expected, sizeof(expected));
}

static void barriers_and_copies_outside_of_shared_memory_are_faults(void **state)
{
	struct ptx_fault fault;
	uint32_t out[8];

	(void)state;
	assert_int_equal(run_text(ENTRY "mbarrier.init.b64 [%rd8], 1;\nret;\n}\n", out, &fault),
			 PTX_STATE_FAULT);
	assert_int_equal(fault.kind, PTX_FAULT_SHARED);
	assert_int_equal(run_text(ENTRY "mbarrier.init.shared.b64 [%r8+4], 1;\nret;\n}\n", out, &fault),
			 PTX_STATE_FAULT);
	assert_int_equal(fault.kind, PTX_FAULT_MISALIGNED);
	assert_int_equal(
		run_text(ENTRY "mov.u32 %r0, 512;\n"
			       "cp.async.bulk.global.shared::cta.bulk_group [%rd8], [%r7], %r0;\nret;\n}\n",
			 out, &fault),
		PTX_STATE_FAULT);
	assert_int_equal(fault.kind, PTX_FAULT_SHARED);
	assert_int_equal(
		run_text(ENTRY "mov.u32 %r0, 24;\n"
			       "cp.async.bulk.global.shared::cta.bulk_group [%rd8], [%r7], %r0;\nret;\n}\n",
			 out, &fault),
		PTX_STATE_FAULT);
	assert_int_equal(fault.kind, PTX_FAULT_MISALIGNED);
	assert_int_equal(
		run_text(ENTRY "mov.u32 %r0, 64;\n"
			       "cp.async.bulk.global.shared::cta.bulk_group [%rd8], [%r7], %r0;\nret;\n}\n",
			 out, &fault),
		PTX_STATE_FAULT);
	assert_int_equal(fault.kind, PTX_FAULT_ADDRESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_wait_for_a_phase_by_its_token),
		cmocka_unit_test(copies_complete_on_a_barrier),
		cmocka_unit_test(a_pipeline_loads_ahead),
		cmocka_unit_test(producers_and_consumers_take_turns),
		cmocka_unit_test(threads_drop_out_of_a_barrier),
		cmocka_unit_test(tiles_of_several_warps_use_reserved_memory),
		cmocka_unit_test(a_barrier_counts_arrivals_and_bytes),
		cmocka_unit_test(bulk_copies_move_both_ways),
		cmocka_unit_test(barriers_and_copies_outside_of_shared_memory_are_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
