/* Transfers between pageable memory and the GPU, through chunks of host memory that both access. A chunk is
 * taken while a thread fills or empties it; its fence says when the GPU is done with it. */
#include <stdlib.h>

#include "soft/cuda/copy.h"
#include "soft/cuda/memory.h"

/* ---- chunks */

static CUresult staging_get(struct context *context, struct staging **staging)
{
	if (!context->staging)
		context->staging = calloc(1, sizeof(*context->staging));
	*staging = context->staging;
	return *staging ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult chunk_new(struct context *context, struct chunk **made)
{
	struct chunk *chunk = calloc(1, sizeof(*chunk));
	CUresult result;

	if (!chunk)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = memory_new_host(context, STAGE_BYTES, RANGE_HOST, 0, &chunk->range);
	if (result) {
		free(chunk);
		return result;
	}
	chunk->next = context->staging->chunks;
	context->staging->chunks = chunk;
	context->staging->chunk_count++;
	*made = chunk;
	return CUDA_SUCCESS;
}

/* Returns a free chunk, or NULL. Then `busy` is a chunk that is free once its fence is done, or NULL. */
static struct chunk *chunk_find(struct staging *staging, struct chunk **busy)
{
	*busy = NULL;
	for (struct chunk *chunk = staging->chunks; chunk; chunk = chunk->next) {
		if (chunk->is_taken)
			continue;
		if (fence_is_done(chunk->fence))
			return chunk;
		*busy = chunk;
	}
	return NULL;
}

/* Never waits for another thread: if all chunks are taken, it makes one more. */
static CUresult chunk_take(struct context *context, struct chunk **taken)
{
	struct staging *staging;
	struct chunk *busy;
	CUresult result = staging_get(context, &staging);

	while (!result) {
		*taken = chunk_find(staging, &busy);
		if (*taken)
			break;
		if (busy && staging->chunk_count >= STAGE_CHUNKS)
			result = fence_wait(busy->fence);
		else
			result = chunk_new(context, taken);
		if (!result && *taken)
			break;
	}
	if (!result)
		(*taken)->is_taken = true;
	return result;
}

static void chunk_give(struct chunk *chunk, struct fence fence)
{
	chunk->is_taken = false;
	chunk->fence = fence;
}

static CUresult side_channel(struct context *context, struct channel **channel)
{
	struct staging *staging;
	CUresult result = staging_get(context, &staging);

	if (!result && !staging->side)
		result = channel_take(context, NULL, &staging->side);
	*channel = result ? NULL : staging->side;
	return result;
}

void staging_free(struct context *context)
{
	struct staging *staging = context->staging;

	if (!staging)
		return;
	for (struct chunk *chunk = staging->chunks, *next; chunk; chunk = next) {
		next = chunk->next;
		memory_free_host(chunk->range);
		free(chunk);
	}
	if (staging->side)
		channel_give_back(staging->side);
	free(staging);
	context->staging = NULL;
}

/* ---- lines, packed at `at` */

static struct lines lines_from(const struct lines *lines, uint64_t at)
{
	struct lines half = *lines;

	half.src = at;
	half.src_pitch = lines->width;
	return half;
}

static struct lines lines_to(const struct lines *lines, uint64_t at)
{
	struct lines half = *lines;

	half.dst = at;
	half.dst_pitch = lines->width;
	return half;
}

static CUresult lines_submit(struct stream *stream, const struct lines *lines, struct fence *fence)
{
	CUresult result = stream_begin(stream, CHANNEL_COPY_WORDS, 0);

	if (result)
		return result;
	lines_put(stream->channel, lines);
	*fence = stream_end(stream);
	return CUDA_SUCCESS;
}

/* A few bytes are sent with the commands. */
static CUresult lines_in_inline(struct stream *stream, const struct lines *lines)
{
	uint32_t bytes = (uint32_t)(lines->width * lines->height);
	struct lines half;
	uint64_t address;
	void *at;
	CUresult result = stream_begin(stream, CHANNEL_COPY_WORDS, bytes);

	if (result)
		return result;
	at = channel_data(stream->channel, bytes, &address);
	half = lines_to(lines, (uintptr_t)at);
	lines_copy_here(&half);
	half = lines_from(lines, address);
	lines_put(stream->channel, &half);
	stream_end(stream);
	return CUDA_SUCCESS;
}

static CUresult lines_in(struct stream *stream, const struct lines *lines)
{
	struct fence fence = { 0 };
	struct chunk *chunk;
	struct lines half;
	CUresult result = chunk_take(stream->context, &chunk);

	if (result)
		return result;
	half = lines_to(lines, chunk->range->base);
	lines_copy_here(&half);
	half = lines_from(lines, chunk->range->base);
	result = lines_submit(stream, &half, &fence);
	chunk_give(chunk, fence);
	return result;
}

CUresult stage_in(struct stream *stream, const struct op_copy *copy)
{
	struct walk walk;
	struct lines lines;
	CUresult result = CUDA_SUCCESS;

	walk_start(&walk, copy, STAGE_BYTES);
	while (!result && walk_next(&walk, &lines))
		result = lines.width * lines.height <= STAGE_INLINE_BYTES ? lines_in_inline(stream, &lines)
									  : lines_in(stream, &lines);
	return result;
}

/* ---- out: the GPU fills one chunk while the CPU empties the previous one */

struct flight {
	struct chunk *chunk; /* NULL: no transfer */
	struct lines lines;
	struct fence fence;
};

static CUresult flight_start(struct stream *stream, const struct lines *lines, struct flight *flight)
{
	struct chunk *chunk;
	struct lines half;
	CUresult result = chunk_take(stream->context, &chunk);

	if (result)
		return result;
	*flight = (struct flight){ .chunk = chunk, .lines = *lines };
	half = lines_to(lines, chunk->range->base);
	result = lines_submit(stream, &half, &flight->fence);
	if (result) {
		chunk_give(chunk, (struct fence){ 0 });
		flight->chunk = NULL;
	}
	return result;
}

/* After an error the chunk stays taken: the GPU may still write to it, or it is gone with its context. */
static CUresult flight_land(struct flight *flight)
{
	struct lines half;
	CUresult result;

	if (!flight->chunk)
		return CUDA_SUCCESS;
	result = fence_wait(flight->fence);
	if (!result) {
		half = lines_from(&flight->lines, flight->chunk->range->base);
		lines_copy_here(&half);
		chunk_give(flight->chunk, (struct fence){ 0 });
	}
	flight->chunk = NULL;
	return result;
}

CUresult stage_out(struct stream *stream, const struct op_copy *copy)
{
	struct flight before = { 0 }, now = { 0 };
	struct context *context = stream->context;
	struct walk walk;
	struct lines lines;
	CUresult result = CUDA_SUCCESS, landed;

	walk_start(&walk, copy, STAGE_BYTES);
	while (!result && walk_next(&walk, &lines)) {
		result = flight_start(stream, &lines, &now);
		landed = flight_land(&before);
		if (!result)
			result = landed;
		before = now;
		now.chunk = NULL;
	}
	landed = flight_land(&before);
	if (!result)
		result = landed;
	if (!result) {
		context_print(context);
		memory_settle(context);
	}
	return result;
}

/* ---- independent of all streams */

static CUresult lines_beside(struct context *home, const struct lines *lines)
{
	struct channel *side;
	CUresult result;

	if (!home) {
		lines_copy_here(lines);
		return CUDA_SUCCESS;
	}
	result = side_channel(home, &side);
	if (!result)
		result = channel_begin(side, CHANNEL_COPY_WORDS, 0);
	if (result)
		return result;
	lines_put(side, lines);
	return fence_wait(channel_end(side));
}

static CUresult lines_through(struct context *context, const struct plan *plan, const struct lines *lines)
{
	struct chunk *chunk;
	struct lines half;
	CUresult result = chunk_take(context, &chunk);

	if (result)
		return result;
	half = lines_to(lines, chunk->range->base);
	result = lines_beside(plan->src_home, &half);
	half = lines_from(lines, chunk->range->base);
	if (!result)
		result = lines_beside(plan->dst_home, &half);
	if (!result)
		chunk_give(chunk, (struct fence){ 0 });
	return result;
}

CUresult copy_beside(struct context *context, const struct op_copy *copy)
{
	struct plan plan;
	struct walk walk;
	struct lines lines;
	CUresult result = copy_plan(context, copy, &plan);

	walk_start(&walk, copy, STAGE_BYTES);
	while (!result && walk_next(&walk, &lines)) {
		if (!plan.src_home && !plan.dst_home)
			lines_copy_here(&lines);
		else
			result = lines_through(context, &plan, &lines);
	}
	return result;
}
