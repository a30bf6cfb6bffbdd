/* Launches with their time of submission. */
#include "coro/probe_time.h"

#include <stdlib.h>
#include <string.h>

#include "coro/coro.h"

enum { HANDLES = 1 << 14, SEARCH_MOST = 64 };

_Atomic bool times_some;

/* A kernel with a timed form, until its owner is unloaded. With loaded.lock; launches use `handles` only. */
struct timed {
	void *owner; /* a CUmodule or a CUlibrary */
	bool is_library;
	char *name, *form;
	uint32_t params;
	LIST_ENTRY(timed) next; /* loaded.list */
};
static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, timed) list;
} loaded = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Handles of the program: functions and kernels. The writers have loaded.lock. A launch reads without it: `handle` is stored
 * with release order after the other members, and loaded with acquire order before them. A handle that is in use does not
 * change its meaning, because the program may not launch a function while it unloads its module. */
struct handle {
	_Atomic(void *) handle; /* NULL: never used; GONE: no more */
	_Atomic(void *) form;
	_Atomic(size_t) offset; /* of the parameter for the time */
	_Atomic uint32_t params;
	_Atomic bool is_kernel; /* a CUkernel, not a CUfunction */
	void *owner;
};
static struct handle handles[HANDLES];
#define GONE ((void *)1)

static size_t start_of(const void *handle)
{
	return ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 50;
}
_Static_assert(HANDLES == 1 << (64 - 50), "start_of() gives a place of the table");

static struct handle *find_handle(const void *handle)
{
	size_t at = start_of(handle);

	for (unsigned i = 0; handle && i < SEARCH_MOST; i++) {
		struct handle *found = &handles[(at + i) % HANDLES];
		void *there = atomic_load_explicit(&found->handle, memory_order_acquire);

		if (there == handle)
			return found;
		if (!there)
			return NULL;
	}
	return NULL;
}

/* With the lock. form NULL: the handle has none; what is known of it is of a module that has ended. */
static void set_handle(void *handle, void *owner, bool is_kernel, void *form, size_t offset, uint32_t params)
{
	struct handle *found = find_handle(handle);
	size_t at = start_of(handle);

	if (!form) {
		if (found)
			atomic_store(&found->handle, GONE);
		return;
	}
	for (unsigned i = 0; !found && i < SEARCH_MOST; i++) {
		struct handle *free_one = &handles[(at + i) % HANDLES];

		if (!free_one->handle || free_one->handle == GONE)
			found = free_one;
	}
	if (!found)
		return; /* it is launched without a time */
	found->owner = owner;
	atomic_store(&found->form, form);
	atomic_store(&found->offset, offset);
	atomic_store(&found->params, params);
	atomic_store(&found->is_kernel, is_kernel);
	atomic_store_explicit(&found->handle, handle, memory_order_release);
}

/* ---- modules and libraries */

static void add(void *owner, bool is_library, const struct weave_kernel *kernel)
{
	struct timed *timed = calloc(1, sizeof(*timed));

	if (timed) {
		timed->owner = owner;
		timed->is_library = is_library;
		timed->params = kernel->params;
		timed->name = strdup(kernel->name);
		timed->form = strdup(kernel->timed);
	}
	if (!timed || !timed->name || !timed->form) {
		if (timed)
			free(timed->name);
		free(timed);
		return;
	}
	pthread_mutex_lock(&loaded.lock);
	LIST_INSERT_HEAD(&loaded.list, timed, next);
	pthread_mutex_unlock(&loaded.lock);
	atomic_store(&times_some, true);
}

void times_loaded(void *owner, bool is_library, const struct weave_result *woven)
{
	for (size_t i = 0; i < woven->kernel_count; i++)
		if (woven->kernels[i].timed)
			add(owner, is_library, &woven->kernels[i]);
}

/* With the lock. */
static struct timed *find_timed(const void *owner, const char *name)
{
	struct timed *timed;

	LIST_FOREACH(timed, &loaded.list, next)
		if (timed->owner == owner && !strcmp(timed->name, name))
			break;
	return timed;
}

static void forget(void *owner)
{
	struct timed *timed, *after;

	pthread_mutex_lock(&loaded.lock);
	LIST_FOREACH_SAFE(timed, &loaded.list, next, after)
		if (timed->owner == owner) {
			LIST_REMOVE(timed, next);
			free(timed->name);
			free(timed->form);
			free(timed);
		}
	for (size_t i = 0; i < HANDLES; i++)
		if (handles[i].handle && handles[i].handle != GONE && handles[i].owner == owner)
			atomic_store(&handles[i].handle, GONE);
	pthread_mutex_unlock(&loaded.lock);
}

/* The program asked for a kernel by its name, and gets `handle`. A handle that was of another module is corrected. */
static void learn(void *handle, void *owner, bool is_library, const char *name)
{
	void *form = NULL;
	size_t offset = 0, bytes = 0;
	struct timed *timed;
	uint32_t params;

	pthread_mutex_lock(&loaded.lock);
	timed = find_timed(owner, name);
	params = timed ? timed->params : 0;
	if (timed && is_library) {
		CUkernel kernel;

		if (!real.cuLibraryGetKernel(&kernel, owner, timed->form) &&
		    !real.cuKernelGetParamInfo(kernel, params, &offset, &bytes))
			form = kernel;
	} else if (timed) {
		CUfunction function;

		if (!real.cuModuleGetFunction(&function, owner, timed->form) &&
		    !real.cuFuncGetParamInfo(function, params, &offset, &bytes))
			form = function;
	}
	set_handle(handle, owner, is_library, bytes == sizeof(uint64_t) ? form : NULL, offset, params);
	pthread_mutex_unlock(&loaded.lock);
}

CUresult probing_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult result = real.cuModuleGetFunction(function, module, name);

	if (!result && times_are_there())
		learn(*function, module, false, name);
	return result;
}

CUresult probing_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	CUresult result = real.cuLibraryGetKernel(kernel, library, name);

	if (!result && times_are_there())
		learn(*kernel, library, true, name);
	return result;
}

/* The function of a kernel in the current context. */
CUresult probing_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	CUresult result = real.cuKernelGetFunction(function, kernel);
	struct handle *found;
	CUfunction form = NULL;

	if (result || !times_are_there())
		return result;
	pthread_mutex_lock(&loaded.lock);
	found = find_handle(kernel);
	if (found && real.cuKernelGetFunction(&form, found->form))
		form = NULL;
	set_handle(*function, found ? found->owner : NULL, false, form, found ? found->offset : 0,
		   found ? found->params : 0);
	pthread_mutex_unlock(&loaded.lock);
	return result;
}

CUresult probing_cuModuleUnload(CUmodule module)
{
	if (times_are_there())
		forget(module);
	return real.cuModuleUnload(module);
}

CUresult probing_cuLibraryUnload(CUlibrary library)
{
	if (times_are_there())
		forget(library);
	return real.cuLibraryUnload(library);
}

/* ---- attributes of a kernel are those of its timed form too */

static void *form_of(void *handle)
{
	struct handle *found = times_are_there() ? find_handle(handle) : NULL;

	return found ? atomic_load(&found->form) : NULL;
}

CUresult probing_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	CUresult result = real.cuFuncSetAttribute(function, attribute, value);
	CUfunction form = result ? NULL : form_of(function);

	if (form)
		real.cuFuncSetAttribute(form, attribute, value);
	return result;
}

CUresult probing_cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
	CUresult result = real.cuFuncSetCacheConfig(function, config);
	CUfunction form = result ? NULL : form_of(function);

	if (form)
		real.cuFuncSetCacheConfig(form, config);
	return result;
}

CUresult probing_cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
	CUresult result = real.cuFuncSetSharedMemConfig(function, config);
	CUfunction form = result ? NULL : form_of(function);

	if (form)
		real.cuFuncSetSharedMemConfig(form, config);
	return result;
}

CUresult probing_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
				      CUdevice device)
{
	CUresult result = real.cuKernelSetAttribute(attribute, value, kernel, device);
	CUkernel form = result ? NULL : form_of(kernel);

	if (form)
		real.cuKernelSetAttribute(attribute, value, form, device);
	return result;
}

CUresult probing_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
	CUresult result = real.cuKernelSetCacheConfig(kernel, config, device);
	CUkernel form = result ? NULL : form_of(kernel);

	if (form)
		real.cuKernelSetCacheConfig(form, config, device);
	return result;
}

bool times_has_form(void *handle)
{
	return form_of(handle);
}

/* ---- launches */

/* The program's list of parameters, and the time behind it. */
static bool extend_list(struct timed_launch *launch, uint32_t params)
{
	if (params >= TIMED_PARAMETERS_MOST || (params && !launch->parameters))
		return false;
	if (params)
		memcpy(launch->list, launch->parameters, params * sizeof(launch->list[0]));
	launch->list[params] = &launch->time_ns;
	launch->parameters = launch->list;
	return true;
}

/* The program's buffer of parameters, and the time behind them. */
static bool extend_buffer(struct timed_launch *launch, size_t offset)
{
	const void *buffer = NULL;
	size_t bytes = 0;

	for (unsigned i = 0; launch->extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (i >= 4)
			return false;
		if (launch->extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = launch->extra[i + 1];
		else if (launch->extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			bytes = *(size_t *)launch->extra[i + 1];
	}
	launch->buffer_bytes = offset + sizeof(launch->time_ns);
	launch->buffer = calloc(1, launch->buffer_bytes);
	if (!launch->buffer || (bytes && !buffer))
		return false;
	if (bytes)
		memcpy(launch->buffer, buffer, bytes < offset ? bytes : offset);
	memcpy((char *)launch->buffer + offset, &launch->time_ns, sizeof(launch->time_ns));
	launch->buffer_extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	launch->buffer_extra[1] = launch->buffer;
	launch->buffer_extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	launch->buffer_extra[3] = &launch->buffer_bytes;
	launch->buffer_extra[4] = CU_LAUNCH_PARAM_END;
	launch->extra = launch->buffer_extra;
	return true;
}

static bool extend(struct timed_launch *launch, const struct handle *found, uint64_t time)
{
	launch->time_ns = time;
	if (launch->extra ? !extend_buffer(launch, found->offset) : !extend_list(launch, found->params)) {
		free(launch->buffer);
		launch->buffer = NULL;
		return false;
	}
	launch->function = found->form;
	return true;
}

static bool is_captured(CUstream stream)
{
	CUstreamCaptureStatus status;

	return real.cuStreamIsCapturing(stream, &status) || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A node of a graph has the function of a kernel in the context, not the kernel. */
static void learn_function(CUkernel kernel)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUfunction function;

	real.cuThreadExchangeStreamCaptureMode(&mode);
	probing_cuKernelGetFunction(&function, kernel);
	real.cuThreadExchangeStreamCaptureMode(&mode);
}

void times_before(struct timed_launch *launch, CUstream stream)
{
	struct handle *found = find_handle(launch->function);
	uint64_t now_ns = found ? times_now() : 0;

	if (now_ns && !is_captured(stream_handle(stream)))
		extend(launch, found, now_ns);
	else if (now_ns && found->is_kernel)
		learn_function((CUkernel)launch->function);
}

void times_after(struct timed_launch *launch)
{
	free(launch->buffer);
	launch->buffer = NULL;
}

void times_graph_node(CUgraphExec exec, CUDA_KERNEL_NODE_PARAMS *params, struct timed_launch *launch)
{
	void *handle = params->func ? (void *)params->func : (void *)params->kern;
	struct handle *found = find_handle(handle);
	CUdeviceptr at = found ? times_of_graph(exec) : 0;

	*launch = (struct timed_launch){ .parameters = params->kernelParams, .extra = params->extra };
	if (!at || !extend(launch, found, WEAVE_TIME_IS_ADDRESS | at))
		return;
	params->kernelParams = launch->parameters;
	params->extra = launch->extra;
	if (params->func)
		params->func = found->form;
	else
		params->kern = found->form;
}
