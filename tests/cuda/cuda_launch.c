/* Launches: parameters, shapes, limits and their errors, cooperative grids, attributes. */
#include "check.h"

static const char ptx[] = PTX_HEAD
	/* out[i] = a + b * i, i the thread's place in the whole grid */
	".visible .entry line(.param .u64 pout, .param .u32 pa, .param .u8 pb, .param .u64 pn)\n"
	"{\n"
	"	.reg .b64 %rd<6>; .reg .b32 %r<12>; .reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [pout];\n"
	"	ld.param.u32 %r1, [pa];\n"
	"	ld.param.u8 %r2, [pb];\n"
	"	ld.param.u64 %rd2, [pn];\n"
	"	mov.u32 %r3, %ctaid.x;\n"
	"	mov.u32 %r4, %ntid.x;\n"
	"	mov.u32 %r5, %tid.x;\n"
	"	mad.lo.u32 %r6, %r3, %r4, %r5;\n"
	"	cvt.u64.u32 %rd3, %r6;\n"
	"	setp.ge.u64 %p1, %rd3, %rd2;\n"
	"	@%p1 ret;\n"
	"	mad.lo.u32 %r7, %r2, %r6, %r1;\n"
	"	shl.b64 %rd4, %rd3, 2;\n"
	"	add.u64 %rd5, %rd1, %rd4;\n"
	"	st.global.u32 [%rd5], %r7;\n"
	"	ret;\n"
	"}\n"
	/* how many threads there were, in all dimensions */
	".visible .entry count(.param .u64 pout)\n"
	"{\n"
	"	.reg .b64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [pout];\n"
	"	red.global.add.u32 [%rd1], 1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry bounded(.param .u64 pout)\n"
	".maxntid 64, 1, 1\n"
	"{\n"
	"	ret;\n"
	"}\n"
	".visible .entry exact(.param .u64 pout)\n"
	".reqntid 32, 2, 1\n"
	"{\n"
	"	.reg .b64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [pout];\n"
	"	red.global.add.u32 [%rd1], 1;\n"
	"	ret;\n"
	"}\n"
	".extern .shared .align 16 .b8 room[];\n"
	".visible .entry shared(.param .u64 pout, .param .u32 pat)\n"
	"{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<5>;\n"
	"	ld.param.u64 %rd1, [pout];\n"
	"	ld.param.u32 %r1, [pat];\n"
	"	mov.u32 %r2, room;\n"
	"	add.u32 %r3, %r2, %r1;\n"
	"	st.shared.u32 [%r3], 41;\n"
	"	ld.shared.u32 %r4, [%r3];\n"
	"	add.u32 %r4, %r4, 1;\n"
	"	st.global.u32 [%rd1], %r4;\n"
	"	ret;\n"
	"}\n"
	/* each block adds one and waits for all others: ends only if all blocks run at once */
	".visible .entry meet(.param .u64 pout)\n"
	"{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<4>; .reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [pout];\n"
	"	mov.u32 %r1, %nctaid.x;\n"
	"	red.global.add.u32 [%rd1], 1;\n"
	"AGAIN:\n"
	"	ld.volatile.global.u32 %r2, [%rd1];\n"
	"	setp.lt.u32 %p1, %r2, %r1;\n"
	"	@%p1 bra AGAIN;\n"
	"	ret;\n"
	"}\n"
	/* out[i] = the blob's first word + its last */
	".visible .entry large(.param .u64 pout, .param .u32 pi, .param .align 8 .b8 blob[4072])\n"
	"{\n"
	"	.reg .b64 %rd<4>; .reg .b32 %r<5>;\n"
	"	ld.param.u64 %rd1, [pout];\n"
	"	ld.param.u32 %r1, [pi];\n"
	"	ld.param.u32 %r2, [blob];\n"
	"	ld.param.u32 %r3, [blob+4068];\n"
	"	add.u32 %r4, %r2, %r3;\n"
	"	mul.wide.u32 %rd2, %r1, 4;\n"
	"	add.u64 %rd3, %rd1, %rd2;\n"
	"	st.global.u32 [%rd3], %r4;\n"
	"	ret;\n"
	"}\n"
	".visible .entry nothing()\n"
	"{\n"
	"	ret;\n"
	"}\n";

static CUmodule module;
static CUdeviceptr out;

static void begin(void)
{
	check_context();
	if (!module) {
		CU(cuModuleLoadData(&module, ptx));
		CU(cuMemAlloc_v2(&out, 1 << 20));
	}
	CU(cuMemsetD32_v2(out, 0, (1 << 20) / 4));
}

static CUfunction function(const char *name)
{
	CUfunction found;

	CU(cuModuleGetFunction(&found, module, name));
	return found;
}

static uint32_t result(void)
{
	uint32_t value;

	CU(cuMemcpyDtoH_v2(&value, out, sizeof(value)));
	return value;
}

static void parameters_arrive(void)
{
	enum { COUNT = 1000 };
	uint32_t a = 17, values[COUNT + 1];
	uint8_t b = 3;
	uint64_t n = COUNT;
	void *params[] = { &out, &a, &b, &n };

	begin();
	CU(cuLaunchKernel(function("line"), 8, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(values, out, sizeof(values)));
	for (uint32_t i = 0; i < COUNT; i++)
		CHECK_EQUAL(values[i], 17 + 3 * i);
	CHECK_EQUAL(values[COUNT], 0);
}

static void parameters_arrive_packed(void)
{
	struct {
		CUdeviceptr out;
		uint32_t a;
		uint8_t b;
		uint64_t n;
	} packed = { out, 5, 2, 64 };
	size_t bytes = sizeof(packed);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			  CU_LAUNCH_PARAM_END };
	void *params[] = { &packed.out, &packed.a, &packed.b, &packed.n };
	uint32_t values[64];

	begin();
	packed.out = out;
	CU(cuLaunchKernel(function("line"), 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
	CU(cuMemcpyDtoH_v2(values, out, sizeof(values)));
	CHECK_EQUAL(values[63], 5 + 2 * 63);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuLaunchKernel(function("line"), 1, 1, 1, 64, 1, 1, 0, NULL, params, extra));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuLaunchKernel(function("line"), 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL));
	bytes = 8;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuLaunchKernel(function("line"), 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
	CU(cuLaunchKernel(function("nothing"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CU(cuCtxSynchronize());
}

static void large_parameters_arrive_however_many_are_queued(void)
{
	enum { COUNT = 3000, WORDS = 4072 / 4 };
	static uint32_t values[COUNT];
	uint32_t blob[WORDS] = { 0 };
	CUfunction large, nothing;

	begin();
	large = function("large");
	nothing = function("nothing");
	for (uint32_t i = 0; i < COUNT; i++) {
		void *params[] = { &out, &i, blob };

		blob[0] = i * 3;
		blob[WORDS - 1] = 7;
		CU(cuLaunchKernel(large, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		for (uint32_t n = 0; n < i % 4; n++) /* so that pieces of other sizes lie between them */
			CU(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	}
	CU(cuMemcpyDtoH_v2(values, out, sizeof(values)));
	for (uint32_t i = 0; i < COUNT; i++)
		CHECK_EQUAL(values[i], i * 3 + 7);
}

static void grids_have_three_dimensions(void)
{
	void *params[] = { &out };

	begin();
	CU(cuLaunchKernel(function("count"), 3, 4, 5, 2, 3, 4, 0, NULL, params, NULL));
	CHECK_EQUAL(result(), 3 * 4 * 5 * 2 * 3 * 4);
}

static void impossible_shapes_are_refused(void)
{
	static const unsigned shapes[][6] = {
		{ 0, 1, 1, 1, 1, 1 },	     { 1, 0, 1, 1, 1, 1 },     { 1, 1, 1, 0, 1, 1 },
		{ 1, 1, 1, 1, 1, 0 },	     { 1, 65536, 1, 1, 1, 1 }, { 1, 1, 65536, 1, 1, 1 },
		{ 1u << 31, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1025, 1, 1 },  { 1, 1, 1, 1, 1025, 1 },
		{ 1, 1, 1, 1, 1, 65 },	     { 1, 1, 1, 32, 33, 1 },
	};
	void *params[] = { &out };

	begin();
	for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const unsigned *s = shapes[i];

		CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function("count"), s[0], s[1], s[2], s[3],
								  s[4], s[5], 0, NULL, params, NULL));
	}
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE,
		 cuLaunchKernel((CUfunction)&out, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize()); /* none of these is sticky */
	CHECK_EQUAL(result(), 0);
}

static void a_kernels_own_bounds_hold(void)
{
	void *params[] = { &out };

	begin();
	CU(cuLaunchKernel(function("bounded"), 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	CU_FAILS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
		 cuLaunchKernel(function("bounded"), 1, 1, 1, 65, 1, 1, 0, NULL, params, NULL));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuLaunchKernel(function("exact"), 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	CU(cuLaunchKernel(function("exact"), 1, 1, 1, 32, 2, 1, 0, NULL, params, NULL));
	CHECK_EQUAL(result(), 64);
}

enum { WIDE = 300 };

/* A kernel that has WIDE values at a time, each 1 in the end: it stores their sum. */
static void wide_text(char *text, const char *bounds)
{
	char *at = text + sprintf(text,
				  PTX_HEAD
				  ".visible .entry wide(.param .u64 out)\n%s\n{\n.reg .u32 %%r<%d>;\n"
				  ".reg .u64 %%rd<2>;\nld.param.u64 %%rd0, [out];\n",
				  bounds, WIDE + 1);

	for (int i = 0; i < WIDE; i++)
		at += sprintf(at, "ld.volatile.global.u32 %%r%d, [%%rd0+4];\n", i);
	at += sprintf(at, "mov.u32 %%r%d, 0;\n", WIDE);
	for (int i = 0; i < WIDE; i++)
		at += sprintf(at, "add.u32 %%r%d, %%r%d, %%r%d;\n", WIDE, WIDE, i);
	sprintf(at, "st.global.u32 [%%rd0], %%r%d;\nret;\n}\n", WIDE);
}

static int attribute_of(CUfunction f, CUfunction_attribute attribute)
{
	int value;

	CU(cuFuncGetAttribute(&value, attribute, f));
	return value;
}

/* A thread has 255 registers at most, and fewer where a kernel's bounds ask for it; a compiler keeps the rest in memory.
 * So no launch within the bounds fails for want of registers. */
static void a_kernel_with_many_values_can_be_launched(void)
{
	static char text[64 * (2 * WIDE + 20)];
	const uint32_t start[2] = { 0, 1 };
	CUdeviceptr place;
	void *params[] = { &place };
	uint32_t sum = 0;
	CUfunction f;

	check_context();
	CU(cuMemAlloc_v2(&place, sizeof(start)));
	CU(cuMemcpyHtoD_v2(place, start, sizeof(start)));
	wide_text(text, "");
	f = check_function(text, "wide");
	CHECK_EQUAL(attribute_of(f, CU_FUNC_ATTRIBUTE_NUM_REGS), 255);
	CHECK_EQUAL(attribute_of(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
	CU(cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
	CU_FAILS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
		 cuLaunchKernel(f, 1, 1, 1, 257, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(&sum, place, sizeof(sum)));
	CHECK_EQUAL(sum, WIDE);
	wide_text(text, ".maxntid 1024, 1, 1");
	f = check_function(text, "wide");
	CHECK_EQUAL(attribute_of(f, CU_FUNC_ATTRIBUTE_NUM_REGS), 64);
	CU(cuLaunchKernel(f, 1, 1, 1, 1024, 1, 1, 0, NULL, params, NULL));
	wide_text(text, ".maxntid 256, 1, 1\n.minnctapersm 2");
	CHECK_EQUAL(attribute_of(check_function(text, "wide"), CU_FUNC_ATTRIBUTE_NUM_REGS), 128);
	wide_text(text, ".maxntid 256, 1, 1\n.minnctapersm 1000000");
	CHECK_EQUAL(attribute_of(check_function(text, "wide"), CU_FUNC_ATTRIBUTE_NUM_REGS), 255);
	CU(cuCtxSynchronize());
	CU(cuMemFree_v2(place));
}

static void shared_memory_is_given_as_asked(void)
{
	uint32_t at = (48 << 10) - 4;
	void *params[] = { &out, &at };
	CUfunction shared;

	begin();
	shared = function("shared");
	CU(cuLaunchKernel(shared, 1, 1, 1, 1, 1, 1, 48 << 10, NULL, params, NULL));
	CHECK_EQUAL(result(), 42);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuLaunchKernel(shared, 1, 1, 1, 1, 1, 1, (48 << 10) + 4, NULL, params, NULL));
	CU(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200 << 10));
	at = (200 << 10) - 4;
	CU(cuLaunchKernel(shared, 1, 1, 1, 1, 1, 1, 200 << 10, NULL, params, NULL));
	CU(cuCtxSynchronize());
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuLaunchKernel(shared, 1, 1, 1, 1, 1, 1, 201 << 10, NULL, params, NULL));
}

static void a_cooperative_grid_is_there_all_at_once(void)
{
	void *params[] = { &out };
	int sms, a_sm;

	begin();
	CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&a_sm, function("meet"), 1, 0));
	CU(cuLaunchCooperativeKernel(function("meet"), (unsigned)(sms * a_sm), 1, 1, 1, 1, 1, 0, NULL,
				     params));
	CU(cuCtxSynchronize());
	CHECK_EQUAL(result(), sms * a_sm);
	CU_FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
		 cuLaunchCooperativeKernel(function("meet"), (unsigned)(sms * a_sm) + 1, 1, 1, 1, 1, 1, 0,
					   NULL, params));
}

static void attributes_are_followed_or_refused(void)
{
	CUlaunchAttribute attributes[3] = { { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY },
					    { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE },
					    { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION } };
	CUlaunchConfig config = { .gridDimX = 2,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = 1,
				  .blockDimY = 1,
				  .blockDimZ = 1,
				  .attrs = attributes,
				  .numAttrs = 3 };
	void *params[] = { &out };

	begin();
	attributes[0].value.priority = -3;
	attributes[1].value.cooperative = 1;
	attributes[2].value.clusterDim.x = attributes[2].value.clusterDim.y = 1;
	attributes[2].value.clusterDim.z = 1;
	CU(cuLaunchKernelEx(&config, function("meet"), params, NULL));
	CU(cuCtxSynchronize());
	CHECK_EQUAL(result(), 2);
	attributes[2].value.clusterDim.x = 2;
	CU_FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, function("meet"), params, NULL));
	config.numAttrs = 0;
	CU(cuLaunchKernelEx(&config, function("nothing"), NULL, NULL));
	CU(cuCtxSynchronize());
}

static void a_function_runs_only_in_its_own_context(void)
{
	void *params[] = { &out };
	CUcontext other;

	begin();
	CU(cuCtxCreate_v2(&other, 0, 0));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE,
		 cuLaunchKernel(function("count"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxDestroy_v2(other));
}

TESTS(TEST(parameters_arrive), TEST(parameters_arrive_packed),
      TEST(large_parameters_arrive_however_many_are_queued), TEST(grids_have_three_dimensions),
      TEST(impossible_shapes_are_refused), TEST(a_kernels_own_bounds_hold),
      TEST(a_kernel_with_many_values_can_be_launched), TEST(shared_memory_is_given_as_asked),
      TEST(a_cooperative_grid_is_there_all_at_once), TEST(attributes_are_followed_or_refused),
      TEST(a_function_runs_only_in_its_own_context))
