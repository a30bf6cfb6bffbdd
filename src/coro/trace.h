/* trace: the library's part of belfry verify. It writes what trace_format.h describes, and changes nothing that the program
 * computes. Only with BELFRY_TRACE; hooks are called by the generated functions (tools/coro-table.py) and by launch.c, graph.c
 * and context.c. Not seen are: managed memory, mapped host memory, launches by the device, and by functions of the driver's first
 * version (cuLaunchGrid); in graphs the bodies of conditional nodes, and changes of a child graph after it was instantiated. */
#ifndef BELFRY_CORO_TRACE_H
#define BELFRY_CORO_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "coro/coro.h"

/* ---- trace.c */
extern bool trace_is_on; /* decided when the library is loaded; not in a child that cannot use CUDA */

/* Where a call went. */
struct trace_place {
	CUstream stream, placed; /* what the program named, and what was used instead */
	bool is_own_default;	 /* NULL is the thread's own default stream */
};
bool trace_is_captured(const struct trace_place *place);

/* An event, numbered in the order of the calls. */
struct trace_event {
	uint64_t number, stream;
	int thread;
};
struct trace_event trace_event(const struct trace_place *place);
/* Writes a line, which the format ends with a newline. */
void trace_write(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Lines that will be written later. The process waits for them when it exits. */
void trace_begin_later(void);
void trace_end_later(void);

/* ---- trace_memory.c: what an address is, whichever run it is of */
uint64_t trace_normalise(uint64_t word);
bool trace_is_host(CUdeviceptr address);
bool trace_is_pinned(const void *address); /* memory of the host */

/* ---- trace_launch.c */
struct trace_launch {
	CUfunction function; /* which may be a kernel of a library */
	CUkernel kernel;     /* NULL: see function */
	unsigned grid[3], block[3], shared_bytes;
	bool is_cooperative;
	unsigned attribute_count;
	const CUlaunchAttribute *attributes;
	void **parameters, **extra;
};
/* What a trace says of a launch. */
struct trace_shape {
	unsigned name, grid[3], block[3], shared_bytes;
	uint64_t attributes, parameters;
	bool has_parameters;
};
struct trace_shape trace_shape(const struct trace_launch *launch);
/* GRID to PARAMETERS of trace_format.h. Returns `text`. */
enum { TRACE_SHAPE_TEXT = 128 };
const char *trace_shape_text(const struct trace_shape *shape, char text[TRACE_SHAPE_TEXT]);
/* A context was destroyed, with its functions. */
void trace_functions_forget(void);
void trace_launched(const struct trace_launch *launch, struct trace_place place);

/* ---- trace_copy.c: copies to the host */
struct trace_region {
	const unsigned char *to;
	size_t width, height, depth, pitch, slice; /* bytes; height in rows */
};
/* The region that a copy fills in memory of the host; false: it fills none. */
bool trace_region_of(const CUDA_MEMCPY3D *copy, struct trace_region *region);
/* The copies were placed on the stream: the trace gets their content when they are done. */
void trace_copied(const struct trace_region *regions, size_t count, struct trace_place place, bool is_done);

/* ---- trace_graph.c: executable graphs */
void trace_graph_made(CUgraphExec exec, CUgraph graph);
void trace_graph_destroyed(CUgraphExec exec);
void trace_graph_launched(CUgraphExec exec, struct trace_place place);
void trace_graph_kernel_set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params);
void trace_graph_kernel_set_v1(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params);
void trace_graph_copy_set(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy);
void trace_graph_node_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params);
void trace_graph_node_enabled(CUgraphExec exec, CUgraphNode node, bool is_enabled);

/* ---- trace_buffer.c: global variables that BELFRY_TRACE_BUFFERS names, separated by commas */
void trace_module_leaving(CUmodule module); /* before it is unloaded */
void trace_library_leaving(CUlibrary library);
/* Before a primary context may be destroyed, and after that. */
CUcontext trace_primary_leaving(CUdevice device);
void trace_primary_left(CUdevice device, CUcontext context);

/* ---- control.c: errors that belfry verify must find, made on purpose (BELFRY_VERIFY_CONTROL) */
bool control_splits(unsigned grid_x);

#endif
