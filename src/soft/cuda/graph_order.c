/* The order of the steps of an exec, and their concurrency. Each step gets a lane, and waits for steps of
 * other lanes where its edges require a wait that no earlier wait implies.
 *
 * Time is counted in positions: the number of steps of each lane that are done. A clock has such a count for
 * every lane. The needs of a step are a clock: all steps that precede it. A step continues a lane if all
 * steps of that lane are among its needs: this costs no wait. Otherwise it opens a new lane, or takes the
 * shortest lane if no more lanes are allowed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/graph_order.h"

struct work {
	struct order *order;
	uint32_t *before, *before_at; /* predecessors of s: before_at[s] to before_at[s + 1] - 1 */
	uint32_t *after, *after_at;   /* successors, likewise */
	uint32_t lanes_max, lane_room;
	uint32_t *needs;     /* a clock per step: what is done when it starts */
	uint32_t *positions; /* of a step in its lane, from 1; 0: an empty step */
	uint32_t *lengths;   /* steps of each lane */
	uint32_t *seen;	     /* a clock per lane: what its steps have waited for */
	uint32_t *step_at;   /* step by lane and position: lane * count + position - 1 */
	uint32_t wait_room;
};

static uint32_t *numbers(size_t count)
{
	return calloc(count ? count : 1, sizeof(uint32_t));
}

/* Build adjacency lists by counting sort. */
static bool sort_edges(uint32_t count, const struct order_edge *edges, uint32_t edge_count, bool is_forward,
		       uint32_t **list, uint32_t **at)
{
	uint32_t *fill = numbers((size_t)count + 1);

	*list = numbers(edge_count);
	*at = numbers((size_t)count + 1);
	if (!fill || !*list || !*at) {
		free(fill);
		return false;
	}
	for (uint32_t i = 0; i < edge_count; i++)
		(*at)[(is_forward ? edges[i].from : edges[i].to) + 1]++;
	for (uint32_t i = 0; i < count; i++)
		(*at)[i + 1] += (*at)[i];
	for (uint32_t i = 0; i < edge_count; i++) {
		uint32_t key = is_forward ? edges[i].from : edges[i].to;

		(*list)[(*at)[key] + fill[key]++] = is_forward ? edges[i].to : edges[i].from;
	}
	free(fill);
	return true;
}

/* A queue in breadth-first order, so that branches advance in turn. */
static int make_sequence(struct work *work, uint32_t *bad)
{
	struct order *order = work->order;
	uint32_t *missing = numbers(order->count), put = 0;

	if (!missing)
		return -ENOMEM;
	for (uint32_t s = 0; s < order->count; s++) {
		missing[s] = work->before_at[s + 1] - work->before_at[s];
		if (!missing[s])
			order->sequence[put++] = s;
	}
	for (uint32_t get = 0; get < put; get++) {
		uint32_t s = order->sequence[get];

		for (uint32_t i = work->after_at[s]; i < work->after_at[s + 1]; i++)
			if (!--missing[work->after[i]])
				order->sequence[put++] = work->after[i];
	}
	for (uint32_t s = 0; s < order->count && put < order->count; s++)
		if (missing[s])
			*bad = s;
	free(missing);
	return put < order->count ? -EINVAL : 0;
}

static void clock_join(struct work *work, uint32_t *into, const uint32_t *from)
{
	for (uint32_t lane = 0; lane < work->order->lane_count; lane++)
		if (into[lane] < from[lane])
			into[lane] = from[lane];
}

static uint32_t *needs_of(struct work *work, uint32_t step)
{
	return work->needs + (size_t)step * work->lane_room;
}

static uint32_t *seen_by(struct work *work, uint32_t lane)
{
	return work->seen + (size_t)lane * work->lane_room;
}

static void find_needs(struct work *work, uint32_t step)
{
	uint32_t *needs = needs_of(work, step);

	for (uint32_t i = work->before_at[step]; i < work->before_at[step + 1]; i++) {
		uint32_t before = work->before[i], lane = work->order->steps[before].lane;

		clock_join(work, needs, needs_of(work, before));
		if (work->positions[before] > needs[lane])
			needs[lane] = work->positions[before];
	}
}

static uint32_t choose_lane(struct work *work, uint32_t step)
{
	struct order *order = work->order;
	uint32_t place = order->steps[step].place, of_place = 0, shortest = ORDER_NONE;
	const uint32_t *needs = needs_of(work, step);

	for (uint32_t lane = 0; lane < order->lane_count; lane++) {
		if (order->lane_places[lane] != place)
			continue;
		if (needs[lane] == work->lengths[lane])
			return lane;
		of_place++;
		if (shortest == ORDER_NONE || work->lengths[lane] < work->lengths[shortest])
			shortest = lane;
	}
	if (of_place >= work->lanes_max)
		return shortest;
	order->lane_places[order->lane_count] = place;
	return order->lane_count++;
}

static bool add_wait(struct work *work, uint32_t step)
{
	struct order *order = work->order;

	if (order->wait_count == work->wait_room) {
		uint32_t room = work->wait_room ? work->wait_room * 2 : 64;
		uint32_t *more = realloc(order->waits, room * sizeof(*more));

		if (!more)
			return false;
		order->waits = more;
		work->wait_room = room;
	}
	order->waits[order->wait_count++] = step;
	return true;
}

/* Add waits for what the step needs from other lanes, except what another of these waits implies. The order
 * of the lanes affects how many waits are needed; lane by lane is simple and good enough. */
static bool find_waits(struct work *work, uint32_t step, uint32_t own)
{
	struct order *order = work->order;
	const uint32_t *needs = needs_of(work, step);
	uint32_t *seen = seen_by(work, own);

	order->steps[step].first_wait = order->wait_count;
	for (uint32_t lane = 0; lane < order->lane_count; lane++) {
		uint32_t other;

		if (lane == own || needs[lane] <= seen[lane])
			continue;
		other = work->step_at[(size_t)lane * order->count + needs[lane] - 1];
		if (!add_wait(work, other))
			return false;
		clock_join(work, seen, needs_of(work, other));
		seen[lane] = needs[lane];
	}
	order->steps[step].wait_count = order->wait_count - order->steps[step].first_wait;
	return true;
}

static bool place_step(struct work *work, uint32_t step)
{
	struct order *order = work->order;
	uint32_t lane;

	find_needs(work, step);
	if (order->steps[step].is_empty)
		return true;
	lane = choose_lane(work, step);
	order->steps[step].lane = lane;
	if (!find_waits(work, step, lane))
		return false;
	/* The step also runs after all earlier steps of its lane, whether it needs them or not. */
	clock_join(work, needs_of(work, step), seen_by(work, lane));
	needs_of(work, step)[lane] = work->lengths[lane];
	work->step_at[(size_t)lane * order->count + work->lengths[lane]] = step;
	work->positions[step] = ++work->lengths[lane];
	seen_by(work, lane)[lane] = work->lengths[lane];
	return true;
}

/* What lane 0 must wait for at the end. */
static void find_ends(struct work *work)
{
	struct order *order = work->order;

	for (uint32_t lane = 0; lane < order->lane_count; lane++) {
		uint32_t length = work->lengths[lane];

		order->lane_ends[lane] = ORDER_NONE;
		if (lane && length > seen_by(work, 0)[lane])
			order->lane_ends[lane] = work->step_at[(size_t)lane * order->count + length - 1];
	}
}

static bool work_begin(struct work *work, const struct order_edge *edges, uint32_t edge_count)
{
	struct order *order = work->order;
	uint32_t places = 1;

	for (uint32_t s = 0; s < order->count; s++)
		if (order->steps[s].place >= places)
			places = order->steps[s].place + 1;
	work->lane_room = places * work->lanes_max;
	work->needs = numbers((size_t)order->count * work->lane_room);
	work->positions = numbers(order->count);
	work->lengths = numbers(work->lane_room);
	work->seen = numbers((size_t)work->lane_room * work->lane_room);
	work->step_at = numbers((size_t)work->lane_room * order->count);
	order->sequence = numbers(order->count);
	order->lane_places = numbers(work->lane_room);
	order->lane_ends = numbers(work->lane_room);
	order->lane_count = 1;
	return sort_edges(order->count, edges, edge_count, false, &work->before, &work->before_at) &&
	       sort_edges(order->count, edges, edge_count, true, &work->after, &work->after_at) &&
	       work->needs && work->positions && work->lengths && work->seen && work->step_at &&
	       order->sequence && order->lane_places && order->lane_ends;
}

static void work_end(struct work *work)
{
	free(work->before);
	free(work->before_at);
	free(work->after);
	free(work->after_at);
	free(work->needs);
	free(work->positions);
	free(work->lengths);
	free(work->seen);
	free(work->step_at);
}

int order_make(struct order *order, const struct order_edge *edges, uint32_t edge_count, uint32_t lanes_max,
	       uint32_t *bad)
{
	struct work work = { .order = order, .lanes_max = lanes_max };
	int rc;

	if (!work_begin(&work, edges, edge_count)) {
		work_end(&work);
		return -ENOMEM;
	}
	rc = make_sequence(&work, bad);
	for (uint32_t i = 0; i < order->count && !rc; i++)
		if (!place_step(&work, order->sequence[i]))
			rc = -ENOMEM;
	if (!rc)
		find_ends(&work);
	work_end(&work);
	return rc;
}

void order_free(struct order *order)
{
	free(order->steps);
	free(order->sequence);
	free(order->waits);
	free(order->lane_places);
	free(order->lane_ends);
	memset(order, 0, sizeof(*order));
}
