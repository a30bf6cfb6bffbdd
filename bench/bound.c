/* SPDX-License-Identifier: MIT */
/* A program that is bound by memory or by the SMs, from PTX, so that probes can be inserted: bound memory|compute SECONDS. It
 * launches until the time is over, at most 4 launches ahead, and prints how many launches ended, as one line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu.h"
#include "util.h"

enum { BLOCKS_OF_SM = 4, THREADS = 128, AHEAD = 4, FLOATS = 16 << 20, FLOATS_SOFT = 1 << 20 };

static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry memory(.param .u64 array, .param .u32 mask, .param .u32 rounds)\n{\n"
	"	.reg .b32 %r<8>;\n	.reg .b64 %rd<4>;\n	.reg .f32 %f<3>;\n	.reg .pred %p;\n"
	"	mov.u32 %r1, %ctaid.x;\n	mov.u32 %r2, %ntid.x;\n	mov.u32 %r3, %tid.x;\n"
	"	mad.lo.u32 %r1, %r1, %r2, %r3;\n	mov.u32 %r4, %nctaid.x;\n	mul.lo.u32 %r4, %r4, %r2;\n"
	"	ld.param.u64 %rd1, [array];\n	ld.param.u32 %r5, [mask];\n	ld.param.u32 %r6, [rounds];\n"
	"again:\n	and.b32 %r7, %r1, %r5;\n	mul.wide.u32 %rd2, %r7, 4;\n	add.u64 %rd2, %rd1, %rd2;\n"
	"	ld.global.f32 %f1, [%rd2];\n	add.f32 %f1, %f1, 0f3F800000;\n	st.global.f32 [%rd2], %f1;\n"
	"	add.u32 %r1, %r1, %r4;\n	sub.u32 %r6, %r6, 1;\n	setp.ne.u32 %p, %r6, 0;\n"
	"	@%p bra again;\n	ret;\n}\n"
	".visible .entry compute(.param .u64 array, .param .u32 mask, .param .u32 rounds)\n{\n"
	"	.reg .b32 %r<4>;\n	.reg .b64 %rd<3>;\n	.reg .f32 %f<5>;\n	.reg .pred %p;\n"
	"	mov.u32 %r1, %tid.x;\n	ld.param.u64 %rd1, [array];\n	ld.param.u32 %r2, [rounds];\n"
	"	mul.wide.u32 %rd2, %r1, 4;\n	add.u64 %rd1, %rd1, %rd2;\n	cvt.rn.f32.u32 %f1, %r1;\n"
	"	mov.f32 %f2, %f1;\n	mov.f32 %f3, %f1;\n	mov.f32 %f4, %f1;\n"
	"again:\n	fma.rn.f32 %f1, %f1, %f2, %f3;\n	fma.rn.f32 %f2, %f2, %f3, %f4;\n"
	"	fma.rn.f32 %f3, %f3, %f4, %f1;\n	fma.rn.f32 %f4, %f4, %f1, %f2;\n"
	"	sub.u32 %r2, %r2, 1;\n	setp.ne.u32 %p, %r2, 0;\n	@%p bra again;\n"
	"	add.f32 %f1, %f1, %f2;\n	st.global.f32 [%rd1], %f1;\n	ret;\n}\n";

int main(int argc, char **argv)
{
	uint32_t mask, rounds, is_memory = argc == 3 && !strcmp(argv[1], "memory");
	const char *gpu = getenv("BELFRY_GPU");
	int is_soft = gpu && !strncmp(gpu, "soft", 4), sms = 1;
	uint64_t array, end, start, launches = 0;
	void *kernel, *stream;

	if (argc != 3 || (!is_memory && strcmp(argv[1], "compute"))) {
		fprintf(stderr, "usage: bound memory|compute SECONDS\n");
		return 2;
	}
	cu_open();
	mask = (is_soft ? FLOATS_SOFT : FLOATS) - 1;
	rounds = is_soft ? 4 : is_memory ? 256 : 4096;
	CU_MUST(cu.DeviceGetAttribute(&sms, CU_DEVICE_SM_COUNT, 0));
	kernel = cu_kernel(text, argv[1]);
	CU_MUST(cu.MemAlloc(&array, (mask + 1ull) * sizeof(float)));
	CU_MUST(cu.MemsetD8(array, 0, (mask + 1ull) * sizeof(float)));
	CU_MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	start = now_ns();
	end = start + strtoull(argv[2], NULL, 10) * 1000000000ull;
	while (now_ns() < end) {
		void *arguments[] = { &array, &mask, &rounds };

		for (unsigned i = 0; i < AHEAD; i++)
			CU_MUST(cu_launch(kernel, (unsigned)sms * BLOCKS_OF_SM, THREADS, stream, arguments));
		CU_MUST(cu.StreamSynchronize(stream));
		launches += AHEAD;
	}
	printf("{\"kind\":\"%s\",\"launches_s\":%.1f}\n", argv[1],
	       (double)launches * 1e9 / (double)(now_ns() - start));
	return 0;
}
