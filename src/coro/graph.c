/* Executable graphs. The nodes of a graph keep the context that they were made in, so a graph has one executable form for
 * each partition, made when it is first launched there. The program's own form runs on all SMs; it is used where another one
 * cannot be made. */
#include <stdlib.h>

#include "coro/coro.h"
#include "coro/probe_time.h"
#include "coro/retarget.h"
#include "coro/trace.h"

enum { BUCKETS = 256 };

struct exec {
	LIST_ENTRY(exec) next;
	CUgraphExec handle;
	struct context *context;
	CUgraph source; /* a copy of the graph, as it was instantiated or updated last; NULL: it only runs on all SMs */
	cuuint64_t flags;
	CUgraphExec forms[PARTITIONS_MOST];
	bool has_failed[PARTITIONS_MOST]; /* the form cannot be made */
	bool is_fixed;			  /* nodes were changed in a way that the copy does not have */
	/* Launches of an executable graph run one after the other, on whatever streams they are. */
	CUevent last;	/* behind the last launch */
	bool is_spread; /* it was launched in another form: the driver does not know the order */
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, exec) buckets[BUCKETS];
} execs = { .lock = PTHREAD_MUTEX_INITIALIZER };

static size_t bucket_of(CUgraphExec handle)
{
	return ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 56;
}

static struct exec *find(CUgraphExec handle)
{
	struct exec *exec;

	LIST_FOREACH(exec, &execs.buckets[bucket_of(handle)], next)
		if (exec->handle == handle)
			break;
	return exec;
}

/* The driver lets a form that is running end first. */
static void drop_forms(struct exec *exec)
{
	for (size_t i = 0; i < PARTITIONS_MOST; i++) {
		if (exec->forms[i])
			real.cuGraphExecDestroy(exec->forms[i]);
		exec->forms[i] = NULL;
		exec->has_failed[i] = false;
	}
}

static void drop_source(struct exec *exec)
{
	drop_forms(exec);
	if (exec->source)
		real.cuGraphDestroy(exec->source);
	exec->source = NULL;
}

/* A form of a graph that the device launches is not known to the device. */
static void copy_source(struct exec *exec, CUgraph graph)
{
	drop_source(exec);
	if (exec->is_fixed || (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) ||
	    real.cuGraphClone(&exec->source, graph))
		exec->source = NULL;
}

static void add(CUgraphExec handle, CUgraph graph, cuuint64_t flags)
{
	struct context *context = lease_is_there() ? context_current() : NULL;
	struct exec *exec = context ? calloc(1, sizeof(*exec)) : NULL;

	trace_graph_made(handle, graph);
	times_graph_made(handle, graph);
	if (!exec)
		return;
	exec->handle = handle;
	exec->context = context;
	exec->flags = flags;
	pthread_mutex_lock(&execs.lock);
	copy_source(exec, graph);
	LIST_INSERT_HEAD(&execs.buckets[bucket_of(handle)], exec, next);
	pthread_mutex_unlock(&execs.lock);
}

static void exec_free(struct exec *exec)
{
	drop_source(exec);
	if (exec->last)
		real.cuEventDestroy_v2(exec->last);
	free(exec);
}

static void forget(CUgraphExec handle)
{
	struct exec *exec;

	trace_graph_destroyed(handle);
	times_graph_destroyed(handle);
	if (!lease_is_there())
		return;
	pthread_mutex_lock(&execs.lock);
	exec = find(handle);
	if (exec)
		LIST_REMOVE(exec, next);
	pthread_mutex_unlock(&execs.lock);
	if (exec)
		exec_free(exec);
}

void graphs_forget_context(struct context *context)
{
	struct exec *exec, *next;

	pthread_mutex_lock(&execs.lock);
	for (size_t i = 0; i < BUCKETS; i++)
		LIST_FOREACH_SAFE(exec, &execs.buckets[i], next, next)
			if (exec->context == context) {
				LIST_REMOVE(exec, next);
				exec_free(exec);
			}
	pthread_mutex_unlock(&execs.lock);
}

/* The form for a partition; NULL: there is none, or it cannot be made now. */
static CUgraphExec form_at(struct exec *exec, int at)
{
	enum retarget made;

	if (!exec->forms[at] && !exec->has_failed[at] && exec->source) {
		made = graph_retarget(exec->source, exec->handle, exec->context, at, exec->flags,
				      &exec->forms[at]);
		exec->has_failed[at] = made == RETARGET_IMPOSSIBLE;
	}
	return exec->forms[at];
}

/* The launch before may have been on any stream. */
static void order_launch(struct exec *exec, const struct taken *taken)
{
	exec->is_spread |= taken->at >= 0;
	if (exec->is_spread && exec->last)
		real.cuStreamWaitEvent(taken->stream, exec->last, 0);
}

static CUgraphExec form_for(CUgraphExec handle, struct taken *taken)
{
	CUgraphExec form = handle;
	struct exec *exec;

	pthread_mutex_lock(&execs.lock);
	exec = find(handle);
	if (taken->at >= 0)
		form = exec && exec->context == taken->vstream->context ? form_at(exec, taken->at) : NULL;
	if (!form) {
		form = handle;
		stream_fall_back(taken);
	}
	if (exec)
		order_launch(exec, taken);
	pthread_mutex_unlock(&execs.lock);
	return form;
}

static void note_launch(CUgraphExec handle, const struct taken *taken)
{
	struct exec *exec;

	pthread_mutex_lock(&execs.lock);
	exec = find(handle);
	if (exec && !exec->last && real.cuEventCreate(&exec->last, CU_EVENT_DISABLE_TIMING))
		exec->last = NULL;
	if (exec && exec->last)
		real.cuEventRecord(exec->last, taken->stream);
	pthread_mutex_unlock(&execs.lock);
}

static CUresult launch_form(CUgraphExec exec, struct taken *taken)
{
	struct inside inside = go_inside(taken->vstream->context);
	CUgraphExec form = form_for(exec, taken);

	come_out(&inside);
	times_graph_launch(exec, taken->stream);
	return real.cuGraphLaunch(form, taken->stream);
}

/* A node that is a cooperative launch may need all SMs, as a launch of its own may. */
static CUresult launch(CUgraphExec exec, struct taken *taken)
{
	CUresult result = launch_form(exec, taken);
	struct inside inside;

	if (launch_does_not_fit(taken, result)) {
		stream_fall_back(taken);
		result = launch_form(exec, taken);
	}
	if (!result) {
		inside = go_inside(taken->vstream->context);
		note_launch(exec, taken);
		come_out(&inside);
	}
	return result;
}

static CUresult launch_plain(CUgraphExec exec, const struct taken *taken)
{
	times_graph_launch(exec, stream_handle(taken->stream));
	return real.cuGraphLaunch(exec, taken->stream);
}

/* An executable graph is used by one thread at a time: the driver's functions are not safe otherwise. */
EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	bool is_own = default_is_per_thread;
	struct taken taken = stream_take(stream, false, TAKE_PLACE);
	CUresult result = taken.vstream && !taken.is_captured ? launch(exec, &taken)
							      : launch_plain(exec, &taken);

	if (!result)
		trace_graph_launched(exec, (struct trace_place){ stream, taken.stream, is_own });
	stream_leave(&taken);
	return result;
}

/* The form for all SMs is uploaded. The others are when they are made. */
EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	struct taken taken = stream_take(stream, false, TAKE_BASE);
	CUresult result = real.cuGraphUpload(exec, taken.stream);

	stream_leave(&taken);
	return result;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	CUresult result = real.cuGraphInstantiateWithFlags(exec, graph, flags);

	if (!result)
		add(*exec, graph, flags);
	return result;
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
					     CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	bool is_upload = params && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
	bool is_own = default_is_per_thread;
	struct taken taken = { 0 };
	CUresult result;

	if (is_upload)
		taken = stream_take(params->hUploadStream, false, TAKE_BASE);
	result = is_own ? real.cuGraphInstantiateWithParams_ptsz(exec, graph, params)
			: real.cuGraphInstantiateWithParams(exec, graph, params);
	stream_leave(&taken);
	if (!result && params)
		add(*exec, graph, params->flags);
	return result;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
				   size_t size)
{
	CUresult result = real.cuGraphInstantiate(exec, graph, node, log, size);

	if (!result)
		add(*exec, graph, 0);
	return result;
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
				      size_t size)
{
	CUresult result = real.cuGraphInstantiate_v2(exec, graph, node, log, size);

	if (!result)
		add(*exec, graph, 0);
	return result;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	forget(exec);
	return real.cuGraphExecDestroy(exec);
}

static void replace_source(CUgraphExec handle, CUgraph graph)
{
	struct exec *exec;

	trace_graph_made(handle, graph);
	times_graph_made(handle, graph);
	if (!lease_is_there())
		return;
	pthread_mutex_lock(&execs.lock);
	exec = find(handle);
	if (exec)
		copy_source(exec, graph);
	pthread_mutex_unlock(&execs.lock);
}

EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	CUresult result = real.cuGraphExecUpdate_v2(exec, graph, info);

	if (!result)
		replace_source(exec, graph);
	return result;
}

EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node,
				  CUgraphExecUpdateResult *info)
{
	CUresult result = real.cuGraphExecUpdate(exec, graph, node, info);

	if (!result)
		replace_source(exec, graph);
	return result;
}

/* The program has changed a node of its form: the copy is changed in the same way, and the other forms are made anew. */
struct update {
	struct exec *exec; /* NULL: the graph has no copy */
	CUgraphNode node;  /* in the copy */
};

static struct update begin_update(CUgraphExec handle, CUgraphNode node)
{
	struct update update = { 0 };

	if (!lease_is_there())
		return update;
	pthread_mutex_lock(&execs.lock);
	update.exec = find(handle);
	if (update.exec && update.exec->source &&
	    !real.cuGraphNodeFindInClone(&update.node, node, update.exec->source))
		return update;
	if (update.exec)
		drop_source(update.exec);
	pthread_mutex_unlock(&execs.lock);
	update.exec = NULL;
	return update;
}

static void end_update(struct update *update, CUresult result)
{
	if (result)
		drop_source(update->exec);
	else
		drop_forms(update->exec);
	pthread_mutex_unlock(&execs.lock);
}

static CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUDA_KERNEL_NODE_PARAMS timed;
	struct timed_launch launch;
	CUresult result;

	if (!params || !times_are_there())
		return real.cuGraphExecKernelNodeSetParams_v2(exec, node, params);
	timed = *params;
	times_graph_node(exec, &timed, &launch);
	result = real.cuGraphExecKernelNodeSetParams_v2(exec, node, &timed);
	times_after(&launch);
	return result;
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
						  const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUresult result = set_kernel(exec, node, params);
	struct update update = { 0 };

	if (!result && (update = begin_update(exec, node)).exec)
		end_update(&update, real.cuGraphKernelNodeSetParams_v2(update.node, params));
	if (!result)
		trace_graph_kernel_set(exec, node, params);
	return result;
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
					       const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUresult result = real.cuGraphExecKernelNodeSetParams(exec, node, params);
	struct update update = { 0 };

	if (!result && (update = begin_update(exec, node)).exec)
		end_update(&update, real.cuGraphKernelNodeSetParams(update.node, params));
	if (!result)
		trace_graph_kernel_set_v1(exec, node, params);
	return result;
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
					       const CUDA_MEMCPY3D *params, CUcontext context)
{
	CUresult result = real.cuGraphExecMemcpyNodeSetParams(exec, node, params, context);
	struct update update = { 0 };

	if (!result && (update = begin_update(exec, node)).exec)
		end_update(&update, real.cuGraphMemcpyNodeSetParams(update.node, params));
	if (!result)
		trace_graph_copy_set(exec, node, params);
	return result;
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
					       const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
	CUresult result = real.cuGraphExecMemsetNodeSetParams(exec, node, params, context);
	struct update update = { 0 };

	if (!result && (update = begin_update(exec, node)).exec)
		end_update(&update, real.cuGraphMemsetNodeSetParams(update.node, params));
	return result;
}

EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
					     const CUDA_HOST_NODE_PARAMS *params)
{
	CUresult result = real.cuGraphExecHostNodeSetParams(exec, node, params);
	struct update update = { 0 };

	if (!result && (update = begin_update(exec, node)).exec)
		end_update(&update, real.cuGraphHostNodeSetParams(update.node, params));
	return result;
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	CUresult result = real.cuGraphExecNodeSetParams(exec, node, params);
	struct update update = { 0 };

	if (!result && (update = begin_update(exec, node)).exec)
		end_update(&update, real.cuGraphNodeSetParams(update.node, params));
	if (!result)
		trace_graph_node_set(exec, node, params);
	return result;
}

/* Updates that a graph itself has no function for, and rare ones: the graph runs on all SMs from then on. An update of the
 * whole graph does not undo all of them: a node that was disabled stays so. */
static CUresult fixed(CUgraphExec handle, CUresult result)
{
	struct exec *exec;

	if (result || !lease_is_there())
		return result;
	pthread_mutex_lock(&execs.lock);
	exec = find(handle);
	if (exec) {
		exec->is_fixed = true;
		drop_source(exec);
	}
	pthread_mutex_unlock(&execs.lock);
	return result;
}

EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph graph)
{
	return fixed(exec, real.cuGraphExecChildGraphNodeSetParams(exec, node, graph));
}

EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int is_enabled)
{
	CUresult result = real.cuGraphNodeSetEnabled(exec, node, is_enabled);

	if (!result)
		trace_graph_node_enabled(exec, node, is_enabled);
	return fixed(exec, result);
}

EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	return fixed(exec, real.cuGraphExecEventRecordNodeSetEvent(exec, node, event));
}

EXPORT CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	return fixed(exec, real.cuGraphExecEventWaitNodeSetEvent(exec, node, event));
}

EXPORT CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
						   const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	return fixed(exec, real.cuGraphExecBatchMemOpNodeSetParams(exec, node, params));
}

EXPORT CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
	return fixed(exec, real.cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, node, params));
}

EXPORT CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec exec, CUgraphNode node,
							       const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
	return fixed(exec, real.cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, node, params));
}
