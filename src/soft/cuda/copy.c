/* Copies and fills by the GPU, and the choice between GPU and CPU. */
#include <stdlib.h>

#include "soft/cuda/copy.h"
#include "soft/cuda/memory.h"

enum { LAUNCH_BYTES_MAX = 1 << 30, LAUNCHES_MAX = 64 /* in one submission */ };

/* ---- locations */

/* The number of bytes from the first to the last; 0 if the shape is invalid. */
static uint64_t extent(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t slice)
{
	uint64_t lines, planes, bytes;

	if (__builtin_mul_overflow(height - 1, pitch, &lines) ||
	    __builtin_mul_overflow(depth - 1, slice, &planes) ||
	    __builtin_add_overflow(lines, planes, &bytes) || __builtin_add_overflow(bytes, width, &bytes))
		return 0;
	return bytes >> SOFT_ADDRESS_BITS ? 0 : bytes;
}

/* Adjacent allocations can be used as one: cuMemMap is made for that. */
static bool is_covered(uint64_t address, uint64_t bytes, const struct range *range)
{
	const struct range first = *range;

	while (range && range->kind == first.kind && range->gpu == first.gpu &&
	       range->context == first.context) {
		if (bytes <= range->base + range->bytes - address)
			return true;
		bytes -= range->base + range->bytes - address;
		address = range->base + range->bytes;
		range = range_find(address);
	}
	return false;
}

static struct context *home_of(const struct range *range, struct context *asking)
{
	struct context *context = all_contexts;

	if (range->context)
		return range->context;
	if (range->gpu == asking->gpu)
		return context_home(asking);
	while (context && (context->gpu != range->gpu || context->parent || context->error))
		context = context->next;
	return context;
}

/* `home` stays NULL for memory that the CPU can access. */
static CUresult place_of(struct context *context, uint64_t address, uint64_t bytes, enum place *place,
			 struct context **home)
{
	const struct range *range = range_find(address);
	bool is_whole = range && is_covered(address, bytes, range);

	if (!address || !bytes || address + bytes > 1ull << SOFT_ADDRESS_BITS)
		return CUDA_ERROR_INVALID_VALUE;
	if (!range || !range_is_device(range)) {
		*place = is_whole ? PLACE_SEEN : PLACE_PAGEABLE;
		return CUDA_SUCCESS;
	}
	if (!is_whole || range->kind == RANGE_RESERVED ||
	    (range->flags == MEMORY_MAPPED && !vmm_access(range)))
		return CUDA_ERROR_INVALID_VALUE;
	*home = home_of(range, context);
	*place = *home == context_home(context) ? PLACE_SEEN : PLACE_FOREIGN;
	return *home ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_plan(struct context *context, const struct op_copy *copy, struct plan *plan)
{
	uint64_t src_bytes = extent(copy->width, copy->height, copy->depth, copy->src_pitch, copy->src_slice);
	uint64_t dst_bytes = extent(copy->width, copy->height, copy->depth, copy->dst_pitch, copy->dst_slice);
	CUresult result;

	*plan = (struct plan){ 0 };
	result = place_of(context, copy->src, src_bytes, &plan->src, &plan->src_home);
	if (!result)
		result = place_of(context, copy->dst, dst_bytes, &plan->dst, &plan->dst_home);
	plan->has_host_end = !plan->src_home || !plan->dst_home;
	return result;
}

/* ---- copies */

static void put_address(struct channel *channel, uint64_t address)
{
	channel_put(channel, (uint32_t)(address >> 32));
	channel_put(channel, (uint32_t)address);
}

void lines_put(struct channel *channel, const struct lines *lines)
{
	/* An INC command writes consecutive methods, from IN_UPPER to LINE_COUNT. */
	channel_put(channel, SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_IN_UPPER, 8));
	put_address(channel, lines->src);
	put_address(channel, lines->dst);
	channel_put(channel, (uint32_t)lines->src_pitch);
	channel_put(channel, (uint32_t)lines->dst_pitch);
	channel_put(channel, (uint32_t)lines->width);
	channel_put(channel, (uint32_t)lines->height);
	channel_method(channel, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LAUNCH,
		       SOFT_COPY_TRANSFER | SOFT_COPY_SRC_PITCH | SOFT_COPY_DST_PITCH |
			       (lines->height > 1 ? SOFT_COPY_MULTI_LINE : 0));
}

static CUresult copy_submit_gpu(struct stream *stream, const struct op_copy *copy)
{
	struct walk walk;
	struct lines lines;
	bool has_more;
	CUresult result;

	walk_start(&walk, copy, LAUNCH_BYTES_MAX);
	has_more = walk_next(&walk, &lines);
	while (has_more) {
		uint32_t room = walk.z == walk.copy.depth ? 1 : LAUNCHES_MAX;

		result = stream_begin(stream, room * CHANNEL_COPY_WORDS, 0);
		if (result)
			return result;
		for (; has_more && room; room--) {
			lines_put(stream->channel, &lines);
			has_more = walk_next(&walk, &lines);
		}
		stream_end(stream);
	}
	return CUDA_SUCCESS;
}

struct copy_job {
	struct context *context;
	uint64_t context_id;
	struct op_copy copy;
};

/* An error is set in the context, or the context is gone: it is not reported here. */
static void copy_job_run(void *argument)
{
	struct copy_job *job = argument;

	api_lock();
	if (context_has_id(job->context, job->context_id))
		copy_beside(job->context, &job->copy);
	api_unlock();
	free(job);
}

/* A copy that the stream's channel cannot do is done by the CPU, in stream order. */
static CUresult copy_submit_cpu(struct stream *stream, const struct op_copy *copy)
{
	struct context *context = context_home(stream->context);
	struct copy_job *job = malloc(sizeof(*job));
	CUresult result;

	if (!job)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*job = (struct copy_job){ context, context->id, *copy };
	result = stream_host(stream, copy_job_run, job);
	if (result)
		free(job);
	return result;
}

static bool copy_is_empty(const struct op_copy *copy)
{
	return !copy->width || !copy->height || !copy->depth;
}

CUresult op_submit_copy(struct stream *stream, const struct op_copy *copy)
{
	struct plan plan;
	CUresult result;

	if (copy_is_empty(copy))
		return CUDA_SUCCESS;
	result = copy_plan(stream->context, copy, &plan);
	if (result)
		return result;
	if (plan.src == PLACE_SEEN && plan.dst == PLACE_SEEN)
		return copy_submit_gpu(stream, copy);
	return copy_submit_cpu(stream, copy);
}

static CUresult copy_run_here(struct stream *stream, const struct op_copy *copy)
{
	struct walk walk;
	struct lines lines;
	CUresult result = stream_synchronize(stream);

	if (result)
		return result;
	walk_start(&walk, copy, LAUNCH_BYTES_MAX);
	while (walk_next(&walk, &lines))
		lines_copy_here(&lines);
	return CUDA_SUCCESS;
}

/* As in the real library, the program can reuse pageable memory when the call returns. */
CUresult copy_run(struct stream *stream, const struct op_copy *copy, bool is_sync)
{
	struct plan plan;
	CUresult result;

	if (copy_is_empty(copy))
		return CUDA_SUCCESS;
	if (stream->capture) {
		const struct op op = { .kind = OP_COPY, .copy = *copy };

		return stream_do(stream, &op);
	}
	result = capture_forbids_implicit(stream);
	if (!result)
		result = copy_plan(stream->context, copy, &plan);
	if (result)
		return result;
	if (plan.src == PLACE_FOREIGN || plan.dst == PLACE_FOREIGN)
		result = copy_submit_cpu(stream, copy);
	else if (plan.src == PLACE_SEEN && plan.dst == PLACE_SEEN)
		result = copy_submit_gpu(stream, copy);
	else if (plan.dst == PLACE_SEEN)
		result = stage_in(stream, copy);
	else if (plan.src == PLACE_SEEN)
		return stage_out(stream, copy);
	else
		return copy_run_here(stream, copy);
	return !result && is_sync && plan.has_host_end ? stream_synchronize(stream) : result;
}

/* ---- fills */

/* Use the widest element with the same bytes: the GPU writes element by element. */
static struct op_fill fill_widen(struct op_fill fill)
{
	if (fill.element_bytes < 4)
		fill.value &= (1u << 8 * fill.element_bytes) - 1;
	while (fill.element_bytes < 4) {
		const uint64_t twice = 2ull * fill.element_bytes;

		if (fill.width & 1 || fill.dst % twice || (fill.height > 1 && fill.pitch % twice))
			break;
		fill.value |= fill.value << 8 * fill.element_bytes;
		fill.element_bytes *= 2;
		fill.width /= 2;
	}
	return fill;
}

static void fill_put(struct channel *channel, const struct op_fill *fill, uint64_t dst, uint64_t width,
		     uint64_t height)
{
	const uint32_t const_a = 4, no_write = 6;

	channel_put(channel, SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_REMAP_CONST_A, 3));
	channel_put(channel, fill->value);
	channel_put(channel, 0);
	channel_put(channel, const_a | no_write << 4 | no_write << 8 | no_write << 12 |
				     (fill->element_bytes - 1) << 16);
	channel_put(channel, SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_OUT_UPPER, 2));
	put_address(channel, dst);
	channel_put(channel, SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_PITCH_OUT, 3));
	channel_put(channel, (uint32_t)fill->pitch);
	channel_put(channel, (uint32_t)width);
	channel_put(channel, (uint32_t)height);
	channel_method(channel, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LAUNCH,
		       SOFT_COPY_TRANSFER | SOFT_COPY_SRC_PITCH | SOFT_COPY_DST_PITCH | SOFT_COPY_REMAP |
			       (height > 1 ? SOFT_COPY_MULTI_LINE : 0));
}

/* A fill is split like a copy without a source. */
static CUresult fill_submit(struct stream *stream, const struct op_fill *fill)
{
	const struct op_copy shape = { .dst = fill->dst,
				       .dst_pitch = fill->pitch,
				       .src_pitch = fill->pitch,
				       .width = fill->width * fill->element_bytes,
				       .height = fill->height,
				       .depth = 1 };
	struct walk walk;
	struct lines lines;
	CUresult result = CUDA_SUCCESS;

	walk_start(&walk, &shape, LAUNCH_BYTES_MAX);
	while (!result && walk_next(&walk, &lines)) {
		result = stream_begin(stream, CHANNEL_COPY_WORDS, 0);
		if (result)
			return result;
		fill_put(stream->channel, fill, lines.dst, lines.width / fill->element_bytes, lines.height);
		stream_end(stream);
	}
	return result;
}

CUresult op_submit_fill(struct stream *stream, const struct op_fill *fill)
{
	struct context *home = NULL;
	struct op_fill wide;
	enum place place;
	CUresult result;

	if (!fill->width || !fill->height)
		return CUDA_SUCCESS;
	if (fill->width >> SOFT_ADDRESS_BITS)
		return CUDA_ERROR_INVALID_VALUE;
	result = place_of(stream->context, fill->dst,
			  extent(fill->width * fill->element_bytes, fill->height, 1, fill->pitch, 0), &place,
			  &home);
	if (!result && place != PLACE_SEEN)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		return result;
	wide = fill_widen(*fill);
	return fill_submit(stream, &wide);
}
