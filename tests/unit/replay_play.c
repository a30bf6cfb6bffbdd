/* play: the work of a record of the simulated GPU, played again. Under the same policy much the same comes of it; under
 * another what that is for; and whatever is in a record, a play ends. */
#include "replay/play.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sched_sim.h"
#include "skipping.h"

/* As often as the GPU server looks at it where there are limits. */
#define METER_NS (5 * MS)

struct recorder {
	FILE *file;
	struct sim_hooks sims; /* the hooks of the simulation itself */
	uint64_t read_ns;      /* when the meter is looked at next */
	struct {
		uint64_t submitted, came_ns, end_ns; /* end: of a burst that sched has not heard the end of */
	} of[8];
};

/* There is one at a time: the simulation's owner is the tests' already. */
static struct recorder recorder;

static void put(FILE *file, enum record_kind kind, uint64_t at_ns, const void *what, size_t size)
{
	uint64_t buffer[64];
	size_t bytes = record_make_other(kind, at_ns, what, size, buffer, sizeof(buffer));

	assert_true(bytes > 0);
	assert_int_equal(fwrite(buffer, bytes, 1, file), 1);
}

static void put_work(const struct sim_vgpu *v, enum record_work_what what, uint64_t came_ns, uint64_t end_ns)
{
	struct sched_counts counts = sched_counts(v->sim->sched, v->vgpu);
	uint64_t id = sched_id(v->vgpu);
	struct record_work work = { .id = id,
				    .what = what,
				    .came_ns = came_ns,
				    .end_ns = end_ns,
				    .gpu_ns = counts.gpu_ns,
				    .held_ns = counts.held_ns,
				    .alone_ns = counts.alone_ns,
				    .anybody_ns = counts.any_held_ns,
				    .submitted = recorder.of[id % 8].submitted,
				    .grants = counts.grants,
				    .stops = counts.stops };

	put(recorder.file, RECORD_WORK, v->sim->now_ns, &work, sizeof(work));
}

static bool submits(struct sim_vgpu *v, struct sim_kernel *kernel)
{
	uint64_t id = sched_id(v->vgpu) % 8;

	if (!v->count && !recorder.of[id].end_ns) {
		recorder.of[id].came_ns = v->sim->now_ns;
		put_work(v, RECORD_CAME, v->sim->now_ns, 0);
	}
	recorder.of[id].end_ns = 0;
	recorder.of[id].submitted++;
	return recorder.sims.submits(v, kernel);
}

static void ended(struct sim_vgpu *v, uint64_t took_ns)
{
	recorder.sims.ended(v, took_ns);
	if (!v->count)
		recorder.of[sched_id(v->vgpu) % 8].end_ns = v->sim->now_ns;
}

/* Work that comes before the end of what was before it was noticed is of the same burst. */
static void notice_done(const struct sim_vgpu *v)
{
	uint64_t id = sched_id(v->vgpu) % 8;

	if (!recorder.of[id].end_ns || v->knows_running)
		return;
	put_work(v, RECORD_DONE, recorder.of[id].came_ns, recorder.of[id].end_ns);
	recorder.of[id].end_ns = 0;
}

static void passes(struct sim *sim, uint64_t to_ns)
{
	for (unsigned i = 0; i < sim->count; i++)
		notice_done(sim->vgpus[i]);
	for (unsigned i = 0; sim->now_ns >= recorder.read_ns && i < sim->count; i++)
		put_work(sim->vgpus[i], RECORD_READ, 0, 0);
	if (sim->now_ns >= recorder.read_ns)
		recorder.read_ns = sim->options.is_measured ? sim->tell_used_ns : sim->now_ns + METER_NS;
	recorder.sims.passes(sim, to_ns);
}

static void introduce(struct sim *sim, const struct sched_share *share, const struct sim_load *load,
		      const char *name)
{
	struct record_share is = record_share_of(share);
	struct sim_vgpu *v;

	v = sim_add(sim, share, load);
	is.id = sched_id(v->vgpu);
	snprintf(is.name, sizeof(is.name), "%s", name);
	put(recorder.file, RECORD_SHARE, sim->now_ns, &is, sizeof(is));
	put_work(v, RECORD_HERE, 0, 0);
}

struct who {
	struct sched_share share;
	const struct sim_load *load;
};

static void record(const struct sched_options *options, const struct who *who, unsigned count, uint64_t seed,
		   uint64_t ns, struct workload *workload)
{
	struct record_setup setup = record_setup_of(options);
	struct bf_error err = { 0 };
	struct sim *sim = sim_new(options, seed, ns);
	char name[16];

	recorder = (struct recorder){ .file = tmpfile(), .sims = sim->hooks };
	assert_non_null(recorder.file);
	assert_int_equal(record_write_header(recorder.file, NULL), 0);
	snprintf(setup.policy, sizeof(setup.policy), "built-in");
	put(recorder.file, RECORD_SETUP, sim->now_ns, &setup, sizeof(setup));
	sim->manners.measure_ns = METER_NS;
	sim->hooks.submits = submits;
	sim->hooks.ended = ended;
	sim->hooks.passes = passes;
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		introduce(sim, &who[i].share, who[i].load, name);
	}
	sim_run(sim, ns);
	sim_free(sim);
	rewind(recorder.file);
	if (workload_read(recorder.file, workload, &err))
		fail_msg("%s", err.text);
	fclose(recorder.file);
}

static void play(const struct workload *workload, struct policy *policy, struct play_result *result)
{
	struct bf_error err = { 0 };

	if (play_run(workload, policy, PLAY_EVENTS_MAX, result, &err))
		fail_msg("%s", err.text);
	assert_int_equal(result->ns, workload->ns);
}

/* A program that waits for each step of a few kernels, then thinks; one that trains. */
static const struct sim_load decode = { 1, 1 * MS, 3 * MS, 4 * MS, 12 * MS };
static const struct sim_load training = { 4, 200 * US, 2 * MS, 0, 20 * US };

static struct sched_share with_objective(struct sched_share share, uint64_t ns)
{
	share.objective_ns = ns;
	share.percentile_ppm = 990000;
	return share;
}

static void the_built_in_played_is_as_it_was_recorded(void **state)
{
	struct who who[] = { { with_objective(sim_latency(20), 10 * MS), &decode },
			     { sim_request(30), &training },
			     { sim_limit(10, 30), &sim_synchronous },
			     { sim_request(0), &sim_small } };
	struct workload workload;
	struct play_result result;
	unsigned far = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct sched_options options = sched_default;
		struct play_agreement off;

		options.how = seed % 2 ? SCHED_AUTO : SCHED_TOKENS;
		options.is_measured = seed % 4 > 1;
		record(&options, who, 4, seed, 10 * S, &workload);
		assert_int_equal(workload.vgpu_count, 4);
		assert_string_equal(workload.vgpus[1].name, "v1");
		assert_true(workload.vgpus[0].was.done > 500);
		play(&workload, NULL, &result);
		off = play_agreement(&workload, &result);
		print_message("%s, %s: %.1f points, p50 %.1f %%, tail %.1f %%\n",
			      options.how == SCHED_AUTO ? "auto" : "tokens",
			      options.is_measured ? "measured" : "by the clock", off.share_points,
			      off.p50_percent, off.tail_percent);
		assert_true(off.share_points < 3);
		assert_true(off.p50_percent >= 0 && off.p50_percent < 10);
		assert_true(off.tail_percent < 100);
		far += off.tail_percent >= 30;
		play_free(&result);
		workload_free(&workload);
	}
	assert_true(far <=
		    2); /* a p99 is a few bursts, and one that has to stand in line for once is enough */
}

static void a_play_is_the_same_every_time(void **state)
{
	struct who who[] = { { sim_latency(20), &decode }, { sim_request(30), &training } };
	struct workload workload;
	struct play_result once, again;

	(void)state;
	record(&sched_default, who, 2, 3, 3 * S, &workload);
	play(&workload, NULL, &once);
	play(&workload, NULL, &again);
	assert_int_equal(once.events, again.events);
	assert_memory_equal(once.vgpus, again.vgpus, 2 * sizeof(once.vgpus[0]));
	play_free(&once);
	play_free(&again);
	workload_free(&workload);
}

static struct policy *load(const char *name)
{
	static uint8_t object[1 << 20];
	struct bf_error err;
	struct policy *policy;
	size_t bytes;
	FILE *file;

	if (policy_is_possible(&err)) {
		skip_case(err.text);
	}
	file = fopen(name, "re");
	assert_non_null(file);
	bytes = fread(object, 1, sizeof(object), file);
	fclose(file);
	policy = policy_load(object, bytes, &(struct policy_options){ .budget_ns = S }, NULL, &err);
	if (!policy)
		fail_msg("%s", err.text);
	return policy;
}

/* By tokens alone a latency vGPU waits for others' slices under the built-in; latency_first stops them for it. It is done
 * sooner, so it comes again sooner, and does more: the loop is closed. What was promised to the others they have. */
static void a_policy_for_latency_makes_it_shorter(void **state)
{
	struct policy *policy = load(BELFRY_BUILD_DIR "/policies/latency_first.bpf.o");
	struct who who[] = { { with_objective(sim_latency(10), 8 * MS), &decode },
			     { sim_request(50), &training },
			     { sim_request(30), &sim_busy_load } };
	struct sched_options options = sched_default;
	struct workload workload;
	struct play_result built_in, with;

	(void)state;
	options.how = SCHED_TOKENS;
	record(&options, who, 3, 5, 10 * S, &workload);
	play(&workload, NULL, &built_in);
	play(&workload, policy, &with);
	assert_string_equal(with.why, "");
	print_message("p50 %.2f -> %.2f ms, tail %.2f -> %.2f, late %u -> %u, done %u -> %u\n",
		      (double)built_in.vgpus[0].p50_ns / 1e6, (double)with.vgpus[0].p50_ns / 1e6,
		      (double)built_in.vgpus[0].tail_ns / 1e6, (double)with.vgpus[0].tail_ns / 1e6,
		      (unsigned)built_in.vgpus[0].late, (unsigned)with.vgpus[0].late,
		      (unsigned)built_in.vgpus[0].done, (unsigned)with.vgpus[0].done);
	assert_true(with.vgpus[0].tail_ns < built_in.vgpus[0].tail_ns / 2);
	assert_true(with.vgpus[0].late < built_in.vgpus[0].late);
	assert_true(with.vgpus[0].done > built_in.vgpus[0].done);
	assert_true(with.vgpus[0].gpu_ns > built_in.vgpus[0].gpu_ns);
	assert_true(with.vgpus[1].gpu_ns > 4 * S && with.vgpus[2].gpu_ns > 2 * S);
	play_free(&built_in);
	play_free(&with);
	workload_free(&workload);
	policy_put(policy);
}

/* A record by hand: a vGPU with the id 1, at BEGIN_NS. */
#define BEGIN_NS (7 * S)

static FILE *begin_record(void)
{
	struct record_setup setup = record_setup_of(&sched_default);
	struct record_share share = {
		.id = 1, .name = "one", .limit_ppm = SCHED_WHOLE_PPM, .interleave = -1
	};
	FILE *file = tmpfile();

	assert_non_null(file);
	assert_int_equal(record_write_header(file, NULL), 0);
	put(file, RECORD_SETUP, BEGIN_NS, &setup, sizeof(setup));
	put(file, RECORD_SHARE, BEGIN_NS, &share, sizeof(share));
	return file;
}

static void add(FILE *file, uint64_t at_ns, enum record_work_what what, uint64_t came_ns, uint64_t gpu_ns)
{
	struct record_work work = { .id = 1,
				    .what = what,
				    .came_ns = came_ns,
				    .end_ns = what == RECORD_DONE ? at_ns : 0,
				    .gpu_ns = gpu_ns,
				    .held_ns = gpu_ns,
				    .alone_ns = gpu_ns,
				    .anybody_ns = gpu_ns };

	put(file, RECORD_WORK, at_ns, &work, sizeof(work));
}

static int read_back(FILE *file, struct workload *workload, struct bf_error *err)
{
	int rc;

	rewind(file);
	rc = workload_read(file, workload, err);
	fclose(file);
	return rc;
}

/* Three bursts of 10 ms, 20 ms after one another, then the programs end; and the same, but they stay. */
static void programs_that_ended_end_and_others_go_on(void **state)
{
	struct workload workload;
	struct play_result result;

	(void)state;
	for (int stays = 0; stays < 2; stays++) {
		FILE *file = begin_record();
		uint64_t at = BEGIN_NS + 100 * MS;

		add(file, BEGIN_NS + 50 * MS, RECORD_HERE, 0, 0);
		for (uint64_t i = 0; i < 3; i++, at += 30 * MS) {
			add(file, at, RECORD_CAME, at, i * 10 * MS);
			add(file, at + 10 * MS, RECORD_DONE, at, (i + 1) * 10 * MS);
		}
		if (!stays)
			add(file, at, RECORD_GONE, 0, 30 * MS);
		add(file, BEGIN_NS + S, RECORD_READ, 0, 30 * MS);
		assert_int_equal(read_back(file, &workload, NULL), 0);
		assert_int_equal(workload.ns, S);
		assert_int_equal(workload.vgpus[0].count, stays ? 4 : 5);
		assert_int_equal(workload.vgpus[0].steps[0].after_ns, 50 * MS);
		assert_int_equal(workload.vgpus[0].steps[1].after_ns, 50 * MS);
		assert_int_equal(workload.vgpus[0].steps[2].after_ns, 20 * MS);
		assert_int_equal(workload.vgpus[0].steps[2].gpu_ns, 10 * MS);
		assert_int_equal(workload.vgpus[0].was.gpu_ns, 30 * MS);
		assert_int_equal(workload.vgpus[0].was.done, 3);
		/* A pause that the record did not see the end of was at least so long. */
		assert_int_equal(workload.vgpus[0].again, stays ? 2 : 5);
		assert_int_equal(workload.vgpus[0].again_ns, stays ? 830 * MS : 810 * MS);
		play(&workload, NULL, &result);
		assert_int_equal(result.vgpus[0].done, 3);
		play_free(&result);
		workload_free(&workload);
	}
}

static void work_without_an_end_wants_all_it_can_get(void **state)
{
	FILE *file = begin_record();
	struct workload workload;
	struct play_result result;

	(void)state;
	add(file, BEGIN_NS, RECORD_HERE, 0, 0);
	add(file, BEGIN_NS, RECORD_CAME, BEGIN_NS, 0);
	for (uint64_t ms = 100; ms <= 1000; ms += 100)
		add(file, BEGIN_NS + ms * MS, RECORD_READ, 0, ms * MS);
	assert_int_equal(read_back(file, &workload, NULL), 0);
	assert_true(workload.vgpus[0].steps[1].gpu_ns == WORKLOAD_ENDLESS);
	play(&workload, NULL, &result);
	/* Sched last looked a quarter of a round ago at most. */
	assert_true(result.vgpus[0].gpu_ns > 970 * MS && result.vgpus[0].gpu_ns <= S);
	assert_int_equal(result.vgpus[0].done, 0);
	play_free(&result);
	workload_free(&workload);
}

/* Times that run backwards, counters that do, and numbers as large as there are. */
static void nonsense_is_played_to_an_end(void **state)
{
	static const uint64_t numbers[] = { 0,	   1,	  BEGIN_NS - 1,	  BEGIN_NS,	  BEGIN_NS + 1,
					    8 * S, 9 * S, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX };
	enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };
	struct workload workload;
	struct play_result result;
	uint64_t seed = 1;

	(void)state;
	for (unsigned trial = 0; trial < 500; trial++) {
		FILE *file = begin_record();

		for (unsigned i = 0; i < 40; i++) {
			uint64_t at = sim_between(&seed, BEGIN_NS, BEGIN_NS + S);
			uint64_t came = numbers[sim_random(&seed) % NUMBERS];
			enum record_work_what what = sim_random(&seed) % RECORD_WHATS;

			add(file, at, what, what == RECORD_DONE && came > at ? at : came,
			    numbers[sim_random(&seed) % NUMBERS]);
		}
		assert_int_equal(read_back(file, &workload, NULL), 0);
		assert_int_equal(play_run(&workload, NULL, 100000, &result, NULL), 0);
		assert_true(result.ns <= workload.ns && result.events <= 100000);
		assert_true(result.vgpus[0].gpu_ns <= 2 * S);
		play_free(&result);
		workload_free(&workload);
	}
}

static void a_play_is_cut_off_where_too_much_happens(void **state)
{
	FILE *file = begin_record();
	struct workload workload;
	struct play_result result;

	(void)state;
	add(file, BEGIN_NS, RECORD_HERE, 0, 0);
	for (uint64_t i = 1; i < 100; i++)
		add(file, BEGIN_NS + i, RECORD_DONE, BEGIN_NS + i, 0);
	add(file, BEGIN_NS + 3600 * S, RECORD_READ, 0, 0);
	assert_int_equal(read_back(file, &workload, NULL), 0);
	workload.vgpus[0].again_ns = 0;
	assert_int_equal(play_run(&workload, NULL, 200000, &result, NULL), 0);
	assert_int_equal(result.events, 200000);
	assert_true(result.ns < workload.ns);
	play_free(&result);
	workload_free(&workload);
}

/* Others beside the one: they are there, and had used the GPU before. */
static void add_others(FILE *file, unsigned count, enum record_work_what what)
{
	for (uint64_t id = 2; id < 2 + count; id++) {
		struct record_share share = { .id = id, .limit_ppm = 1, .interleave = -1 };
		struct record_work work = { .id = id, .what = RECORD_READ, .gpu_ns = S };

		put(file, RECORD_SHARE, BEGIN_NS, &share, sizeof(share));
		put(file, RECORD_WORK, BEGIN_NS, &work, sizeof(work));
		work.what = what;
		work.came_ns = work.end_ns = BEGIN_NS;
		put(file, RECORD_WORK, BEGIN_NS, &work, sizeof(work));
	}
}

static void those_without_work_are_left_out(void **state)
{
	struct record_share late = { .id = 9000, .limit_ppm = SCHED_WHOLE_PPM, .interleave = -1 };
	struct record_work used = { .id = 9000, .what = RECORD_READ };
	struct workload workload;
	struct play_result result;
	FILE *file = begin_record();

	(void)state;
	add_others(file, 1024, RECORD_HERE);
	add_others(file, 1024, RECORD_HELD);
	add(file, BEGIN_NS + 100 * MS, RECORD_CAME, BEGIN_NS + 100 * MS, 0);
	add(file, BEGIN_NS + 110 * MS, RECORD_DONE, BEGIN_NS + 100 * MS, 10 * MS);
	/* That it had work is lost, but not that it used the GPU. */
	put(file, RECORD_SHARE, BEGIN_NS, &late, sizeof(late));
	put(file, RECORD_WORK, BEGIN_NS + 200 * MS, &used, sizeof(used));
	used.gpu_ns = 5 * MS;
	put(file, RECORD_WORK, BEGIN_NS + 300 * MS, &used, sizeof(used));
	assert_int_equal(read_back(file, &workload, NULL), 0);
	assert_int_equal(workload.vgpu_count, 2);
	assert_int_equal(workload.vgpus[0].id, 1);
	assert_int_equal(workload.vgpus[0].was.gpu_ns, 10 * MS);
	assert_int_equal(workload.vgpus[1].id, 9000);
	assert_int_equal(workload.vgpus[1].was.gpu_ns, 5 * MS);
	assert_int_equal(workload.idle_count, 1024);
	assert_int_equal(workload.change_count, 0);
	play(&workload, NULL, &result);
	assert_int_equal(result.vgpus[0].done, 1);
	play_free(&result);
	workload_free(&workload);
}

static void what_is_too_much_is_refused_with_the_limit(void **state)
{
	struct workload workload;
	struct bf_error err;
	FILE *file = begin_record();

	(void)state;
	add_others(file, WORKLOAD_VGPUS_MAX, RECORD_CAME);
	assert_int_equal(read_back(file, &workload, NULL), 0);
	assert_int_equal(workload.vgpu_count, WORKLOAD_VGPUS_MAX);
	workload_free(&workload);

	file = begin_record();
	add_others(file, WORKLOAD_VGPUS_MAX + 1, RECORD_CAME);
	assert_int_equal(read_back(file, &workload, &err), -E2BIG);
	assert_string_equal(err.text, "more than 256 vGPUs of the record had work");
	assert_null(workload.vgpus);

	file = begin_record();
	add(file, BEGIN_NS, RECORD_CAME, BEGIN_NS, 0);
	for (unsigned i = 0; i <= WORKLOAD_CHANGES_MAX; i++)
		add(file, BEGIN_NS + i, i % 2 ? RECORD_FREE : RECORD_HELD, 0, 0);
	assert_int_equal(read_back(file, &workload, &err), -E2BIG);
	assert_string_equal(err.text, "the record has more than 65536 changes of vGPUs");

	file = begin_record();
	add(file, BEGIN_NS + RECORD_LONGEST_NS + 1, RECORD_READ, 0, 0);
	assert_int_equal(read_back(file, &workload, &err), -E2BIG);
	assert_string_equal(err.text, "the record is longer than a day");
}

/* What sched could not bear is not let through. */
static void what_nobody_could_have_recorded_is_refused(void **state)
{
	struct record_setup setup = record_setup_of(&sched_default), bad_setup = setup;
	struct record_share share = { .id = 1, .limit_ppm = SCHED_WHOLE_PPM, .interleave = -1 },
			    bad_share = share;
	struct record_work work = { .id = 1, .what = RECORD_DONE, .came_ns = 2, .end_ns = 2 },
			   bad_work = work;
	uint64_t entry[64];

	(void)state;
#define CHECK(kind, what, rc) \
	assert_int_equal( \
		record_check(entry, record_make_other(kind, 0, &(what), sizeof(what), entry, sizeof(entry)), \
			     NULL), \
		rc)
	CHECK(RECORD_SETUP, setup, 0);
	CHECK(RECORD_SHARE, share, 0);
	CHECK(RECORD_WORK, work, 0);
	bad_setup.window_ns = 0;
	CHECK(RECORD_SETUP, bad_setup, -EBADMSG);
	bad_setup = setup;
	bad_setup.round_ns = setup.window_ns + 1;
	CHECK(RECORD_SETUP, bad_setup, -EBADMSG);
	bad_setup = setup;
	memset(bad_setup.policy, 'x', sizeof(bad_setup.policy));
	CHECK(RECORD_SETUP, bad_setup, -EBADMSG);
	bad_share.limit_ppm = 0;
	CHECK(RECORD_SHARE, bad_share, -EBADMSG);
	bad_share = share;
	memcpy(bad_share.name, "\033[2J", 4);
	CHECK(RECORD_SHARE, bad_share, -EBADMSG);
	bad_share = share;
	bad_share.class = 2;
	CHECK(RECORD_SHARE, bad_share, -EBADMSG);
	bad_work.end_ns = 1;
	CHECK(RECORD_WORK, bad_work, -EBADMSG);
	bad_work = work;
	bad_work.what = RECORD_WHATS;
	CHECK(RECORD_WORK, bad_work, -EBADMSG);
#undef CHECK
}

static void a_record_without_work_says_so(void **state)
{
	struct workload workload;
	struct bf_error err;
	FILE *file = tmpfile();

	(void)state;
	assert_non_null(file);
	assert_int_equal(record_write_header(file, NULL), 0);
	assert_int_equal(read_back(file, &workload, &err), -ENODATA);
	assert_string_equal(err.text, "the record contains no work");
}

static void percentiles_are_within_a_hundredth(void **state)
{
	static struct tally tally;

	(void)state;
	assert_int_equal(tally_percentile(&tally, 500000), 0);
	for (uint64_t i = 1; i <= 100000; i++)
		tally_add(&tally, i * 1000);
	for (uint32_t ppm = 10000; ppm < 1000000; ppm += 10000)
		sim_assert_near("percentile", (double)tally_percentile(&tally, ppm), ppm * 100.0,
				ppm + 1000.0);
	tally_add(&tally, UINT64_MAX);
	assert_true(tally_percentile(&tally, 1000000) > UINT64_MAX / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_built_in_played_is_as_it_was_recorded),
		cmocka_unit_test(a_play_is_the_same_every_time),
		cmocka_unit_test(a_policy_for_latency_makes_it_shorter),
		cmocka_unit_test(programs_that_ended_end_and_others_go_on),
		cmocka_unit_test(work_without_an_end_wants_all_it_can_get),
		cmocka_unit_test(nonsense_is_played_to_an_end),
		cmocka_unit_test(a_play_is_cut_off_where_too_much_happens),
		cmocka_unit_test(those_without_work_are_left_out),
		cmocka_unit_test(what_is_too_much_is_refused_with_the_limit),
		cmocka_unit_test(what_nobody_could_have_recorded_is_refused),
		cmocka_unit_test(a_record_without_work_says_so),
		cmocka_unit_test(percentiles_are_within_a_hundredth),
	};

	return cmocka_run_group_tests_name("replay_play", tests, NULL, NULL);
}
