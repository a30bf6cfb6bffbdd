/* A form of a graph for a partition. Private to the module. */
#ifndef BELFRY_CORO_RETARGET_H
#define BELFRY_CORO_RETARGET_H

#include "coro/coro.h"

enum retarget { RETARGET_DONE, RETARGET_IMPOSSIBLE, RETARGET_NOT_NOW };
/* The graph with its kernels in a partition of the context, as an executable graph. It is not possible for some nodes, and not
 * while another thread waits for the context. The graph itself is not changed.
 * `exec`: the program's executable graph. */
enum retarget graph_retarget(CUgraph graph, CUgraphExec exec, const struct context *context, int at,
			     cuuint64_t flags, CUgraphExec *form);

#endif
