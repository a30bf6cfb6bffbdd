/* Find the stream of a handle, and the default streams of threads. */
#include <stdlib.h>
#include <unistd.h>

#include "soft/cuda/core.h"
#include "soft/cuda/handle.h"

_Thread_local bool default_is_per_thread;

struct own { /* a thread's stream in one context */
	struct context *context;
	uint64_t context_id;
	struct stream *stream;
	struct own *next;
};
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

/* Called when a thread exits. */
static void free_own(void *list)
{
	bool is_ours = port.pid == getpid();

	if (is_ours)
		api_lock();
	for (struct own *own = list, *next; own; own = next) {
		next = own->next;
		if (is_ours && context_has_id(own->context, own->context_id))
			stream_destroy(own->stream);
		free(own);
	}
	if (is_ours)
		api_unlock();
}

static void make_key(void)
{
	pthread_key_create(&own_key, free_own);
}

static CUresult find_own(struct context *context, struct stream **stream)
{
	struct own *list, *own;
	CUresult result;

	pthread_once(&own_once, make_key);
	list = pthread_getspecific(own_key);
	for (own = list; own; own = own->next)
		if (own->context == context && own->context_id == context->id) {
			*stream = own->stream;
			return CUDA_SUCCESS;
		}
	own = malloc(sizeof(*own));
	if (!own)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = stream_new(context, 0, 0, NULL, stream);
	if (result) {
		free(own);
		return result;
	}
	(*stream)->is_per_thread = true;
	*own = (struct own){ context, context->id, *stream, list };
	pthread_setspecific(own_key, own);
	return CUDA_SUCCESS;
}

CUresult stream_find(CUstream handle, struct stream **stream)
{
	struct context *context;
	CUresult result;

	if (!handle)
		handle = default_is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
		if (handle_kind(handle) != HANDLE_STREAM)
			return CUDA_ERROR_INVALID_HANDLE;
		*stream = (struct stream *)handle;
		return context_check((*stream)->context);
	}
	result = context_current(&context);
	if (result)
		return result;
	if (handle == CU_STREAM_PER_THREAD)
		return find_own(context, stream);
	*stream = context->null_stream;
	return CUDA_SUCCESS;
}
