/* The heap, against an array that is searched. */
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ITEMS = 200, STEPS = 20000 };

struct item {
	int key;
	struct bf_heap_node node;
};

static struct item *item_of(const struct bf_heap_node *node)
{
	return (struct item *)((char *)node - offsetof(struct item, node));
}

static bool is_before(const struct bf_heap_node *a, const struct bf_heap_node *b)
{
	return item_of(a)->key < item_of(b)->key;
}

static uint32_t seed = 1;

static unsigned any(unsigned below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

static const struct item *least(const struct item *items)
{
	const struct item *first = NULL;

	for (unsigned i = 0; i < ITEMS; i++)
		if (items[i].node.place && (!first || items[i].key < first->key))
			first = &items[i];
	return first;
}

static void check_order(const struct bf_heap *heap)
{
	for (size_t i = 0; i < heap->count; i++) {
		assert_int_equal(heap->nodes[i]->place, i + 1);
		if (i)
			assert_false(is_before(heap->nodes[i], heap->nodes[(i + 1) / 2 - 1]));
	}
}

static void random_step(struct bf_heap *heap, struct item *item)
{
	if (!item->node.place) {
		item->key = (int)any(100);
		bf_heap_insert(heap, &item->node);
	} else if (any(2)) {
		bf_heap_remove(heap, &item->node);
		assert_int_equal(item->node.place, 0);
	} else {
		item->key = (int)any(100);
		bf_heap_update(heap, &item->node);
	}
}

static void the_first_is_the_least_after_any_change(void **state)
{
	static struct item items[ITEMS];
	struct bf_heap heap = { .is_before = is_before };
	size_t most = 0;

	(void)state;
	assert_int_equal(bf_heap_reserve(&heap, ITEMS), 0);
	assert_null(bf_heap_first(&heap));
	for (unsigned step = 0; step < STEPS; step++) {
		const struct item *first;

		random_step(&heap, &items[any(ITEMS)]);
		first = least(items);
		if (first)
			assert_int_equal(item_of(bf_heap_first(&heap))->key, first->key);
		else
			assert_null(bf_heap_first(&heap));
		check_order(&heap);
		most = heap.count > most ? heap.count : most;
	}
	assert_true(most > ITEMS / 2);
	bf_heap_free(&heap);
}

static void a_node_outside_can_be_removed_and_updated(void **state)
{
	struct bf_heap heap = { .is_before = is_before };
	struct item in = { .key = 1 }, out = { .key = 0 };

	(void)state;
	assert_int_equal(bf_heap_reserve(&heap, 1), 0);
	bf_heap_insert(&heap, &in.node);
	bf_heap_remove(&heap, &out.node);
	bf_heap_update(&heap, &out.node);
	assert_int_equal(heap.count, 1);
	assert_ptr_equal(bf_heap_first(&heap), &in.node);
	bf_heap_free(&heap);
}

/* Which items a walk has visited; it does not go below keys of `most` or more. */
struct walk {
	unsigned visits[ITEMS];
	const struct item *items;
	int most;
};

static bool visit(void *context, struct bf_heap_node *node)
{
	struct walk *walk = context;

	walk->visits[item_of(node) - walk->items]++;
	return item_of(node)->key < walk->most;
}

static void check_walk(const struct bf_heap *heap, const struct item *items, int most)
{
	struct walk walk = { .items = items, .most = most };

	bf_heap_walk(heap, visit, &walk);
	for (unsigned i = 0; i < ITEMS; i++) {
		size_t place = items[i].node.place;
		bool is_reached = place == 1 ||
				  (place > 1 && item_of(heap->nodes[place / 2 - 1])->key < most);

		assert_int_equal(walk.visits[i], is_reached);
	}
}

static void a_walk_visits_what_is_below_the_nodes_it_wants(void **state)
{
	static struct item items[ITEMS];
	struct bf_heap heap = { .is_before = is_before };

	(void)state;
	assert_int_equal(bf_heap_reserve(&heap, ITEMS), 0);
	for (unsigned i = 0; i < ITEMS; i++) {
		for (int most = 0; most <= 100; most += 10)
			check_walk(&heap, items, most);
		items[i].key = (int)any(100);
		bf_heap_insert(&heap, &items[i].node);
	}
	check_walk(&heap, items, 100);
	bf_heap_free(&heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_is_the_least_after_any_change),
		cmocka_unit_test(a_node_outside_can_be_removed_and_updated),
		cmocka_unit_test(a_walk_visits_what_is_below_the_nodes_it_wants),
	};

	return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
