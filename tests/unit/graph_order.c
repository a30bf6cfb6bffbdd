/* graph_order: whatever the edges, what comes before a step is done before it, and independent steps get lanes. */
#include "soft/cuda/graph_order.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS_MAX = 60, EDGES_MAX = STEPS_MAX * STEPS_MAX };

struct dag {
	struct order order;
	struct order_edge *edges; /* room for EDGES_MAX */
	uint32_t edge_count;
	bool is_before
		[STEPS_MAX]
		[STEPS_MAX]; /* as the lanes and waits have it: is_before[a][b], a done before b starts */
};

static void dag_make(struct dag *dag, uint32_t count)
{
	static struct order_edge edges[EDGES_MAX];

	memset(dag, 0, sizeof(*dag));
	dag->edges = edges;
	dag->order.count = count;
	dag->order.steps = calloc(count ? count : 1, sizeof(*dag->order.steps));
}

static void dag_edge(struct dag *dag, uint32_t from, uint32_t to)
{
	dag->edges[dag->edge_count++] = (struct order_edge){ from, to };
}

static int dag_order(struct dag *dag, uint32_t lanes_max)
{
	uint32_t bad = ORDER_NONE;

	return order_make(&dag->order, dag->edges, dag->edge_count, lanes_max, &bad);
}

static void add_before(struct dag *dag, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < dag->order.count; i++)
		dag->is_before[i][b] |= i == a || dag->is_before[i][a];
}

/* Run it on paper: what each lane has seen when. */
static void dag_run(struct dag *dag)
{
	struct order *order = &dag->order;
	uint32_t last[64];

	memset(last, 0xff, sizeof(last));
	for (uint32_t i = 0; i < order->count; i++) {
		uint32_t s = order->sequence[i];
		struct order_step *step = &order->steps[s];

		if (step->is_empty)
			continue;
		assert_true(step->lane < order->lane_count);
		assert_int_equal(order->lane_places[step->lane], step->place);
		if (last[step->lane] != ORDER_NONE)
			add_before(dag, last[step->lane], s);
		for (uint32_t w = 0; w < step->wait_count; w++)
			add_before(dag, order->waits[step->first_wait + w], s);
		last[step->lane] = s;
	}
}

static void check_after(struct dag *dag, uint32_t from, uint32_t at)
{
	for (uint32_t i = 0; i < dag->edge_count; i++) {
		uint32_t to = dag->edges[i].to;

		if (dag->edges[i].from != at)
			continue;
		if (dag->order.steps[to].is_empty)
			check_after(dag, from, to);
		else
			assert_true(dag->is_before[from][to]);
	}
}

/* Whatever has been done is done before lane 0 is through. */
static void check_ends(struct dag *dag)
{
	struct order *order = &dag->order;

	for (uint32_t s = 0; s < order->count; s++) {
		bool is_covered = order->steps[s].is_empty || !order->steps[s].lane;

		for (uint32_t t = 0; t < order->count && !is_covered; t++)
			is_covered = dag->is_before[s][t] && !order->steps[t].is_empty &&
				     !order->steps[t].lane;
		for (uint32_t lane = 0; lane < order->lane_count && !is_covered; lane++) {
			uint32_t end = order->lane_ends[lane];

			is_covered = end != ORDER_NONE && (end == s || dag->is_before[s][end]);
		}
		assert_true(is_covered);
	}
}

static void random_dags_are_ordered_as_their_edges_ask(void **state)
{
	static struct dag dag;

	(void)state;
	srand(1);
	for (int round = 0; round < 2000; round++) {
		uint32_t count = (uint32_t)rand() % STEPS_MAX + 1, shift = (uint32_t)rand() % STEPS_MAX;

		dag_make(&dag, count);
		for (uint32_t s = 0; s < count; s++) {
			dag.order.steps[s].place = (uint32_t)rand() % 8 ? 0 : (uint32_t)rand() % 3;
			dag.order.steps[s].is_empty = rand() % 6 == 0;
		}
		for (uint32_t a = 0; a < count; a++)
			for (uint32_t b = a + 1; b < count; b++)
				if ((uint32_t)rand() % count <
				    2) /* numbered so that order is not that of numbers */
					dag_edge(&dag, (a + shift) % count, (b + shift) % count);
		assert_int_equal(dag_order(&dag, (uint32_t)rand() % 6 + 1), 0);
		dag_run(&dag);
		for (uint32_t s = 0; s < count; s++)
			if (!dag.order.steps[s].is_empty)
				check_after(&dag, s, s);
		check_ends(&dag);
		order_free(&dag.order);
	}
}

static void chain_is_one_lane_without_waits(void **state)
{
	static struct dag dag;

	(void)state;
	dag_make(&dag, 10);
	for (uint32_t s = 0; s + 1 < 10; s++)
		dag_edge(&dag, s, s + 1);
	assert_int_equal(dag_order(&dag, 4), 0);
	assert_int_equal(dag.order.lane_count, 1);
	assert_int_equal(dag.order.wait_count, 0);
	order_free(&dag.order);
}

static void diamond_is_two_lanes_and_two_waits(void **state)
{
	static struct dag dag;

	(void)state;
	dag_make(&dag, 4);
	dag_edge(&dag, 0, 1);
	dag_edge(&dag, 0, 2);
	dag_edge(&dag, 1, 3);
	dag_edge(&dag, 2, 3);
	assert_int_equal(dag_order(&dag, 4), 0);
	assert_int_equal(dag.order.lane_count, 2);
	assert_int_equal(dag.order.wait_count, 2);
	assert_int_equal(dag.order.lane_ends[1], ORDER_NONE);
	order_free(&dag.order);
}

static void cycle_is_refused(void **state)
{
	static struct dag dag;

	(void)state;
	dag_make(&dag, 3);
	dag_edge(&dag, 0, 1);
	dag_edge(&dag, 1, 2);
	dag_edge(&dag, 2, 1);
	assert_int_equal(dag_order(&dag, 4), -EINVAL);
	order_free(&dag.order);
}

static void nothing_is_in_order(void **state)
{
	static struct dag dag;

	(void)state;
	dag_make(&dag, 0);
	assert_int_equal(dag_order(&dag, 4), 0);
	order_free(&dag.order);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_dags_are_ordered_as_their_edges_ask),
		cmocka_unit_test(chain_is_one_lane_without_waits),
		cmocka_unit_test(diamond_is_two_lanes_and_two_waits),
		cmocka_unit_test(cycle_is_refused),
		cmocka_unit_test(nothing_is_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
