/* graph_order: the order and the concurrency of steps. Pure functions on numbers. Steps are numbered from 0;
 * the steps of a lane run one after the other. */
#ifndef BELFRY_SOFT_CUDA_GRAPH_ORDER_H
#define BELFRY_SOFT_CUDA_GRAPH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order_edge {
	uint32_t from, to;
};
struct order_step {
	uint32_t place; /* lanes of different places are distinct */
	bool is_empty;	/* no work, only edges */
	/* Results. */
	uint32_t lane;
	uint32_t first_wait, wait_count; /* in order::waits: steps of other lanes to wait for */
};
struct order {
	uint32_t count;
	struct order_step *steps;
	uint32_t *sequence; /* a topological order */
	uint32_t *waits;
	uint32_t wait_count;
	uint32_t lane_count;
	uint32_t *lane_places; /* lane_count of them */
	uint32_t *lane_ends;   /* the step that lane 0 waits for at its end; ORDER_NONE: none */
};
#define ORDER_NONE UINT32_MAX
/* Returns 0; -EINVAL if the edges have a cycle, and *bad is on or after one; -ENOMEM. The caller has set
 * place and is_empty of all steps. Each place has at most lanes_max lanes; lane 0 is in place 0. */
int order_make(struct order *order, const struct order_edge *edges, uint32_t edge_count, uint32_t lanes_max,
	       uint32_t *bad);
void order_free(struct order *order);

#endif
