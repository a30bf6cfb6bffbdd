/* Faults in kernels: which error is returned, that it is sticky, and which contexts it does not affect. Each fault is made
 * in its own process, since a context with an error cannot be used any more. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "soft/link/link.h"

static const char ptx[] = PTX_HEAD
	".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
	".extern .func __assertfail(.param .b64 c, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n"
	".global .align 1 .b8 condition[7] = { 120, 32, 61, 61, 32, 49, 0 };\n" /* x == 1 */
	".global .align 1 .b8 file[5] = { 97, 46, 99, 117, 0 };\n"		/* a.cu */
	".global .align 1 .b8 name[5] = { 107, 101, 114, 110, 0 };\n"		/* kern */
	".global .align 1 .b8 hello[7] = { 104, 101, 108, 108, 111, 10, 0 };\n" /* hello\n */
	".visible .entry load(.param .u64 pat)\n"
	"{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<2>;\n"
	"	ld.param.u64 %rd1, [pat];\n"
	"	ld.global.u32 %r1, [%rd1];\n"
	"	st.global.u32 [%rd1], %r1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry die()\n"
	"{\n"
	"	trap;\n"
	"}\n"
	".visible .entry far()\n"
	"{\n"
	"	.reg .b32 %r<2>;\n"
	"	mov.u32 %r1, 262144;\n"
	"	st.shared.u32 [%r1], 1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry claim()\n"
	"{\n"
	"	.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<3>;\n"
	"	mov.u32 %r1, %tid.x;\n"
	"	setp.ne.u32 %p1, %r1, 3;\n"
	"	@%p1 ret;\n"
	"	mov.u32 %r2, %ctaid.x;\n"
	"	setp.ne.u32 %p2, %r2, 2;\n"
	"	@%p2 ret;\n"
	"	{\n"
	"	.param .b64 a0; .param .b64 a1; .param .b32 a2; .param .b64 a3; .param .b64 a4;\n"
	"	mov.u64 %rd1, condition;\n"
	"	cvta.global.u64 %rd1, %rd1;\n"
	"	st.param.b64 [a0], %rd1;\n"
	"	mov.u64 %rd2, file;\n"
	"	cvta.global.u64 %rd2, %rd2;\n"
	"	st.param.b64 [a1], %rd2;\n"
	"	st.param.b32 [a2], 12;\n"
	"	mov.u64 %rd3, name;\n"
	"	cvta.global.u64 %rd3, %rd3;\n"
	"	st.param.b64 [a3], %rd3;\n"
	"	st.param.b64 [a4], 1;\n"
	"	call.uni __assertfail, (a0, a1, a2, a3, a4);\n"
	"	}\n"
	"	ret;\n"
	"}\n"
	".visible .entry greet()\n"
	"{\n"
	"	.reg .b64 %rd<3>; .reg .b32 %r<2>;\n"
	"	{\n"
	"	.param .b64 a0; .param .b64 a1; .param .b32 r0;\n"
	"	mov.u64 %rd1, hello;\n"
	"	cvta.global.u64 %rd1, %rd1;\n"
	"	st.param.b64 [a0], %rd1;\n"
	"	st.param.b64 [a1], 0;\n"
	"	call.uni (r0), vprintf, (a0, a1);\n"
	"	}\n"
	"	ret;\n"
	"}\n"
	".visible .entry count(.param .u64 pat)\n"
	"{\n"
	"	.reg .b64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [pat];\n"
	"	red.global.add.u32 [%rd1], 1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry forever(.param .u64 pat)\n"
	"{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [pat];\n"
	"AGAIN:\n"
	"	ld.volatile.global.u32 %r1, [%rd1];\n"
	"	setp.eq.u32 %p1, %r1, 0;\n"
	"	@%p1 bra AGAIN;\n"
	"	ret;\n"
	"}\n";

/* In a child: run it there, with stdout and stderr in text. Fails if the child fails. */
static void in_child(void (*run)(void), char *text, size_t room)
{
	int ends[2], status;
	size_t length = 0;
	ssize_t got;
	pid_t pid;

	CHECK(!pipe(ends));
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		close(ends[0]);
		close(ends[1]);
		run();
		exit(0);
	}
	close(ends[1]);
	while (length < room - 1 && (got = read(ends[0], text + length, room - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	close(ends[0]);
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "%s", text);
	CHECK_EQUAL(status, 0);
}

static void launch(const char *name, void **params)
{
	CU(cuLaunchKernel(check_function(ptx, name), 4, 1, 1, 8, 1, 1, 0, NULL, params, NULL));
}

static void nowhere(void)
{
	uint64_t address = 0x700000001000ull;
	void *params[] = { &address };
	CUcontext context = check_context();
	CUdeviceptr at;
	CUstream stream;
	CUevent event;

	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&event, 0));
	launch("load", params);
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	/* It stays, whatever is asked next and wherever. */
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&at, 16));
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventQuery(event));
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventRecord(event, stream));
	CU(cuStreamDestroy_v2(stream));
	CU(cuEventDestroy_v2(event));
	CU(cuCtxGetCurrent(&context));
	/* A new context begins anew. */
	CU(cuDevicePrimaryCtxReset_v2(0));
	check_context();
	CU(cuMemAlloc_v2(&at, 16));
	params[0] = &at;
	launch("count", params);
	CU(cuCtxSynchronize());
}

static void misaligned(void)
{
	CUdeviceptr at;
	void *params[] = { &at };

	check_context();
	CU(cuMemAlloc_v2(&at, 16));
	at += 2;
	launch("load", params);
	CU_FAILS(CUDA_ERROR_MISALIGNED_ADDRESS, cuCtxSynchronize());
}

static void trapped(void)
{
	check_context();
	launch("die", NULL);
	CU_FAILS(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(NULL));
}

static void beyond_shared(void)
{
	check_context();
	launch("far", NULL);
	CU_FAILS(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

static void after_free(void)
{
	CUdeviceptr at;
	void *params[] = { &at };

	check_context();
	CU(cuMemAlloc_v2(&at, 8 << 20));
	CU(cuMemFree_v2(at));
	launch("load", params);
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void claimed(void)
{
	check_context();
	launch("claim", NULL);
	CU_FAILS(CUDA_ERROR_ASSERT, cuCtxSynchronize());
	CU_FAILS(CUDA_ERROR_ASSERT, cuCtxSynchronize());
}

static void greeted(void)
{
	check_context();
	printf("before\n");
	launch("greet", NULL);
	CU(cuCtxSynchronize());
	printf("after\n");
}

static void faults_are_what_cuda_calls_them(void)
{
	static void (*const faults[])(void) = { nowhere, misaligned, trapped, beyond_shared, after_free };
	char text[4096];

	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		in_child(faults[i], text, sizeof(text));
}

static void an_assertion_is_told_on_stderr(void)
{
	static const char wanted[] =
		"a.cu:12: kern: block: [2,0,0], thread: [3,0,0] Assertion `x == 1` failed.\n";
	char text[4096];

	in_child(claimed, text, sizeof(text));
	CHECK(strstr(text, wanted));
	CHECK(!strstr(strstr(text, wanted) + 1, wanted)); /* once */
}

static void what_kernels_print_comes_out_at_synchronisation(void)
{
	char text[8192], *at = text;
	int count = 0;

	in_child(greeted, text, sizeof(text));
	CHECK(strstr(text, "before\nhello\n"));
	while ((at = strstr(at, "hello\n"))) {
		count++;
		at++;
	}
	CHECK_EQUAL(count, 32);
	CHECK(strstr(text, "hello\nafter\n"));
}

/* ---- contexts that it does not affect */

static void other_contexts_go_on(void)
{
	uint64_t address = 0x700000001000ull;
	void *params[] = { &address };
	CUcontext bad;
	CUdeviceptr at;
	uint32_t value;

	check_context();
	CU(cuMemAlloc_v2(&at, 16));
	CU(cuMemsetD32_v2(at, 0, 4));
	CU(cuCtxCreate_v2(&bad, 0, 0));
	launch("load", params);
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
	CU(cuCtxDestroy_v2(bad));
	params[0] = &at;
	launch("count", params);
	CU(cuMemcpyDtoH_v2(&value, at, sizeof(value)));
	CHECK_EQUAL(value, 32);
}

static void a_fault_stays_in_its_context(void)
{
	char text[4096];

	in_child(other_contexts_go_on, text, sizeof(text));
}

static void wait_for_the_failed(void)
{
	uint64_t address = 0x700000001000ull;
	void *params[] = { &address }, *at;
	volatile uint32_t *gate;
	CUstream waiting;
	CUcontext bad;
	CUevent event;

	check_context();
	CU(cuMemHostAlloc(&at, 4096, CU_MEMHOSTALLOC_PORTABLE));
	gate = at;
	*gate = 0;
	CU(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
	CU(cuCtxCreate_v2(&bad, 0, 0));
	CU(cuEventCreate(&event, 0));
	CU(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
	launch("load", params);
	CU(cuEventRecord(event, NULL));
	CU(cuStreamWaitEvent(waiting, event, 0));
	CU_FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	CU(cuStreamSynchronize(waiting));
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void who_waits_for_a_failed_context_goes_on(void)
{
	char text[4096];

	in_child(wait_for_the_failed, text, sizeof(text));
}

static void fault_and_exit(void)
{
	uint64_t address = 0x700000001000ull;
	void *params[] = { &address };

	check_context();
	launch("load", params);
	CU_FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

/* A child that works on, one launch after the other, while others fault and are killed. */
static void work(int go)
{
	CUdeviceptr at;
	void *params[] = { &at };
	CUfunction count;
	uint32_t value, launches = 0;
	char byte;

	check_context();
	CU(cuMemAlloc_v2(&at, 16));
	CU(cuMemsetD32_v2(at, 0, 4));
	count = check_function(ptx, "count");
	do {
		CU(cuLaunchKernel(count, 4, 1, 1, 8, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		launches++;
	} while (read(go, &byte, 1) < 0);
	CU(cuMemcpyDtoH_v2(&value, at, sizeof(value)));
	CHECK_EQUAL(value, launches * 32);
}

static void be_killed(void)
{
	CUdeviceptr at;
	void *params[] = { &at };

	check_context();
	CU(cuMemAlloc_v2(&at, 16));
	CU(cuMemsetD32_v2(at, 0, 4));
	launch("forever", params);
	raise(SIGKILL);
}

static void a_fault_or_death_does_not_reach_another_process(void)
{
	char text[4096];
	int go[2], status;
	pid_t worker, victim;

	CHECK(!pipe2(go, O_NONBLOCK));
	worker = fork();
	CHECK(worker >= 0);
	if (!worker) {
		close(go[1]);
		work(go[0]);
		exit(0);
	}
	close(go[0]);
	for (int i = 0; i < 3; i++) {
		in_child(fault_and_exit, text, sizeof(text));
		victim = fork();
		CHECK(victim >= 0);
		if (!victim) {
			be_killed();
			exit(0);
		}
		CHECK(waitpid(victim, &status, 0) == victim);
		CHECK(WIFSIGNALED(status));
	}
	close(go[1]);
	CHECK(waitpid(worker, &status, 0) == worker);
	CHECK_EQUAL(status, 0);
}

/* ---- when the driver dies */

static pid_t server_pid(void)
{
	struct link_config config = link_default;
	struct soft_status status;
	char folder[4096];

	if (getenv("BELFRY_SOFT"))
		CHECK(!link_config_parse(getenv("BELFRY_SOFT"), &config, NULL));
	CHECK(!link_folder(config.name, folder, sizeof(folder), NULL));
	CHECK(!link_status(folder, &status, NULL));
	return (pid_t)status.pid;
}

static void lose_driver(void)
{
	CUdeviceptr at;
	void *params[] = { &at };
	pid_t pid;

	check_context();
	CU(cuMemAlloc_v2(&at, 16));
	CU(cuMemsetD32_v2(at, 0, 4));
	CU(cuCtxSynchronize());
	pid = server_pid();
	launch("forever", params);
	CHECK(!kill(pid, SIGKILL));
	CU_FAILS(CUDA_ERROR_DEVICE_UNAVAILABLE, cuCtxSynchronize());
	CU_FAILS(CUDA_ERROR_DEVICE_UNAVAILABLE, cuMemAlloc_v2(&at, 16));
	CU(cuDevicePrimaryCtxReset_v2(0));
}

static void a_dead_driver_is_an_error_and_no_hang(void)
{
	char text[4096];

	in_child(lose_driver, text, sizeof(text));
}

TESTS(TEST(faults_are_what_cuda_calls_them), TEST(an_assertion_is_told_on_stderr),
      TEST(what_kernels_print_comes_out_at_synchronisation), TEST(a_fault_stays_in_its_context),
      TEST(who_waits_for_a_failed_context_goes_on), TEST(a_fault_or_death_does_not_reach_another_process),
      TEST(a_dead_driver_is_an_error_and_no_hang))
