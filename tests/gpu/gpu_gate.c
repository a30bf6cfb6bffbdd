/* SPDX-License-Identifier: MIT */
/* a_closed_gate_holds_what_came_after: runs gpu_hold under `belfry run`, a busy neighbour beside it, and
 * holds and opens it again and again from outside. What was submitted after `hold` answered must not start
 * before `open` was asked for, by the GPU's clock, which a kernel of our own reads before we ask. Runs
 * outside Belfry, with $BELFRY. Options: --holds 100 --hold-ms 20 --long 3 --long-ms 300 --busy
 * native|belfry|none */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cu.h"
#include "shared.h"
#include "util.h"

enum {
	HOLDS_MAX = 1000,
	AFTER_HOLD_NS = 50000, /* a submission this soon after the answer may have been under way before */
	BACKLOG_MS = 5000,     /* what was held has run by then, or never does */
};

struct hold {
	uint64_t closed_ns, open_ns;
	uint64_t open_gpu_ns; /* the GPU's clock, right before */
	bool is_stuck;	      /* what waited did not run when it was opened */
};

struct tally {
	unsigned submitted, leaked, lost, stuck;
	double worst_lead_us, longest_gap_ms;
};

static struct hold holds[HOLDS_MAX];

static pid_t start_held(const char *name, const char *log_path)
{
	const char *path = getenv("BELFRY");
	char program[4096];
	const char *argv[] = { path && *path ? path : "belfry",
			       "run",
			       "--name",
			       name,
			       "--mem",
			       "4G",
			       "--",
			       program,
			       log_path,
			       NULL };
	pid_t pid;

	sibling_path(program, sizeof(program), "gpu_hold");
	pid = spawn(argv, NULL);
	kill_at_exit(pid);
	return pid;
}

static void start_busy(const char *how, const char *name)
{
	const char *path = getenv("BELFRY");
	char program[4096], busy_name[80], line[16];
	const char *native[] = { program, "--secs", "60", NULL };
	const char *under[] = { path && *path ? path : "belfry",
				"run",
				"--name",
				busy_name,
				"--mem",
				"4G",
				"--",
				program,
				"--secs",
				"60",
				NULL };
	int out;

	if (!strcmp(how, "none"))
		return;
	sibling_path(program, sizeof(program), "gpu_busy");
	snprintf(busy_name, sizeof(busy_name), "%s-busy", name);
	kill_at_exit(spawn(strcmp(how, "belfry") ? native : under, &out));
	/* it prints a line once its context is up: from then on there are switches */
	if (read(out, line, sizeof(line)) <= 0)
		fail("the neighbour did not start");
}

static bool backlog_runs(const struct hold_log *log)
{
	uint64_t end = now_ns() + BACKLOG_MS * 1000000ull;
	uint32_t launched = atomic_load(&log->launched);

	while (atomic_load(&log->ran) < launched) {
		if (now_ns() > end)
			return false;
		sleep_us(1000);
	}
	return true;
}

static void hold_once(const char *name, const struct hold_log *log, const struct gclock *clock,
		      struct hold *h, uint64_t hold_us)
{
	const char *close_args[] = { "hold", name, NULL }, *open_args[] = { "open", name, NULL };

	if (belfry(NULL, 0, close_args))
		fail("belfry hold %s failed", name);
	h->closed_ns = now_ns();
	sleep_us(hold_us);
	h->open_gpu_ns = gclock_now(clock);
	h->open_ns = now_ns();
	if (belfry(NULL, 0, open_args))
		fail("belfry open %s failed", name);
	h->is_stuck = !backlog_runs(log);
	/* an uneven phase against the program's pace */
	sleep_us((uint64_t)(rand() % 5000));
}

static void count_hold(const struct hold_log *log, const struct hold *h, struct tally *t)
{
	for (uint32_t i = 0; i < log->count; i++) {
		const struct hold_record *r = &log->records[i];

		if (r->submit_ns <= h->closed_ns + AFTER_HOLD_NS || r->submit_ns >= h->open_ns)
			continue;
		t->submitted++;
		if (!r->start_gpu_ns || r->start_gpu_ns >= h->open_gpu_ns)
			continue;
		t->leaked++;
		if ((double)(h->open_gpu_ns - r->start_gpu_ns) / 1e3 > t->worst_lead_us)
			t->worst_lead_us = (double)(h->open_gpu_ns - r->start_gpu_ns) / 1e3;
	}
}

static double longest_gap_ms(const struct hold_log *log)
{
	double *starts = calloc(log->count + 1, sizeof(*starts)), longest = 0;
	size_t n = 0;

	if (!starts)
		abort();
	for (uint32_t i = 0; i < log->count; i++)
		if (log->records[i].start_gpu_ns)
			starts[n++] = (double)log->records[i].start_gpu_ns / 1e6;
	percentile(starts, n, 50); /* sorts: four streams do not start in the order of submission */
	for (size_t i = 1; i < n; i++)
		if (starts[i] - starts[i - 1] > longest)
			longest = starts[i] - starts[i - 1];
	free(starts);
	return longest;
}

static void count_all(const struct hold_log *log, unsigned count, struct tally *t)
{
	for (uint32_t i = 0; i < log->count; i++)
		t->lost += !log->records[i].start_gpu_ns;
	for (unsigned i = 0; i < count; i++) {
		count_hold(log, &holds[i], t);
		t->stuck += holds[i].is_stuck;
	}
	t->longest_gap_ms = longest_gap_ms(log);
}

int main(int argc, char **argv)
{
	unsigned count = (unsigned)option_number(argc, argv, "holds", 100);
	unsigned extra = (unsigned)option_number(argc, argv, "long", 3);
	uint64_t hold_us = option_number(argc, argv, "hold-ms", 20) * 1000;
	uint64_t long_us = option_number(argc, argv, "long-ms", 300) * 1000;
	const char *busy = option_text(argc, argv, "busy", "native");
	char name[64], path[128];
	struct tally t = { 0 };
	struct hold_log *log;
	struct gclock clock;
	bool bad;
	pid_t pid;

	if (count + extra > HOLDS_MAX)
		fail("at most %d holds", HOLDS_MAX);
	log = shared_create(path, sizeof(path), "hold", sizeof(*log));
	snprintf(name, sizeof(name), "gate-%d", (int)getpid());
	cu_open();
	gclock_open(&clock);
	pid = start_held(name, path);
	wait_flag(&log->ready, pid, 30000, "gpu_hold's start");
	start_busy(busy, name);
	sleep_us(50000);
	for (unsigned i = 0; i < count + extra; i++)
		hold_once(name, log, &clock, &holds[i], i < count ? hold_us : long_us);
	atomic_store(&log->stop, 1);
	wait_flag(&log->done, pid, 20000, "gpu_hold's log");
	count_all(log, count + extra, &t);
	bad = t.leaked || t.lost || t.stuck || !t.submitted;
	printf("holds (neighbour: %s)        %8u\n", busy, count + extra);
	printf("kernels launched               %8u\n", log->count);
	printf("submitted while held           %8u\n", t.submitted);
	printf("leaked through                 %8u\n", t.leaked);
	printf("  earliest, us before open     %8.0f\n", t.worst_lead_us);
	printf("lost                           %8u\n", t.lost);
	printf("openings that let nothing run  %8u\n", t.stuck);
	printf("longest gap, ms                %8.2f\n", t.longest_gap_ms);
	printf("%s\n", bad ? "FAILED" : "ok");
	return bad;
}
