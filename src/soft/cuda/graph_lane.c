/* Lanes: internal streams, on which branches of graphs run concurrently with the stream of the launch. A
 * launch gets the lanes of the previous launch of the exec, or idle lanes: after an unfinished branch of
 * another graph, a branch could wait forever. */
#include <stdlib.h>

#include "soft/cuda/graph.h"

struct lane {
	struct stream *stream; /* owned by the context */
	struct context *context;
	uint64_t context_id;
	const struct exec *user; /* the last one; NULL: freed */
	bool is_taken;
	struct lane *next;
};
static struct lane *lanes;

static void drop_stale(void)
{
	for (struct lane **at = &lanes, *lane; (lane = *at);) {
		if (context_has_id(lane->context, lane->context_id)) {
			at = &lane->next;
		} else {
			*at = lane->next;
			free(lane);
		}
	}
}

static bool is_idle(const struct lane *lane)
{
	return fence_is_done((struct fence){ lane->stream->channel, lane->stream->channel->submitted });
}

static struct lane *find_free(const struct context *context, const struct exec *exec)
{
	struct lane *idle = NULL;

	for (struct lane *lane = lanes; lane; lane = lane->next) {
		if (lane->is_taken || lane->context != context)
			continue;
		if (lane->user == exec)
			return lane;
		if (!idle && is_idle(lane))
			idle = lane;
	}
	return idle;
}

static CUresult lane_new(struct context *context, struct lane **lane)
{
	struct lane *new = calloc(1, sizeof(*new));
	CUresult result;

	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = stream_new(context, CU_STREAM_NON_BLOCKING, 0, NULL, &new->stream);
	if (result) {
		free(new);
		return result;
	}
	new->context = context;
	new->context_id = context->id;
	new->next = lanes;
	lanes = new;
	*lane = new;
	return CUDA_SUCCESS;
}

CUresult lane_take(struct context *context, const struct exec *exec, struct stream **stream)
{
	CUresult result = CUDA_SUCCESS;
	struct lane *lane;

	drop_stale();
	lane = find_free(context, exec);
	if (!lane)
		result = lane_new(context, &lane);
	if (result)
		return result;
	lane->user = exec;
	lane->is_taken = true;
	*stream = lane->stream;
	return CUDA_SUCCESS;
}

void lane_give_back(const struct stream *stream)
{
	for (struct lane *lane = lanes; lane; lane = lane->next)
		if (lane->stream == stream)
			lane->is_taken = false;
}

void lane_forget(const struct exec *exec)
{
	for (struct lane *lane = lanes; lane; lane = lane->next)
		if (lane->user == exec)
			lane->user = NULL;
}
