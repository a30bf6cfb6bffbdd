/* ptx: faults, stopping and going on, barriers, atomics from several host threads, what the loader refuses. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
#define ENTRY \
	HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<9>;\n" \
	     "ld.param.u64 %rd0, [p];\nmov.u32 %r0, %tid.x;\n"
#define STORE_AT "mad.wide.u32 %rd8, %r0, 4, %rd0;\nst.global.u32 [%rd8], %r1;\nret;\n"
#define STORE "mad.wide.u32 %rd8, %r0, 4, %rd0;\nst.global.u32 [%rd8], %r1;\nret;\n}\n"

static void run_text(const char *text, uint32_t threads, uint32_t *out)
{
	struct rig rig;
	uint64_t at;

	rig_open_text(&rig, text);
	at = rig_alloc(&rig, threads * sizeof(*out), NULL);
	rig_launch(&rig, "k", (struct rig_shape){ { 1 }, { threads }, 0 }, &at, sizeof(at));
	memcpy(out, rig_host(&rig, at), threads * sizeof(*out));
	rig_close(&rig);
}

static struct ptx_fault fault_of(const char *text, uint32_t threads, uint64_t bytes)
{
	struct rig rig;
	uint64_t at;

	rig_open_text(&rig, text);
	at = rig_alloc(&rig, bytes, NULL);
	assert_int_equal(rig_run(&rig, "k", (struct rig_shape){ { 1 }, { threads }, 0 }, &at, sizeof(at)),
			 PTX_STATE_FAULT);
	rig_close(&rig);
	return rig.fault;
}

static void a_branch_table_sends_lanes_apart(void **state)
{
	uint32_t out[96];

	(void)state;
	run_text(
		ENTRY
		"rem.u32 %r2, %r0, 3;\nts: .branchtargets a, b, c;\nbrx.idx %r2, ts;\n"
		"a: mov.u32 %r1, 10;\nbra d;\nb: mov.u32 %r1, 20;\nbra d;\nc: add.u32 %r1, %r0, 30;\nd:\n" STORE,
		96, out);
	for (uint32_t i = 0; i < 96; i++)
		assert_int_equal(out[i], i % 3 == 0 ? 10 : i % 3 == 1 ? 20 : i + 30);
}

static void an_index_past_the_table_is_a_fault(void **state)
{
	struct ptx_fault f = fault_of(
		ENTRY "ts: .branchtargets a, b;\nbrx.idx %r0, ts;\na:\nb:\nmov.u32 %r1, 1;\n" STORE, 3, 16);

	(void)state;
	assert_int_equal(f.kind, PTX_FAULT_INDEX);
	assert_int_equal(f.thread[0], 2);
}

static void lanes_meet_again_behind_blocks_out_of_order(void **state)
{
	uint32_t out[32];

	(void)state;
	/* the join stands before the branches in the text; the vote behind it must see all lanes */
	run_text(
		ENTRY
		"and.b32 %r2, %r0, 1;\nsetp.eq.u32 %p1, %r2, 0;\nbra start;\n"
		"join: activemask.b32 %r1;\n" STORE_AT
		"odd: mov.u32 %r3, 5;\nbra join;\nstart: @%p1 bra even;\nbra odd;\neven: mov.u32 %r3, 6;\nbra join;\n}\n",
		32, out);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(out[i], 0xffffffff);
}

static void faults_say_where(void **state)
{
	struct ptx_fault f = fault_of(
		ENTRY "mad.wide.u32 %rd1, %r0, 4, %rd0;\nst.global.u32 [%rd1], %r0;\nret;\n}\n", 40, 144);

	(void)state;
	assert_int_equal(f.kind, PTX_FAULT_ADDRESS);
	assert_int_equal(f.thread[0], 36);
	assert_int_equal(f.line, 12);
	assert_true(f.is_write);
	f = fault_of(ENTRY "add.u64 %rd1, %rd0, 2;\nld.global.u32 %r1, [%rd1];\n" STORE, 1, 64);
	assert_int_equal(f.kind, PTX_FAULT_MISALIGNED);
	f = fault_of(ENTRY ".shared .b8 s[64];\nmov.u32 %r2, s;\nst.shared.u32 [%r2+64], %r0;\n" STORE, 1,
		     64);
	assert_int_equal(f.kind, PTX_FAULT_SHARED);
	f = fault_of(ENTRY ".local .b8 l[64];\nmov.u64 %rd2, l;\nst.local.u32 [%rd2+4096], %r0;\n" STORE, 1,
		     64);
	assert_int_equal(f.kind, PTX_FAULT_LOCAL);
	f = fault_of(ENTRY "setp.eq.u32 %p1, %r0, 7;\n@%p1 trap;\n" STORE, 32, 128);
	assert_int_equal(f.kind, PTX_FAULT_TRAP);
	assert_int_equal(f.thread[0], 7);
	f = fault_of(ENTRY "brkpt;\n" STORE, 32, 128);
	assert_int_equal(f.kind, PTX_FAULT_BREAKPOINT);
	f = fault_of(ENTRY "mov.u64 %rd1, 0;\nld.u32 %r1, [%rd1];\n" STORE, 1, 64);
	assert_int_equal(f.kind, PTX_FAULT_ADDRESS);
	f = fault_of(
		ENTRY
		"setp.lt.u32 %p1, %r0, 32;\n@%p1 bra a;\nbar.sync 1, 64;\nbra b;\na: bar.sync 2, 64;\nb:\n" STORE,
		64, 256);
	assert_int_equal(f.kind, PTX_FAULT_BARRIER);
}

static void barriers_pair_producers_and_consumers(void **state)
{
	uint32_t out[96];

	(void)state;
	/* two warps arrive, one waits: it must see what they wrote */
	run_text(
		ENTRY
		".shared .b32 s[64];\nshr.u32 %r2, %r0, 5;\nsetp.eq.u32 %p1, %r2, 2;\nmov.u32 %r3, s;\n"
		"@%p1 bra wait;\nmad.lo.u32 %r4, %r0, 4, %r3;\nmul.lo.u32 %r5, %r0, 3;\nst.shared.u32 [%r4], %r5;\n"
		"bar.arrive 3, 96;\nmov.u32 %r1, 0;\nbra done;\n"
		"wait: bar.sync 3, 96;\nsub.u32 %r4, %r0, 64;\nmad.lo.u32 %r4, %r4, 8, %r3;\nld.shared.u32 %r1, [%r4];\ndone:\n" STORE,
		96, out);
	for (uint32_t i = 64; i < 96; i++)
		assert_int_equal(out[i], (i - 64) * 2 * 3);
}

static void a_stopped_block_goes_on_where_it_was(void **state)
{
	struct rig rig;
	struct bf_error err;
	struct ptx_block *block;
	uint32_t stop = 1;
	const uint32_t index[3] = { 0 };
	uint64_t at, cost = 0, turns = 0;
	struct ptx_launch launch = { .grid = { 1, 1, 1 }, .threads = { 64, 1, 1 }, .params = &at };

	(void)state;
	rig_open_text(
		&rig, ENTRY
		"mov.u32 %r1, 0;\nloop: add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 100000;\n@%p1 bra loop;\n" STORE);
	at = rig_alloc(&rig, 256, NULL);
	launch.module = rig.module;
	launch.kernel = ptx_kernel_find(rig.module, "k");
	assert_int_equal(ptx_block_create(&launch, &rig.host, &block, &err), 0);
	ptx_block_start(block, index, 0);
	assert_int_equal(ptx_block_run(block, 0, &stop, &cost), PTX_STATE_RUNNING);
	assert_int_equal(cost, 0);
	stop = 0;
	while (ptx_block_run(block, 1000000, &stop, &cost) == PTX_STATE_RUNNING)
		turns++;
	assert_true(turns > 10);
	assert_int_equal(cost, 64 * (2 + 1 + 3 * 100000 + 3));
	assert_int_equal(((uint32_t *)rig_host(&rig, at))[63], 100000);
	ptx_block_free(block);
	rig_close(&rig);
}

struct worker {
	struct rig *rig;
	struct ptx_launch launch;
	uint32_t *next;
};

static void *run_some(void *arg)
{
	struct worker *w = arg;
	struct ptx_block *block;
	uint32_t n;

	if (ptx_block_create(&w->launch, &w->rig->host, &block, NULL))
		return NULL;
	while ((n = __atomic_fetch_add(w->next, 1, __ATOMIC_RELAXED)) < w->launch.grid[0]) {
		const uint32_t index[3] = { n, 0, 0 };

		ptx_block_start(block, index, 0);
		ptx_block_run(block, 0, NULL, NULL);
	}
	ptx_block_free(block);
	return NULL;
}

static void atomics_of_two_host_threads_lose_nothing(void **state)
{
	struct rig rig;
	uint64_t at;
	uint32_t next = 0;
	struct worker w = { .rig = &rig, .next = &next };
	pthread_t threads[2];
	const uint32_t *words;
	float sum;

	(void)state;
	rig_open_text(
		&rig, ENTRY
		"atom.global.add.u32 %r1, [%rd0], 1;\nred.global.add.f32 [%rd0+4], 0f3F800000;\n"
		"mov.u32 %r2, %ctaid.x;\nred.global.max.u32 [%rd0+8], %r2;\natom.global.inc.u32 %r1, [%rd0+12], 99;\n"
		"red.global.xor.b32 [%rd0+16], %r0;\natom.global.add.u64 %rd1, [%rd0+24], 3;\nret;\n}\n");
	at = rig_alloc(&rig, 32, NULL);
	w.launch = (struct ptx_launch){ .module = rig.module,
					.kernel = ptx_kernel_find(rig.module, "k"),
					.grid = { 200, 1, 1 },
					.threads = { 96, 1, 1 },
					.params = &at };
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_some, &w), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	words = rig_host(&rig, at);
	memcpy(&sum, words + 1, 4);
	assert_int_equal(words[0], 200 * 96);
	assert_true(sum == 200.0f * 96);
	assert_int_equal(words[2], 199);
	assert_int_equal(words[3], 200 * 96 % 100);
	assert_int_equal(words[4], 0);
	assert_int_equal(words[6], 200 * 96 * 3);
	rig_close(&rig);
}

static void shuffles_stay_in_their_segments(void **state)
{
	uint32_t out[32];

	(void)state;
	run_text(ENTRY "shfl.sync.up.b32 %r2|%p1, %r0, 3, 0x1800, -1;\nselp.u32 %r1, %r2, 99, %p1;\n" STORE,
		 32, out);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(out[i], i % 8 >= 3 ? i - 3 : 99);
	run_text(ENTRY "shfl.sync.down.b32 %r2|%p1, %r0, 5, 0x181f, -1;\nselp.u32 %r1, %r2, 99, %p1;\n" STORE,
		 32, out);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(out[i], i % 8 + 5 < 8 ? i + 5 : 99);
	run_text(ENTRY "shfl.sync.idx.b32 %r1, %r0, 9, 0x101f, -1;\n" STORE, 32, out);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(out[i], (i & 16) | 9);
}

static void asynchronous_copies_arrive(void **state)
{
	uint32_t out[32];

	(void)state;
	run_text(
		ENTRY
		".shared .align 16 .b8 s[512];\nmad.wide.u32 %rd1, %r0, 4, %rd0;\nmul.lo.u32 %r1, %r0, 7;\nst.global.u32 [%rd1], %r1;\n"
		"mov.u32 %r2, s;\nmad.lo.u32 %r2, %r0, 4, %r2;\nand.b32 %r3, %r0, 1;\nshl.b32 %r3, %r3, 2;\n"
		"cp.async.ca.shared.global [%r2], [%rd1], 4, %r3;\ncp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.u32 %r1, [%r2];\n" STORE,
		32, out);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(out[i], i & 1 ? i * 7 : 0);
}

/* Loading. */

static void refused(const char *text, const char *part)
{
	struct ptx_module *module;
	struct bf_error err = { 0 };
	int rc = ptx_module_load(text, strlen(text), &module, &err);

	/* Another version of the language is told from an error in it. */
	assert_int_equal(rc, strstr(part, ".version: ") ? -ENOTSUP : -EINVAL);
	assert_null(module);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
}

static void unsupported_is_refused_with_line_and_name(void **state)
{
	(void)state;
	refused(ENTRY "tex.1d.v4.s32.s32 {%r1,%r2,%r3,%r4}, [t, {%r1}];\n}\n", "line 11");
	refused(ENTRY "wmma.load.a.sync.aligned.row.m8n8k32.global.s4 %r1, [%rd0];\n}\n",
		"instruction wmma.load.a.sync.aligned.row.m8n8k32.global.s4 is not supported");
	refused(ENTRY "add.s8 %r1, %r1, %r1;\n}\n", "instruction add.s8 is not supported");
	refused(ENTRY "add.rn.s32 %r1, %r1, %r1;\n}\n", "add.rn.s32");
	refused(ENTRY "add.s32 %r1, %rd1, %r1;\n}\n", "operand 2");
	refused(ENTRY "add.s32 %r1, %r2;\n}\n", "operands are missing");
	refused(ENTRY "add.s32 %r1, %r2, %r77;\n}\n", "%r77");
	refused(ENTRY "bra nowhere;\n}\n", "no label nowhere");
	refused(ENTRY "mov.u32 %r1, %clusterid.x;\n}\n", "%clusterid");
	refused(ENTRY "call nobody;\n}\n", "nobody");
	refused(HEAD
		".extern .func malloc(.param .b64 a);\n.entry k()\n{\n.param .b64 q;\ncall malloc, (q);\n}\n",
		"malloc");
	refused(HEAD ".entry k()\n{\n", "ends");
	refused(".version 3.0\n.target sm_30\n", ".version: 6.0 to 9.x");
	refused("hello", "not PTX");
	refused(HEAD ".entry k()\n{\n.local .b8 x[999999999];\n}\n", "local");
	refused(HEAD ".entry k()\n{\n.shared .b8 x[300000];\n}\n", "shared");
}

static void a_module_tells_about_itself(void **state)
{
	struct ptx_module *module;
	const struct ptx_kernel *k;
	const struct ptx_variable *v;
	struct bf_error err = { 0 };
	static const char text[] = HEAD ".global .align 8 .u64 q[3] = {generic(w)+8, 5};\n}";
	static const char good[] = HEAD
		".visible .const .align 16 .b8 w[32] = {1, 2};\n.global .align 8 .u64 q[3] = {generic(w)+8, 5};\n"
		".visible .entry k(.param .u8 a, .param .align 16 .b8 b[20], .param .u64 c)\n"
		".maxntid 128, 2, 1\n.minnctapersm 3\n{\n.shared .align 4 .b8 s[100];\n.reg .b32 %r<3>;\n"
		"mov.u32 %r1, s;\nld.shared.u32 %r2, [%r1];\nret;\n}\n"
		".entry other()\n.reqntid 64\n{\nret;\n}\n";

	(void)state;
	assert_int_equal(ptx_module_load(text, strlen(text), &module, &err), -EINVAL); /* w is not declared */
	assert_int_equal(ptx_module_load(good, strlen(good), &module, &err), 0);
	k = ptx_kernel_find(module, "k");
	assert_true(k && k->is_entry && k->param_count == 3);
	assert_int_equal(k->params[1].offset, 16);
	assert_int_equal(k->params[2].offset, 40);
	assert_int_equal(k->param_bytes, 48);
	assert_int_equal(k->shared_bytes, 100);
	assert_int_equal(k->max_threads, 256);
	assert_int_equal(k->min_blocks, 3);
	assert_int_equal(ptx_kernel_at(module, 1)->required[0], 64);
	assert_null(ptx_kernel_at(module, 2));
	assert_null(ptx_kernel_find(module, "w"));
	v = ptx_variable_find(module, "w");
	assert_true(v && v->is_const && v->is_visible && v->bytes == 32 && v->align == 16 &&
		    v->data_bytes == 2);
	v = ptx_variable_find(module, "q");
	assert_true(v && v->bytes == 24 && v->data_bytes == 16 && v->reloc_count == 1);
	assert_int_equal(v->relocs[0].addend, 8);
	assert_int_equal(v->relocs[0].variable, 0);
	assert_int_equal(ptx_variable_count(module), 2);
	assert_int_equal(ptx_module_target(module), 90);
	assert_int_equal(ptx_module_version(module), 80);
	ptx_module_free(module);
}

static void impossible_launches_are_refused(void **state)
{
	struct rig rig;
	struct ptx_block *block;
	struct bf_error err = { 0 };
	uint64_t at = 0;
	struct ptx_launch launch = { .grid = { 1, 1, 1 }, .threads = { 1025, 1, 1 }, .params = &at };

	(void)state;
	rig_open_text(&rig, ENTRY STORE);
	launch.module = rig.module;
	launch.kernel = ptx_kernel_find(rig.module, "k");
	assert_int_equal(ptx_block_create(&launch, &rig.host, &block, &err), -EINVAL);
	launch.threads[0] = 0;
	assert_int_equal(ptx_block_create(&launch, &rig.host, &block, &err), -EINVAL);
	launch.threads[0] = 512;
	launch.threads[1] = 4;
	assert_int_equal(ptx_block_create(&launch, &rig.host, &block, &err), -EINVAL);
	launch.threads[1] = 1;
	launch.dynamic_shared_bytes = 1 << 20;
	assert_int_equal(ptx_block_create(&launch, &rig.host, &block, &err), -EINVAL);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_branch_table_sends_lanes_apart),
		cmocka_unit_test(an_index_past_the_table_is_a_fault),
		cmocka_unit_test(lanes_meet_again_behind_blocks_out_of_order),
		cmocka_unit_test(faults_say_where),
		cmocka_unit_test(barriers_pair_producers_and_consumers),
		cmocka_unit_test(a_stopped_block_goes_on_where_it_was),
		cmocka_unit_test(atomics_of_two_host_threads_lose_nothing),
		cmocka_unit_test(shuffles_stay_in_their_segments),
		cmocka_unit_test(asynchronous_copies_arrive),
		cmocka_unit_test(unsupported_is_refused_with_line_and_name),
		cmocka_unit_test(a_module_tells_about_itself),
		cmocka_unit_test(impossible_launches_are_refused),
	};

	return cmocka_run_group_tests_name("ptx control", tests, NULL, NULL);
}
