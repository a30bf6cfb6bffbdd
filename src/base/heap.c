#include "base/heap.h"

#include <errno.h>
#include <stdlib.h>

/* Places are numbered from 1: the parent of place p is p / 2, its children are 2 p and 2 p + 1. */
static struct bf_heap_node *at(const struct bf_heap *heap, size_t place)
{
	return heap->nodes[place - 1];
}

static void put(struct bf_heap *heap, struct bf_heap_node *node, size_t place)
{
	heap->nodes[place - 1] = node;
	node->place = place;
}

int bf_heap_reserve(struct bf_heap *heap, size_t count)
{
	size_t room = heap->room ? heap->room : 16;
	struct bf_heap_node **nodes;

	if (count <= heap->room)
		return 0;
	while (room < count)
		room *= 2;
	nodes = realloc(heap->nodes, room * sizeof(void *));
	if (!nodes)
		return -ENOMEM;
	heap->nodes = nodes;
	heap->room = room;
	return 0;
}

void bf_heap_free(struct bf_heap *heap)
{
	free(heap->nodes);
	heap->nodes = NULL;
	heap->count = heap->room = 0;
}

static void sift_up(struct bf_heap *heap, struct bf_heap_node *node, size_t place)
{
	while (place > 1 && heap->is_before(node, at(heap, place / 2))) {
		put(heap, at(heap, place / 2), place);
		place /= 2;
	}
	put(heap, node, place);
}

static void sift_down(struct bf_heap *heap, struct bf_heap_node *node, size_t place)
{
	size_t child;

	while ((child = 2 * place) <= heap->count) {
		if (child < heap->count && heap->is_before(at(heap, child + 1), at(heap, child)))
			child++;
		if (!heap->is_before(at(heap, child), node))
			break;
		put(heap, at(heap, child), place);
		place = child;
	}
	put(heap, node, place);
}

/* Puts the node at `place` or, where the order requires it, above or below. */
static void settle(struct bf_heap *heap, struct bf_heap_node *node, size_t place)
{
	if (place > 1 && heap->is_before(node, at(heap, place / 2)))
		sift_up(heap, node, place);
	else
		sift_down(heap, node, place);
}

void bf_heap_insert(struct bf_heap *heap, struct bf_heap_node *node)
{
	sift_up(heap, node, ++heap->count);
}

void bf_heap_remove(struct bf_heap *heap, struct bf_heap_node *node)
{
	size_t place = node->place;
	struct bf_heap_node *last;

	if (!place)
		return;
	node->place = 0;
	last = at(heap, heap->count--);
	if (last != node)
		settle(heap, last, place);
}

void bf_heap_update(struct bf_heap *heap, struct bf_heap_node *node)
{
	if (node->place)
		settle(heap, node, node->place);
}

/* The place after `place` and everything below it, in the order of a walk that visits parents before children; 0: none. */
static size_t skip(const struct bf_heap *heap, size_t place)
{
	while (place & 1 || place == heap->count) {
		if (place <= 1)
			return 0;
		place /= 2;
	}
	return place + 1;
}

void bf_heap_walk(const struct bf_heap *heap, bool (*visit)(void *context, struct bf_heap_node *node),
		  void *context)
{
	size_t place = heap->count ? 1 : 0;

	while (place) {
		bool is_wanted = visit(context, at(heap, place));

		place = is_wanted && 2 * place <= heap->count ? 2 * place : skip(heap, place);
	}
}
