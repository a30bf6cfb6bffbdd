/* Compares the traces of two runs. A lane is the events of one stream. The order between lanes, their numbers and those of
 * threads and processes vary from run to run, so a lane of one trace is matched with one of the other that has the same events,
 * and only what is left over is compared by its order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "verify/verify.h"

/* Threads that use one stream race with each other, unless the program orders them. */
enum lanes { BY_STREAM, BY_STREAM_AND_THREAD };

enum {
	CANDIDATES_MOST = 64
}; /* lanes with the same results, of which the one with the same parameters is looked for */

struct lane {
	const struct verify_event *events;
	size_t count;
	uint64_t digest; /* of the results */
	bool is_matched;
};

struct lanes_of {
	struct lane *lanes;
	size_t count;
};

static int by_lane(const void *one, const void *other)
{
	const struct verify_event *a = one, *b = other;

	if (a->lane != b->lane)
		return a->lane < b->lane ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static int by_digest(const void *one, const void *other)
{
	const struct lane *a = one, *b = other;

	if (a->digest != b->digest)
		return a->digest < b->digest ? -1 : 1;
	return a->events[0].number < b->events[0].number ? -1 : a->events[0].number > b->events[0].number;
}

static int by_number(const void *one, const void *other)
{
	const struct lane *a = one, *b = other;

	return a->events[0].number < b->events[0].number ? -1 : a->events[0].number > b->events[0].number;
}

static void sort_events(struct verify_trace *trace, enum lanes how)
{
	for (size_t i = 0; i < trace->count; i++) {
		struct verify_event *event = &trace->events[i];
		uint64_t thread = how == BY_STREAM_AND_THREAD ? event->thread : 0;

		event->lane = bf_hash_word(bf_hash_word(event->file, event->stream), thread);
	}
	if (trace->count)
		qsort(trace->events, trace->count, sizeof(*trace->events), by_lane);
}

static void add_lane(struct lanes_of *to, const struct verify_event *events, size_t count)
{
	struct lane *lane = &to->lanes[to->count++];

	*lane = (struct lane){ .events = events, .count = count };
	for (size_t i = 0; i < count; i++)
		lane->digest = bf_hash_word(lane->digest, events[i].result);
}

/* False: out of memory. */
static bool find_lanes(struct verify_trace *trace, enum lanes how, struct lanes_of *to)
{
	size_t first = 0, count = 0;

	sort_events(trace, how);
	for (size_t i = 0; i < trace->count; i++)
		count += !i || trace->events[i].lane != trace->events[i - 1].lane;
	*to = (struct lanes_of){ .lanes = calloc(count + 1, sizeof(*to->lanes)) };
	if (!to->lanes)
		return false;
	for (size_t i = 1; i <= trace->count; i++)
		if (i == trace->count || trace->events[i].lane != trace->events[first].lane) {
			add_lane(to, &trace->events[first], i - first);
			first = i;
		}
	qsort(to->lanes, to->count, sizeof(*to->lanes), by_digest);
	return true;
}

static bool has_same_parameters(const struct verify_event *a, const struct verify_event *b)
{
	return a->is_loose || !a->has_parameters || !b->has_parameters || a->parameters == b->parameters;
}

/* The place of the first difference; the length of the shorter one: none in it. */
static size_t first_difference(const struct lane *a, const struct lane *b)
{
	size_t i = 0;

	while (i < a->count && i < b->count && a->events[i].result == b->events[i].result &&
	       has_same_parameters(&a->events[i], &b->events[i]))
		i++;
	return i;
}

static bool is_same(const struct lane *a, const struct lane *b)
{
	return a->count == b->count && first_difference(a, b) == a->count;
}

/* The candidates have the same results as the lane. */
static void match_one(struct lane *lane, struct lane *candidates, size_t count)
{
	for (size_t i = 0; i < count && i < CANDIDATES_MOST; i++)
		if (!candidates[i].is_matched && is_same(lane, &candidates[i])) {
			lane->is_matched = candidates[i].is_matched = true;
			return;
		}
}

/* Both are sorted by their digests. */
static void match(struct lanes_of *a, struct lanes_of *b)
{
	size_t first = 0, count;

	for (size_t i = 0; i < a->count; i++) {
		while (first < b->count &&
		       (b->lanes[first].digest < a->lanes[i].digest || b->lanes[first].is_matched))
			first++;
		for (count = 0; first + count < b->count; count++)
			if (b->lanes[first + count].digest != a->lanes[i].digest)
				break;
		match_one(&a->lanes[i], &b->lanes[first], count);
	}
}

static void keep_unmatched(struct lanes_of *of)
{
	size_t count = 0;

	for (size_t i = 0; i < of->count; i++)
		if (!of->lanes[i].is_matched)
			of->lanes[count++] = of->lanes[i];
	of->count = count;
}

static struct verify_difference lane_difference(const struct lane *a, const struct lane *b)
{
	size_t place = first_difference(a, b);
	struct verify_difference found = { .place = place };

	if (place < a->count)
		found.event = &a->events[place];
	if (place < b->count)
		found.other = &b->events[place];
	if (!found.event)
		found.way = found.other ? VERIFY_ADDITIONAL : VERIFY_SAME;
	else if (!found.other)
		found.way = VERIFY_MISSING;
	else
		found.way = found.event->result == found.other->result ? VERIFY_PARAMETERS : VERIFY_OTHER;
	return found;
}

static uint64_t number_of(const struct verify_difference *difference)
{
	return difference->event ? difference->event->number : difference->other->number;
}

/* The lanes that are left over, paired in the order of their first events. */
static struct verify_difference first_of(struct lanes_of *a, struct lanes_of *b)
{
	static const struct lane none;
	struct verify_difference first = { 0 };

	qsort(a->lanes, a->count, sizeof(*a->lanes), by_number);
	qsort(b->lanes, b->count, sizeof(*b->lanes), by_number);
	for (size_t i = 0; i < a->count || i < b->count; i++) {
		struct verify_difference found = lane_difference(i < a->count ? &a->lanes[i] : &none,
								 i < b->count ? &b->lanes[i] : &none);

		if (found.way && (!first.way || number_of(&found) < number_of(&first)))
			first = found;
	}
	return first;
}

static bool match_lanes(struct verify_trace *reference, struct verify_trace *other, enum lanes how,
			struct lanes_of *a, struct lanes_of *b)
{
	*a = *b = (struct lanes_of){ 0 };
	if (!find_lanes(reference, how, a) || !find_lanes(other, how, b))
		return false;
	match(a, b);
	keep_unmatched(a);
	keep_unmatched(b);
	return true;
}

/* `unmatched` is how many events are in lanes that have no counterpart. */
static int compare_lanes(struct verify_trace *reference, struct verify_trace *other, enum lanes how,
			 struct verify_difference *found, size_t *unmatched)
{
	struct lanes_of a, b;
	bool is_done = match_lanes(reference, other, how, &a, &b);

	*unmatched = 0;
	for (size_t i = 0; is_done && i < a.count; i++)
		*unmatched += a.lanes[i].count;
	for (size_t i = 0; is_done && i < b.count; i++)
		*unmatched += b.lanes[i].count;
	if (is_done)
		*found = first_of(&a, &b);
	free(a.lanes);
	free(b.lanes);
	return is_done ? 0 : -ENOMEM;
}

/* A program may order its threads or not. The traces are equal if they are in one of the two ways; otherwise the way with
 * fewer differences shows what differs. */
int verify_compare(struct verify_trace *reference, struct verify_trace *other,
		   struct verify_difference *found)
{
	size_t by_thread, by_stream;
	int rc = compare_lanes(reference, other, BY_STREAM_AND_THREAD, found, &by_thread);

	if (rc || !found->way)
		return rc;
	rc = compare_lanes(reference, other, BY_STREAM, found, &by_stream);
	if (rc || !found->way || by_stream <= by_thread)
		return rc;
	return compare_lanes(reference, other, BY_STREAM_AND_THREAD, found, &by_thread);
}

/* Lanes with the same results, of which the parameters differ. */
static size_t loosen_lane(struct verify_trace *reference, const struct lane *a, const struct lane *b)
{
	size_t loosened = 0;

	for (size_t i = 0; i < a->count; i++)
		if (!has_same_parameters(&a->events[i], &b->events[i])) {
			reference->events[&a->events[i] - reference->events].is_loose = true;
			loosened++;
		}
	return loosened;
}

static size_t loosen(struct verify_trace *reference, struct verify_trace *other, enum lanes how)
{
	struct lanes_of a, b;
	size_t loosened = 0;

	if (match_lanes(reference, other, how, &a, &b))
		for (size_t i = 0; i < a.count && i < b.count; i++)
			if (a.lanes[i].digest == b.lanes[i].digest && a.lanes[i].count == b.lanes[i].count)
				loosened += loosen_lane(reference, &a.lanes[i], &b.lanes[i]);
	free(a.lanes);
	free(b.lanes);
	return loosened;
}

size_t verify_loosen(struct verify_trace *reference, struct verify_trace *other)
{
	return loosen(reference, other, BY_STREAM) + loosen(reference, other, BY_STREAM_AND_THREAD);
}
