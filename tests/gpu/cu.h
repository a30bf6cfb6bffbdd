/* SPDX-License-Identifier: MIT */
/* cu: the few driver API functions the GPU tests use, found in libcuda.so.1 at run time, so that the tests
 * build on machines without the CUDA toolkit. Declarations follow cuda.h of CUDA 13.0; a result is a
 * CUresult as int. Never links libcuda: a program that cannot load it skips (77). */
#ifndef TESTS_GPU_CU_H
#define TESTS_GPU_CU_H

#include <stddef.h>
#include <stdint.h>

enum {
	CU_SUCCESS = 0,
	CU_ERROR_OUT_OF_MEMORY = 2,
	CU_ERROR_NOT_READY = 600,
	CU_ERROR_ILLEGAL_ADDRESS = 700,
	CU_ERROR_ASSERT = 710,
	CU_ERROR_ILLEGAL_INSTRUCTION = 715,
	CU_ERROR_LAUNCH_FAILED = 719,
	CU_ERROR_NOT_SUPPORTED = 801,
};

enum {
	CU_STREAM_NON_BLOCKING = 1,
	CU_EVENT_DISABLE_TIMING = 2,
	CU_HOST_DEVICEMAP = 2, /* CU_MEMHOSTALLOC_DEVICEMAP and CU_MEMHOSTREGISTER_DEVICEMAP */
	CU_ATTACH_GLOBAL = 1,
	CU_IPC_LAZY_PEER = 1,
	CU_CAPTURE_THREAD_LOCAL = 1,
	CU_DEVICE_SM_COUNT = 16, /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
	CU_LOCATION_DEVICE = 1,
	CU_ALLOCATION_PINNED = 1,
	CU_HANDLE_POSIX_FD = 1,
	CU_ACCESS_READWRITE = 3,
	CU_GRANULARITY_MINIMUM = 0,
	CU_FORMAT_UINT32 = 3,
	CU_MEMORY_HOST = 1,
	CU_MEMORY_ARRAY = 3,
};

struct cu_location {
	int type;
	int id;
};

struct cu_allocation_prop {
	int type;
	int handle_types;
	struct cu_location location;
	void *win32;
	uint8_t compression;
	uint8_t rdma;
	uint16_t usage;
	uint8_t reserved[4];
};

struct cu_pool_props {
	int type;
	int handle_types;
	struct cu_location location;
	void *win32;
	size_t max_bytes;
	uint16_t usage;
	uint8_t reserved[54];
};

struct cu_access {
	struct cu_location location;
	int flags;
};

struct cu_array_desc {
	size_t width, height;
	int format;
	unsigned channels;
};

struct cu_array3d_desc {
	size_t width, height, depth;
	int format;
	unsigned channels;
	unsigned flags;
};

struct cu_copy_end {
	size_t x_bytes, y, z, lod;
	int type;
	void *host;
	uint64_t device;
	void *array;
	void *reserved;
	size_t pitch, height;
};

struct cu_copy3d {
	struct cu_copy_end src, dst;
	size_t width_bytes, height, depth;
};

struct cu_ipc_handle {
	char bytes[64];
};

/* name in struct cu_api, symbol in libcuda.so.1, parameters. Handles (context, stream) are void pointers, device
 * addresses and VMM handles are 64-bit numbers. */
#define CU_FUNCTIONS(X) \
	X(Init, cuInit, (unsigned flags)) \
	X(GetErrorName, cuGetErrorName, (int result, const char **name)) \
	X(DeviceGet, cuDeviceGet, (int *device, int ordinal)) \
	X(DeviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, int device)) \
	X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, int device)) \
	X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **context, int device)) \
	X(CtxSetCurrent, cuCtxSetCurrent, (void *context)) \
	X(CtxSynchronize, cuCtxSynchronize, (void)) \
	X(ModuleLoadData, cuModuleLoadData, (void **module, const void *image)) \
	X(ModuleGetFunction, cuModuleGetFunction, (void **function, void *module, const char *name)) \
	X(LaunchKernel, cuLaunchKernel, \
	  (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
	   unsigned shared_bytes, void *stream, void **args, void **extra)) \
	X(StreamCreate, cuStreamCreate, (void **stream, unsigned flags)) \
	X(StreamSynchronize, cuStreamSynchronize, (void *stream)) \
	X(StreamBeginCapture, cuStreamBeginCapture_v2, (void *stream, int mode)) \
	X(StreamEndCapture, cuStreamEndCapture, (void *stream, void **graph)) \
	X(GraphInstantiate, cuGraphInstantiateWithFlags, \
	  (void **exec, void *graph, unsigned long long flags)) \
	X(GraphLaunch, cuGraphLaunch, (void *exec, void *stream)) \
	X(EventCreate, cuEventCreate, (void **event, unsigned flags)) \
	X(EventRecord, cuEventRecord, (void *event, void *stream)) \
	X(EventSynchronize, cuEventSynchronize, (void *event)) \
	X(MemGetInfo, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes)) \
	X(MemAlloc, cuMemAlloc_v2, (uint64_t * ptr, size_t bytes)) \
	X(MemFree, cuMemFree_v2, (uint64_t ptr)) \
	X(MemAllocPitch, cuMemAllocPitch_v2, \
	  (uint64_t * ptr, size_t * pitch, size_t width_bytes, size_t height, unsigned element_bytes)) \
	X(MemAllocManaged, cuMemAllocManaged, (uint64_t * ptr, size_t bytes, unsigned flags)) \
	X(MemHostAlloc, cuMemHostAlloc, (void **host, size_t bytes, unsigned flags)) \
	X(MemHostRegister, cuMemHostRegister_v2, (void *host, size_t bytes, unsigned flags)) \
	X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, \
	  (uint64_t * ptr, void *host, unsigned flags)) \
	X(MemcpyHtoD, cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes)) \
	X(MemcpyDtoH, cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t bytes)) \
	X(Memcpy3D, cuMemcpy3D_v2, (const struct cu_copy3d *copy)) \
	X(MemsetD8, cuMemsetD8_v2, (uint64_t ptr, unsigned char value, size_t bytes)) \
	X(MemsetD8Async, cuMemsetD8Async, (uint64_t ptr, unsigned char value, size_t bytes, void *stream)) \
	X(MemAllocAsync, cuMemAllocAsync, (uint64_t * ptr, size_t bytes, void *stream)) \
	X(MemAllocFromPoolAsync, cuMemAllocFromPoolAsync, \
	  (uint64_t * ptr, size_t bytes, void *pool, void *stream)) \
	X(MemFreeAsync, cuMemFreeAsync, (uint64_t ptr, void *stream)) \
	X(DeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (void **pool, int device)) \
	X(MemPoolCreate, cuMemPoolCreate, (void **pool, const struct cu_pool_props *props)) \
	X(MemPoolTrimTo, cuMemPoolTrimTo, (void *pool, size_t keep_bytes)) \
	X(MemGetAllocationGranularity, cuMemGetAllocationGranularity, \
	  (size_t * bytes, const struct cu_allocation_prop *prop, int option)) \
	X(MemCreate, cuMemCreate, \
	  (uint64_t * handle, size_t bytes, const struct cu_allocation_prop *prop, \
	   unsigned long long flags)) \
	X(MemRelease, cuMemRelease, (uint64_t handle)) \
	X(MemAddressReserve, cuMemAddressReserve, \
	  (uint64_t * ptr, size_t bytes, size_t align, uint64_t hint, unsigned long long flags)) \
	X(MemAddressFree, cuMemAddressFree, (uint64_t ptr, size_t bytes)) \
	X(MemMap, cuMemMap, \
	  (uint64_t ptr, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)) \
	X(MemUnmap, cuMemUnmap, (uint64_t ptr, size_t bytes)) \
	X(MemSetAccess, cuMemSetAccess, \
	  (uint64_t ptr, size_t bytes, const struct cu_access *desc, size_t count)) \
	X(MemExport, cuMemExportToShareableHandle, \
	  (void *os_handle, uint64_t handle, int type, unsigned long long flags)) \
	X(MemImport, cuMemImportFromShareableHandle, (uint64_t * handle, void *os_handle, int type)) \
	X(IpcGetMemHandle, cuIpcGetMemHandle, (struct cu_ipc_handle * handle, uint64_t ptr)) \
	X(IpcOpenMemHandle, cuIpcOpenMemHandle_v2, \
	  (uint64_t * ptr, struct cu_ipc_handle handle, unsigned flags)) \
	X(IpcCloseMemHandle, cuIpcCloseMemHandle, (uint64_t ptr)) \
	X(ArrayCreate, cuArrayCreate_v2, (void **array, const struct cu_array_desc *desc)) \
	X(Array3DCreate, cuArray3DCreate_v2, (void **array, const struct cu_array3d_desc *desc)) \
	X(ArrayDestroy, cuArrayDestroy, (void *array)) \
	X(MipmappedArrayCreate, cuMipmappedArrayCreate, \
	  (void **array, const struct cu_array3d_desc *desc, unsigned levels)) \
	X(MipmappedArrayDestroy, cuMipmappedArrayDestroy, (void *array))

struct cu_api {
#define CU_FIELD(name, symbol, params) int(*name) params;
	CU_FUNCTIONS(CU_FIELD)
#undef CU_FIELD
};

extern struct cu_api cu;

/* Load libcuda and make device 0's primary context current. Skips the program (exit 77) without a GPU. */
void cu_open(void);

/* A kernel of a PTX text; ends the program when it does not load. */
void *cu_kernel(const char *ptx, const char *name);

/* Ask for one block (grid, block of one dimension) on a stream; args as cuLaunchKernel takes them. */
int cu_launch(void *kernel, unsigned grid, unsigned block, void *stream, void **args);

const char *cu_error(int result);

/* End the program (exit 1) with what was tried when the call failed. */
#define CU_MUST(call) cu_must((call), #call, __FILE__, __LINE__)
void cu_must(int result, const char *what, const char *file, int line);

#endif
