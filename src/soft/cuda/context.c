/* Contexts: an address space, a channel group, the sticky error, and all objects of the context. */
#include "soft/cuda/core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rm/rm.h"
#include "soft/cuda/channel.h"

enum { CLASS_SPACE = 0x90f1, CLASS_GROUP = 0xa06c, API_VERSION = 3020 };
enum {
	LIMIT_STACK = 1024,
	LIMIT_HEAP = 8 << 20,
	LIMIT_LAUNCHES = 2048,
	LIMIT_L2_FETCH = 64
}; /* the defaults of the real library */

struct context *all_contexts;
static uint64_t last_id;

bool context_is(const struct context *context)
{
	for (struct context *c = all_contexts; c; c = c->next)
		if (c == context)
			return true;
	return false;
}

bool context_has_id(const struct context *context, uint64_t id)
{
	return context_is(context) && context->id == id;
}

/* ---- creation */

static CUresult make_space(struct context *context)
{
	const struct rm_layout *layout = rm_layout_find(SOFT_DRIVER_VERSION);
	uint8_t params[64] = { 0 };

	if (context->parent) {
		context->space = context->parent->space;
		return CUDA_SUCCESS;
	}
	if (!layout || layout->va_space_size > sizeof(params))
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	return port_alloc(context->gpu->device, &context->space, CLASS_SPACE, params, layout->va_space_size);
}

static CUresult make_group(struct context *context)
{
	/* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS: two error memories, address space, engine, a flag. */
	uint32_t params[5] = { 0, 0, context->space, 1, 0 };
	uint8_t schedule[3] = { 1 };
	CUresult result;

	if (context->parent) { /* channels of one group run concurrently, not in time slices */
		context->group = context->parent->group;
		return CUDA_SUCCESS;
	}
	result = port_alloc(context->gpu->device, &context->group, CLASS_GROUP, params, sizeof(params));
	return result ? result
		      : port_control(context->group, RM_CTRL_GROUP_SCHEDULE, schedule, sizeof(schedule));
}

static CUresult make_notifier(struct context *context)
{
	CUresult result = low_new(context, sizeof(struct soft_notifier), &context->notifier_low);

	context->notifier_memory = context->notifier_low.memory;
	context->notifier = (volatile struct soft_notifier *)(void *)context->notifier_low.at;
	return result;
}

/* There is one ring per address space: a context with a parent prints to the parent's ring. */
static CUresult make_print(struct context *context)
{
	struct soft_print_params params = { 0 };
	CUresult result;

	if (context->parent) {
		context->print = context->parent->print;
		return CUDA_SUCCESS;
	}
	result = low_new(context, sizeof(struct soft_print) + CONTEXT_PRINT_BYTES, &context->print_low);
	if (result)
		return result;
	context->print = (struct soft_print *)(void *)context->print_low.at;
	context->print->bytes = CONTEXT_PRINT_BYTES;
	params.memory = context->print_low.memory;
	params.bytes = context->print_low.bytes;
	return port_control(context->space, SOFT_CTRL_SPACE_SET_PRINT, &params, sizeof(params));
}

static CUresult make_parts(struct context *context)
{
	CUresult result = make_space(context);

	if (!result)
		result = make_notifier(context);
	if (!result)
		result = make_group(context);
	if (!result)
		result = make_print(context);
	if (!result && !context->parent)
		result = ranges_map_in(context);
	if (!result && !context->parent)
		result = memory_attach(context);
	if (result)
		return result;
	result = stream_new(context, 0, 0, context->sms, &context->null_stream);
	if (!result)
		context->null_stream->is_null = true;
	return result;
}

static void free_parts(struct context *context)
{
	while (context->streams)
		stream_free(context->streams);
	while (context->modules)
		module_free(context->modules);
	events_free(context);
	memory_detach(context);
	channels_free(context);
	channels_hide_from(context);
	low_free(&context->print_low);
	if (!context->parent)
		port_free(context->gpu->device, context->group);
	low_free(&context->notifier_low);
	if (!context->parent)
		port_free(context->gpu->device, context->space);
	if (context->gpu->primary_place == context)
		memset(context, 0, sizeof(*context));
	else
		free(context);
}

static CUresult context_make(struct gpu *gpu, struct context *parent, unsigned flags, const uint64_t *sms,
			     struct context *place, struct context **made)
{
	struct context *context = place ? place : calloc(1, sizeof(*context));
	CUresult result;

	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*context = (struct context){ .gpu = gpu,
				     .parent = parent,
				     .sms = sms,
				     .flags = flags,
				     .api_version = API_VERSION,
				     .id = ++last_id,
				     .limits = { LIMIT_STACK, CONTEXT_PRINT_BYTES, LIMIT_HEAP, LIMIT_LAUNCHES,
						 LIMIT_L2_FETCH, 0 } };
	result = make_parts(context);
	if (result) {
		free_parts(context);
		return result;
	}
	context->next = all_contexts;
	all_contexts = context;
	*made = context;
	return CUDA_SUCCESS;
}

CUresult context_new(struct gpu *gpu, unsigned flags, struct context **context)
{
	return context_make(gpu, NULL, flags, NULL, NULL, context);
}

struct context *context_primary_place(struct gpu *gpu)
{
	if (!gpu->primary_place)
		gpu->primary_place = calloc(1, sizeof(*gpu->primary_place));
	return gpu->primary_place;
}

CUresult context_new_primary(struct gpu *gpu, unsigned flags)
{
	struct context *place = context_primary_place(gpu);
	CUresult result;

	if (!place)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = context_make(gpu, NULL, flags, NULL, place, &gpu->primary);
	if (!result)
		gpu->primary->is_primary = true;
	return result;
}

CUresult context_new_beside(struct context *parent, unsigned flags, const uint64_t *sms,
			    struct context **context)
{
	return context_make(parent->gpu, parent, flags, sms, NULL, context);
}

/* ---- destruction */

static void context_unlink(struct context *context)
{
	struct context **at = &all_contexts;

	while (*at && *at != context)
		at = &(*at)->next;
	if (*at)
		*at = context->next;
}

/* Mark the context as gone, and wait until no thread waits for its fences. */
static void see_off_waiters(struct context *context)
{
	struct timespec moment = { .tv_nsec = 200000 };

	__atomic_store_n(&context->is_gone, true, __ATOMIC_RELAXED);
	while (context->waiters) {
		unsigned held = api_pause();

		nanosleep(&moment, NULL);
		api_resume(held);
	}
}

void context_free(struct context *context)
{
	for (struct context *c = all_contexts, *next; c; c = next) {
		next = c->next;
		if (c->parent == context) {
			context_free(c);
			next = all_contexts; /* the list may have changed meanwhile */
		}
	}
	context_synchronize(context); /* after an error this returns at once */
	if (!context_is(context))
		return; /* freed by another thread during the wait */
	export_context_gone(context);
	if (!context_is(context))
		return; /* freed by a callback of the runtime */
	context_unlink(context);
	host_functions_forget(context);
	see_off_waiters(context);
	free_parts(context);
}

/* ---- synchronisation */

CUresult context_synchronize(struct context *context)
{
	uint64_t id = context->id;
	CUresult result = context_check(context);

	for (struct channel *channel = context->channels; channel && !result; channel = channel->next) {
		result = fence_wait((struct fence){ channel, channel->submitted });
		if (!context_has_id(context, id)) /* fence_wait releases the lock */
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	context_print(context);
	if (!result)
		memory_settle(context);
	return result;
}
