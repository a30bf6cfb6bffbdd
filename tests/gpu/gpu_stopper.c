/* SPDX-License-Identifier: MIT */
/* a_stop_takes_effect_in_mid_kernel: runs gpu_stop under `belfry run` and stops and resumes it in the
 * middle of its kernels. The GPU's heartbeat, read here directly, says when it really stood still. Runs
 * outside Belfry, with $BELFRY. Options: --stops 100 --ms 1000 (kernel length) --every-ms 190 --limit-us
 * 1000 --percentile 99 (of the stops, which is within the limit) --clocks 1 (the GPU's agrees with ours) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared.h"
#include "util.h"

enum {
	STOPS_MAX = 1000,
	MARGIN_NS = 20000,     /* of the two clocks, beside the calibration's own error */
	SETTLED_US = 2000,     /* by then the last beat has arrived */
	STOOD_STILL_US = 3000, /* how long a stop is watched */
	RUNNING_NS = 1000000,  /* a beat this recent: a kernel was running when the stop was asked for */
};

struct stop {
	uint64_t asked_ns, answered_ns, last_beat_gpu_ns;
	uint64_t resume_asked_ns, beat_again_ns;
	double stop_us, resume_us;
	bool has_moved; /* the heartbeat, long after the answer */
};

struct tally {
	unsigned in_kernel, ran_on, moved;
	double stop_us[STOPS_MAX], resume_us[STOPS_MAX], seen_us[STOPS_MAX], again_us[STOPS_MAX];
};

static struct stop stops[STOPS_MAX];
static struct tally tally;

static pid_t start_stopped(const char *name, const char *shared_path, const char *ms, const char *rounds)
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
			       shared_path,
			       "--ms",
			       ms,
			       "--rounds",
			       rounds,
			       NULL };
	pid_t pid;

	sibling_path(program, sizeof(program), "gpu_stop");
	pid = spawn(argv, NULL);
	kill_at_exit(pid);
	return pid;
}

/* When the heartbeat changed, or the test fails after 5 s. */
static uint64_t wait_beat(const struct stop_page *page)
{
	uint64_t old = page->beat_gpu_ns, end = now_ns() + 5000000000ull, now;

	do {
		now = now_ns();
		if (now > end)
			fail("the GPU has not moved for 5 s");
	} while (page->beat_gpu_ns == old);
	return now;
}

/* As it is by now. */
static uint64_t read_beat(struct stop_page *page)
{
	uint32_t asked = atomic_fetch_add(&page->asked, 1) + 1;
	uint64_t end = now_ns() + 5000000000ull;

	while (atomic_load(&page->is_carried) && atomic_load(&page->told) < asked) {
		if (now_ns() > end)
			fail("nobody has passed the heartbeat on for 5 s");
		sleep_us(100);
	}
	return page->beat_gpu_ns;
}

static void stop_once(const char *name, struct stop_page *page, struct stop *s)
{
	wait_beat(page);
	s->asked_ns = now_ns();
	s->stop_us = belfry_us("stop", name);
	s->answered_ns = now_ns();
	sleep_us(SETTLED_US);
	s->last_beat_gpu_ns = read_beat(page);
	sleep_us(STOOD_STILL_US);
	s->has_moved = read_beat(page) != s->last_beat_gpu_ns;
	s->resume_asked_ns = now_ns();
	s->resume_us = belfry_us("resume", name);
	s->beat_again_ns = wait_beat(page);
}

static void count_stops(const struct stop_page *page, unsigned count)
{
	uint64_t error_ns = page->before.error_ns > page->after.error_ns ? page->before.error_ns
									 : page->after.error_ns;

	for (unsigned i = 0; i < count; i++) {
		const struct stop *s = &stops[i];
		uint64_t last = gclock_to_host(&page->before, &page->after, s->last_beat_gpu_ns);

		tally.stop_us[i] = s->stop_us;
		tally.resume_us[i] = s->resume_us;
		tally.again_us[i] = (double)(int64_t)(s->beat_again_ns - s->resume_asked_ns) / 1e3;
		tally.moved += s->has_moved;
		tally.ran_on += last > s->answered_ns + MARGIN_NS + error_ns;
		if (last + RUNNING_NS > s->asked_ns)
			tally.seen_us[tally.in_kernel++] = (double)(int64_t)(last - s->asked_ns) / 1e3;
	}
}

/* What starting the command costs by itself: part of every figure seen from outside. */
static double command_us(void)
{
	const char *args[] = { "--version", NULL };
	double took[10];
	char out[256];

	for (int i = 0; i < 10; i++) {
		uint64_t start = now_ns();

		belfry(out, sizeof(out), args);
		took[i] = (double)(now_ns() - start) / 1e3;
	}
	return percentile(took, 10, 50);
}

static void print_row(const char *what, double *values, unsigned count)
{
	printf("%-38s %8.0f %8.0f %8.0f\n", what, percentile(values, count, 50),
	       percentile(values, count, 99), percentile(values, count, 100));
}

struct limit {
	double us, percentile;
};

/* Without clocks that agree (the software GPU's waits when the host is busy), what the heartbeat did must do. */
static int report(const struct stop_page *page, unsigned count, struct limit limit, int status,
		  bool has_clocks)
{
	unsigned wrong = atomic_load(&page->wrong);
	bool bad = wrong || tally.moved || status ||
		   (has_clocks && (tally.ran_on || tally.in_kernel * 2 < count));
	double slow_us = percentile(tally.stop_us, count, limit.percentile);

	printf("%-38s %8s %8s %8s\n", "us", "p50", "p99", "max");
	print_row("stop, as belfry measured it", tally.stop_us, count);
	print_row("stop asked to last heartbeat", tally.seen_us, tally.in_kernel);
	print_row("resume, as belfry measured it", tally.resume_us, count);
	print_row("resume asked to next heartbeat", tally.again_us, count);
	printf("%-38s %8.0f\n", "the belfry command alone", command_us());
	printf("stops %u, in mid-kernel %u, ran on after the answer %u, seen to move %u\n", count,
	       tally.in_kernel, tally.ran_on, tally.moved);
	printf("kernels of %.0f ms: %u, wrong results %u, exit status %d\n", page->kernel_ms,
	       atomic_load(&page->kernels), wrong, status);
	if (slow_us < 0 || slow_us > limit.us) {
		printf("p%.0f %.0f us is not within %.0f us\n", limit.percentile, slow_us, limit.us);
		bad = true;
	}
	printf("%s\n", bad ? "FAILED" : "ok");
	return bad;
}

int main(int argc, char **argv)
{
	unsigned count = (unsigned)option_number(argc, argv, "stops", 100);
	uint64_t every_ms = option_number(argc, argv, "every-ms", 190);
	struct limit limit = { (double)option_number(argc, argv, "limit-us", 1000),
			       (double)option_number(argc, argv, "percentile", 99) };
	char name[64], path[128];
	struct stop_page *page;
	int status;
	pid_t pid;

	if (!count || count > STOPS_MAX || every_ms < 10)
		fail("--stops between 1 and %d, --every-ms at least 10", STOPS_MAX);
	page = shared_create(path, sizeof(path), "stop", sizeof(*page));
	snprintf(name, sizeof(name), "stop-%d", (int)getpid());
	pid = start_stopped(name, path, option_text(argc, argv, "ms", "1000"),
			    option_text(argc, argv, "rounds", "4M"));
	wait_flag(&page->ready, pid, 40000, "gpu_stop's start");
	for (unsigned i = 0; i < count; i++) {
		sleep_us((every_ms - 5 + (uint64_t)(rand() % 10)) * 1000);
		stop_once(name, page, &stops[i]);
	}
	atomic_store(&page->stop, 1);
	wait_flag(&page->done, pid, 20000, "gpu_stop's end");
	status = wait_for(pid, 10000);
	count_stops(page, count);
	return report(page, count, limit, status, option_number(argc, argv, "clocks", 1));
}
