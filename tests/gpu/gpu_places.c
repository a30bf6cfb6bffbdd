/* SPDX-License-Identifier: MIT */
/* gpu_places FILE END [long|idle]: launches kernels until the file END is there. FILE contains the SMs that the last kernel ran
 * on, as a mask in hexadecimal digits, and is replaced when they change. Each launch also takes a number one step further; the
 * result is compared with the same steps on the processor. "long": a kernel runs meanwhile that ends with END only. "idle": it
 * launches nothing more after the first kernel. Prints "steps N wrong N". */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cu.h"
#include "util.h"

enum { BLOCKS = 256, THREADS = 32, SMS_MOST = 64, STEP_US = 500, IDLE_US = 10000 };

static const char kernels[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	/* where(out): the SM of each block. */
	".visible .entry where(.param .u64 out)\n{\n"
	"	.reg .b64 %rd<4>; .reg .b32 %r<4>;\n"
	"	ld.param.u64 %rd1, [out]; mov.u32 %r1, %smid; mov.u32 %r2, %ctaid.x;\n"
	"	mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r1;\n"
	"	ret;\n}\n"
	/* step(at): *at = *at * 3 + 1, by one thread, not atomically: two steps at once give a wrong result. */
	".visible .entry step(.param .u64 at)\n{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<4>;\n"
	"	ld.param.u64 %rd1, [at]; ld.global.u32 %r1, [%rd1];\n"
	"	mad.lo.u32 %r2, %r1, 3, 1; st.global.u32 [%rd1], %r2;\n"
	"	ret;\n}\n"
	/* until(flag): runs until *flag is not 0. */
	".visible .entry until(.param .u64 flag)\n{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [flag];\n"
	"AGAIN:	ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;\n"
	"	ret;\n}\n";

struct program {
	void *where, *step, *until, *stream;
	uint64_t places, number;
	volatile uint32_t *flag;
	uint64_t told; /* the mask in the file */
};

static void prepare(struct program *p)
{
	void *host;

	cu_open();
	p->where = cu_kernel(kernels, "where");
	p->step = cu_kernel(kernels, "step");
	p->until = cu_kernel(kernels, "until");
	CU_MUST(cu.StreamCreate(&p->stream, CU_STREAM_NON_BLOCKING));
	CU_MUST(cu.MemAlloc(&p->places, BLOCKS * sizeof(uint32_t)));
	CU_MUST(cu.MemAlloc(&p->number, sizeof(uint32_t)));
	CU_MUST(cu.MemsetD8(p->number, 0, sizeof(uint32_t)));
	CU_MUST(cu.CtxSynchronize()); /* the fill does not wait for the stream, nor the stream for the fill */
	CU_MUST(cu.MemHostAlloc(&host, sizeof(uint32_t), CU_HOST_DEVICEMAP));
	p->flag = host;
	*p->flag = 0;
}

static void begin_long(struct program *p)
{
	uint64_t at;
	void *other, *args[] = { &at };

	CU_MUST(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU_MUST(cu.MemHostGetDevicePointer(&at, (void *)p->flag, 0));
	CU_MUST(cu_launch(p->until, 1, 1, other, args));
}

static void tell(struct program *p, const char *file, uint64_t mask)
{
	char new[512];
	FILE *to;

	if (mask == p->told)
		return;
	snprintf(new, sizeof(new), "%s.new", file);
	to = fopen(new, "w");
	if (!to || fprintf(to, "%llx\n", (unsigned long long)mask) < 0 || fclose(to) || rename(new, file))
		fail("%s cannot be written", file);
	p->told = mask;
}

static void step(struct program *p, const char *file)
{
	uint32_t places[BLOCKS];
	void *where[] = { &p->places }, *number[] = { &p->number };
	uint64_t mask = 0;

	CU_MUST(cu_launch(p->where, BLOCKS, THREADS, p->stream, where));
	CU_MUST(cu_launch(p->step, 1, 1, p->stream, number));
	CU_MUST(cu.StreamSynchronize(p->stream));
	CU_MUST(cu.MemcpyDtoH(places, p->places, sizeof(places)));
	for (unsigned i = 0; i < BLOCKS; i++) {
		if (places[i] >= SMS_MOST)
			fail("a block ran on SM %u", places[i]);
		mask |= 1ull << places[i];
	}
	tell(p, file, mask);
}

int main(int argc, char **argv)
{
	const char *how = argc > 3 ? argv[3] : "";
	struct program p = { 0 };
	uint32_t expected = 0, got;
	unsigned steps = 0;

	if (argc < 3)
		return 2;
	prepare(&p);
	if (!strcmp(how, "long"))
		begin_long(&p);
	do {
		if (!steps || strcmp(how, "idle")) {
			step(&p, argv[1]);
			expected = expected * 3 + 1;
			steps++;
		}
		sleep_us(!strcmp(how, "idle") ? IDLE_US : STEP_US);
	} while (access(argv[2], F_OK));
	*p.flag = 1;
	CU_MUST(cu.CtxSynchronize());
	CU_MUST(cu.MemcpyDtoH(&got, p.number, sizeof(got)));
	printf("steps %u wrong %d\n", steps, got != expected);
	return got != expected;
}
