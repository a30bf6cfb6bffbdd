/* ptx: memory and control no other test uses, and instructions without effect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_operands.h"

#define U32(v) ((uint64_t)(uint32_t)(v))

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
#define ENTRY \
	HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<9>;\n" \
	     "ld.param.u64 %rd0, [p];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %rd8, %r0, 4, %rd0;\n"
#define STORE " st.global.u32 [%rd8], %r1;\nret;\n}\n"

static const uint64_t integer_edges[] = { 0,	      1,	  0x7fffff,   0x800000,	  0xffffff,
					  0x7fffffff, 0x80000000, 0xffffffff, 0x7fff8000, 0x8000ffff };
static const uint64_t double_edges[] = { 0,
					 1ull << 63,
					 1,
					 0x000fffffffffffff,
					 0x8010000000000000,
					 0x3ff0000000000000,
					 0xbff0000000000000,
					 0x7fefffffffffffff };

#define EXPECT(name, expr) \
	static uint64_t name(uint64_t x, uint64_t y, uint64_t z) \
	{ \
		(void)x; \
		(void)y; \
		(void)z; \
		return (expr); \
	}
EXPECT(first, x)
EXPECT(second, y)
EXPECT(first_words_sum, U32(x + (x >> 32)))
EXPECT(first_byte, U32((int32_t)(x & 0x7f) - (int32_t)(x & 0x80)))
EXPECT(four_words, U32(y ^ y >> 32 ^ z ^ z >> 32))

static void ldu_loads_like_ld(void **state)
{
	(void)state;
	fill_operands(79, double_edges, 8);
	check_operands("ldu.global.b64 %d, [%rd+8];", "ddd-", first);
	check_operands("ldu.global.s8 %d, [%rd+8];", "w---", first_byte);
	check_operands("ldu.global.v2.u32 {%d, %n}, [%rd+8]; add.u32 %d, %d, %n;", "w---", first_words_sum);
	check_operands(".reg .b32 %e<2>; ldu.global.v4.b32 {%d, %n, %e0, %e1}, [%rd+16]; xor.b32 %d, %d, %n; "
		       "xor.b32 %d, %d, %e0; xor.b32 %d, %d, %e1;",
		       "w---", four_words);
}

EXPECT(cas16, (uint16_t)x == (uint16_t)y ? z & 0xffff : x & 0xffff)
EXPECT(first16, x & 0xffff)

static void compare_and_swap_of_16_bits_leaves_the_neighbours(void **state)
{
	(void)state;
	fill_operands(80, integer_edges, 10);
	for (unsigned i = 0; i < N; i += 2)
		b[i] = a[i];
	check_operands("atom.global.cas.b16 %d, [%rd+8], %b, %c;", "h-hh", first16);
	check_operands("atom.relaxed.gpu.global.cas.b16 %d, [%rd+8], %b, %c; ld.global.b16 %d, [%rd+8];",
		       "h-hh", cas16);
	check_operands(IN_SHARED "atom.shared.cas.b16 %d, [%s], %b, %c; ld.shared.b16 %d, [%s];", "h-hh",
		       cas16);
	check_operands(
		".reg .b16 %e; atom.acq_rel.sys.global.cas.b16 %e, [%rd+10], %b, %c; ld.global.b16 %d, [%rd+8];",
		"h-hh", first16);
}

EXPECT(first32, U32(x))

static void asynchronous_copies_are_there_after_the_wait(void **state)
{
	(void)state;
	fill_operands(84, double_edges, 8);
	check_operands(
		IN_SHARED
		"cp.async.ca.shared::cta.global [%s], [%rd+16], 8; cp.async.wait_all; ld.shared.b64 %d, [%s];",
		"dd--", second);
	check_operands(
		IN_SHARED
		"cp.async.cg.shared::cta.global.L2::128B [%s], [%rd], 16; cp.async.wait_all; ld.shared.b64 %d, [%s+8];",
		"dd--", first);
	check_operands(
		IN_SHARED
		"cp.async.ca.shared::cta.global [%s], [%rd+8], 8, 4; cp.async.wait_all; ld.shared.b64 %d, [%s];",
		"dd--", first32);
}

/* One block of `threads`; `memory` is what they were given and what they left. */
static void run_text(const char *text, uint32_t threads, uint32_t *memory)
{
	struct rig rig;
	uint64_t at;

	rig_open_text(&rig, text);
	at = rig_alloc(&rig, threads * sizeof(*memory), memory);
	rig_launch(&rig, "k", (struct rig_shape){ { 1 }, { threads }, 0 }, &at, sizeof(at));
	memcpy(memory, rig_host(&rig, at), threads * sizeof(*memory));
	rig_close(&rig);
}

static void hints_and_fences_change_nothing(void **state)
{
	static const char *const texts[] = {
		"prefetch.global.L1 [%rd0];",
		"prefetch.global.L2 [%rd0+4];",
		"prefetch.L1 [%rd0];",
		"prefetch.global.L2::evict_last [%rd0];",
		"prefetch.global.L2::evict_normal [%rd0];",
		".local .b8 l[8]; prefetch.local.L1 [l];",
		"prefetchu.L1 [%rd0];",
		"fence.sc.cta;",
		"fence.sc.cluster;",
		"fence.sc.gpu;",
		"fence.sc.sys;",
		"fence.acq_rel.cta;",
		"fence.acq_rel.cluster;",
		"fence.acq_rel.gpu;",
		"fence.acq_rel.sys;",
		"fence.acquire.gpu;",
		"fence.release.gpu;",
		"fence.cta;",
		"nanosleep.u32 20;",
		"nanosleep.u32 %r0;",
		"pmevent 7;",
		"pmevent.mask 0x21;",
		"griddepcontrol.launch_dependents;",
		"griddepcontrol.wait;",
		"discard.global.L2 [%rd0], 128;", /* allowed to change the bytes; here it does not */
		"applypriority.global.L2::evict_normal [%rd0], 128;",
	};
	char text[1024];

	(void)state;
	for (unsigned n = 0; n < sizeof(texts) / sizeof(texts[0]); n++) {
		uint32_t memory[64];

		for (uint32_t i = 0; i < 64; i++)
			memory[i] = i * 0x01010101;
		strcpy(text, ENTRY "ld.global.u32 %r2, [%rd8];\n");
		strcat(text, texts[n]);
		strcat(text, "\nld.global.u32 %r3, [%rd8];\nadd.u32 %r1, %r2, %r3;\n" STORE);
		run_text(text, 64, memory);
		for (uint32_t i = 0; i < 64; i++)
			assert_int_equal(memory[i], i * 0x02020202);
	}
}

static void a_fence_orders_a_message_before_its_flag(void **state)
{
	uint32_t out[64] = { 0 };

	(void)state;
	/* the first warp waits for the second one's */
	run_text(ENTRY
		 ".shared .b32 message[2];\nmov.u32 %r1, 7;\nsetp.lt.u32 %p1, %r0, 32;\n@%p1 bra wait;\n"
		 "st.shared.u32 [message], 41;\n"
		 "fence.acq_rel.cta;\nst.relaxed.cta.shared.u32 [message+4], 1;\nbra end;\n"
		 "wait: ld.relaxed.cta.shared.u32 %r2, [message+4];\nsetp.eq.u32 %p2, %r2, 0;\n"
		 "@%p2 bra wait;\nfence.acq_rel.cta;\nld.shared.u32 %r1, [message];\nend:\n" STORE,
		 64, out);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(out[i], i < 32 ? 41 : 7);
}

static void election_makes_one_member_the_leader(void **state)
{
	uint32_t out[64] = { 0 }, leaders[2] = { 0 };

	(void)state;
	/* the second warp elects among its lanes from 5 on */
	run_text(ENTRY "mov.u32 %r1, 999;\nsetp.lt.u32 %p1, %r0, 32;\nsetp.ge.u32 %p2, %r0, 37;\n"
		       "@%p1 bra all;\n@%p2 bra some;\nbra end;\n"
		       "all: elect.sync %r2|%p3, 0xffffffff;\nbra join;\n"
		       "some: elect.sync %r2|%p3, 0xffffffe0;\n"
		       "join: selp.u32 %r1, 256, 0, %p3;\nadd.u32 %r1, %r1, %r2;\nend:\n" STORE,
		 64, out);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t first_lane = i < 32 ? 0 : 37, lane = i % 32;

		if (i >= 32 && i < 37) {
			assert_int_equal(out[i], 999);
			continue;
		}
		assert_int_equal(out[i] & 0xff, out[first_lane] & 0xff);
		assert_int_equal(out[i] >> 8, lane == (out[i] & 0xff));
		leaders[i / 32] += out[i] >> 8;
	}
	assert_int_equal(leaders[0], 1);
	assert_int_equal(leaders[1], 1);
}

static void a_branch_table_is_followed_by_each_lane(void **state)
{
	uint32_t out[96] = { 0 };

	(void)state;
	run_text(ENTRY "and.b32 %r2, %r0, 3;\nts: .branchtargets one, two, three, two;\n"
		       "brx.idx %r2, ts;\n"
		       "one: mov.u32 %r1, 10;\nbra end;\ntwo: add.u32 %r1, %r2, 20;\nbra end;\n"
		       "three: mov.u32 %r1, %r0;\nend:\n" STORE,
		 96, out);
	for (uint32_t i = 0; i < 96; i++)
		assert_int_equal(out[i], i % 4 == 0 ? 10 : i % 4 == 2 ? i : i % 4 + 20);
}

static void exit_in_a_function_ends_the_thread(void **state)
{
	uint32_t out[64] = { 0 };

	(void)state;
	/* those left still meet at the barrier */
	run_text(HEAD
		 ".func leave(.param .b32 t)\n{\n.reg .b32 %r<3>;\n.reg .pred %p1;\nld.param.u32 %r1, [t];\n"
		 "and.b32 %r2, %r1, 1;\nsetp.ne.u32 %p1, %r2, 0;\n"
		 "@%p1 exit;\nret;\n}\n"
		 ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n"
		 "ld.param.u64 %rd0, [p];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %rd8, %r0, 4, %rd0;\n"
		 "{ .param .b32 q;\nst.param.b32 [q], %r0;\ncall.uni leave, (q);\n}\n"
		 "bar.sync 0;\nadd.u32 %r1, %r0, 1;\n" STORE,
		 64, out);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(out[i], i % 2 ? 0 : i + 1);
}

static void barriers_reduce_over_those_that_meet(void **state)
{
	uint32_t out[96] = { 0 };

	(void)state;
	/* all: how many are below 50, whether all are below 96, whether any is 77; the last 64: how many are odd */
	run_text(ENTRY
		 "setp.lt.u32 %p1, %r0, 50;\nsetp.lt.u32 %p2, %r0, 96;\nsetp.eq.u32 %p3, %r0, 77;\n"
		 "and.b32 %r2, %r0, 1;\nsetp.eq.u32 %p4, %r2, 0;\nsetp.lt.u32 %p5, %r0, 32;\n"
		 "barrier.red.popc.aligned.u32 %r1, 0, %p1;\n"
		 "barrier.cta.red.and.aligned.pred %p6, 0, %p2;\n"
		 "barrier.red.and.pred %p7, 0, %p1;\n"
		 "barrier.red.or.pred %p8, 0, %p3;\n"
		 "@%p6 add.u32 %r1, %r1, 1000;\n@%p7 add.u32 %r1, %r1, 2000;\n@%p8 add.u32 %r1, %r1, 4000;\n"
		 "@%p5 bra end;\n"
		 "barrier.cta.red.popc.u32 %r3, 1, 64, !%p4;\n"
		 "mad.lo.u32 %r1, %r3, 10000, %r1;\nend:\n" STORE,
		 96, out);
	for (uint32_t i = 0; i < 96; i++)
		assert_int_equal(out[i], 5050 + (i < 32 ? 0 : 320000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ldu_loads_like_ld),
		cmocka_unit_test(compare_and_swap_of_16_bits_leaves_the_neighbours),
		cmocka_unit_test(asynchronous_copies_are_there_after_the_wait),
		cmocka_unit_test(hints_and_fences_change_nothing),
		cmocka_unit_test(a_fence_orders_a_message_before_its_flag),
		cmocka_unit_test(election_makes_one_member_the_leader),
		cmocka_unit_test(a_branch_table_is_followed_by_each_lane),
		cmocka_unit_test(exit_in_a_function_ends_the_thread),
		cmocka_unit_test(barriers_reduce_over_those_that_meet),
	};

	return cmocka_run_group_tests_name("ptx rest", tests, NULL, NULL);
}
