/* Primary contexts. Other contexts have no green contexts: their calls are forwarded as they are. */
#include <stdlib.h>

#include "coro/coro.h"
#include "coro/probe.h"
#include "coro/trace.h"

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, context) all = LIST_HEAD_INITIALIZER(all);

struct context *context_find(CUcontext handle)
{
	struct context *context;

	pthread_mutex_lock(&all_lock);
	LIST_FOREACH(context, &all, next)
		if (context->handle == handle)
			break;
	pthread_mutex_unlock(&all_lock);
	return context;
}

/* The last one that was found: most programs have one. A context is never freed, so that the pointer stays valid. */
struct context *context_current(void)
{
	static _Thread_local struct context *last;
	CUcontext handle = NULL;

	if (real.cuCtxGetCurrent(&handle) || !handle)
		return NULL;
	if (!last || last->handle != handle)
		last = context_find(handle);
	return last;
}

/* A context is inserted at the head and never removed, so that the rest of the list is read without the lock. */
struct context *context_after(const struct context *context)
{
	struct context *first;

	if (context)
		return LIST_NEXT(context, next);
	pthread_mutex_lock(&all_lock);
	first = LIST_FIRST(&all);
	pthread_mutex_unlock(&all_lock);
	return first;
}

static struct context *context_of_device(CUdevice device)
{
	struct context *context = context_after(NULL);

	while (context && context->device != device)
		context = context_after(context);
	return context;
}

static struct context *context_add(CUdevice device)
{
	struct context *context = calloc(1, sizeof(*context));

	if (!context)
		return NULL;
	context->device = device;
	pthread_mutex_init(&context->making, NULL);
	pthread_mutex_init(&context->lock, NULL);
	LIST_INIT(&context->streams);
	LIST_INIT(&context->orphans);
	LIST_INSERT_HEAD(&all, context, next);
	return context;
}

/* A device has one, also after its context was destroyed and made again under another handle. */
static struct context *context_of(CUdevice device)
{
	struct context *context;

	pthread_mutex_lock(&all_lock);
	LIST_FOREACH(context, &all, next)
		if (context->device == device)
			break;
	if (!context)
		context = context_add(device);
	pthread_mutex_unlock(&all_lock);
	return context;
}

static void lock_both(struct context *context)
{
	pthread_mutex_lock(&context->making);
	pthread_mutex_lock(&context->lock);
}

static void unlock_both(struct context *context)
{
	pthread_mutex_unlock(&context->lock);
	pthread_mutex_unlock(&context->making);
}

/* The context is about to be destroyed, with all streams, or has been destroyed. With its locks. */
static void forget(struct context *context)
{
	struct inside inside = go_inside(context);

	vstreams_forget(context);
	partitions_forget(context);
	context->handle = NULL;
	come_out(&inside);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult result = real.cuDevicePrimaryCtxRetain(context, device);
	struct context *found = result || !lease_is_there() ? NULL : context_of(device);

	if (!found)
		return result;
	lock_both(found);
	if (found->handle && found->handle != *context)
		forget(found);
	found->handle = *context;
	found->retained++;
	unlock_both(found);
	lease_attach(found);
	return result;
}

/* Before the driver destroys a primary context, with its last reference or when it is reset. Another thread may retain it
 * meanwhile. NULL: it stays. */
static struct context *end_begin(CUdevice device, bool is_reset)
{
	struct context *context = lease_is_there() ? context_of_device(device) : NULL;
	bool is_last;

	if (!context)
		return NULL;
	pthread_mutex_lock(&context->lock);
	if (!is_reset && context->retained)
		context->retained--;
	is_last = context->handle && (is_reset || !context->retained);
	context->endings += is_last;
	pthread_mutex_unlock(&context->lock);
	if (!is_last)
		return NULL;
	graphs_forget_context(context); /* its lock is outside */
	lock_both(context);
	if (context->handle && (is_reset || !context->retained))
		forget(context);
	unlock_both(context);
	return context;
}

/* After that. If there are other references, the context is not destroyed, and has work that no virtual stream knows. */
static void end_finish(struct context *context)
{
	unsigned flags;
	int is_active;

	if (!context)
		return;
	if (real.cuDevicePrimaryCtxGetState(context->device, &flags, &is_active) || is_active)
		lease_fix();
	context->endings--;
}

static CUresult end(CUdevice device, bool is_reset, CUresult (*by)(CUdevice device))
{
	CUcontext traced = trace_primary_leaving(device);
	struct context *context;
	CUresult result;

	if (probes_are_there())
		probes_primary_leaving(device);
	context = end_begin(device, is_reset);
	result = by(device);
	end_finish(context);
	trace_primary_left(device, traced);
	return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	return end(device, false, real.cuDevicePrimaryCtxRelease_v2);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	return end(device, false, real.cuDevicePrimaryCtxRelease);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	return end(device, true, real.cuDevicePrimaryCtxReset_v2);
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return end(device, true, real.cuDevicePrimaryCtxReset);
}
