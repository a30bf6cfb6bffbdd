/* ptx: tensor cores: kernels of tests/data/ptx/tensor.cu against C on the CPU, the layout of every fragment of mma as
 * the PTX ISA lists it, faults, and forms that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"
#include "soft/ptx/texture.h"

#define WARP ((struct rig_shape){ { 1 }, { 32 }, 0 })

struct matrices {
	uint64_t a, b, d;
};

static uint16_t half_of(int v) /* 0 to 15 */
{
	unsigned exponent = 0;

	if (!v)
		return 0;
	while (v >> (exponent + 1))
		exponent++;
	return (uint16_t)((exponent + 15) << 10 | ((unsigned)v << (10 - exponent) & 0x3ff));
}

/* Small whole numbers, in every type exact. */
static int a_at(int row, int k)
{
	return (row * 5 + k * 3) % 11;
}

static int b_at(int k, int column)
{
	return (k * 7 + column) % 13;
}

static int sum_at(int row, int column, int ks)
{
	int sum = 0;

	for (int k = 0; k < ks; k++)
		sum += a_at(row, k) * b_at(k, column);
	return sum;
}

static void element_put(void *to, int i, int v, char type)
{
	if (type == 'h')
		((uint16_t *)to)[i] = half_of(v);
	else if (type == 'f')
		((float *)to)[i] = (float)v;
	else if (type == 'd')
		((double *)to)[i] = v;
	else
		((int8_t *)to)[i] = (int8_t)v;
}

static double result_at(const void *from, int i, char type)
{
	return type == 'd'   ? ((const double *)from)[i]
	       : type == 's' ? ((const int32_t *)from)[i]
			     : (double)((const float *)from)[i];
}

/* A by rows and B by columns, or by rows, of `type`: D = A B + what `added` says. */
static void check_product(const char *kernel, int m, int n, int k, char type, bool b_is_by_rows, int added)
{
	double a[512], b[512];
	struct matrices p;
	struct rig rig;

	for (int i = 0; i < m * k; i++)
		element_put(a, i, a_at(i / k, i % k), type);
	for (int i = 0; i < k * n; i++)
		element_put(b, i, b_is_by_rows ? b_at(i / n, i % n) : b_at(i % k, i / k), type);
	rig_open(&rig, "tensor");
	p.a = rig_alloc(&rig, sizeof(a), a);
	p.b = rig_alloc(&rig, sizeof(b), b);
	p.d = rig_alloc(&rig, (size_t)256 * 8, NULL);
	rig_launch(&rig, kernel, WARP, &p, sizeof(p));
	for (int i = 0; i < m * n; i++) {
		double got = result_at(rig_host(&rig, p.d), i, type);
		/* half_mma adds 1 in the lanes of the upper half: rows 0 to 3 and 8 to 11 */
		double wanted = sum_at(i / n, i % n, k) + (added >= 0 ? added : i / n % 8 < 4);

		if (got != wanted)
			fail_msg("%s: row %d, column %d is %g, not %g", kernel, i / n, i % n, got, wanted);
	}
	rig_close(&rig);
}

static void matrices_are_multiplied(void **state)
{
	(void)state;
	check_product("half_tile", 16, 16, 16, 'h', false, 1);
	check_product("tf32_tile", 16, 16, 8, 'f', false, 1);
	check_product("byte_tile", 32, 8, 16, 's', false, 1);
	check_product("double_tile", 8, 8, 4, 'd', false, 1);
	check_product("half_mma", 16, 8, 16, 'h', true, -1);
}

static void texels_go_through_a_texture_into_a_surface(void **state)
{
	struct ptx_texture t = { .magic = PTX_TEXTURE_MAGIC,
				 .format = PTX_TEXTURE_F32,
				 .channels = 1,
				 .pitch = 32,
				 .slice = 128,
				 .width = 8,
				 .height = 4,
				 .depth = 1,
				 .address = { 1, 1, 1 } };
	float from[32], to[32];
	struct rig rig;
	struct {
		uint64_t texture, surface;
	} p;
	uint64_t target;

	(void)state;
	for (int i = 0; i < 32; i++) {
		from[i] = (float)i;
		to[i] = 100;
	}
	rig_open(&rig, "tensor");
	t.base = rig_alloc(&rig, sizeof(from), from);
	p.texture = rig_alloc(&rig, sizeof(t), &t);
	t.base = target = rig_alloc(&rig, sizeof(to), to);
	p.surface = rig_alloc(&rig, sizeof(t), &t);
	rig_launch(&rig, "doubled", WARP, &p, sizeof(p));
	for (int i = 0; i < 32; i++)
		assert_true(((float *)rig_host(&rig, target))[i] == (float)(100 + 2 * i));
	rig_close(&rig);
}

#define ENTRY \
	".version 8.0\n.target sm_90\n.address_size 64\n" \
	".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .f32 %f<9>;\n.reg .b32 %r<30>;\n" \
	".reg .b64 %rd<9>;\n.reg .f64 %fd<9>;\n.shared .align 16 .b8 room[512];\nld.param.u64 %rd1, [in];\n" \
	"ld.param.u64 %rd2, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd3, %r0, 64;\nadd.u64 %rd1, %rd1, %rd3;\n" \
	"add.u64 %rd2, %rd2, %rd3;\n"

/* One mma: each lane has 16 words of A, B and C in `in`, and stores 4 words of D. */
static void run_mma(const char *text, uint32_t in[32][16], uint32_t out[32][16])
{
	struct {
		uint64_t in, out;
	} p;
	struct rig rig;

	rig_open_text(&rig, text);
	p.in = rig_alloc(&rig, (size_t)32 * 64, in);
	p.out = rig_alloc(&rig, (size_t)32 * 64, NULL);
	rig_launch(&rig, "k", WARP, &p, sizeof(p));
	memcpy(out, rig_host(&rig, p.out), (size_t)32 * 64);
	rig_close(&rig);
}

#define LOAD_A4 "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];\n"
#define LOAD_B2 "ld.global.v2.u32 {%r5, %r6}, [%rd1+16];\n"
#define LOAD_C4 "ld.global.v4.u32 {%r7, %r8, %r9, %r10}, [%rd1+32];\n"
#define STORE_D4 "st.global.v4.u32 [%rd2], {%r11, %r12, %r13, %r14};\nret;\n}\n"

/* m16n8k8, tf32: a0 (g, t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t + 4); b0 (t, g), b1 (t + 4, g). */
static void fragments_of_tf32_lie_where_the_isa_says(void **state)
{
	uint32_t in[32][16] = { 0 }, out[32][16];

	(void)state;
	for (int lane = 0; lane < 32; lane++) {
		int g = lane / 4, t = lane % 4;
		float a[4] = { (float)a_at(g, t), (float)a_at(g + 8, t), (float)a_at(g, t + 4),
			       (float)a_at(g + 8, t + 4) };
		float b[2] = { (float)b_at(t, g), (float)b_at(t + 4, g) }, c[4] = { 1, 2, 3, 4 };

		memcpy(&in[lane][0], a, sizeof(a));
		memcpy(&in[lane][4], b, sizeof(b));
		memcpy(&in[lane][8], c, sizeof(c));
		in[lane][0] |= 0x1fff; /* bits that tf32 does not have */
	}
	run_mma(ENTRY LOAD_A4 LOAD_B2 LOAD_C4
		"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r11, %r12, %r13, %r14}, {%r1, %r2, %r3, %r4}, "
		"{%r5, %r6}, {%r7, %r8, %r9, %r10};\n" STORE_D4,
		in, out);
	for (int lane = 0; lane < 32; lane++)
		for (int i = 0; i < 4; i++) {
			float d;

			memcpy(&d, &out[lane][i], 4);
			assert_true(d ==
				    (float)(sum_at(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2, 8) + 1 + i));
		}
}

/* m16n8k16, s8: a0..a3 (g, 4t + i), a4..a7 (g + 8, 4t + i); b0..b3 (4t + i, g). */
static void fragments_of_bytes_lie_where_the_isa_says(void **state)
{
	uint32_t in[32][16] = { 0 }, out[32][16];

	(void)state;
	for (int lane = 0; lane < 32; lane++) {
		int8_t *bytes = (int8_t *)in[lane];

		for (int i = 0; i < 8; i++)
			bytes[i] = (int8_t)-a_at(lane / 4 + i / 4 * 8, lane % 4 * 4 + i % 4);
		for (int i = 0; i < 4; i++)
			bytes[16 + i] = (int8_t)b_at(lane % 4 * 4 + i, lane / 4);
		in[lane][8] = lane == 5 ? INT32_MIN + 1u : 0;
	}
	run_mma(ENTRY LOAD_A4 LOAD_B2 LOAD_C4
		"mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 {%r11, %r12, %r13, %r14}, {%r1, %r2}, "
		"{%r5}, {%r7, %r8, %r9, %r10};\n" STORE_D4,
		in, out);
	for (int lane = 0; lane < 32; lane++)
		for (int i = 0; i < 4; i++)
			assert_int_equal((int32_t)out[lane][i],
					 lane == 5 && !i
						 ? INT32_MIN
						 : -sum_at(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2, 16));
}

/* ldmatrix, movmatrix and stmatrix of a matrix of 8 x 8 numbers: transposed twice, once by each. */
static void matrices_are_transposed_and_stored(void **state)
{
	uint32_t in[32][16] = { 0 }, out[32][16];

	(void)state;
	for (int lane = 0; lane < 32; lane++)
		in[lane][0] = (uint32_t)(2 * lane) | (uint32_t)(2 * lane + 1) << 16;
	run_mma(ENTRY
		"ld.global.u32 %r1, [%rd1];\nmov.u32 %r2, room;\nmad.lo.u32 %r3, %r0, 4, %r2;\n"
		"st.shared.u32 [%r3], %r1;\nbar.warp.sync -1;\nand.b32 %r4, %r0, 7;\n"
		"mad.lo.u32 %r5, %r4, 16, %r2;\nldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r6}, [%r5];\n"
		"movmatrix.sync.aligned.m8n8.trans.b16 %r7, %r6;\n"
		"stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r5+128], {%r7};\nbar.warp.sync -1;\n"
		"ld.shared.u32 %r8, [%r3+128];\nst.global.v4.u32 [%rd2], {%r6, %r7, %r8, %r8};\nret;\n}\n",
		in, out);
	for (uint32_t lane = 0; lane < 32; lane++) {
		uint32_t turned = lane % 4 * 16 + lane / 4;

		assert_int_equal(out[lane][0], turned | (turned + 8) << 16);
		assert_int_equal(out[lane][1], in[lane][0]);
		assert_int_equal(out[lane][2], turned | (turned + 8) << 16);
	}
}

static enum ptx_fault_kind fault_of(const char *body)
{
	struct {
		uint64_t in, out;
	} p = { 0 };
	enum ptx_fault_kind kind;
	char text[2048];
	struct rig rig;

	snprintf(text, sizeof(text), "%s%sret;\n}\n", ENTRY, body);
	rig_open_text(&rig, text);
	p.in = rig_alloc(&rig, 256, NULL);
	assert_int_equal(rig_run(&rig, "k", WARP, &p, sizeof(p)), PTX_STATE_FAULT);
	kind = rig.fault.kind;
	rig_close(&rig);
	return kind;
}

static void a_matrix_outside_of_memory_is_a_fault(void **state)
{
	(void)state;
	assert_int_equal(
		fault_of("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f1, %f2, %f3, %f4, %f5, %f6, "
			 "%f7, %f8}, [%rd1], 16;\n"),
		PTX_FAULT_ADDRESS);
	assert_int_equal(
		fault_of("add.u64 %rd1, %rd1, 2;\nwmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%rd1], "
			 "{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, 1;\n"),
		PTX_FAULT_MISALIGNED);
	assert_int_equal(fault_of("mul.lo.u32 %r1, %r0, 4096;\n"
				  "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r2, %r3}, [%r1];\n"),
			 PTX_FAULT_SHARED);
	assert_int_equal(fault_of("add.u32 %r1, %r0, 4;\n"
				  "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];\n"),
			 PTX_FAULT_MISALIGNED);
}

static void forms_that_are_not_are_refused(void **state)
{
	static const char *const forms[] = {
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1, %r2, %r3}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, "
		"{%r1, %r2, %r3, %r4};",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r1, "
		"%r2}, {%r1, %r2, %r3, %r4};",
		"mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r1, "
		"%r2}, {%r1, %r2, %r3, %r4};",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16 {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, "
		"{%r1, %r2, %r3, %r4};",
		"mma.sync.aligned.m16n8k16.m16n8k8.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, "
		"{%r1, %r2}, {%r1, %r2, %r3, %r4};",
		"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%rd1}, {%r1, %r2, "
		"%r3, %r4};",
		"mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, "
		"{%r1, %r2, %r3, %r4};",
		"wmma.load.a.b.sync.aligned.row.m16n16k16.s8 {%r1, %r2}, [%rd1];",
		"wmma.load.a.sync.aligned.m16n16k16.s8 {%r1, %r2}, [%rd1];",
		"wmma.load.c.sync.aligned.row.m16n16k16.s8 {%r1, %r2}, [%rd1];",
		"wmma.load.a.sync.aligned.row.m16n16k16.s8 {%r1, %r2}, [%rd1], %rd1;",
		"ldmatrix.sync.aligned.m8n8.shared.b16 {%r1}, [%r1];",
		"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r1];",
		"ld.global.v4.u32 {%r1, %r2, %r3, %r4, %r5}, [%rd1];",
		"mov.b64 %rd1, {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8};",
		"mov.b64 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8, %r9}, %rd1;",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct ptx_module *module = NULL;
		struct bf_error err = { 0 };
		char text[2048];

		snprintf(text, sizeof(text), "%s%s\nret;\n}\n", ENTRY, forms[i]);
		if (!ptx_module_load(text, strlen(text), &module, &err))
			fail_msg("%s is not refused", forms[i]);
		assert_non_null(strstr(err.text, "line 17"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matrices_are_multiplied),
		cmocka_unit_test(texels_go_through_a_texture_into_a_surface),
		cmocka_unit_test(fragments_of_tf32_lie_where_the_isa_says),
		cmocka_unit_test(fragments_of_bytes_lie_where_the_isa_says),
		cmocka_unit_test(matrices_are_transposed_and_stored),
		cmocka_unit_test(a_matrix_outside_of_memory_is_a_fault),
		cmocka_unit_test(forms_that_are_not_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
