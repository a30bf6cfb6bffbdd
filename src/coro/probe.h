/* Probes in this process: eBPF programs that are inserted into kernels when their module is loaded. The GPU server sends the
 * probes of the vGPU (BELFRY_PROBES names its socket), and asks for copies of their areas. An agent thread receives its orders
 * and makes all copies. Threads of the program wait in these cases only: in cuInit for the probes that are attached already
 * (5 s for each message); before a context or the process ends, for the copies (2 s); when a module is loaded and the GPU
 * server does not read (5 s, once).
 *
 * A module that cannot carry a probe is loaded as it is, and the GPU server is told why. Probes that are detached stay in the
 * modules that carry them, and their memory stays: kernels may use it. */
#ifndef BELFRY_CORO_PROBE_H
#define BELFRY_CORO_PROBE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "coro/probe_wire.h"
#include "cuda/api.h"
#include "probe/weave.h"

/* A probe. It is never freed. */
struct carried {
	LIST_ENTRY(carried) next; /* all.list */
	uint32_t number, sample;
	char name[64], kernel[PROBE_WIRE_KERNEL];
	struct probe *probe;
	_Atomic bool is_removed;
	_Atomic unsigned told; /* kernels that the GPU server was told of */
	/* The area: by areas_lock. */
	CUdeviceptr area;	     /* 0: no address is reserved yet */
	size_t area_bytes;	     /* of the reservation */
	bool has_memory, is_written; /* with its first contents */
	CUcontext context;	     /* for copies; NULL: it has ended, or there is no memory yet */
	CUstream stream;	     /* in that context, for copies */
	/* The agent's. */
	void *copy; /* the last one; NULL: none */
};

/* probe.c */
void probes_begin(void); /* CUDA is initialized */
/* Whether a probe is or was attached. Without probes, this load is the only cost. */
extern _Atomic bool probes_some;
static inline bool probes_are_there(void)
{
	return atomic_load_explicit(&probes_some, memory_order_relaxed);
}
/* Those that are attached now. Returns their number. */
unsigned probes_now(struct carried *to[PROBE_WIRE_PROBES]);
void probes_tell(const struct carried *carried, struct probe_note *note,
		 int file);    /* carried NULL: of no probe */
bool probes_are_watched(void); /* a policy is told of modules */
/* A context is about to be destroyed: the agent copies the areas, which then have no context until area_fill() gives them
 * another one. */
void probes_leaving(CUcontext context);
void probes_primary_leaving(CUdevice device);

/* probe_area.c */
/* The address of the area, and memory behind it. Both leave the current context unchanged. */
bool area_reserve(struct carried *carried, CUdevice device);
bool area_fill(struct carried *carried, CUdevice device, const char **why);
/* Copy the area to carried->copy. NULL, or why there is no newer copy. The agent's. */
const char *area_copy(struct carried *carried);
/* Compares the clocks, if the probe needs times. The agent's. */
void area_compare_clocks(struct carried *carried);
bool area_is_of(const struct carried *carried, CUcontext context);
void area_leave(struct carried *carried); /* its context is about to be destroyed */

/* probe_load.c: called instead of the driver's functions */
CUresult probing_cuModuleLoad(CUmodule *module, const char *path);
CUresult probing_cuModuleLoadData(CUmodule *module, const void *image);
CUresult probing_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
				    CUjit_option *options, void **values);
CUresult probing_cuModuleLoadFatBinary(CUmodule *module, const void *image);
CUresult probing_cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options,
				   void **values, unsigned count, CUlibraryOption *library_options,
				   void **library_values, unsigned library_count);
CUresult probing_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options,
				       void **values, unsigned count, CUlibraryOption *library_options,
				       void **library_values, unsigned library_count);
CUresult probing_cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
			       const char *name, unsigned count, CUjit_option *options, void **values);
CUresult probing_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
				  const char *name, unsigned count, CUjit_option *options, void **values);
CUresult probing_cuLinkComplete(CUlinkState state, void **image, size_t *size);
CUresult probing_cuLinkDestroy(CUlinkState state);
CUresult probing_cuCtxDestroy(CUcontext context);
CUresult probing_cuCtxDestroy_v2(CUcontext context);

/* probe_time.c */
CUresult probing_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult probing_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult probing_cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CUresult probing_cuModuleUnload(CUmodule module);
CUresult probing_cuLibraryUnload(CUlibrary library);
CUresult probing_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value);
CUresult probing_cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config);
CUresult probing_cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config);
CUresult probing_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
				      CUdevice device);
CUresult probing_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device);

#endif
