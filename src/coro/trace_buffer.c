/* Global variables of modules, by name: their content when the module or its context ends, or when the process exits. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/own.h"
#include "coro/trace.h"

enum { PIECE_BYTES = 1 << 20 };

struct module {
	LIST_ENTRY(module) next;
	CUmodule module;
	CUlibrary library; /* NULL: it is a module */
	CUcontext context; /* that it was loaded in; NULL: none, for a library */
};

static struct {
	pthread_mutex_t lock;
	const char *names; /* NULL: none */
	pid_t process;	   /* that uses the GPU */
	LIST_HEAD(, module) modules;
} buffers = { .lock = PTHREAD_MUTEX_INITIALIZER };

__attribute__((constructor)) static void find_names(void)
{
	buffers.names = getenv("BELFRY_TRACE_BUFFERS");
}

static CUresult find_global(const struct module *module, const char *name, CUdeviceptr *at, size_t *bytes)
{
	return module->library ? real.cuLibraryGetGlobal(at, bytes, module->library, name)
			       : real.cuModuleGetGlobal_v2(at, bytes, module->module, name);
}

static bool hash_memory(CUdeviceptr at, size_t bytes, uint64_t *hash)
{
	cleanup_free char *piece = malloc(PIECE_BYTES);

	for (size_t done = 0; piece && done < bytes; done += PIECE_BYTES) {
		size_t count = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;

		if (real.cuMemcpyDtoH_v2(piece, at + done, count))
			return false;
		*hash = bf_hash_bytes(*hash, piece, count);
	}
	return piece != NULL;
}

static void write_global(const struct module *module, const char *name)
{
	struct trace_place place = { 0 };
	struct trace_event event;
	uint64_t hash = 0;
	CUdeviceptr at;
	size_t bytes;

	if (find_global(module, name, &at, &bytes) || !hash_memory(at, bytes, &hash))
		return;
	event = trace_event(&place);
	trace_write("B %llx %x %zx %llx %s\n", (unsigned long long)event.number, (unsigned)event.thread,
		    bytes, (unsigned long long)hash, name);
}

/* In its context, after all work there. */
static void write_module(const struct module *module)
{
	cleanup_free char *names = strdup(buffers.names);
	bool is_pushed = module->context && !real.cuCtxPushCurrent_v2(module->context);
	char *rest = names, *name;
	CUcontext context;

	streams_finish();
	real.cuCtxSynchronize();
	while ((name = strsep(&rest, ",")))
		if (*name)
			write_global(module, name);
	if (is_pushed)
		real.cuCtxPopCurrent_v2(&context);
}

/* Of a context, or all of them. */
static void write_all(CUcontext context)
{
	struct module *module;

	pthread_mutex_lock(&buffers.lock);
	LIST_FOREACH(module, &buffers.modules, next)
		if (!context || module->context == context)
			write_module(module);
	pthread_mutex_unlock(&buffers.lock);
}

/* A process that was forked cannot use its parent's GPU. */
static void write_at_exit(void)
{
	if (getpid() == buffers.process)
		write_all(NULL);
}

static void register_exit(void)
{
	buffers.process = getpid();
	atexit(write_at_exit);
}

/* At exit, before the driver's library ends: what is registered last is called first. */
static void add(CUmodule handle, CUlibrary library)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct module *module;

	if (!buffers.names || !(module = calloc(1, sizeof(*module))))
		return;
	module->module = handle;
	module->library = library;
	if (real.cuCtxGetCurrent(&module->context))
		module->context = NULL;
	pthread_mutex_lock(&buffers.lock);
	LIST_INSERT_HEAD(&buffers.modules, module, next);
	pthread_mutex_unlock(&buffers.lock);
	pthread_once(&once, register_exit);
}

/* The module or the library. */
static void end(CUmodule handle, CUlibrary library)
{
	struct module *module, *next;

	pthread_mutex_lock(&buffers.lock);
	LIST_FOREACH_SAFE(module, &buffers.modules, next, next)
		if (module->module == handle && module->library == library) {
			write_module(module);
			LIST_REMOVE(module, next);
			free(module);
		}
	pthread_mutex_unlock(&buffers.lock);
}

void trace_module_leaving(CUmodule module)
{
	end(module, NULL);
}

void trace_library_leaving(CUlibrary library)
{
	end(NULL, library);
}

/* A library outlives the context. */
static void forget_context(CUcontext context)
{
	struct module *module, *next;

	pthread_mutex_lock(&buffers.lock);
	LIST_FOREACH_SAFE(module, &buffers.modules, next, next) {
		if (module->context != context)
			continue;
		module->context = NULL;
		if (module->library)
			continue;
		LIST_REMOVE(module, next);
		free(module);
	}
	pthread_mutex_unlock(&buffers.lock);
}

void tracing_cuCtxDestroy_v2(CUcontext context)
{
	trace_functions_forget();
	if (!buffers.names || !context)
		return;
	write_all(context);
	forget_context(context);
}

CUcontext trace_primary_leaving(CUdevice device)
{
	CUcontext context = NULL;

	if (!trace_is_on || !buffers.names || real.cuDevicePrimaryCtxRetain(&context, device))
		return NULL;
	write_all(context);
	real.cuDevicePrimaryCtxRelease_v2(device);
	return context;
}

void trace_primary_left(CUdevice device, CUcontext context)
{
	int is_active = 1;
	unsigned flags;

	if (trace_is_on)
		trace_functions_forget();
	if (context && !real.cuDevicePrimaryCtxGetState(device, &flags, &is_active) && !is_active)
		forget_context(context);
}

void traced_cuModuleLoad(CUmodule *module, const char *path, struct trace_place place)
{
	(void)path, (void)place;
	add(*module, NULL);
}

void traced_cuModuleLoadData(CUmodule *module, const void *image, struct trace_place place)
{
	(void)image, (void)place;
	add(*module, NULL);
}

void traced_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
			       void **values, struct trace_place place)
{
	(void)image, (void)count, (void)options, (void)values, (void)place;
	add(*module, NULL);
}

void traced_cuModuleLoadFatBinary(CUmodule *module, const void *image, struct trace_place place)
{
	(void)image, (void)place;
	add(*module, NULL);
}

void traced_cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options, void **values,
			      unsigned count, CUlibraryOption *library_options, void **library_values,
			      unsigned library_count, struct trace_place place)
{
	(void)image, (void)options, (void)values, (void)count, (void)place;
	(void)library_options, (void)library_values, (void)library_count;
	add(NULL, *library);
}

void traced_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values,
				  unsigned count, CUlibraryOption *library_options, void **library_values,
				  unsigned library_count, struct trace_place place)
{
	(void)path, (void)options, (void)values, (void)count, (void)place;
	(void)library_options, (void)library_values, (void)library_count;
	add(NULL, *library);
}
