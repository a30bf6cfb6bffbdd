/* cuda: linking PTX texts: what one declares another defines, and names of their own do not meet. */
#include "check.h"

static const char caller[] = PTX_HEAD
	".extern .func (.param .b32 result) triple (.param .b32 x);\n"
	".extern .global .align 4 .u32 shared_value;\n"
	".global .align 4 .u32 own = 1; /* the other text has one, too: a } in a comment; \"and a string\" */\n"
	".visible .entry run(.param .u64 out)\n{\n"
	".reg .b32 %r<4>; .reg .b64 %d<2>;\n"
	"ld.param.u64 %d1, [out];\n"
	"ld.global.u32 %r1, [shared_value];\n"
	"{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call (y), triple, (x); ld.param.b32 %r2, [y]; }\n"
	"ld.global.u32 %r3, [own];\n"
	"add.u32 %r2, %r2, %r3;\n"
	"st.global.u32 [%d1], %r2;\n"
	"ret;\n}\n";

static const char callee[] = ".version 8.1\n.target sm_86\n.address_size 64\n"
			     ".visible .global .align 4 .u32 shared_value = 10;\n"
			     ".global .align 4 .u32 own = 100;\n"
			     ".visible .func (.param .b32 result) triple (.param .b32 x)\n{\n"
			     ".reg .b32 %r<4>;\n"
			     "ld.param.b32 %r1, [x]; mul.lo.u32 %r1, %r1, 3;\n"
			     "ld.global.u32 %r2, [own]; add.u32 %r1, %r1, %r2;\n"
			     "st.param.b32 [result], %r1; ret;\n}\n";

static char error[512];
static CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
static void *values[2];

static CUlinkState begin(void)
{
	CUlinkState link;

	check_context();
	error[0] = '\0';
	values[0] = error;
	values[1] = (void *)sizeof(error);
	CU(cuLinkCreate_v2(2, options, values, &link));
	return link;
}

static void add(CUlinkState link, const char *text)
{
	CU(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, "text", 0, NULL, NULL));
}

static uint32_t run(const void *image)
{
	CUmodule module;
	CUfunction function;
	CUdeviceptr out;
	uint32_t result = 0;
	void *params[] = { &out };

	CU(cuModuleLoadData(&module, image));
	CU(cuModuleGetFunction(&function, module, "run"));
	CU(cuMemAlloc_v2(&out, 4));
	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(&result, out, 4));
	CU(cuMemFree_v2(out));
	CU(cuModuleUnload(module));
	return result;
}

static void two_texts_meet_in_either_order(void)
{
	for (int order = 0; order < 2; order++) {
		CUlinkState link = begin();
		void *image;
		size_t bytes;

		add(link, order ? callee : caller);
		add(link, order ? caller : callee);
		CU(cuLinkComplete(link, &image, &bytes));
		CHECK_EQUAL(strlen(image) + 1, bytes);
		CHECK_EQUAL(run(image), 10 * 3 + 100 + 1);
		CU(cuLinkDestroy(link));
		CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(link));
	}
}

static void one_text_is_an_image_already(void)
{
	static const char alone[] = PTX_HEAD ".visible .entry run(.param .u64 out)\n{ .reg .b64 %d;\n"
					     "ld.param.u64 %d, [out]; st.global.u32 [%d], 7; ret; }\n";
	CUlinkState link = begin();
	void *image;

	add(link, alone);
	CU(cuLinkComplete(link, &image, NULL));
	CHECK_EQUAL(run(image), 7);
	CU(cuLinkDestroy(link));
}

static void what_is_missing_or_there_twice_is_told(void)
{
	CUlinkState link = begin();
	void *image;

	add(link, callee);
	add(link, callee);
	CU_FAILS(CUDA_ERROR_INVALID_PTX, cuLinkComplete(link, &image, NULL));
	CHECK(strstr(error, "Multiple definition of 'shared_value'") || strstr(error, "'triple'"));
	CU(cuLinkDestroy(link));
	link = begin();
	add(link, caller);
	CU_FAILS(CUDA_ERROR_INVALID_PTX, cuLinkComplete(link, &image, NULL));
	CHECK(strstr(error, "triple"));
	CU(cuLinkDestroy(link));
}

static void a_weak_definition_gives_way(void)
{
	static const char weak[] = PTX_HEAD
		".weak .global .align 4 .u32 shared_value = 77;\n"
		".weak .func (.param .b32 result) triple (.param .b32 x) { ret; }\n";
	CUlinkState link = begin();
	void *image;

	add(link, weak);
	add(link, caller);
	add(link, weak);
	add(link, callee);
	CU(cuLinkComplete(link, &image, NULL));
	CHECK_EQUAL(run(image), 10 * 3 + 100 + 1);
	CU(cuLinkDestroy(link));
}

static void only_ptx_is_linked(void)
{
	CUlinkState link = begin();
	void *image;

	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuLinkComplete(link, &image, NULL));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED,
		 cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, (void *)caller, 4, "x", 0, NULL, NULL));
	CHECK(strstr(error, "only PTX"));
	CU_FAILS(CUDA_ERROR_FILE_NOT_FOUND,
		 cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL));
	CU(cuLinkDestroy(link));
}

TESTS(TEST(two_texts_meet_in_either_order), TEST(one_text_is_an_image_already),
      TEST(what_is_missing_or_there_twice_is_told), TEST(a_weak_definition_gives_way),
      TEST(only_ptx_is_linked))
