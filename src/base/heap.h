/* A binary heap of nodes that are members of the caller's structures. The first node, an insertion, a removal and a
 * changed key cost at most the logarithm of the number of nodes. Only bf_heap_reserve allocates: a caller reserves
 * memory when it creates a structure, and insertions do not fail. */
#ifndef BELFRY_BASE_HEAP_H
#define BELFRY_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

struct bf_heap_node {
	size_t place; /* in bf_heap::nodes, from 1; 0: the node is not in a heap */
};

/* A heap is initialised with its order; everything else is 0. */
struct bf_heap {
	/* Whether `a` comes before `b`. The order is strict; equal nodes come in any order. */
	bool (*is_before)(const struct bf_heap_node *a, const struct bf_heap_node *b);
	struct bf_heap_node **nodes;
	size_t count, room;
};

/* Makes room for `count` nodes. Returns 0 or -ENOMEM. */
int bf_heap_reserve(struct bf_heap *heap, size_t count);
/* Frees the heap's memory. The nodes belong to the caller. */
void bf_heap_free(struct bf_heap *heap);

/* The node must not be in a heap, and there must be room for it. */
void bf_heap_insert(struct bf_heap *heap, struct bf_heap_node *node);
/* Has no effect on a node that is not in the heap. */
void bf_heap_remove(struct bf_heap *heap, struct bf_heap_node *node);
/* Restores the order after the node's key was changed. Has no effect on a node that is not in the heap. */
void bf_heap_update(struct bf_heap *heap, struct bf_heap_node *node);

/* NULL: the heap is empty. */
static inline struct bf_heap_node *bf_heap_first(const struct bf_heap *heap)
{
	return heap->count ? heap->nodes[0] : NULL;
}

/* Calls visit() for the first node, and for the two nodes below each node for which visit() returns true. No node below a
 * node comes before it, so a search skips all nodes that come after a match. visit() must not change the heap. */
void bf_heap_walk(const struct bf_heap *heap, bool (*visit)(void *context, struct bf_heap_node *node),
		  void *context);

#endif
