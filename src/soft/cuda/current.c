/* The current context of a thread: the top of a stack per thread. Entries also hold the id of the context,
 * because another context can have the same address later. */
#include "soft/cuda/current.h"

enum { STACK_MAX = 64 };

static _Thread_local struct stack {
	unsigned count;
	struct entry_of_stack {
		struct context *context;
		uint64_t id;
	} entries[STACK_MAX];
} stack;

static bool top_is_there(void)
{
	struct entry_of_stack *top = &stack.entries[stack.count - 1];

	/* A primary context that was made again stays the current one. */
	if (context_is(top->context) && top->context->is_primary)
		top->id = top->context->id;
	return context_has_id(top->context, top->id);
}

CUresult current_find(struct context **context)
{
	if (!stack.count || !stack.entries[stack.count - 1].context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!top_is_there())
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*context = stack.entries[stack.count - 1].context;
	return CUDA_SUCCESS;
}

CUresult context_current(struct context **context)
{
	CUresult result = current_find(context);

	return result ? result : context_check(*context);
}

CUresult current_push(struct context *context)
{
	if (stack.count == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.entries[stack.count++] = (struct entry_of_stack){ context, context ? context->id : 0 };
	return CUDA_SUCCESS;
}

/* Returns the popped context even if it is gone. */
CUresult current_pop(struct context **context)
{
	if (!stack.count)
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = stack.entries[--stack.count].context;
	return CUDA_SUCCESS;
}

/* Replaces the top; NULL removes it. */
CUresult current_set(struct context *context)
{
	if (stack.count)
		stack.count--;
	return context ? current_push(context) : CUDA_SUCCESS;
}

/* ---- public functions */

/* A primary context can be made current before it is retained. */
static CUresult check_handle(CUcontext handle)
{
	for (unsigned i = 0; handle && i < port.gpu_count; i++)
		if (port.gpus[i].primary_place == (struct context *)handle)
			return CUDA_SUCCESS;
	return context_is((struct context *)handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	CUresult result;

	ENTER();
	result = check_handle(context);
	if (!result)
		result = current_push((struct context *)context);
	LEAVE(result);
}

EXPORT CUresult cuCtxPushCurrent(CUcontext context)
{
	return cuCtxPushCurrent_v2(context);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	struct context *popped;
	CUresult result;

	ENTER();
	result = current_pop(&popped);
	if (!result && context)
		*context = (CUcontext)popped;
	LEAVE(result);
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *context)
{
	return cuCtxPopCurrent_v2(context);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	CUresult result;

	ENTER();
	result = context ? check_handle(context) : CUDA_SUCCESS;
	if (!result)
		result = current_set((struct context *)context);
	LEAVE(result);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	ENTER();
	if (context)
		*context = stack.count ? (CUcontext)stack.entries[stack.count - 1].context : NULL;
	LEAVE(context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
