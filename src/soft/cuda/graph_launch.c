/* Launch execs. Steps are submitted in topological order, so that a submission waits only for earlier ones.
 * Lane 0 is the stream of the launch if its context is right; the others are internal streams. The stream
 * waits for all lanes at the end. */
#include <stdlib.h>

#include "soft/cuda/graph.h"
#include "soft/cuda/launch.h"

struct launch {
	struct exec *exec;
	struct stream *stream;
	struct stream **lanes;
	bool *has_begun;    /* of each lane: it has waited for `start` */
	struct fence start; /* the work of the stream before the launch */
};

static struct fence fence_of(const struct stream *stream)
{
	return (struct fence){ stream->channel, stream->channel->submitted };
}

/* All waits go into one submission. */
static CUresult wait_for(struct stream *stream, const struct fence *fences, uint32_t count)
{
	uint32_t left = 0;
	CUresult result;

	for (uint32_t i = 0; i < count; i++)
		left += fences[i].channel != stream->channel && !fence_is_done(fences[i]);
	if (!left)
		return CUDA_SUCCESS;
	result = stream_begin(stream, count * CHANNEL_WAIT_WORDS, 0);
	if (result)
		return result;
	for (uint32_t i = 0; i < count; i++)
		channel_wait_for(stream->channel, fences[i]);
	stream_end(stream);
	return CUDA_SUCCESS;
}

static struct context *lane_context(const struct launch *launch, uint32_t lane)
{
	const struct exec *exec = launch->exec;
	const struct plan_place *place = &exec->places[exec->order.lane_places[lane]];

	return place->context ? place->context : launch->stream->context;
}

static CUresult check_places(const struct exec *exec)
{
	for (uint32_t i = 0; i < exec->place_count; i++) {
		const struct plan_place *place = &exec->places[i];
		CUresult result;

		if (!place->context)
			continue;
		if (!context_has_id(place->context, place->context_id))
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		result = context_check(place->context);
		if (result)
			return result;
	}
	return CUDA_SUCCESS;
}

static CUresult take_lanes(struct launch *launch)
{
	struct order *order = &launch->exec->order;
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < order->lane_count && !result; i++) {
		struct context *context = lane_context(launch, i);

		if (!i && context == launch->stream->context)
			launch->lanes[0] = launch->stream;
		else
			result = lane_take(context, launch->exec, &launch->lanes[i]);
	}
	return result;
}

static void give_lanes_back(struct launch *launch)
{
	for (uint32_t i = 0; i < launch->exec->order.lane_count; i++)
		if (launch->lanes[i] && launch->lanes[i] != launch->stream)
			lane_give_back(launch->lanes[i]);
}

/* A launch runs after the previous launch of the same exec, in whatever stream. */
static CUresult launch_begin(struct launch *launch)
{
	struct fence last = exec_done(launch->exec);
	CUresult result = wait_for(launch->stream, &last, 1);

	if (!result)
		result = conditions_begin(launch->stream, launch->exec->graph);
	launch->start = stream_fence(launch->stream);
	return result;
}

static CUresult wait_for_steps(struct launch *launch, const struct order_step *step)
{
	struct exec *exec = launch->exec;
	struct stream *lane = launch->lanes[step->lane];
	CUresult result = CUDA_SUCCESS;

	if (!launch->has_begun[step->lane]) {
		launch->has_begun[step->lane] = true;
		result = wait_for(lane, &launch->start, 1);
	}
	for (uint32_t done = 0; done < step->wait_count && !result;) {
		struct fence fences[16] = { 0 };
		uint32_t count = 0;

		while (done < step->wait_count && count < 16)
			fences[count++] = exec->fences[exec->order.waits[step->first_wait + done++]];
		result = wait_for(lane, fences, count);
	}
	return result;
}

static CUresult launch_step(struct launch *launch, uint32_t index)
{
	struct exec *exec = launch->exec;
	const struct order_step *step = &exec->order.steps[index];
	struct stream *lane = launch->lanes[step->lane];
	const struct node *node = exec->nodes[index];
	CUresult result;

	if (step->is_empty)
		return CUDA_SUCCESS;
	result = wait_for_steps(launch, step);
	if (!result && !node->is_disabled)
		result = node->op.kind == OP_CONDITION ? condition_submit(lane, node)
						       : op_submit(lane, &node->op);
	exec->fences[index] = fence_of(lane);
	return result;
}

/* The stream waits for the ends of the other lanes that lane 0 has not waited for. After an error, it waits
 * for all. */
static CUresult launch_end(struct launch *launch, bool has_failed)
{
	struct order *order = &launch->exec->order;
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < order->lane_count; i++) {
		bool is_end = i == 0 || order->lane_ends[i] != ORDER_NONE;
		struct fence fence;

		if (!launch->lanes[i] || launch->lanes[i] == launch->stream || !(is_end || has_failed))
			continue;
		fence = fence_of(launch->lanes[i]);
		if (launch->has_begun[i] && !result)
			result = wait_for(launch->stream, &fence, 1);
	}
	return result;
}

/* With AUTO_FREE_ON_LAUNCH, memory left allocated by the previous launch is freed first. */
static CUresult check_memory(const struct exec *exec, struct stream *stream)
{
	bool is_freeing = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < exec->order.count && !result; i++) {
		const struct node *node = exec->nodes[i];

		if (!node || node->op.kind != OP_ALLOC || !graph_memory_is_live(node->op.alloc.address))
			continue;
		result = is_freeing ? op_submit_free(stream, &node->op.alloc) : CUDA_ERROR_INVALID_VALUE;
	}
	return result;
}

/* A cooperative grid must fit on the SMs of its stream, which are only known at launch. */
static CUresult check_cooperative(const struct launch *launch)
{
	const struct exec *exec = launch->exec;
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < exec->order.count && !result; i++) {
		const struct node *node = exec->nodes[i];
		struct op_kernel kernel;

		if (!node || node->op.kind != OP_KERNEL || !node->op.kernel.is_cooperative)
			continue;
		kernel = node->op.kernel;
		result = node_has_function(node)
				 ? launch_check(&kernel, launch->lanes[exec->order.steps[i].lane])
				 : CUDA_ERROR_INVALID_HANDLE;
	}
	return result;
}

static CUresult launch_steps(struct launch *launch)
{
	struct order *order = &launch->exec->order;
	CUresult result = take_lanes(launch), end;

	if (!result)
		result = check_cooperative(launch);
	if (!result)
		result = launch_begin(launch);
	for (uint32_t i = 0; i < order->count && !result; i++)
		result = launch_step(launch, order->sequence[i]);
	end = launch_end(launch, result != CUDA_SUCCESS);
	give_lanes_back(launch);
	return result ? result : end;
}

CUresult exec_launch(struct exec *exec, struct stream *stream)
{
	struct launch launch = { .exec = exec, .stream = stream };
	CUresult result = check_places(exec);

	if (!result && exec->is_launching)
		result = CUDA_ERROR_ILLEGAL_STATE;
	if (!result)
		result = check_memory(exec, stream);
	if (result)
		return result;
	launch.lanes = calloc(exec->order.lane_count, sizeof(struct stream *));
	launch.has_begun = calloc(exec->order.lane_count, sizeof(bool));
	if (launch.lanes && launch.has_begun) {
		exec->is_launching = true; /* the lock may be released while the ring is full */
		result = launch_steps(&launch);
		exec->is_launching = false;
		exec->done = fence_of(stream);
		exec->done_context = stream->context;
		exec->done_context_id = stream->context->id;
	} else {
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	free(launch.lanes);
	free(launch.has_begun);
	return result;
}

/* A child graph without an exec, launched in a stream. */
CUresult op_submit_graph(struct stream *stream, struct graph *graph)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS why;
	struct exec *exec;
	CUresult result = exec_new(graph, 0, &exec, &why);

	if (result)
		return result;
	result = exec_launch(exec, stream);
	exec_free(exec);
	return result;
}
