/* How busy a GPU has been: time of its SMs and of its memory bus, and bytes, counted exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "hw_rig.h"

#define NS 1000000000ull
#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"

/* One kernel: `body` on a buffer at %p, with %t the thread's number and %q its own 16 bytes. */
#define KERNEL(body) \
	HEAD ".visible .entry forms(.param .u64 data)\n{\n" \
	     ".reg .b64 %p, %q, %g, %h;\n.reg .b32 %t, %s, %a, %b, %c, %d;\n.reg .pred %c1;\n" \
	     ".shared .align 16 .b8 own[512];\n.local .align 16 .b8 stack[16];\n" \
	     "ld.param.u64 %p, [data];\nmov.u32 %t, %tid.x;\nmad.wide.u32 %q, %t, 16, %p;\n" \
	     "mov.u32 %s, own;\nmad.lo.u32 %s, %t, 16, %s;\n" body "ret;\n}\n"

static struct soft_counters_params counters_of(struct gpu_rig *rig)
{
	struct soft_counters_params counters;

	hw_gpu_get_counters(rig->gpu, &counters);
	return counters;
}

/* What 32 threads of it move. */
static uint64_t bytes_of(const char *text)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t data, bytes;

	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, text);
	data = app_alloc(&app, 4096, NULL);
	app_launch(&app, "forms", (struct app_shape){ .grid = { 1 }, .threads = { 32 } }, &data,
		   sizeof(data));
	app_fence(&app);
	bytes = counters_of(&rig).moved_bytes;
	app_close(&app);
	gpu_close(&rig);
	return bytes;
}

static void every_form_moves_its_width_for_each_lane(void **state)
{
	static const struct {
		const char *text;
		uint32_t lanes, width;
	} forms[] = {
		{ KERNEL(""), 0, 0 },
		{ KERNEL("ld.global.u32 %a, [%q];\n"), 32, 4 },
		{ KERNEL("ld.global.u8 %a, [%q];\n"), 32, 1 },
		{ KERNEL("ld.global.v4.u32 {%a, %b, %c, %d}, [%q];\n"), 32, 16 },
		{ KERNEL("st.global.v2.u64 [%q], {%p, %p};\n"), 32, 16 },
		{ KERNEL("red.global.add.u32 [%q], %t;\n"), 32, 4 },
		{ KERNEL("atom.global.cas.b64 %g, [%q], %p, %q;\n"), 32, 8 },
		{ KERNEL("st.u64 [%q], %p;\n"), 32, 8 },
		{ KERNEL("ld.global.u32 %a, [%p];\n"), 32, 4 },
		{ KERNEL("setp.lt.u32 %c1, %t, 5;\n@%c1 ld.global.u64 %g, [%q];\n"), 5, 8 },
		{ KERNEL("setp.lt.u32 %c1, %t, 5;\n@!%c1 st.u32 [%q], %t;\n"), 27, 4 },
		{ KERNEL("cp.async.cg.shared.global [%s], [%q], 16;\n"), 32, 16 },
		/* a block's own */
		{ KERNEL("st.shared.u32 [%s], %t;\nld.shared.v2.u32 {%a, %b}, [%s];\n"), 0, 0 },
		{ KERNEL("atom.shared.add.u32 %a, [%s], %t;\n"), 0, 0 },
		{ KERNEL("st.local.u32 [stack], %t;\nld.local.u32 %a, [stack];\n"), 0, 0 },
		{ KERNEL("cvt.u64.u32 %g, %s;\ncvta.shared.u64 %g, %g;\nst.u32 [%g], %t;\n"), 0, 0 },
		/* half of the lanes there, half here */
		{ KERNEL("cvt.u64.u32 %g, %s;\ncvta.shared.u64 %g, %g;\nsetp.lt.u32 %c1, %t, 16;\n"
			 "selp.b64 %h, %g, %q, %c1;\nst.u32 [%h], %t;\n"),
		  16, 4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		uint64_t bytes = bytes_of(forms[i].text);

		if (bytes != (uint64_t)forms[i].lanes * forms[i].width)
			fail_msg("%llu bytes, not %u times %u:\n%s", (unsigned long long)bytes,
				 forms[i].lanes, forms[i].width, forms[i].text);
	}
}

/* An integer loop: its SMs' time is its instructions', and the bus has next to nothing to do. */
static void loop_takes_time_of_sms_and_none_of_the_bus(void **state)
{
	const uint32_t rounds = 20000, blocks = 8, threads = blocks * 32;
	struct soft_counters_params counters;
	struct gpu_rig rig;
	struct app app;
	uint64_t sm_ns;

	(void)state;
	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, app_work_text);
	app_time_work(&app, app_alloc(&app, (size_t)threads * 4, NULL), blocks, rounds);
	app_fence(&app);
	counters = counters_of(&rig);
	sm_ns = app_work_cost(rounds, threads) * NS / rig.options.rate;
	assert_in_range(counters.sm_ns, sm_ns - blocks, sm_ns);
	assert_int_equal(counters.moved_bytes, threads * 4);
	assert_in_range(counters.bus_ns, 1, sm_ns / 1000);
	assert_int_equal(counters.sm_count, rig.options.sms);
	app_close(&app);
	gpu_close(&rig);
}

static void copies_take_time_of_the_bus_only(void **state)
{
	const uint32_t bytes = 8 << 20;
	struct soft_counters_params counters;
	struct gpu_rig rig;
	struct app app;
	uint64_t a, b;

	(void)state;
	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, NULL);
	a = app_alloc(&app, bytes, NULL);
	b = app_alloc(&app, bytes, NULL);
	app_copy(&app, a, b, bytes);
	app_fence(&app);
	counters = counters_of(&rig);
	assert_int_equal(counters.sm_ns, 0);
	assert_int_equal(counters.moved_bytes, 2ull * bytes);	       /* read and written */
	assert_in_range(counters.bus_ns, bytes - bytes / 1000, bytes); /* 1 byte a ns */
	app_close(&app);
	gpu_close(&rig);
}

/* Elements whose components of 4 bytes are picked, or a constant. */
static void remap(struct app *app, uint64_t to, uint64_t from, uint32_t components, uint32_t count)
{
	app_method(app, SOFT_SUBCHANNEL_COPY, SOFT_COPY_REMAP_COMPONENTS, components | 3 << 16);
	app_push(app, SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_IN_UPPER, 4));
	app_push(app, (uint32_t)(from >> 32));
	app_push(app, (uint32_t)from);
	app_push(app, (uint32_t)(to >> 32));
	app_push(app, (uint32_t)to);
	app_method(app, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LINE_LENGTH, count);
	app_method(app, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LAUNCH,
		   1 | SOFT_COPY_SRC_PITCH | SOFT_COPY_DST_PITCH | SOFT_COPY_REMAP);
	app_fence(app);
}

static void fills_move_what_they_write(void **state)
{
	const uint32_t constant = 4, second_of_two = 1 | 1 << 20, count = 100;
	struct gpu_rig rig;
	struct app app;
	uint64_t a, b, filled;

	(void)state;
	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, NULL);
	a = app_alloc(&app, 4096, NULL);
	b = app_alloc(&app, 4096, NULL);
	remap(&app, a, 0, constant, count);
	filled = counters_of(&rig).moved_bytes;
	assert_int_equal(filled, 4 * count);
	remap(&app, a, b, second_of_two, count);
	assert_int_equal(counters_of(&rig).moved_bytes - filled, (8 + 4) * count);
	app_close(&app);
	gpu_close(&rig);
}

static bool has_gone_back(const struct soft_counters_params *last, const struct soft_counters_params *now)
{
	return now->gpu_ns < last->gpu_ns || now->sm_ns < last->sm_ns || now->bus_ns < last->bus_ns ||
	       now->moved_bytes < last->moved_bytes;
}

/* Looked at all the time: while kernels and copies run, between programs, after they are gone. */
static void totals_never_go_back(void **state)
{
	struct soft_counters_params last = { 0 }, now, end;
	struct gpu_rig rig;

	(void)state;
	gpu_open(&rig, NULL, true);
	for (unsigned i = 0; i < 3; i++) {
		struct app app;
		uint64_t out;

		app_open(&app, rig.gpu, app_work_text);
		out = app_alloc(&app, 4096, NULL);
		app_copy(&app, out, out + 2048, 2048);
		app_time_work(&app, out, 4, 20000);
		app_submit(&app);
		do {
			now = counters_of(&rig);
			assert_false(has_gone_back(&last, &now));
			last = now;
		} while (app_slot(&app, 1) != app.fence);
		end = counters_of(&rig);
		app_close(&app);
		now = counters_of(&rig);
		assert_false(has_gone_back(&end, &now));
		assert_int_equal(now.sm_ns, end.sm_ns); /* nothing runs */
		assert_int_equal(now.moved_bytes, end.moved_bytes);
	}
	gpu_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_form_moves_its_width_for_each_lane),
		cmocka_unit_test(loop_takes_time_of_sms_and_none_of_the_bus),
		cmocka_unit_test(copies_take_time_of_the_bus_only),
		cmocka_unit_test(fills_move_what_they_write),
		cmocka_unit_test(totals_never_go_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
