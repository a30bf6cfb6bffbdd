#include "replay/workload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "replay/worked.h"

static const uint64_t least_gpu_ns = 10000;    /* of a burst: less is below the resolution of the meter */
static const uint64_t least_kernel_ns = 50000; /* shorter kernels are merged */
static const uint64_t most_kernel_ns = 100000000;
static const double least_busy = 0.05;
static const uint32_t usual_ppm = 500000; /* percentile of the time that bursts take beyond their GPU time */

/* The state of a vGPU while the record is read. Times count from the beginning of the record. */
struct progress {
	bool has_counts, is_here, has_work;
	uint64_t done_at_ns;		/* when the last burst was reported as done */
	struct record_work first, last; /* first and last counters */
	uint64_t idle_ns;		/* since when it has had no work */
	uint64_t came_ns;		/* since when it has had work */
	uint64_t submitted;		/* submissions at came_ns */
	uint64_t held_ns;		/* time let in that is not yet assigned to a burst */
	size_t unsettled;		/* the first step whose GPU time is not completely known */
	uint64_t read_gpu_ns, read_held_ns, read_alone_ns; /* counters at the last reading */
	uint64_t over_ns; /* since then: time let in after the work was done, until that was noticed */
	uint64_t alone_gpu_ns, alone_held_ns;
	uint64_t longest_ns; /* the longest finished burst */
	uint64_t late;
	uint64_t pieces;	 /* of all finished bursts */
	struct tally took, rest; /* rest: time let in minus GPU time */
};

struct reader {
	struct workload *to;
	struct progress *progress; /* of each vGPU of `to`; NULL: there is none yet */
	uint64_t begin_ns;
	bool has_begun;
	size_t steps, change_room;
	struct worked worked; /* the vGPUs to read */
	double busy;	      /* part of the time with a vGPU let in that the GPU was used: 0 to 1 */
};

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t since_begin(const struct reader *reader, uint64_t at_ns)
{
	return bf_min(less(at_ns, reader->begin_ns), RECORD_LONGEST_NS);
}

static int find(const struct reader *reader, uint64_t id)
{
	for (unsigned i = 0; i < reader->to->vgpu_count; i++)
		if (reader->to->vgpus[i].id == id)
			return (int)i;
	return -1;
}

static int add_step(struct reader *reader, unsigned at, enum workload_kind kind, uint64_t after_ns,
		    struct bf_error *err)
{
	struct workload_vgpu *v = &reader->to->vgpus[at];

	if (reader->steps++ >= WORKLOAD_STEPS_MAX) {
		bf_fail(err, E2BIG, "the record has more than %d pieces of work", WORKLOAD_STEPS_MAX);
		return -E2BIG;
	}
	if (v->count == v->room) {
		size_t room = v->room ? 2 * v->room : 64;
		struct workload_step *steps = realloc(v->steps, room * sizeof(*steps));

		if (!steps) {
			bf_fail(err, ENOMEM, "not enough memory for the work of the record");
			return -ENOMEM;
		}
		v->steps = steps;
		v->room = room;
	}
	v->steps[v->count++] = (struct workload_step){ .kind = kind, .pieces = 1, .after_ns = after_ns };
	return 0;
}

static int add_change(struct reader *reader, const struct workload_change *change, struct bf_error *err)
{
	struct workload *to = reader->to;

	if (to->change_count == WORKLOAD_CHANGES_MAX)
		return bf_fail(err, E2BIG, "the record has more than %d changes of vGPUs",
			       WORKLOAD_CHANGES_MAX);
	if (to->change_count == reader->change_room) {
		size_t room = reader->change_room ? 2 * reader->change_room : 16;
		struct workload_change *changes = realloc(to->changes, room * sizeof(*changes));

		if (!changes)
			return bf_fail(err, ENOMEM, "not enough memory for the changes of the record");
		to->changes = changes;
		reader->change_room = room;
	}
	to->changes[to->change_count++] = *change;
	return 0;
}

static int take_setup(struct reader *reader, const struct record_entry *entry, struct bf_error *err)
{
	struct workload_change change = { .kind = WORKLOAD_CONFIGURED };
	struct workload *to = reader->to;
	struct record_setup setup;

	memcpy(&setup, record_ctx(entry), sizeof(setup));
	if (!reader->has_begun) {
		reader->has_begun = true;
		reader->begin_ns = entry->at_ns;
		to->options = record_options(&setup);
		to->is_soft = setup.is_soft;
		memcpy(to->policy, setup.policy, sizeof(to->policy));
		return 0;
	}
	if (strcmp(to->policy, setup.policy) != 0)
		to->policy[0] = 0;
	change.at_ns = since_begin(reader, entry->at_ns);
	change.to.options = record_options(&setup);
	return add_change(reader, &change, err);
}

static int add_vgpu(struct reader *reader, const struct record_share *share, struct bf_error *err)
{
	struct workload *to = reader->to;
	struct progress *progress;
	struct workload_vgpu *v;

	progress = realloc(reader->progress, (to->vgpu_count + 1) * sizeof(*progress));
	if (!progress)
		return bf_fail(err, ENOMEM, "not enough memory for the vGPUs of the record");
	reader->progress = progress;
	memset(&progress[to->vgpu_count], 0, sizeof(*progress));
	v = &to->vgpus[to->vgpu_count++];
	*v = (struct workload_vgpu){ .id = share->id, .share = record_sched_share(share), .busy = 1 };
	memcpy(v->name, share->name, sizeof(v->name));
	return 0;
}

static int take_share(struct reader *reader, const struct record_entry *entry, struct bf_error *err)
{
	struct workload_change change = { .kind = WORKLOAD_SET };
	struct record_share share;
	int at;

	memcpy(&share, record_ctx(entry), sizeof(share));
	if (!worked_has(&reader->worked, share.id))
		return 0;
	at = find(reader, share.id);
	if (at < 0)
		return add_vgpu(reader, &share, err);
	change.vgpu = (unsigned)at;
	change.at_ns = since_begin(reader, entry->at_ns);
	change.to.share = record_sched_share(&share);
	return add_change(reader, &change, err);
}

/* GPU time is read at intervals with possibly many bursts. It is divided among them by the time that each was
 * let in. */
static void settle(const struct reader *reader, struct workload_vgpu *v, struct progress *p,
		   const struct record_work *work)
{
	uint64_t gpu = bf_min(less(work->gpu_ns, p->read_gpu_ns), RECORD_LONGEST_NS);
	uint64_t held = less(work->held_ns, p->read_held_ns), alone = less(work->alone_ns, p->read_alone_ns);
	double all = 0;

	/* A measured GPU time is valid at the time of its reading. */
	if (!gpu || (reader->to->options.is_measured && work->what != RECORD_READ))
		return;
	if (!reader->to->options.is_measured) /* counted by the clock, until the end is noticed */
		gpu = less(gpu, p->over_ns);
	if (p->unsettled && p->unsettled == v->count)
		p->unsettled--; /* the last burst's end is included */
	for (size_t i = p->unsettled; i < v->count; i++)
		all += (double)(v->steps[i].held_ns - v->steps[i].settled_ns);
	for (size_t i = p->unsettled; i < v->count; i++) {
		struct workload_step *step = &v->steps[i];
		double part = all > 0 ? (double)(step->held_ns - step->settled_ns) / all : i + 1 == v->count;

		step->gpu_ns = bf_min(step->gpu_ns + (uint64_t)((double)gpu * part), RECORD_LONGEST_NS);
		step->settled_ns = step->held_ns;
	}
	p->unsettled = v->count && p->has_work ? v->count - 1 : v->count;
	if (held && alone >= held / 20 * 19) {
		p->alone_gpu_ns += bf_min(gpu, held);
		p->alone_held_ns += less(held, p->over_ns);
	}
	p->over_ns = 0;
	p->read_gpu_ns = work->gpu_ns;
	p->read_held_ns = work->held_ns;
	p->read_alone_ns = work->alone_ns;
}

static int begin_burst(struct reader *reader, unsigned at, const struct record_work *work, uint64_t at_ns,
		       struct bf_error *err)
{
	struct progress *p = &reader->progress[at];
	uint64_t came = since_begin(reader, work->came_ns);
	int rc = 0;

	if (!p->is_here) {
		p->is_here = true;
		p->idle_ns = came;
		rc = add_step(reader, at, WORKLOAD_HERE, came, err);
	}
	if (at_ns > p->done_at_ns) /* not one of several reported together */
		p->held_ns = 0;
	p->came_ns = came;
	p->submitted = work->submitted;
	if (!rc && !p->has_work) { /* a lost end is the exception */
		rc = add_step(reader, at, WORKLOAD_BURST, less(came, p->idle_ns), err);
		p->has_work = !rc;
	}
	return rc;
}

static void end_burst(struct workload_vgpu *v, struct progress *p, const struct record_work *work,
		      uint64_t end_ns)
{
	struct workload_step *step;
	uint64_t held;

	p->has_work = false;
	p->idle_ns = end_ns;
	if (!v->steps)
		return; /* it had no work before */
	step = &v->steps[v->count - 1];
	step->took_ns = less(end_ns, p->came_ns);
	step->pieces = (uint32_t)bf_min(less(work->submitted, p->submitted), UINT32_MAX);
	held = bf_min(p->held_ns, step->took_ns); /* the rest belongs to the next burst */
	step->held_ns += held;
	p->held_ns -= held;
}

static void count_burst(const struct workload_vgpu *v, struct progress *p, const struct record_work *work)
{
	uint64_t took = work->end_ns - work->came_ns, objective = v->share.objective_ns;

	p->longest_ns = took > p->longest_ns ? took : p->longest_ns;
	p->late += objective && took > objective;
	tally_add(&p->took, took);
}

static int take_programs(struct reader *reader, unsigned at, const struct record_work *work, uint64_t at_ns,
			 struct bf_error *err)
{
	struct progress *p = &reader->progress[at];
	bool is_here = work->what == RECORD_HERE;
	uint64_t after;

	if (is_here == p->is_here)
		return 0;
	if (p->has_work)
		end_burst(&reader->to->vgpus[at], p, work, at_ns);
	after = is_here ? at_ns : less(at_ns, p->idle_ns);
	p->is_here = is_here;
	p->idle_ns = at_ns;
	return add_step(reader, at, is_here ? WORKLOAD_HERE : WORKLOAD_GONE, after, err);
}

static int take_done(struct reader *reader, unsigned at, const struct record_work *work, uint64_t at_ns,
		     struct bf_error *err)
{
	struct workload_vgpu *v = &reader->to->vgpus[at];
	struct progress *p = &reader->progress[at];
	int rc = p->has_work ? 0 : begin_burst(reader, at, work, at_ns, err);
	uint64_t over;

	if (rc)
		return rc;
	p->done_at_ns = at_ns;
	over = bf_min(less(at_ns, since_begin(reader, work->end_ns)), p->held_ns);
	p->over_ns += over;
	p->held_ns -= over;
	end_burst(v, p, work, since_begin(reader, work->end_ns));
	count_burst(v, p, work);
	return 0;
}

static void count(struct workload_vgpu *v, struct progress *p, const struct record_work *work)
{
	if (!p->has_counts) {
		p->first = *work;
		p->read_gpu_ns = work->gpu_ns;
		p->read_held_ns = work->held_ns;
		p->read_alone_ns = work->alone_ns;
	}
	if (p->has_counts)
		p->held_ns += bf_min(less(work->held_ns, p->last.held_ns), RECORD_LONGEST_NS);
	p->has_counts = true;
	p->last = *work;
	if (p->has_work && work->what != RECORD_DONE) {
		v->steps[v->count - 1].held_ns += p->held_ns;
		p->held_ns = 0;
	}
}

static int take_work(struct reader *reader, const struct record_entry *entry, struct bf_error *err)
{
	uint64_t at_ns = since_begin(reader, entry->at_ns);
	struct workload_change change = { .at_ns = at_ns };
	struct record_work work;
	int at, rc = 0;

	memcpy(&work, record_ctx(entry), sizeof(work));
	at = find(reader, work.id);
	if (at < 0 || !reader->progress)
		return 0; /* the entry that introduced this vGPU is lost */
	change.vgpu = (unsigned)at;
	count(&reader->to->vgpus[at], &reader->progress[at], &work);
	switch (work.what) {
	case RECORD_HERE:
	case RECORD_GONE:
		rc = take_programs(reader, (unsigned)at, &work, at_ns, err);
		break;
	case RECORD_HELD:
	case RECORD_FREE:
		change.kind = work.what == RECORD_HELD ? WORKLOAD_HELD : WORKLOAD_FREE;
		rc = add_change(reader, &change, err);
		break;
	case RECORD_CAME:
		rc = begin_burst(reader, (unsigned)at, &work, at_ns, err);
		break;
	case RECORD_DONE:
		rc = take_done(reader, (unsigned)at, &work, at_ns, err);
		break;
	default:
		break;
	}
	settle(reader, &reader->to->vgpus[at], &reader->progress[at], &work);
	return rc;
}

static int take_entry(struct reader *reader, const struct record_entry *entry, struct bf_error *err)
{
	if (entry->kind == RECORD_SETUP)
		return take_setup(reader, entry, err);
	if (!reader->has_begun)
		return 0;
	if (less(entry->at_ns, reader->begin_ns) > RECORD_LONGEST_NS)
		return bf_fail(err, E2BIG, "the record is longer than a day");
	if (since_begin(reader, entry->at_ns) > reader->to->ns)
		reader->to->ns = since_begin(reader, entry->at_ns);
	if (entry->kind == RECORD_SHARE)
		return take_share(reader, entry, err);
	return entry->kind == RECORD_WORK ? take_work(reader, entry, err) : 0;
}

/* Handles a burst that the end of the record cut off. If it lasted longer than any other burst, its end is
 * unknown (a training, for example). Otherwise it is one of many, and left out. */
static void finish_last(const struct reader *reader, struct workload_vgpu *v, struct progress *p)
{
	struct workload_step *last;
	uint64_t age = less(reader->to->ns, p->came_ns);

	v->again_ns = less(reader->to->ns, p->idle_ns);
	if (!p->has_work || !v->steps)
		return;
	end_burst(v, p, &p->last, reader->to->ns);
	last = &v->steps[v->count - 1];
	if (age > p->longest_ns && age >= reader->to->options.round_ns) {
		v->kernel_ns = last->gpu_ns / (last->pieces ? last->pieces : 1);
		v->kernel_ns = v->kernel_ns < least_kernel_ns ? least_kernel_ns
							      : bf_min(v->kernel_ns, most_kernel_ns);
		last->gpu_ns = WORKLOAD_ENDLESS;
		return;
	}
	v->again_ns = last->after_ns;
	v->count--;
}

/* Programs that were present to the end would have continued: repeat their steps. */
static void find_again(struct workload_vgpu *v)
{
	size_t first = v->count;

	while (first > 0 && v->steps[first - 1].kind == WORKLOAD_BURST)
		first--;
	v->again = first + 1 < v->count ? first + 1 : first;
}

static void finish_step(struct workload_step *step, struct progress *p)
{
	if (step->kind != WORKLOAD_BURST || step->gpu_ns == WORKLOAD_ENDLESS)
		return;
	step->gpu_ns = bf_min(step->gpu_ns, step->took_ns);
	tally_add(&p->rest, less(step->held_ns, step->gpu_ns));
	step->gpu_ns = step->gpu_ns > least_gpu_ns ? step->gpu_ns : least_gpu_ns;
	step->pieces = (uint32_t)bf_min(step->pieces, step->gpu_ns / least_kernel_ns);
	step->pieces = step->pieces ? step->pieces : 1;
	p->pieces += step->pieces;
}

static double busy_of(uint64_t gpu_ns, uint64_t held_ns)
{
	double busy = held_ns ? (double)gpu_ns / (double)held_ns : 1;

	return busy < least_busy ? least_busy : busy > 1 ? 1 : busy;
}

static double busy_of_all(const struct reader *reader)
{
	uint64_t gpu = 0, first = UINT64_MAX, last = 0;

	for (unsigned i = 0; reader->progress && i < reader->to->vgpu_count; i++) {
		const struct progress *p = &reader->progress[i];

		if (!p->has_counts)
			continue;
		gpu += bf_min(less(p->last.gpu_ns, p->first.gpu_ns), RECORD_LONGEST_NS);
		first = bf_min(first, p->first.anybody_ns);
		last = p->last.anybody_ns > last ? p->last.anybody_ns : last;
	}
	return busy_of(gpu, less(last, first));
}

static void finish(const struct reader *reader, unsigned at)
{
	struct workload_vgpu *v = &reader->to->vgpus[at];
	struct progress *p = &reader->progress[at];
	uint64_t held = less(p->last.held_ns, p->first.held_ns);

	finish_last(reader, v, p);
	find_again(v);
	for (size_t i = 0; i < v->count; i++)
		finish_step(&v->steps[i], p);
	if (p->rest.count && p->pieces <= 2 * p->rest.count)
		v->rest_ns = tally_percentile(&p->rest, usual_ppm);
	else if (p->alone_held_ns > held / 10)
		v->busy = busy_of(p->alone_gpu_ns, p->alone_held_ns);
	else
		v->busy = reader->busy;
	v->was = (struct workload_figures){
		.gpu_ns = less(p->last.gpu_ns, p->first.gpu_ns),
		.done = p->took.count,
		.late = p->late,
		.p50_ns = tally_percentile(&p->took, 500000),
		.tail_ns = tally_percentile(&p->took,
					    v->share.percentile_ppm ? v->share.percentile_ppm : 990000),
		.slices = less(p->last.grants, p->first.grants),
		.stops = less(p->last.stops, p->first.stops),
	};
}

static int read_all(struct reader *reader, FILE *record, void *buffer, struct bf_error *err)
{
	int rc = record_read_header(record, err);

	while (!rc) {
		rc = record_read(record, buffer, err);
		if (rc != RECORD_ENTRY)
			break;
		rc = take_entry(reader, buffer, err);
	}
	if (rc < 0)
		return rc;
	if (!reader->has_begun)
		return bf_fail(err, ENODATA, "the record contains no work");
	reader->busy = busy_of_all(reader);
	for (unsigned i = 0; reader->progress && i < reader->to->vgpu_count; i++)
		finish(reader, i);
	return 0;
}

/* The first pass finds the vGPUs that had work, which are known only at the end of the record. */
static int read_twice(struct reader *reader, FILE *record, void *buffer, struct bf_error *err)
{
	int rc;

	rewind(record);
	rc = worked_read(record, buffer, &reader->worked, err);
	if (rc)
		return rc;
	reader->to->idle_count = reader->worked.idle_count;
	rewind(record);
	return read_all(reader, record, buffer, err);
}

int workload_read(FILE *record, struct workload *workload, struct bf_error *err)
{
	struct reader reader = { .to = workload };
	void *buffer = malloc(RECORD_ENTRY_MAX);
	int rc = -ENOMEM;

	*workload = (struct workload){ .vgpu_count = 0 };
	workload->vgpus = calloc(WORKLOAD_VGPUS_MAX, sizeof(*workload->vgpus));
	if (buffer && workload->vgpus)
		rc = read_twice(&reader, record, buffer, err);
	else
		bf_fail(err, ENOMEM, "not enough memory for the work of the record");
	free(reader.progress);
	free(buffer);
	if (rc)
		workload_free(workload);
	return rc;
}

void workload_free(struct workload *workload)
{
	for (unsigned i = 0; workload->vgpus && i < workload->vgpu_count; i++)
		free(workload->vgpus[i].steps);
	free(workload->vgpus);
	free(workload->changes);
	*workload = (struct workload){ .vgpu_count = 0 };
}
