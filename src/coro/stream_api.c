/* Functions of streams that concern all places of a virtual stream. */
#include <stdlib.h>

#include "coro/coro.h"

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	CUresult result = real.cuStreamCreate(stream, flags);

	if (!result)
		vstream_add(*stream, flags, 0);
	return result;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	CUresult result = real.cuStreamCreateWithPriority(stream, flags, priority);

	if (!result)
		vstream_add(*stream, flags, priority);
	return result;
}

/* A stream that was removed, and that the driver does not destroy, is no longer virtual. */
static CUresult destroy(CUstream stream, CUresult (*by)(CUstream stream))
{
	bool was_virtual = vstream_remove(stream);
	CUresult result = by(stream);

	if (result && was_virtual)
		lease_fix();
	return result;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
	return destroy(stream, real.cuStreamDestroy_v2);
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
	return destroy(stream, real.cuStreamDestroy);
}

/* ---- callbacks: a callback is told the program's handle */

struct callback {
	CUstreamCallback function;
	CUstream stream;
	void *argument;
};

static void call_back(CUstream stream, CUresult status, void *argument)
{
	struct callback callback = *(struct callback *)argument;

	(void)stream;
	free(argument);
	callback.function(callback.stream, status, callback.argument);
}

EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *argument,
				    unsigned int flags)
{
	struct taken taken = stream_take(stream, false, TAKE_TAIL);
	struct callback *callback = taken.vstream && function ? malloc(sizeof(*callback)) : NULL;
	struct wait *wait = wait_begin(&taken);
	CUresult result;

	if (callback) {
		*callback = (struct callback){ function, stream, argument };
		result = real.cuStreamAddCallback(taken.stream, call_back, callback, flags);
	} else {
		result = taken.vstream && function
				 ? CUDA_ERROR_OUT_OF_MEMORY
				 : real.cuStreamAddCallback(taken.stream, function, argument, flags);
	}
	if (result)
		free(callback);
	wait_end(&taken, wait, result);
	stream_leave(&taken);
	return result;
}

/* Managed memory that is attached to one stream must be accessible on all places of a virtual stream. */
EXPORT CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length,
				       unsigned int flags)
{
	struct taken taken = stream_take(stream, false, TAKE_BASE);
	bool is_single = flags == CU_MEM_ATTACH_SINGLE && taken.vstream;
	CUresult result = real.cuStreamAttachMemAsync(taken.stream, address, length,
						      is_single ? CU_MEM_ATTACH_GLOBAL : flags);

	stream_leave(&taken);
	return result;
}

/* ---- attributes: the shadows have those of the base */

void vstream_copy_attributes(struct vstream *vstream, int at)
{
	static const CUstreamAttrID all[] = { CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW,
					      CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY,
					      CU_STREAM_ATTRIBUTE_PRIORITY,
					      CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
					      CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN };
	CUstream to = vstream_place(vstream, at)->stream;
	CUstreamAttrValue value;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!real.cuStreamGetAttribute(vstream->base, all[i], &value))
			real.cuStreamSetAttribute(to, all[i], &value);
}

static CUresult attributes_set(CUstream stream, CUresult result)
{
	struct vstream *vstream = result ? NULL : stream_find(stream, false);

	if (!vstream)
		return result;
	pthread_mutex_lock(&vstream->lock);
	vstream->has_attributes = true;
	for (int at = 0; at < PARTITIONS_MOST; at++)
		if (vstream_place(vstream, at)->stream)
			vstream_copy_attributes(vstream, at);
	pthread_mutex_unlock(&vstream->lock);
	return result;
}

EXPORT CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	return attributes_set(stream, real.cuStreamSetAttribute(stream_handle(stream), id, value));
}

EXPORT CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
	return attributes_set(to, real.cuStreamCopyAttributes(stream_handle(to), stream_handle(from)));
}
