/* SPDX-License-Identifier: MIT */
/* A load on the GPU whose work can be counted: kernels of a fixed number of iterations on every SM, at most so many in
 * flight. They tell how far they are through a word in host memory, so that what was done is known at any moment, also
 * of a kernel that is stopped in the middle. The result depends on every launch and on their order, and is compared
 * with the same computed here: nothing lost, nothing done twice.
 *
 *   load --calibrate FILE               alone on the GPU: how long an iteration takes
 *   load --calibration FILE --secs 10   work is told in ms of the GPU's time when alone
 *
 * Exit status: 0, 1 if something failed or the result is wrong, 2 wrong usage, 77 no GPU. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cu.h"
#include "util.h"

static const char help_text[] =
	"usage: load [OPTION...]\n"
	"\n"
	"Keep the GPU busy with work that is counted and checked.\n"
	"\n"
	"  --kernel-us LIST     how long kernels take when alone, such as 10,100,100000 (1000)\n"
	"  --mix HOW            turn: one after the other (default); random: as many of each;\n"
	"                       time: at random, so that each length takes as much of the time\n"
	"  --seed N             for --mix (1)\n"
	"  --in-flight N        launches at most (64), of 300 ms at most or two\n"
	"  --graph K            K kernels a launch, as a CUDA graph\n"
	"  --sync               wait for every launch\n"
	"  --gap-us N           pause between launches\n"
	"  --secs N             how long (10)\n"
	"  --until FILE         or until this file exists\n"
	"  --launches N         or until so many\n"
	"  --ready FILE         made once it could start\n"
	"  --start FILE         start when this file exists\n"
	"  --bucket-ms N        work is told for each N ms of CLOCK_REALTIME (100)\n"
	"  --calibrate FILE     find out how long an iteration takes, write it there, and end\n"
	"  --calibration FILE   what was written; without it, it is found out before the start\n"
	"  --per-us N           the same by hand: iterations a microsecond\n"
	"  --json               one line of JSON, with the buckets\n";

/* load(u64 out, u64 total, u64 told, u32 chunks, u32 chunk, u32 credit, u32 mix): every thread takes its word of `out`
 * ^ mix through chunks * chunk steps of x = x * 1664525 + 1013904223. The first thread counts credit + iterations on to
 * *total and tells it in *told after each chunk. */
static const char kernel_load[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry load(.param .u64 pout, .param .u64 ptotal, .param .u64 ptold, .param .u32 pchunks,\n"
	"	.param .u32 pchunk, .param .u32 pcredit, .param .u32 pmix)\n"
	"{\n"
	"	.reg .b64 %rd<10>; .reg .b32 %r<12>; .reg .pred %p<4>;\n"
	"	ld.param.u64 %rd1, [pout];\n"
	"	ld.param.u64 %rd2, [ptotal];\n"
	"	ld.param.u64 %rd3, [ptold];\n"
	"	ld.param.u32 %r1, [pchunks];\n"
	"	ld.param.u32 %r2, [pchunk];\n"
	"	ld.param.u32 %r3, [pmix];\n"
	"	mov.u32 %r4, %ctaid.x;\n"
	"	mov.u32 %r5, %ntid.x;\n"
	"	mov.u32 %r6, %tid.x;\n"
	"	mad.lo.u32 %r7, %r4, %r5, %r6;\n"
	"	mul.wide.u32 %rd4, %r7, 4;\n"
	"	add.u64 %rd5, %rd1, %rd4;\n"
	"	ld.global.u32 %r8, [%rd5];\n"
	"	xor.b32 %r8, %r8, %r3;\n"
	"	setp.ne.u32 %p1, %r7, 0;\n"
	"	@%p1 bra CHUNK;\n"
	"	ld.param.u32 %r9, [pcredit];\n"
	"	cvt.u64.u32 %rd6, %r9;\n"
	"	ld.global.u64 %rd7, [%rd2];\n"
	"	add.u64 %rd7, %rd7, %rd6;\n"
	"	cvt.u64.u32 %rd8, %r2;\n"
	"CHUNK:\n"
	"	mov.u32 %r10, %r2;\n"
	"STEP:\n"
	"	mad.lo.u32 %r8, %r8, 1664525, 1013904223;\n"
	"	sub.u32 %r10, %r10, 1;\n"
	"	setp.ne.u32 %p2, %r10, 0;\n"
	"	@%p2 bra STEP;\n"
	"	@%p1 bra TOLD;\n"
	"	add.u64 %rd7, %rd7, %rd8;\n"
	"	st.volatile.global.u64 [%rd3], %rd7;\n"
	"TOLD:\n"
	"	sub.u32 %r1, %r1, 1;\n"
	"	setp.ne.u32 %p3, %r1, 0;\n"
	"	@%p3 bra CHUNK;\n"
	"	st.global.u32 [%rd5], %r8;\n"
	"	@%p1 bra DONE;\n"
	"	st.global.u64 [%rd2], %rd7;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

enum {
	LENGTHS_MAX = 16,
	GRAPH_MAX = 4096,
	BATCHES_MAX = 256,
	IN_FLIGHT_MAX = 1 << 16,
	BUCKETS_MAX = 1 << 20,
	LANES = 64,	      /* words of `out` that differ; the others are copies */
	CHUNK_US = 20,	      /* how often a kernel tells how far it is */
	BATCH_US = 500,	      /* about as much is waited for at once */
	IN_FLIGHT_US = 300000 /* what is queued has to be done after the end, too */
};
static const uint32_t STEP_MUL = 1664525, STEP_ADD = 1013904223;

/* How fast the GPU is when nobody else is on it. */
struct calibration {
	double per_us;	/* iterations a microsecond */
	double base_us; /* what a launch takes besides, back to back */
	unsigned threads, blocks;
};

/* One kernel length: its arguments, and what it does to a word (x ^ mix) * mul + add. */
struct length {
	double us; /* as asked */
	uint32_t chunks, chunk, credit;
	uint32_t mul, add;
	double weight; /* of --mix time, summed up */
};

enum mix { MIX_TURN, MIX_RANDOM, MIX_TIME };

/* Which kernel is the next; the same again for the check. */
struct sequence {
	const struct length *lengths;
	unsigned count;
	enum mix mix;
	uint64_t state, at;
};

struct load {
	struct calibration calibration;
	struct length lengths[LENGTHS_MAX];
	unsigned length_count;
	enum mix mix;
	uint64_t seed, gap_us, secs, launches, bucket_ns; /* launches 0: any number */
	unsigned in_flight, graph;
	bool is_sync, is_json;
	uint64_t longest_ns; /* of a launch that was waited for */
	const char *ready, *start, *until;

	void *kernel, *stream, *exec;
	uint64_t out, total, told;
	volatile uint64_t *told_host;
	struct sequence next;
	uint64_t launched; /* kernels */
	double graph_us;
};

/* What was done at the ends of buckets, in iterations. A thread of its own fills it in. */
struct samples {
	const struct load *load;
	uint64_t first_ns, at_ns; /* CLOCK_REALTIME: the first bucket's start; the newest sample's time */
	double *done;		  /* at first_ns + i * bucket_ns */
	unsigned count;
	uint64_t newest;
	_Atomic bool is_over;
	pthread_t thread;
};

static uint64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static _Noreturn void usage(const char *what, const char *why)
{
	fprintf(stderr, "load: %s: %s; load --help tells more\n", what, why);
	exit(2);
}

/* ---- kernels ---- */

static uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull; /* splitmix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static const struct length *sequence_next(struct sequence *s)
{
	double at;
	unsigned i = 0;

	if (s->mix == MIX_TURN)
		return &s->lengths[s->at++ % s->count];
	s->at++;
	if (s->mix == MIX_RANDOM)
		return &s->lengths[random_next(&s->state) % s->count];
	at = (double)(random_next(&s->state) >> 11) * 0x1p-53 * s->lengths[s->count - 1].weight;
	while (i + 1 < s->count && at >= s->lengths[i].weight)
		i++;
	return &s->lengths[i];
}

static uint32_t mix_of(uint64_t launch)
{
	return (uint32_t)launch * 2654435761u + 40503u;
}

static void length_fill(struct length *l, const struct calibration *c)
{
	double iterations = (l->us - c->base_us) * c->per_us, chunk = CHUNK_US * c->per_us;
	uint32_t mul = STEP_MUL, add = STEP_ADD;

	if (iterations < 1)
		iterations = 1;
	if (chunk < 16)
		chunk = 16;
	if (iterations < 2 * chunk)
		chunk = iterations;
	l->chunk = (uint32_t)(chunk + 0.5);
	l->chunks = (uint32_t)(iterations / l->chunk + 0.5);
	if (!l->chunks)
		l->chunks = 1;
	l->credit = (uint32_t)(c->base_us * c->per_us + 0.5);
	/* n steps at once, by squaring */
	l->mul = 1;
	l->add = 0;
	for (uint64_t n = (uint64_t)l->chunk * l->chunks; n; n >>= 1) {
		if (n & 1) {
			l->add = l->add * mul + add;
			l->mul *= mul;
		}
		add = add * mul + add;
		mul *= mul;
	}
}

static uint64_t length_iterations(const struct length *l)
{
	return (uint64_t)l->chunk * l->chunks + l->credit;
}

static void launch_kernel(struct load *load, const struct length *l, uint32_t mix)
{
	uint32_t chunks = l->chunks, chunk = l->chunk, credit = l->credit;
	void *args[] = { &load->out, &load->total, &load->told, &chunks, &chunk, &credit, &mix };

	CU_MUST(cu_launch(load->kernel, load->calibration.blocks, load->calibration.threads, load->stream,
			  args));
}

static uint32_t lane_start(unsigned lane)
{
	return (lane % LANES) * 0x9e3779b9u + 1;
}

/* Fresh memory for this many threads. */
static void load_fill(struct load *load)
{
	unsigned count = load->calibration.threads * load->calibration.blocks;
	uint32_t *words = malloc(count * sizeof(*words));

	if (!words)
		abort();
	for (unsigned i = 0; i < count; i++)
		words[i] = lane_start(i);
	CU_MUST(cu.MemAlloc(&load->out, count * sizeof(*words)));
	CU_MUST(cu.MemcpyHtoD(load->out, words, count * sizeof(*words)));
	CU_MUST(cu.MemAlloc(&load->total, 8));
	CU_MUST(cu.MemsetD8(load->total, 0, 8));
	CU_MUST(cu.CtxSynchronize());
	*load->told_host = 0;
	free(words);
}

static void load_open(struct load *load)
{
	void *host;

	cu_open();
	load->kernel = cu_kernel(kernel_load, "load");
	CU_MUST(cu.StreamCreate(&load->stream, CU_STREAM_NON_BLOCKING));
	CU_MUST(cu.MemHostAlloc(&host, 4096, CU_HOST_DEVICEMAP));
	CU_MUST(cu.MemHostGetDevicePointer(&load->told, host, 0));
	load->told_host = host;
}

/* ---- calibration ---- */

/* What a launch of so many iterations takes, in us, of many back to back: the median of five. */
static double time_of(struct load *load, uint32_t chunks, uint32_t chunk, unsigned launches)
{
	struct length l = { .chunks = chunks, .chunk = chunk };
	double took[5];

	for (unsigned i = 0; i < 5; i++) {
		uint64_t start = now_ns();

		for (unsigned k = 0; k < launches; k++)
			launch_kernel(load, &l, 0);
		CU_MUST(cu.StreamSynchronize(load->stream));
		took[i] = (double)(now_ns() - start) / 1e3 / launches;
	}
	return percentile(took, 5, 50);
}

/* All threads an SM holds; few on a GPU where that alone makes a kernel of 10 us impossible, such as the software GPU. That
 * is clear after the first launches if they take this long. With a sanitizer each takes more than 100 ms. */
enum { SLOW_LAUNCH_US = 5000 };

static void choose_shape(struct load *load)
{
	int sms = 1, device = 0;

	CU_MUST(cu.DeviceGet(&device, 0));
	CU_MUST(cu.DeviceGetAttribute(&sms, CU_DEVICE_SM_COUNT, device));
	load->calibration.threads = 256;
	load->calibration.blocks = (unsigned)sms * 8;
	load_fill(load);
	if (time_of(load, 1, 1, 1) < SLOW_LAUNCH_US && time_of(load, 1, 1, 4) < 100)
		return;
	load->calibration.threads = 8;
	load->calibration.blocks = (unsigned)sms;
}

static void calibrate(struct load *load)
{
	struct calibration *c = &load->calibration;
	uint32_t chunk = 16, chunks, few_chunks;
	uint64_t warm;
	double many, few;

	choose_shape(load);
	load_fill(load);
	/* a chunk of about CHUNK_US, then a kernel of about 20 ms, and of 100 us */
	while (chunk < 1u << 24 && time_of(load, 8, chunk, 1) < 8 * CHUNK_US)
		chunk *= 2;
	chunks = 20000 / CHUNK_US;
	for (warm = now_ns(); now_ns() - warm < 500000000ull;) /* the clocks settle under load */
		time_of(load, chunks, chunk, 1);
	many = time_of(load, chunks, chunk, 10);
	few_chunks = chunks / 200;
	few = time_of(load, few_chunks, chunk, 2000);
	c->per_us = (double)chunk * (chunks - few_chunks) / (many - few);
	c->base_us = few - (double)chunk * few_chunks / c->per_us;
	if (c->base_us < 0)
		c->base_us = 0;
	if (!(c->per_us > 0))
		fail("load: calibration failed: %.3f us for %u chunks, %.3f us for %u", many, chunks, few,
		     few_chunks);
}

static void calibration_write(const struct calibration *c, const char *path)
{
	FILE *file = fopen(path, "w");

	if (!file)
		fail("load: %s: %s", path, strerror(errno));
	fprintf(file, "%.9g %.9g %u %u\n", c->per_us, c->base_us, c->threads, c->blocks);
	if (fclose(file))
		fail("load: %s: %s", path, strerror(errno));
}

static void calibration_read(struct calibration *c, const char *path)
{
	FILE *file = fopen(path, "r");
	int got;

	if (!file)
		fail("load: %s: %s", path, strerror(errno));
	got = fscanf(file, "%lf %lf %u %u", &c->per_us, &c->base_us, &c->threads, &c->blocks);
	fclose(file);
	if (got != 4 || !(c->per_us > 0) || !(c->base_us >= 0) || !c->threads || c->threads > 1024 ||
	    !c->blocks || c->blocks > 1 << 16)
		fail("load: %s: not what load --calibrate writes", path);
}

/* ---- the counting of work ---- */

/* Between two samples work goes on evenly: what had been done at the ends of buckets in between. */
static void samples_take(struct samples *s)
{
	uint64_t now = real_ns(), done = *s->load->told_host, bucket = s->load->bucket_ns, end;

	while (s->count < BUCKETS_MAX && (end = s->first_ns + s->count * bucket) <= now) {
		double part = now > s->at_ns && end > s->at_ns
				      ? (double)(end - s->at_ns) / (double)(now - s->at_ns)
				      : 0;

		s->done[s->count++] = (double)s->newest + (double)(done - s->newest) * part;
	}
	s->at_ns = now;
	s->newest = done;
}

static void *samples_run(void *context)
{
	struct samples *s = context;

	while (!atomic_load(&s->is_over)) {
		uint64_t due = s->first_ns + s->count * s->load->bucket_ns;
		struct timespec at = { .tv_sec = (time_t)(due / 1000000000),
				       .tv_nsec = (long)(due % 1000000000) };

		if (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL))
			continue;
		samples_take(s);
	}
	return NULL;
}

/* Buckets begin at whole multiples, so that those of two loads are the same. */
static void samples_start(struct samples *s, const struct load *load)
{
	uint64_t now = real_ns();

	*s = (struct samples){ .load = load, .at_ns = now, .newest = *load->told_host };
	s->first_ns = (now / load->bucket_ns + 1) * load->bucket_ns;
	s->done = malloc(BUCKETS_MAX * sizeof(*s->done));
	if (!s->done || pthread_create(&s->thread, NULL, samples_run, s))
		fail("load: no thread for the counting");
}

static void samples_stop(struct samples *s)
{
	atomic_store(&s->is_over, true);
	pthread_join(s->thread, NULL);
}

/* ---- the load ---- */

/* Launches that are waited for together. */
struct batch {
	void *event;
	unsigned launches;
	double us;
};

struct queue {
	struct batch batches[BATCHES_MAX]; /* a ring; the newest one is being filled */
	unsigned first, count;
	unsigned launches; /* of all */
	double us;
};

static void queue_open(struct queue *q)
{
	memset(q, 0, sizeof(*q));
	for (unsigned i = 0; i < BATCHES_MAX; i++)
		CU_MUST(cu.EventCreate(&q->batches[i].event, CU_EVENT_DISABLE_TIMING));
}

static void queue_wait(struct queue *q)
{
	struct batch *oldest = &q->batches[q->first];

	CU_MUST(cu.EventSynchronize(oldest->event));
	q->launches -= oldest->launches;
	q->us -= oldest->us;
	q->first = (q->first + 1) % BATCHES_MAX;
	q->count--;
}

static void queue_add(struct load *load, struct queue *q, struct batch *filling, double us)
{
	struct batch *to;

	filling->launches++;
	filling->us += us;
	if (filling->us < BATCH_US && filling->launches * 4 < load->in_flight)
		return;
	while (q->count && (q->count == BATCHES_MAX || q->launches + filling->launches > load->in_flight ||
			    q->us + filling->us > IN_FLIGHT_US))
		queue_wait(q);
	to = &q->batches[(q->first + q->count++) % BATCHES_MAX];
	to->launches = filling->launches;
	to->us = filling->us;
	q->launches += to->launches;
	q->us += to->us;
	CU_MUST(cu.EventRecord(to->event, load->stream));
	*filling = (struct batch){ 0 };
}

static void graph_make(struct load *load)
{
	void *graph;

	CU_MUST(cu.StreamBeginCapture(load->stream, CU_CAPTURE_THREAD_LOCAL));
	for (unsigned i = 0; i < load->graph; i++) {
		const struct length *l = &load->lengths[i % load->length_count];

		launch_kernel(load, l, mix_of(i));
		load->graph_us += l->us;
	}
	CU_MUST(cu.StreamEndCapture(load->stream, &graph));
	CU_MUST(cu.GraphInstantiate(&load->exec, graph, 0));
}

/* One launch; how long it takes when alone, in us. */
static double load_launch(struct load *load)
{
	const struct length *l;

	if (load->graph) {
		CU_MUST(cu.GraphLaunch(load->exec, load->stream));
		load->launched += load->graph;
		return load->graph_us;
	}
	l = sequence_next(&load->next);
	launch_kernel(load, l, mix_of(load->launched++));
	return l->us;
}

static bool load_is_over(const struct load *load, uint64_t end_ns)
{
	return now_ns() >= end_ns || (load->launches && load->launched >= load->launches) ||
	       (load->until && !access(load->until, F_OK));
}

static void load_run(struct load *load)
{
	uint64_t end_ns = now_ns() + load->secs * 1000000000ull;
	struct batch filling = { 0 };
	static struct queue queue;

	queue_open(&queue);
	while (!load_is_over(load, end_ns)) {
		uint64_t start_ns = now_ns();
		double us = load_launch(load);

		if (load->is_sync) {
			CU_MUST(cu.StreamSynchronize(load->stream));
			if (now_ns() - start_ns > load->longest_ns)
				load->longest_ns = now_ns() - start_ns;
		} else {
			queue_add(load, &queue, &filling, us);
		}
		if (load->gap_us)
			sleep_us(load->gap_us);
	}
}

static void make_file(const char *path)
{
	FILE *file = path ? fopen(path, "w") : NULL;

	if (path && (!file || fclose(file)))
		fail("load: %s: %s", path, strerror(errno));
}

static void await_file(const char *path)
{
	uint64_t limit = now_ns() + 300 * 1000000000ull;

	while (path && access(path, F_OK)) {
		if (now_ns() > limit)
			fail("load: %s: not there after 300 s", path);
		sleep_us(1000);
	}
}

/* ---- the check ---- */

/* The same on the CPU; iterations in all go to *total. */
static void reference(const struct load *load, uint32_t words[LANES], uint64_t *total)
{
	struct sequence s = { load->lengths, load->length_count, load->mix, load->seed, 0 };

	*total = 0;
	for (unsigned i = 0; i < LANES; i++)
		words[i] = lane_start(i);
	for (uint64_t n = 0; n < load->launched; n++) {
		uint64_t k = load->graph ? n % load->graph : n;
		const struct length *l = load->graph ? &load->lengths[k % load->length_count]
						     : sequence_next(&s);
		uint32_t mix = mix_of(k);

		for (unsigned i = 0; i < LANES; i++)
			words[i] = (words[i] ^ mix) * l->mul + l->add;
		*total += length_iterations(l);
	}
}

/* How many words are wrong, and a sum of those there are. */
static unsigned check(const struct load *load, uint64_t *checksum)
{
	unsigned count = load->calibration.threads * load->calibration.blocks, wrong = 0;
	uint32_t *words = malloc(count * sizeof(*words)), right[LANES];
	uint64_t total, there = 0;

	if (!words)
		abort();
	CU_MUST(cu.MemcpyDtoH(words, load->out, count * sizeof(*words)));
	CU_MUST(cu.MemcpyDtoH(&there, load->total, sizeof(there)));
	reference(load, right, &total);
	*checksum = 14695981039346656037ull;
	for (unsigned i = 0; i < count; i++) {
		wrong += words[i] != right[i % LANES];
		*checksum = (*checksum ^ words[i]) * 1099511628211ull;
	}
	if (there != total || *load->told_host != total) {
		fprintf(stderr, "load: %llu iterations were done, and %llu told, of %llu\n",
			(unsigned long long)there, (unsigned long long)*load->told_host,
			(unsigned long long)total);
		wrong++;
	}
	free(words);
	return wrong;
}

static void print_json(const struct load *load, const struct samples *s, double secs, double work_ms,
		       uint64_t checksum, unsigned wrong)
{
	printf("{\"work_ms\":%.3f,\"launches\":%llu,\"secs\":%.3f,\"ms_a_second\":%.3f,\"wrong\":%u,"
	       "\"checksum\":\"%016llx\",\"longest_us\":%.1f,\"bucket_ms\":%llu,\"first_ms\":%llu,\"buckets\":[",
	       work_ms, (unsigned long long)load->launched, secs, work_ms / secs, wrong,
	       (unsigned long long)checksum, (double)load->longest_ns / 1e3,
	       (unsigned long long)load->bucket_ns / 1000000, (unsigned long long)s->first_ns / 1000000);
	for (unsigned i = 1; i < s->count; i++)
		printf("%s%.4g", i > 1 ? "," : "",
		       (s->done[i] - s->done[i - 1]) / load->calibration.per_us / 1e3);
	puts("]}");
}

static int load_main(struct load *load)
{
	uint64_t began_ns, checksum, before;
	double secs, work_ms;
	struct samples samples;
	unsigned wrong;

	load_fill(load);
	if (load->graph)
		graph_make(load);
	load->next = (struct sequence){ load->lengths, load->length_count, load->mix, load->seed, 0 };
	load_launch(load); /* the first takes longer */
	CU_MUST(cu.StreamSynchronize(load->stream));
	make_file(load->ready);
	await_file(load->start);
	before = *load->told_host;
	began_ns = now_ns();
	samples_start(&samples, load);
	load_run(load);
	secs = (double)(now_ns() - began_ns) / 1e9;
	work_ms = (double)(*load->told_host - before) / load->calibration.per_us / 1e3;
	samples_stop(&samples);
	CU_MUST(cu.StreamSynchronize(load->stream));
	wrong = check(load, &checksum);
	if (load->is_json)
		print_json(load, &samples, secs, work_ms, checksum, wrong);
	else
		printf("%.1f ms of work in %.3f s (%.2f %%), %llu launches, checksum %016llx: %s\n", work_ms,
		       secs, work_ms / secs / 10, (unsigned long long)load->launched,
		       (unsigned long long)checksum, wrong ? "WRONG" : "right");
	free(samples.done);
	return wrong != 0;
}

/* ---- options ---- */

static bool option_flag(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, name))
			return true;
	return false;
}

static void parse_lengths(struct load *load, const char *text)
{
	const char *at = text;
	double weight = 0;

	do {
		struct length *l = &load->lengths[load->length_count++];
		char *end;

		l->us = strtod(at, &end);
		if (end == at || (*end && *end != ',') || !(l->us >= 1 && l->us <= 10e6))
			usage(text, "lengths are from 1 to 10000000 us, with commas between");
		weight += 1 / l->us;
		l->weight = weight;
		at = end + 1;
		if (!*end)
			return;
	} while (load->length_count < LENGTHS_MAX);
	usage(text, "16 lengths at most");
}

static enum mix parse_mix(const char *text)
{
	static const char *const names[] = { "turn", "random", "time" };

	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(text, names[i]))
			return (enum mix)i;
	usage(text, "not turn, random or time");
}

static void parse(struct load *load, int argc, char **argv)
{
	*load = (struct load){ .seed = option_number(argc, argv, "seed", 1),
			       .gap_us = option_number(argc, argv, "gap-us", 0),
			       .secs = option_number(argc, argv, "secs", 10),
			       .launches = option_number(argc, argv, "launches", 0),
			       .bucket_ns = option_number(argc, argv, "bucket-ms", 100) * 1000000,
			       .in_flight = (unsigned)option_number(argc, argv, "in-flight", 64),
			       .graph = (unsigned)option_number(argc, argv, "graph", 0),
			       .mix = parse_mix(option_text(argc, argv, "mix", "turn")),
			       .is_sync = option_flag(argc, argv, "sync"),
			       .is_json = option_flag(argc, argv, "json"),
			       .ready = option_text(argc, argv, "ready", NULL),
			       .start = option_text(argc, argv, "start", NULL),
			       .until = option_text(argc, argv, "until", NULL) };
	parse_lengths(load, option_text(argc, argv, "kernel-us", "1000"));
	if (!load->bucket_ns)
		usage("--bucket-ms", "at least 1");
	if (!load->in_flight || load->in_flight > IN_FLIGHT_MAX)
		usage("--in-flight", "1 to 65536");
	if (load->graph > GRAPH_MAX)
		usage("--graph", "4096 kernels at most");
	if (load->graph && load->mix != MIX_TURN)
		usage("--mix", "a graph takes them in turn");
}

int main(int argc, char **argv)
{
	const char *to, *from, *by_hand;
	struct load load;

	if (option_flag(argc, argv, "help")) {
		fputs(help_text, stdout);
		return 0;
	}
	parse(&load, argc, argv);
	to = option_text(argc, argv, "calibrate", NULL);
	from = option_text(argc, argv, "calibration", NULL);
	by_hand = option_text(argc, argv, "per-us", NULL);
	load_open(&load);
	if (from && !to) {
		calibration_read(&load.calibration, from);
	} else if (by_hand && !to) {
		choose_shape(&load);
		load.calibration.per_us = atof(by_hand);
		if (!(load.calibration.per_us > 0))
			usage("--per-us", "not a number of iterations");
	} else {
		calibrate(&load);
	}
	if (to) {
		calibration_write(&load.calibration, to);
		printf("%.3f iterations a us, %.3f us a launch besides, %u blocks of %u threads\n",
		       load.calibration.per_us, load.calibration.base_us, load.calibration.blocks,
		       load.calibration.threads);
		return 0;
	}
	for (unsigned i = 0; i < load.length_count; i++)
		length_fill(&load.lengths[i], &load.calibration);
	return load_main(&load);
}
