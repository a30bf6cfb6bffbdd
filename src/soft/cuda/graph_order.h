/* graph_order: what runs after what, and what beside what. Pure: numbers in, numbers out. Steps are numbered from 0;
 * steps of one lane run one after the other. */
#ifndef BELFRY_SOFT_CUDA_GRAPH_ORDER_H
#define BELFRY_SOFT_CUDA_GRAPH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order_edge {
	uint32_t from, to;
};
struct order_step {
	uint32_t place; /* kind of lane that it needs: lanes of different places do not mix */
	bool is_empty;	/* nothing to do: only its edges matter */
	/* Results. */
	uint32_t lane;
	uint32_t first_wait, wait_count; /* order::waits: steps of other lanes to wait for */
};
struct order {
	uint32_t count;
	struct order_step *steps;
	uint32_t *sequence; /* a topological order */
	uint32_t *waits;
	uint32_t wait_count;
	uint32_t lane_count;
	uint32_t *lane_places; /* lane_count of them */
	uint32_t *lane_ends;   /* for which lane 0 has to wait when it is at its end; ORDER_NONE: nothing */
};
#define ORDER_NONE UINT32_MAX
/* 0, -EINVAL: the edges have a cycle, *bad is on or behind one; -ENOMEM. Steps and their place and is_empty are
 * filled in before. At most lanes_max lanes of each place; lane 0 is of place 0. */
int order_make(struct order *order, const struct order_edge *edges, uint32_t edge_count, uint32_t lanes_max,
	       uint32_t *bad);
void order_free(struct order *order);

#endif
