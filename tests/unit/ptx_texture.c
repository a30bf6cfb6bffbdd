/* ptx: textures and surfaces, where tests/cuda/runtime/textures.cu cannot reach: descriptors that a program has
 * overwritten, lanes that diverge, forms that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"
#include "soft/ptx/texture.h"

#define W 8
#define H 4
#define ENTRY \
	".version 8.0\n.target sm_80\n.address_size 64\n" \
	".visible .entry k(.param .u64 texture, .param .u64 out)\n{\n.reg .f32 %f<9>;\n.reg .b16 %rs<5>;\n" \
	".reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<3>;\nld.param.u64 %rd1, [texture];\n" \
	"ld.param.u64 %rd2, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd3, %r0, 4;\nadd.u64 %rd4, %rd2, %rd3;\n"

struct run {
	struct ptx_texture texture;
	uint32_t texels[W * H];
	uint32_t out[32];
	struct ptx_fault fault;
	uint64_t handle_offset;
};

static void run_init(struct run *run)
{
	*run = (struct run){ .texture = { .magic = PTX_TEXTURE_MAGIC,
					  .format = PTX_TEXTURE_U32,
					  .channels = 1,
					  .pitch = (uint64_t)W * 4,
					  .slice = (uint64_t)W * H * 4,
					  .width = W,
					  .height = H,
					  .depth = 1,
					  .address = { 1, 1, 1 } } };
	for (unsigned i = 0; i < W * H; i++)
		run->texels[i] = 100 + i;
}

static enum ptx_state run_text(struct run *run, const char *text)
{
	struct {
		uint64_t texture, out;
	} p;
	uint64_t texels;
	enum ptx_state end;
	struct rig rig;

	rig_open_text(&rig, text);
	texels = rig_alloc(&rig, sizeof(run->texels), run->texels);
	run->texture.base += texels;
	p.texture = rig_alloc(&rig, sizeof(run->texture), &run->texture) + run->handle_offset;
	p.out = rig_alloc(&rig, sizeof(run->out), NULL);
	end = rig_run(&rig, "k", (struct rig_shape){ { 1 }, { 32 }, 0 }, &p, sizeof(p));
	memcpy(run->out, rig_host(&rig, p.out), sizeof(run->out));
	memcpy(run->texels, rig_host(&rig, texels), sizeof(run->texels));
	run->fault = rig.fault;
	rig_close(&rig);
	return end;
}

#define READ_ALL \
	ENTRY "and.b32 %r1, %r0, 7;\nshr.u32 %r2, %r0, 3;\n" \
	      "tex.2d.v4.u32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r1, %r2}];\nst.global.u32 [%rd4], %r3;\nret;\n}\n"

static void integers_are_read_by_whole_coordinates(void **state)
{
	struct run run;

	(void)state;
	run_init(&run);
	assert_int_equal(run_text(&run, READ_ALL), PTX_STATE_DONE);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(run.out[i], 100 + i);
}

/* Lanes of two branches have their own coordinates, and a guard keeps the others' results as they are. */
static void diverged_lanes_read_their_own_texels(void **state)
{
	struct run run;

	(void)state;
	run_init(&run);
	assert_int_equal(
		run_text(&run,
			 ENTRY "and.b32 %r1, %r0, 7;\nshr.u32 %r2, %r0, 3;\nand.b32 %r7, %r0, 1;\n"
			       "setp.eq.u32 %p0, %r7, 0;\nmov.u32 %r3, 7;\n@%p0 bra EVEN;\n"
			       "tex.2d.v4.u32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r2, %r2}];\nbra.uni END;\n"
			       "EVEN:\nsetp.lt.u32 %p1, %r0, 16;\n"
			       "@%p1 tex.2d.v4.u32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r1, %r2}];\n"
			       "END:\nst.global.u32 [%rd4], %r3;\nret;\n}\n"),
		PTX_STATE_DONE);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(run.out[i], i & 1 ? 100 + i / 8 * (W + 1) : i < 16 ? 100 + i : 7);
}

static void expect_fault(const struct run *like, enum ptx_fault_kind kind)
{
	struct run run = *like;

	assert_int_equal(run_text(&run, READ_ALL), PTX_STATE_FAULT);
	assert_int_equal(run.fault.kind, kind);
}

static void a_descriptor_that_is_none_is_a_fault(void **state)
{
	struct run run;

	(void)state;
	run_init(&run);
	run.handle_offset = 8;
	expect_fault(&run, PTX_FAULT_ADDRESS);
	run.handle_offset = 1ull << 40;
	expect_fault(&run, PTX_FAULT_ADDRESS);
	run_init(&run);
	run.texture.magic = 0;
	expect_fault(&run, PTX_FAULT_ADDRESS);
	run_init(&run);
	run.texture.format = PTX_TEXTURE_FORMATS;
	expect_fault(&run, PTX_FAULT_ADDRESS);
	run_init(&run);
	run.texture.channels = 3;
	expect_fault(&run, PTX_FAULT_ADDRESS);
	run_init(&run);
	run.texture.height = 0;
	expect_fault(&run, PTX_FAULT_ADDRESS);
	run_init(&run);
	run.texture.pitch = 6;
	expect_fault(&run, PTX_FAULT_ADDRESS);
	run_init(&run);
	run.texture.pitch = 1ull << 63;
	expect_fault(&run, PTX_FAULT_ADDRESS);
	run_init(&run);
	run.texture.base = 1ull << 45; /* added to the texels' address */
	expect_fault(&run, PTX_FAULT_ADDRESS);
}

/* Every coordinate, NaN and infinity too, is some texel or the border. */
static void every_coordinate_is_somewhere(void **state)
{
	static const char *const values[] = { "0f7FC00000", "0f7F800000", "0fFF800000", "0f7F7FFFFF",
					      "0fFF7FFFFF" };

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		for (uint8_t flags = 0; flags < 4; flags++)
			for (uint8_t mode = 0; mode < 4; mode++) {
				struct run run;
				char text[2048];

				run_init(&run);
				run.texture.format = PTX_TEXTURE_F32;
				run.texture.flags = flags;
				memset(run.texture.address, mode, 3);
				snprintf(
					text, sizeof(text),
					"%smov.f32 %%f1, %s;\ntex.2d.v4.f32.f32 {%%f2, %%f3, %%f4, %%f5}, "
					"[%%rd1, {%%f1, 0f3F000000}];\nst.global.f32 [%%rd4], %%f2;\nret;\n}\n",
					ENTRY, values[i]);
				assert_int_equal(run_text(&run, text), PTX_STATE_DONE);
			}
}

/* A program may write anything into a descriptor: the kernel ends, well or with a fault, and reads nothing else. */
static void random_descriptors_end_well_or_with_a_fault(void **state)
{
	static const char *const texts[] = {
		READ_ALL,
		ENTRY
		"cvt.rn.f32.u32 %f1, %r0;\ntex.3d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, %f1, %f1, %f1}];\n"
		"tld4.a.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, %f1}];\n"
		"tex.acube.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%r0, %f1, %f2, %f3}];\n"
		"tex.a1d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%r0, %f1}];\nret;\n}\n",
		ENTRY "sust.b.3d.b8.clamp [%rd1, {%r0, %r0, %r0, %r0}], {%rs1};\n"
		      "suld.b.a2d.b16.clamp {%rs1}, [%rd1, {%r0, %r0, %r0, %r0}];\n"
		      "suld.b.1d.v2.b32.zero {%r1, %r2}, [%rd1, {%r0}];\nret;\n}\n",
	};
	uint64_t seed = 4711;
	unsigned done = 0, faults = 0;

	(void)state;
	for (unsigned i = 0; i < 1500; i++) {
		uint8_t bytes[sizeof(struct ptx_texture)];
		struct run run;
		enum ptx_state end;

		run_init(&run);
		memcpy(bytes, &run.texture, sizeof(bytes));
		for (uint64_t n = 1 + rig_random(&seed) % 4; n; n--) {
			size_t at = 4 + rig_random(&seed) % (sizeof(bytes) - 4);

			bytes[at] =
				(uint8_t)(rig_random(&seed) % 3 ? rig_random(&seed) % 9 : rig_random(&seed));
		}
		memcpy(&run.texture, bytes, sizeof(bytes));
		end = run_text(&run, texts[i % 3]);
		assert_int_not_equal(end, PTX_STATE_RUNNING);
		done += end == PTX_STATE_DONE;
		faults += end == PTX_STATE_FAULT;
	}
	assert_true(done > 100);
	assert_true(faults > 100);
}

/* Two 16-bit elements of each lane, half of the lanes outside. */
#define SURFACE_TEXT(what) \
	ENTRY "mul.lo.u32 %r1, %r0, 4;\nsub.u32 %r1, %r1, 16;\nmov.b32 {%rs1, %rs2}, %r0;\n" what "ret;\n}\n"

static void surfaces_clamp_skip_or_fault_outside(void **state)
{
	struct run run;

	(void)state;
	run_init(&run);
	assert_int_equal(
		run_text(&run, SURFACE_TEXT("sust.b.2d.v2.b16.zero [%rd1, {%r1, 1}], {%rs1, %rs2};\n")),
		PTX_STATE_DONE);
	for (unsigned i = 0; i < W * H; i++)
		assert_int_equal(run.texels[i], i >= W && i < 2 * W ? i - W + 4 : 100 + i);
	run_init(&run);
	assert_int_equal(run_text(&run, SURFACE_TEXT("suld.b.2d.b32.clamp {%r2}, [%rd1, {%r1, -5}];\n"
						     "st.global.u32 [%rd4], %r2;\n")),
			 PTX_STATE_DONE);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(run.out[i], 100 + (i < 4 ? 0 : i > 11 ? 7 : i - 4));
	run_init(&run);
	assert_int_equal(run_text(&run, SURFACE_TEXT("suld.b.2d.b32.zero %r2, [%rd1, {%r1, 3}];\n"
						     "st.global.u32 [%rd4], %r2;\n")),
			 PTX_STATE_DONE);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(run.out[i], i < 4 || i > 11 ? 0 : 124 + i - 4);
	run_init(&run);
	assert_int_equal(run_text(&run, SURFACE_TEXT("suld.b.2d.b32.trap %r2, [%rd1, {%r1, 3}];\n")),
			 PTX_STATE_FAULT);
	assert_int_equal(run.fault.kind, PTX_FAULT_ADDRESS);
	run_init(&run);
	assert_int_equal(run_text(&run, SURFACE_TEXT("suld.b.2d.b32.trap %r2, [%rd1, {2, 3}];\n")),
			 PTX_STATE_FAULT);
	assert_int_equal(run.fault.kind, PTX_FAULT_MISALIGNED);
}

static void forms_that_are_not_are_refused(void **state)
{
	static const char *const forms[] = {
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, %rd1, {%f1, %f2}];",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1}];",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1];",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1+8, {%f1, %f2}];",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3}, [%rd1, {%f1, %f2}];",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %rd1}, [%rd1, {%f1, %f2}];",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%r1, {%f1, %f2}];",
		"tex.1d.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];",
		"tex.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}], %f1;",
		"tld4.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];",
		"suld.b.2d.v4.b64.trap {%rd1, %rd2, %rd3, %rd4}, [%rd1, {%r1, %r2}];",
		"suld.b.2d.b32.trap.zero %r1, [%rd1, {%r1, %r2}];",
		"sust.p.2d.v4.b32.trap [%rd1, {%r1, %r2}], {%r1, %r2, %r3, %r4};",
		"sured.b.add.2d.u32.trap [%rd1, {%r1, %r2}], %r1;",
		"ld.global.u32 %r1, [%rd1, {%r1, %r2}];",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2]};",
		"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, [%rd1]];",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct ptx_module *module = NULL;
		struct bf_error err = { 0 };
		char text[2048];

		snprintf(text, sizeof(text), "%s%s\nret;\n}\n", ENTRY, forms[i]);
		if (!ptx_module_load(text, strlen(text), &module, &err))
			fail_msg("%s is not refused", forms[i]);
		assert_non_null(strstr(err.text, "line 16"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_are_read_by_whole_coordinates),
		cmocka_unit_test(diverged_lanes_read_their_own_texels),
		cmocka_unit_test(a_descriptor_that_is_none_is_a_fault),
		cmocka_unit_test(every_coordinate_is_somewhere),
		cmocka_unit_test(random_descriptors_end_well_or_with_a_fault),
		cmocka_unit_test(surfaces_clamp_skip_or_fault_outside),
		cmocka_unit_test(forms_that_are_not_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
