/* Values by context and key: the CUDA runtime stores its state of a context here. */
#include <stdlib.h>

#include "soft/cuda/export.h"

static struct stored {
	struct context *context;
	uint64_t context_id; /* addresses are reused, ids are not */
	void *key, *value;
	storage_gone gone;
	struct stored *next;
} * all_stored;

static CUresult find_context(CUcontext handle, struct context **context)
{
	if (!handle)
		return context_current(context);
	*context = (struct context *)handle;
	return context_is(*context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static struct stored **find(const struct context *context, const void *key)
{
	struct stored **link = &all_stored;

	while (*link &&
	       ((*link)->context != context || (*link)->context_id != context->id || (*link)->key != key))
		link = &(*link)->next;
	return link;
}

static CUresult put(CUcontext handle, void *key, void *value, storage_gone gone)
{
	struct context *context;
	struct stored *stored;
	CUresult result = find_context(handle, &context);

	if (result)
		return result;
	stored = *find(context, key);
	if (!stored) {
		stored = calloc(1, sizeof(*stored));
		if (!stored)
			return CUDA_ERROR_OUT_OF_MEMORY;
		stored->next = all_stored;
		all_stored = stored;
	}
	*stored = (struct stored){ context, context->id, key, value, gone, stored->next };
	return CUDA_SUCCESS;
}

CUresult storage_put(CUcontext context, void *key, void *value, storage_gone gone)
{
	ENTER();
	LEAVE(put(context, key, value, gone));
}

static void drop(struct stored **link)
{
	struct stored *stored = *link;

	*link = stored->next;
	free(stored);
}

CUresult storage_delete(CUcontext handle, void *key)
{
	struct context *context;
	struct stored **link;
	CUresult result;

	ENTER();
	result = find_context(handle, &context);
	if (result)
		LEAVE(result);
	link = find(context, key);
	if (!*link)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	drop(link);
	LEAVE(CUDA_SUCCESS);
}

CUresult storage_get(void **value, CUcontext handle, void *key)
{
	struct context *context;
	struct stored *stored;
	CUresult result;

	ENTER();
	result = value ? find_context(handle, &context) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	stored = *find(context, key);
	if (!stored)
		LEAVE(CUDA_ERROR_INVALID_HANDLE);
	*value = stored->value;
	LEAVE(CUDA_SUCCESS);
}

void export_context_gone(struct context *context)
{
	struct stored **link = &all_stored;

	while (*link) {
		struct stored stored = **link;
		unsigned held;

		if (stored.context != context || stored.context_id != context->id) {
			link = &(*link)->next;
			continue;
		}
		drop(link);
		if (!stored.gone)
			continue;
		held = api_pause();
		stored.gone((CUcontext)context, stored.key, stored.value);
		api_resume(held);
		link = &all_stored; /* the list may have changed */
	}
}
