/* SPDX-License-Identifier: MIT */
#include "kernels.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cu.h"

#define PTX_HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

const char kernel_saxpy[] = PTX_HEAD
	".visible .entry saxpy(.param .u64 px, .param .u64 py, .param .f32 pa, .param .u32 pn)\n"
	"{\n"
	"	.reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .f32 %f<5>; .reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [px];\n"
	"	ld.param.u64 %rd2, [py];\n"
	"	ld.param.f32 %f1, [pa];\n"
	"	ld.param.u32 %r1, [pn];\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	cvta.to.global.u64 %rd2, %rd2;\n"
	"	mov.u32 %r2, %ctaid.x;\n"
	"	mov.u32 %r3, %ntid.x;\n"
	"	mov.u32 %r4, %tid.x;\n"
	"	mad.lo.u32 %r5, %r2, %r3, %r4;\n"
	"	setp.ge.u32 %p1, %r5, %r1;\n"
	"	@%p1 bra DONE;\n"
	"	mul.wide.u32 %rd3, %r5, 4;\n"
	"	add.u64 %rd4, %rd1, %rd3;\n"
	"	add.u64 %rd5, %rd2, %rd3;\n"
	"	ld.global.f32 %f2, [%rd4];\n"
	"	ld.global.f32 %f3, [%rd5];\n"
	"	fma.rn.f32 %f4, %f1, %f2, %f3;\n"
	"	st.global.f32 [%rd5], %f4;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

#define PTX_SPIN \
	"	mov.u64 %rd3, %globaltimer;\n" \
	"	add.u64 %rd4, %rd3, %rd2;\n"

#define PTX_SPIN_LOOP \
	"SPIN:\n" \
	"	mov.u64 %rd5, %globaltimer;\n" \
	"	setp.lt.u64 %p2, %rd5, %rd4;\n" \
	"	@%p2 bra SPIN;\n"

#define PTX_IS_FIRST_THREAD \
	"	mov.u32 %r1, %ctaid.x;\n" \
	"	mov.u32 %r2, %tid.x;\n" \
	"	or.b32 %r3, %r1, %r2;\n" \
	"	setp.ne.u32 %p1, %r3, 0;\n"

const char kernel_time[] = PTX_HEAD
	".visible .entry nop()\n"
	"{\n"
	"	ret;\n"
	"}\n"
	".visible .entry tick(.param .u64 pat, .param .u64 pns)\n"
	"{\n"
	"	.reg .b64 %rd<8>; .reg .b32 %r<4>; .reg .pred %p<3>;\n"
	"	ld.param.u64 %rd1, [pat];\n"
	"	ld.param.u64 %rd2, [pns];\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n" PTX_SPIN PTX_IS_FIRST_THREAD "	@%p1 bra SPIN;\n"
	"	st.global.u64 [%rd1], %rd3;\n" PTX_SPIN_LOOP "	ret;\n"
	"}\n"
	".visible .entry flag(.param .u64 pat, .param .u64 pns)\n"
	"{\n"
	"	.reg .b64 %rd<8>; .reg .b32 %r<5>; .reg .pred %p<3>;\n"
	"	ld.param.u64 %rd1, [pat];\n"
	"	ld.param.u64 %rd2, [pns];\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n" PTX_SPIN PTX_IS_FIRST_THREAD "	@%p1 bra SPIN;\n"
	"	mov.u32 %r4, 1;\n"
	"	st.volatile.global.u32 [%rd1], %r4;\n"
	"	membar.sys;\n" PTX_SPIN_LOOP "	ret;\n"
	"}\n";

const char kernel_work[] = PTX_HEAD
	".visible .entry work(.param .u64 pout, .param .u64 pdone, .param .u64 pbeat, .param .u32 prounds)\n"
	"{\n"
	"	.reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .pred %p<6>;\n"
	"	ld.param.u64 %rd1, [pout];\n"
	"	ld.param.u64 %rd2, [pdone];\n"
	"	ld.param.u64 %rd3, [pbeat];\n"
	"	ld.param.u32 %r1, [prounds];\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	cvta.to.global.u64 %rd2, %rd2;\n"
	"	cvta.to.global.u64 %rd3, %rd3;\n"
	"	mov.u32 %r2, %ctaid.x;\n"
	"	mov.u32 %r3, %tid.x;\n"
	"	mov.u32 %r4, %ntid.x;\n"
	"	mov.u32 %r5, %nctaid.x;\n"
	"	sub.u32 %r6, %r5, 1;\n"
	"	setp.eq.u32 %p1, %r2, 0;\n"
	"	@%p1 bra BEAT;\n"
	"	sub.u32 %r7, %r2, 1;\n"
	"	mad.lo.u32 %r7, %r7, %r4, %r3;\n"
	"	mul.wide.u32 %rd4, %r7, 4;\n"
	"	add.u64 %rd5, %rd1, %rd4;\n"
	"	mov.u32 %r8, %r7;\n"
	"	mov.u32 %r9, 0;\n"
	"ROUND:\n"
	"	mad.lo.u32 %r8, %r8, 1664525, 1013904223;\n"
	"	shr.u32 %r10, %r8, 13;\n"
	"	xor.b32 %r8, %r8, %r10;\n"
	"	add.u32 %r9, %r9, 1;\n"
	"	setp.lt.u32 %p2, %r9, %r1;\n"
	"	@%p2 bra ROUND;\n"
	"	st.global.u32 [%rd5], %r8;\n"
	"	bar.sync 0;\n"
	"	setp.ne.u32 %p3, %r3, 0;\n"
	"	@%p3 bra DONE;\n"
	"	membar.gl;\n"
	"	atom.global.add.u32 %r11, [%rd2], 1;\n"
	"	bra DONE;\n"
	"BEAT:\n"
	"	setp.ne.u32 %p4, %r3, 0;\n"
	"	@%p4 bra DONE;\n"
	"AGAIN:\n"
	"	mov.u64 %rd6, %globaltimer;\n"
	"	st.volatile.global.u64 [%rd3], %rd6;\n"
	"	ld.volatile.global.u32 %r12, [%rd2];\n"
	"	setp.lt.u32 %p5, %r12, %r6;\n"
	"	@%p5 bra AGAIN;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

const char kernel_illegal[] = PTX_HEAD ".visible .entry illegal()\n"
				       "{\n"
				       "	.reg .b64 %rd<2>;\n"
				       "	mov.u64 %rd1, 64;\n"
				       "	st.volatile.global.u64 [%rd1], %rd1;\n"
				       "	ret;\n"
				       "}\n";

const char kernel_trap[] = PTX_HEAD ".visible .entry trap()\n"
				    "{\n"
				    "	trap;\n"
				    "	ret;\n"
				    "}\n";

const char kernel_assert[] = PTX_HEAD
	".extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line,\n"
	"	.param .b64 function, .param .b64 char_size);\n"
	".global .align 1 .b8 text[9] = {110, 101, 105, 103, 104, 98, 111, 117, 0};\n"
	".visible .entry assert()\n"
	"{\n"
	"	.reg .b64 %rd<3>;\n"
	"	mov.u64 %rd1, text;\n"
	"	cvta.global.u64 %rd2, %rd1;\n"
	"	{\n"
	"	.param .b64 message; st.param.b64 [message], %rd2;\n"
	"	.param .b64 file; st.param.b64 [file], %rd2;\n"
	"	.param .b32 line; st.param.b32 [line], 1;\n"
	"	.param .b64 function; st.param.b64 [function], %rd2;\n"
	"	.param .b64 char_size; st.param.b64 [char_size], 1;\n"
	"	call.uni __assertfail, (message, file, line, function, char_size);\n"
	"	}\n"
	"	ret;\n"
	"}\n";

const char kernel_steady[] = PTX_HEAD
	".visible .entry steady(.param .u64 pin, .param .u64 pout, .param .u32 pstep, .param .u32 pmask)\n"
	"{\n"
	"	.reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [pin];\n"
	"	ld.param.u64 %rd2, [pout];\n"
	"	ld.param.u32 %r1, [pstep];\n"
	"	ld.param.u32 %r2, [pmask];\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	cvta.to.global.u64 %rd2, %rd2;\n"
	"	mov.u32 %r3, %ctaid.x;\n"
	"	mov.u32 %r4, %ntid.x;\n"
	"	mov.u32 %r5, %tid.x;\n"
	"	mad.lo.u32 %r6, %r3, %r4, %r5;\n"
	"	setp.gt.u32 %p1, %r6, %r2;\n"
	"	@%p1 bra DONE;\n"
	"	mad.lo.u32 %r7, %r6, 5, %r1;\n"
	"	and.b32 %r7, %r7, %r2;\n"
	"	mul.wide.u32 %rd3, %r6, 4;\n"
	"	mul.wide.u32 %rd4, %r7, 4;\n"
	"	add.u64 %rd5, %rd1, %rd3;\n"
	"	add.u64 %rd6, %rd1, %rd4;\n"
	"	add.u64 %rd7, %rd2, %rd3;\n"
	"	ld.global.u32 %r8, [%rd5];\n"
	"	ld.global.u32 %r9, [%rd6];\n"
	"	mad.lo.u32 %r10, %r8, 1664525, %r9;\n"
	"	xor.b32 %r10, %r10, %r1;\n"
	"	shr.u32 %r11, %r10, 15;\n"
	"	xor.b32 %r10, %r10, %r11;\n"
	"	mul.lo.u32 %r10, %r10, 2246822519;\n"
	"	st.global.u32 [%rd7], %r10;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

const char kernel_add[] = PTX_HEAD
	".visible .entry add(.param .u64 pat, .param .u32 pvalue, .param .u32 pn)\n"
	"{\n"
	"	.reg .b64 %rd<4>; .reg .b32 %r<10>; .reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [pat];\n"
	"	ld.param.u32 %r1, [pvalue];\n"
	"	ld.param.u32 %r2, [pn];\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	mov.u32 %r3, %ctaid.x;\n"
	"	mov.u32 %r4, %ntid.x;\n"
	"	mov.u32 %r5, %tid.x;\n"
	"	mad.lo.u32 %r6, %r3, %r4, %r5;\n"
	"	setp.ge.u32 %p1, %r6, %r2;\n"
	"	@%p1 bra DONE;\n"
	"	mul.wide.u32 %rd2, %r6, 4;\n"
	"	add.u64 %rd3, %rd1, %rd2;\n"
	"	ld.global.u32 %r7, [%rd3];\n"
	"	mad.lo.u32 %r8, %r7, 3, %r1;\n"
	"	st.global.u32 [%rd3], %r8;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

int saxpy_check(unsigned n)
{
	size_t bytes = (size_t)n * sizeof(float);
	float *x = malloc(bytes), *y = malloc(bytes), a = 2.0f;
	uint64_t dx, dy;
	void *args[] = { &dx, &dy, &a, &n };
	unsigned wrong = 0;

	if (!x || !y)
		abort();
	/* small whole numbers: the float arithmetic is exact, so equality is the right test */
	for (unsigned i = 0; i < n; i++) {
		x[i] = (float)(i % 1000);
		y[i] = (float)(i % 77);
	}
	CU_MUST(cu.MemAlloc(&dx, bytes));
	CU_MUST(cu.MemAlloc(&dy, bytes));
	CU_MUST(cu.MemcpyHtoD(dx, x, bytes));
	CU_MUST(cu.MemcpyHtoD(dy, y, bytes));
	CU_MUST(cu_launch(cu_kernel(kernel_saxpy, "saxpy"), (n + 255) / 256, 256, NULL, args));
	CU_MUST(cu.CtxSynchronize());
	CU_MUST(cu.MemcpyDtoH(y, dy, bytes));
	for (unsigned i = 0; i < n; i++)
		wrong += y[i] != 2.0f * (float)(i % 1000) + (float)(i % 77);
	CU_MUST(cu.MemFree(dx));
	CU_MUST(cu.MemFree(dy));
	free(x);
	free(y);
	if (wrong)
		printf("saxpy: %u of %u results are wrong\n", wrong, n);
	return wrong != 0;
}
