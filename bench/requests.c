/* SPDX-License-Identifier: MIT */
/* A program that answers requests: each is one or several kernels, launched and waited for. It tells how long the last
 * requests took by its own clock, from before the first launch until after the wait, and writes each to a file on demand.
 * Kernels tell what they have computed in host memory, and every request's result is checked: none lost, none done twice.
 *
 * Exit status: 0, 1 if something failed or a result is wrong, 2 wrong usage, 77 no GPU. */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu.h"
#include "util.h"

static const char help_text[] =
	"usage: requests [OPTION...]\n"
	"\n"
	"Answer requests on the GPU and tell how long they took.\n"
	"\n"
	"  --kernels N      kernels of a request (1)\n"
	"  --kernel-us N    how long a kernel takes when alone (1000)\n"
	"  --streams N      they are spread over so many streams (1)\n"
	"  --graph 1        they are one launch of a CUDA graph\n"
	"  --period-us N    a request every N us; 0: one after the other (10000)\n"
	"  --requests N     how many (600)\n"
	"  --last N         percentiles are those of the last N (512)\n"
	"  --per-ms N       rounds of a kernel in a millisecond, as --calibrate tells them\n"
	"  --realtime 1     with real-time priority, so that the wait for a processor after the GPU is\n"
	"                   done is not in the figures; needs CAP_SYS_NICE\n"
	"  --samples FILE   write there how long each took, in ns\n"
	"  --calibrate 1    alone on the GPU: tell the rounds in a millisecond, and end\n";

/* spin(u64 word, u32 rounds): every thread takes *word through `rounds` steps of x = x * 1664525 + 1013904223, and the
 * first one of the first block stores it there. */
static const char kernel_spin[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
				  ".visible .entry spin(.param .u64 pword, .param .u32 prounds)\n"
				  "{\n"
				  "	.reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<3>;\n"
				  "	ld.param.u64 %rd1, [pword];\n"
				  "	ld.param.u32 %r1, [prounds];\n"
				  "	ld.global.u32 %r2, [%rd1];\n"
				  "STEP:\n"
				  "	mad.lo.u32 %r2, %r2, 1664525, 1013904223;\n"
				  "	sub.u32 %r1, %r1, 1;\n"
				  "	setp.ne.u32 %p1, %r1, 0;\n"
				  "	@%p1 bra STEP;\n"
				  "	mov.u32 %r3, %ctaid.x;\n"
				  "	mov.u32 %r4, %tid.x;\n"
				  "	or.b32 %r5, %r3, %r4;\n"
				  "	setp.ne.u32 %p2, %r5, 0;\n"
				  "	@%p2 bra DONE;\n"
				  "	st.global.u32 [%rd1], %r2;\n"
				  "DONE:\n"
				  "	ret;\n"
				  "}\n";

enum { STREAMS_MAX = 16, KERNELS_MAX = 256, REQUESTS_MAX = 1000000, WORD_STEP = 64 };

struct requests {
	unsigned kernels, streams, count, last;
	uint64_t kernel_us, period_ns;
	bool is_graph;
	uint32_t rounds;

	void *kernel, *stream[STREAMS_MAX], *exec;
	volatile uint32_t *words; /* host memory: one word a stream, WORD_STEP words apart */
	uint64_t words_at;
	uint32_t expected[STREAMS_MAX];
};

static void launch(struct requests *r, unsigned stream)
{
	uint64_t word = r->words_at + (uint64_t)stream * WORD_STEP * sizeof(uint32_t);
	void *args[] = { &word, &r->rounds };

	CU_MUST(cu_launch(r->kernel, 1, 32, r->stream[stream], args));
}

static void launch_all(struct requests *r)
{
	if (r->is_graph) {
		CU_MUST(cu.GraphLaunch(r->exec, r->stream[0]));
		return;
	}
	for (unsigned i = 0; i < r->kernels; i++)
		launch(r, i % r->streams);
}

static void wait_all(const struct requests *r)
{
	for (unsigned i = 0; i < r->streams; i++)
		CU_MUST(cu.StreamSynchronize(r->stream[i]));
}

static uint32_t spin_here(uint32_t x, uint32_t rounds)
{
	while (rounds--)
		x = x * 1664525u + 1013904223u;
	return x;
}

/* The same on the CPU, after what the program has measured. */
static void check(struct requests *r)
{
	for (unsigned i = 0; i < r->kernels; i++) {
		uint32_t *word = &r->expected[i % r->streams];

		*word = spin_here(*word, r->rounds);
	}
	for (unsigned i = 0; i < r->streams; i++)
		if (r->words[(size_t)i * WORD_STEP] != r->expected[i])
			fail("stream %u: %#x instead of %#x", i, r->words[(size_t)i * WORD_STEP],
			     r->expected[i]);
}

static void prepare(struct requests *r)
{
	void *host, *graph;

	cu_open();
	r->kernel = cu_kernel(kernel_spin, "spin");
	CU_MUST(cu.MemHostAlloc(&host, sizeof(uint32_t) * WORD_STEP * STREAMS_MAX, CU_HOST_DEVICEMAP));
	CU_MUST(cu.MemHostGetDevicePointer(&r->words_at, host, 0));
	memset(host, 0, sizeof(uint32_t) * WORD_STEP * STREAMS_MAX);
	r->words = host;
	for (unsigned i = 0; i < r->streams; i++)
		CU_MUST(cu.StreamCreate(&r->stream[i], CU_STREAM_NON_BLOCKING));
	if (!r->is_graph || !r->rounds)
		return;
	CU_MUST(cu.StreamBeginCapture(r->stream[0], CU_CAPTURE_THREAD_LOCAL));
	for (unsigned i = 0; i < r->kernels; i++)
		launch(r, 0);
	CU_MUST(cu.StreamEndCapture(r->stream[0], &graph));
	CU_MUST(cu.GraphInstantiate(&r->exec, graph, 0));
}

static uint64_t time_of(struct requests *r, uint32_t rounds)
{
	uint64_t begin = now_ns();

	r->rounds = rounds;
	launch(r, 0);
	wait_all(r);
	return now_ns() - begin;
}

/* Rounds in a millisecond, by the difference of two lengths: what a launch costs besides is in both. */
static uint32_t calibrate(struct requests *r)
{
	uint32_t rounds = 64;
	double best = 0;

	while (time_of(r, rounds) < 20000000 && rounds < 1u << 30)
		rounds *= 2;
	for (unsigned i = 0; i < 5; i++) {
		uint64_t one = time_of(r, rounds), two = time_of(r, 2 * rounds);
		double per_ms = two > one ? rounds * 1e6 / (double)(two - one) : 0;

		best = per_ms > best ? per_ms : best;
	}
	if (best < 1)
		fail("requests: a kernel of twice the length takes no longer; is the GPU busy?");
	return (uint32_t)best;
}

static void answer(struct requests *r, double *took_ns)
{
	uint64_t next = now_ns();

	for (unsigned i = 0; i < r->count; i++) {
		uint64_t begin = now_ns();

		if (begin < next)
			sleep_us((next - begin) / 1000);
		begin = now_ns();
		launch_all(r);
		wait_all(r);
		took_ns[i] = (double)(now_ns() - begin);
		next = next + r->period_ns > begin ? next + r->period_ns : begin;
		check(r);
	}
}

static void write_samples(const char *path, const double *took_ns, unsigned count)
{
	FILE *file = fopen(path, "w");

	if (!file)
		fail("requests: %s: %s", path, strerror(errno));
	for (unsigned i = 0; i < count; i++)
		fprintf(file, "%.0f\n", took_ns[i]);
	if (fclose(file))
		fail("requests: %s: %s", path, strerror(errno));
}

/* Whoever sleeps until the GPU is done gets a processor at once. */
static bool be_realtime(void)
{
	struct sched_param param = { .sched_priority = 1 };

	return !sched_setscheduler(0, SCHED_FIFO, &param);
}

static unsigned number(int argc, char **argv, const char *name, uint64_t fallback, uint64_t most)
{
	uint64_t value = option_number(argc, argv, name, fallback);

	if (value <= most)
		return (unsigned)value;
	fprintf(stderr, "requests: --%s %llu: at most %llu\n", name, (unsigned long long)value,
		(unsigned long long)most);
	exit(2);
}

static struct requests read_options(int argc, char **argv)
{
	struct requests r = { .kernels = number(argc, argv, "kernels", 1, KERNELS_MAX),
			      .streams = number(argc, argv, "streams", 1, STREAMS_MAX),
			      .count = number(argc, argv, "requests", 600, REQUESTS_MAX),
			      .last = number(argc, argv, "last", 512, REQUESTS_MAX),
			      .kernel_us = number(argc, argv, "kernel-us", 1000, 1000000),
			      .period_ns = 1000ull * number(argc, argv, "period-us", 10000, 1000000000),
			      .is_graph = number(argc, argv, "graph", 0, 1) };

	if (!r.kernels || !r.streams || !r.count || !r.last || (r.is_graph && r.streams > 1)) {
		fprintf(stderr, "requests: nothing to do, or a graph on several streams\n");
		exit(2);
	}
	r.last = r.last < r.count ? r.last : r.count;
	return r;
}

static uint32_t rounds_of(const struct requests *r, uint32_t per_ms)
{
	uint64_t rounds = r->kernel_us * per_ms / 1000;

	return rounds ? (uint32_t)rounds : 1;
}

int main(int argc, char **argv)
{
	struct requests r = read_options(argc, argv);
	uint32_t per_ms = number(argc, argv, "per-ms", 0, UINT32_MAX);
	const char *samples = option_text(argc, argv, "samples", NULL);
	double *took_ns = malloc(r.count * sizeof(*took_ns)), *last;
	bool is_realtime;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(help_text, stdout);
		return 0;
	}
	if (!took_ns)
		fail("out of memory");
	if (number(argc, argv, "calibrate", 0, 1)) {
		prepare(&r);
		printf("%u\n", calibrate(&r));
		return 0;
	}
	if (!per_ms) {
		fprintf(stderr, "requests: --per-ms is needed; requests --calibrate 1 tells it\n");
		return 2;
	}
	r.rounds = rounds_of(&r, per_ms);
	prepare(&r);
	is_realtime = number(argc, argv, "realtime", 0, 1) && be_realtime();
	answer(&r, took_ns);
	if (samples)
		write_samples(samples, took_ns, r.count);
	last = took_ns + (r.count - r.last);
	printf("{\"requests\":%u,\"last\":%u,\"realtime\":%s,\"p50_us\":%.1f,\"p99_us\":%.1f}\n", r.count,
	       r.last, is_realtime ? "true" : "false", percentile(last, r.last, 50) / 1e3,
	       percentile(last, r.last, 99) / 1e3);
	return 0;
}
