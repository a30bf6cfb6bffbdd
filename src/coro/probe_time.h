/* The time of submission of launches, for probes that read submitted_ns. The weaver adds a timed form to a kernel, with one more
 * parameter (weave_kernel::timed). A launch of the kernel by the program becomes a launch of its timed form here, with the time
 * as the parameter: it needs no operation on the GPU, and is exact whatever stream the launch is on. In an executable graph the
 * parameter is the address of a time, which is written by an operation of the stream before each launch of the graph.
 *
 * The program never gets the handle of a timed form. Launches in other ways have no time: those by graphs inside of graphs, by
 * kernels, and by handles that were not asked for by name. */
#ifndef BELFRY_CORO_PROBE_TIME_H
#define BELFRY_CORO_PROBE_TIME_H

#include <stdatomic.h>
#include <stdbool.h>

#include "coro/probe.h"

enum { TIMED_PARAMETERS_MOST = 129 };

/* Whether a kernel with a timed form was loaded. Without one, this load is the only cost of a launch. */
extern _Atomic bool times_some;
static inline bool times_are_there(void)
{
	return atomic_load_explicit(&times_some, memory_order_relaxed);
}

/* A launch, as the driver is to see it. The program's own values at first. */
struct timed_launch {
	CUfunction function;
	void **parameters, **extra;
	/* Behind them. */
	uint64_t time_ns;
	void *list[TIMED_PARAMETERS_MOST];
	void *buffer; /* freed by times_after() */
	size_t buffer_bytes;
	void *buffer_extra[5];
};
/* Before a launch on the driver's stream. A launch that is captured stays as it is. */
void times_before(struct timed_launch *launch, CUstream stream);
void times_after(struct timed_launch *launch);

/* Whether a function or kernel of the program has a timed form. */
bool times_has_form(void *handle);
/* A module or a library was loaded with these kernels. */
void times_loaded(void *owner, bool is_library, const struct weave_result *woven);

/* ---- probe_graph.c: graphs */
/* The address of the time of an executable graph; 0: it has none. */
CUdeviceptr times_of_graph(CUgraphExec exec);
/* The executable graph was made from the graph, or updated with it: its kernels get their timed forms. */
void times_graph_made(CUgraphExec exec, CUgraph graph);
void times_graph_destroyed(CUgraphExec exec);
/* The same for the kernels of a graph from which another form of the executable graph is made. */
void times_graph_copied(CUgraphExec exec, CUgraph copy);
/* Before a launch of the executable graph, or of a form of it, on the driver's stream. */
void times_graph_launch(CUgraphExec exec, CUstream stream);
/* Parameters for a node of the executable graph: those of the timed form if there is one. */
void times_graph_node(CUgraphExec exec, CUDA_KERNEL_NODE_PARAMS *params, struct timed_launch *launch);

/* ---- probe_clock.c: the clocks */
uint64_t times_now(void); /* on the clock of %globaltimer; 0: not known */
/* Compares the clock of the host with %globaltimer, in the current context. `at`: 8 bytes of device memory. */
void times_compare(CUdeviceptr at, CUstream stream);
/* Device memory for times of graphs; the first one is used. */
void times_use(CUdeviceptr at);
/* Whether the clocks should be compared again: some time has passed since, and launches have used it. */
bool times_are_old(void);

#endif
