/* Blocks and spans. The list of spans is searched from the start: a block has few. */
#include <stdlib.h>

#include "soft/cuda/heap.h"

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
	return (bytes + to - 1) / to * to;
}

/* A green context uses the address space of its parent. */
static bool is_seen_by(const struct gpu *gpu, const struct context *only, const struct context *context)
{
	if (context->parent)
		return false;
	return only ? only == context : gpu == context->gpu;
}

void gpu_unmap_all(struct gpu *gpu, struct context *only, uint32_t memory, uint64_t address)
{
	for (struct context *context = all_contexts; context; context = context->next)
		if (is_seen_by(gpu, only, context))
			port_unmap_gpu(gpu, context->space, memory, address);
}

CUresult gpu_map_all(struct gpu *gpu, struct context *only, uint32_t memory, uint64_t bytes, uint64_t address)
{
	CUresult result = CUDA_SUCCESS;

	for (struct context *context = all_contexts; context && !result; context = context->next)
		if (is_seen_by(gpu, only, context))
			result = port_map_gpu(gpu, context->space, memory, 0, bytes, address, true);
	if (result)
		gpu_unmap_all(gpu, only, memory, address);
	return result;
}

static void block_free(struct heap_block *block)
{
	struct heap *heap = block->heap;
	struct heap_block **at = &heap->blocks;

	while (*at && *at != block)
		at = &(*at)->next;
	if (*at) {
		*at = block->next;
		heap->reserved_bytes -= block->bytes;
	}
	if (block->base) {
		gpu_unmap_all(heap->gpu, heap->context, block->memory, block->base);
		address_release(block->base, block->bytes);
	}
	port_free(heap->gpu->device, block->memory);
	for (struct heap_span *span = block->spans, *next; span; span = next) {
		next = span->next;
		free(span);
	}
	free(block);
}

static CUresult block_new(struct heap *heap, uint64_t bytes, struct heap_block **made)
{
	struct heap_block *block = calloc(1, sizeof(*block));
	struct heap_span *span = calloc(1, sizeof(*span));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!block || !span)
		goto fail;
	*block = (struct heap_block){ .heap = heap, .bytes = bytes };
	result = port_memory(heap->gpu, bytes, true, &block->memory);
	if (result)
		goto fail;
	*span = (struct heap_span){ .block = block, .bytes = bytes };
	block->spans = span;
	result = address_reserve(bytes, HEAP_BLOCK_BYTES, &block->base);
	if (!result)
		result = gpu_map_all(heap->gpu, heap->context, block->memory, bytes, block->base);
	if (result) {
		block_free(block);
		return result;
	}
	block->next = heap->blocks;
	heap->blocks = block;
	heap->reserved_bytes += bytes;
	*made = block;
	return CUDA_SUCCESS;
fail:
	free(block);
	free(span);
	return result;
}

/* Merge adjacent free spans with a fence of the same channel, or with none. */
static void block_merge(struct heap_block *block)
{
	struct heap_span *span = block->spans;

	if (!span)
		return; /* cannot happen: a block has at least one span */
	for (; span; span = span->next)
		if (!span->is_used && span->fence.value && fence_is_done(span->fence))
			span->fence = (struct fence){ 0 };
	for (span = block->spans; span->next;) {
		struct heap_span *next = span->next;

		if (span->is_used || next->is_used || span->fence.channel != next->fence.channel) {
			span = next;
			continue;
		}
		if (next->fence.value > span->fence.value)
			span->fence = next->fence;
		span->bytes += next->bytes;
		span->next = next->next;
		free(next);
	}
}

static bool block_is_empty(const struct heap_block *block)
{
	for (const struct heap_span *span = block->spans; span; span = span->next)
		if (span->is_used || span->fence.value)
			return false;
	return true;
}

/* Best fit: the smallest span that is large enough. */
static struct heap_span *heap_find(struct heap *heap, uint64_t bytes, const struct channel *channel)
{
	struct heap_span *best = NULL;

	for (struct heap_block *block = heap->blocks; block; block = block->next) {
		if (block->is_whole)
			continue;
		block_merge(block);
		for (struct heap_span *span = block->spans; span; span = span->next)
			if (!span->is_used && span->bytes >= bytes && (!best || span->bytes < best->bytes) &&
			    (!span->fence.value || span->fence.channel == channel))
				best = span;
	}
	return best;
}

static CUresult span_use(struct heap_span *span, uint64_t bytes)
{
	if (span->bytes > bytes) {
		struct heap_span *rest = malloc(sizeof(*rest));

		if (!rest)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*rest = *span;
		rest->offset += bytes;
		rest->bytes -= bytes;
		span->next = rest;
		span->bytes = bytes;
	}
	span->is_used = true;
	span->fence = (struct fence){ 0 };
	span->block->heap->used_bytes += bytes;
	return CUDA_SUCCESS;
}

CUresult heap_take(struct heap *heap, uint64_t bytes, struct channel *channel, struct heap_span **span)
{
	struct heap_block *block;
	CUresult result = CUDA_SUCCESS;

	bytes = round_up(bytes, HEAP_ALIGN);
	*span = heap_find(heap, bytes, channel);
	if (!*span) {
		result = block_new(heap, round_up(bytes, HEAP_BLOCK_BYTES), &block);
		if (!result)
			*span = block->spans;
	}
	return result ? result : span_use(*span, bytes);
}

CUresult heap_take_whole(struct heap *heap, uint64_t bytes, struct heap_span **span)
{
	struct heap_block *block;
	CUresult result = block_new(heap, round_up(bytes, SOFT_VIDMEM_ROUND), &block);

	if (result)
		return result;
	block->is_whole = true;
	*span = block->spans;
	return span_use(*span, block->bytes);
}

void heap_give(struct heap_span *span, struct fence fence)
{
	struct heap_block *block = span->block;

	block->heap->used_bytes -= span->bytes;
	if (block->is_whole) {
		block_free(block);
		return;
	}
	span->is_used = false;
	span->fence = fence.value ? fence : (struct fence){ 0 };
	block_merge(block);
}

void heap_trim(struct heap *heap, uint64_t keep_bytes)
{
	for (struct heap_block *block = heap->blocks, *next; block; block = next) {
		next = block->next;
		if (heap->reserved_bytes <= keep_bytes)
			return;
		block_merge(block);
		if (block_is_empty(block))
			block_free(block);
	}
}

/* A wait releases the lock and the lists can change: start again after each. */
void heap_wait(struct heap *heap)
{
	for (;;) {
		struct fence fence = { 0 };

		for (struct heap_block *block = heap->blocks; block && !fence.value; block = block->next) {
			block_merge(block);
			for (struct heap_span *span = block->spans; span && !fence.value; span = span->next)
				if (!span->is_used)
					fence = span->fence;
		}
		if (!fence.value || fence_wait(fence))
			return;
	}
}

void heap_forget(struct heap *heap, struct context *context)
{
	for (struct heap_block *block = heap->blocks; block; block = block->next)
		for (struct heap_span *span = block->spans; span; span = span->next)
			if (span->fence.channel && span->fence.channel->context == context)
				span->fence = (struct fence){ 0 };
}

CUresult heap_attach(struct heap *heap, struct context *context)
{
	CUresult result = CUDA_SUCCESS;

	for (struct heap_block *block = heap->blocks; block && !result; block = block->next)
		result = port_map_gpu(heap->gpu, context->space, block->memory, 0, block->bytes, block->base,
				      true);
	return result;
}

void heap_clear(struct heap *heap)
{
	while (heap->blocks)
		block_free(heap->blocks);
	heap->used_bytes = 0;
}
