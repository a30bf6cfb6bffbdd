/* Public functions: properties of devices. */
#include "soft/cuda/core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "soft/cuda/device.h"

EXPORT CUresult cuInit(unsigned int flags)
{
	int errno_before = errno;
	CUresult result;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (__atomic_load_n(&port.is_open, __ATOMIC_ACQUIRE))
		return port.pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
	api_lock();
	result = port_open();
	api_unlock();
	errno = errno_before;
	return result;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

CUresult device_find(CUdevice device, struct gpu **gpu)
{
	if (device < 0 || (unsigned)device >= port.gpu_count)
		return CUDA_ERROR_INVALID_DEVICE;
	*gpu = &port.gpus[device];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	ENTER();
	if (count)
		*count = (int)port.gpu_count;
	LEAVE(count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	struct gpu *gpu;

	LEAVE_WITH(device, device_find(ordinal, &gpu), (CUdevice)gpu->index);
}

EXPORT CUresult cuDeviceGetName(char *name, int room, CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = name && room > 0 ? device_find(device, &gpu) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		snprintf(name, (size_t)room, "%s", gpu->name);
	LEAVE(result);
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	struct gpu *gpu;

	LEAVE_WITH(uuid, device_find(device, &gpu), gpu->uuid);
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	struct gpu *gpu;

	LEAVE_WITH(bytes, device_find(device, &gpu), port_memory_total(gpu, NULL));
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = value ? device_find(device, &gpu) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = device_attribute(gpu, attribute, value);
	LEAVE(result);
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = major && minor ? device_find(device, &gpu) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = device_attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major);
	if (!result)
		result = device_attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
	LEAVE(result);
}

EXPORT CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = properties ? device_find(device, &gpu) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*properties = (CUdevprop){ .maxThreadsPerBlock = 1024,
					   .maxThreadsDim = { 1024, 1024, 64 },
					   .maxGridSize = { INT32_MAX, 65535, 65535 },
					   .sharedMemPerBlock = 48 << 10,
					   .totalConstantMemory = 64 << 10,
					   .SIMDWidth = 32,
					   .memPitch = INT32_MAX,
					   .regsPerBlock = 65536,
					   .clockRate = (int)gpu->shape.clock_khz,
					   .textureAlign = 512 };
	LEAVE(result);
}

/* ---- location: an invented bus, one device on each */

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int room, CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = text && room > 0 ? device_find(device, &gpu) : CUDA_ERROR_INVALID_VALUE;
	if (!result && snprintf(text, (size_t)room, "0000:%02X:00.0", device_bus(gpu)) >= room)
		result = CUDA_ERROR_INVALID_VALUE;
	LEAVE(result);
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
	unsigned domain = 0, bus, slot = 0, function = 0;
	CUresult result = CUDA_ERROR_INVALID_DEVICE;

	if (!device || !text)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
		domain = function = 0;
		if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2)
			LEAVE(CUDA_ERROR_INVALID_VALUE);
	}
	for (unsigned i = 0; i < port.gpu_count; i++)
		if (!domain && !slot && !function && bus == device_bus(&port.gpus[i])) {
			*device = (CUdevice)i;
			result = CUDA_SUCCESS;
		}
	LEAVE(result);
}

/* ---- peers: no GPU accesses another's memory; the library copies between them */

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	struct gpu *gpu;
	CUresult result;

	ENTER();
	result = can ? device_find(device, &gpu) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = device_find(peer, &gpu);
	if (!result)
		*can = 0;
	LEAVE(result);
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device,
					CUdevice peer)
{
	if (attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
	    attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED || device == peer)
		return CUDA_ERROR_INVALID_VALUE;
	return cuDeviceCanAccessPeer(value, device, peer);
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	struct context *context;
	CUresult result;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	result = context_current(&context);
	if (!result && (!context_is((struct context *)peer) || (struct context *)peer == context))
		result = CUDA_ERROR_INVALID_CONTEXT;
	LEAVE(result ? result : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUresult result;

	ENTER();
	result = context_is((struct context *)peer) ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
						    : CUDA_ERROR_INVALID_CONTEXT;
	LEAVE(result);
}

EXPORT CUresult cuDeviceGetExecAffinitySupport(int *is_supported, CUexecAffinityType type, CUdevice device)
{
	struct gpu *gpu;
	CUresult result;

	if (!is_supported || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	result = device_find(device, &gpu);
	*is_supported = 0;
	LEAVE(result);
}
