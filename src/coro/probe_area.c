/* Areas: the device memory of a probe's maps. The address of an area is a constant of woven code, and a kernel of a library
 * (cuLibrary*) can run in any context. So an area is memory of the virtual memory functions (cuMemCreate, cuMemMap), which all
 * contexts of the device can access at one address. It counts as memory of the vGPU. It is never freed: woven code may use
 * it. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "coro/coro.h"
#include "coro/probe.h"
#include "coro/probe_time.h"

static pthread_mutex_t areas_lock = PTHREAD_MUTEX_INITIALIZER;

static CUmemAllocationProp device_memory(CUdevice device)
{
	return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } };
}

bool area_reserve(struct carried *carried, CUdevice device)
{
	CUmemAllocationProp memory = device_memory(device);
	size_t unit = 0;
	bool is_there;

	pthread_mutex_lock(&areas_lock);
	if (!carried->area &&
	    !real.cuMemGetAllocationGranularity(&unit, &memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM) && unit) {
		carried->area_bytes = bf_round_up(probe_area_bytes(carried->probe), unit);
		if (real.cuMemAddressReserve(&carried->area, carried->area_bytes, 0, 0, 0))
			carried->area = 0;
	}
	is_there = carried->area;
	pthread_mutex_unlock(&areas_lock);
	return is_there;
}

static const char *allocate(struct carried *carried, CUdevice device)
{
	CUmemAllocationProp memory = device_memory(device);
	CUmemAccessDesc access = { .location = memory.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	const char *why = NULL;

	if (real.cuMemCreate(&handle, carried->area_bytes, &memory, 0))
		return "there is no GPU memory for its maps";
	if (real.cuMemMap(carried->area, carried->area_bytes, 0, handle, 0))
		why = "the memory for its maps cannot be mapped";
	else if (real.cuMemSetAccess(carried->area, carried->area_bytes, &access, 1)) {
		real.cuMemUnmap(carried->area, carried->area_bytes);
		why = "the memory for its maps cannot be accessed";
	}
	real.cuMemRelease(handle);
	return why;
}

/* `stream` waits for no other stream, also not for the legacy default stream. */
static const char *write_first(struct carried *carried, CUstream stream)
{
	size_t bytes = probe_area_bytes(carried->probe);
	void *first = malloc(bytes);
	bool is_written;

	if (!first)
		return "there is no memory for its maps";
	probe_area_init(carried->probe, first);
	is_written = !real.cuMemcpyHtoDAsync_v2(carried->area, first, bytes, stream) &&
		     !real.cuStreamSynchronize(stream);
	free(first);
	return is_written ? NULL : "the memory for its maps cannot be written";
}

/* In the current context, with the lock. */
static const char *fill(struct carried *carried, CUdevice device, CUcontext context)
{
	const char *why = NULL;
	CUstream stream;

	if (carried->has_memory && carried->context)
		return NULL;
	if (real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		return "there is no stream for its maps";
	if (!carried->has_memory) {
		why = allocate(carried, device);
		carried->has_memory = !why;
	}
	if (!why && !carried->is_written) {
		why = write_first(carried, stream);
		carried->is_written = !why;
	}
	if (why) {
		real.cuStreamDestroy_v2(stream);
		return why;
	}
	if (probe_needs_time(carried->probe)) {
		times_compare(carried->area + offsetof(struct probe_area, timer_ns), stream);
		times_use(carried->area + probe_area_times(carried->probe));
	}
	carried->stream = stream;
	carried->context = context;
	return NULL;
}

bool area_fill(struct carried *carried, CUdevice device, const char **why)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext context = NULL, popped;
	bool is_pushed = false;

	real.cuThreadExchangeStreamCaptureMode(&mode);
	if (real.cuCtxGetCurrent(&context) || !context) {
		/* A library is loaded before there is a context. The primary context is the one that it will be used in;
		 * this reference to it stays. */
		is_pushed = !real.cuDevicePrimaryCtxRetain(&context, device) &&
			    !real.cuCtxPushCurrent_v2(context);
	}
	pthread_mutex_lock(&areas_lock);
	*why = context ? fill(carried, device, context) : "there is no context";
	pthread_mutex_unlock(&areas_lock);
	if (is_pushed)
		real.cuCtxPopCurrent_v2(&popped);
	real.cuThreadExchangeStreamCaptureMode(&mode);
	return !*why;
}

bool area_is_of(const struct carried *carried, CUcontext context)
{
	bool is_of;

	pthread_mutex_lock(&areas_lock);
	is_of = carried->context && carried->context == context;
	pthread_mutex_unlock(&areas_lock);
	return is_of;
}

void area_leave(struct carried *carried)
{
	pthread_mutex_lock(&areas_lock);
	carried->context = NULL;
	carried->stream = NULL;
	pthread_mutex_unlock(&areas_lock);
}

void area_compare_clocks(struct carried *carried)
{
	CUcontext context, popped;
	CUstream stream;

	pthread_mutex_lock(&areas_lock);
	context = carried->context;
	stream = carried->stream;
	pthread_mutex_unlock(&areas_lock);
	if (!context || !probe_needs_time(carried->probe) || real.cuCtxPushCurrent_v2(context))
		return;
	times_compare(carried->area + offsetof(struct probe_area, timer_ns), stream);
	real.cuCtxPopCurrent_v2(&popped);
}

const char *area_copy(struct carried *carried)
{
	size_t bytes = probe_area_bytes(carried->probe);
	CUcontext context, popped;
	CUstream stream;
	bool has_memory, is_copied;

	pthread_mutex_lock(&areas_lock);
	context = carried->context;
	stream = carried->stream;
	has_memory = carried->has_memory;
	pthread_mutex_unlock(&areas_lock);
	if (!has_memory)
		return "no kernel of it carries the probe";
	if (!context || real.cuCtxPushCurrent_v2(context))
		return "its GPU context has ended";
	if (!carried->copy)
		carried->copy = malloc(bytes);
	is_copied = carried->copy &&
		    !real.cuMemcpyDtoHAsync_v2(carried->copy, carried->area, bytes, stream) &&
		    !real.cuStreamSynchronize(stream);
	real.cuCtxPopCurrent_v2(&popped);
	if (is_copied)
		return NULL;
	free(carried->copy);
	carried->copy = NULL;
	return "its GPU memory cannot be copied";
}
