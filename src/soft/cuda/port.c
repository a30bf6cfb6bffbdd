/* A client of the driver: calls in the format of the real driver (rm/rm.h, series 580), through soft/link. */
#include "soft/cuda/core.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "base/own.h"
#include "rm/rm.h"
#include "soft/cuda/port.h"
#include "soft/link/link.h"

/* MAP_MEMORY_DMA and UNMAP_MEMORY_DMA (nvos.h: NVOS46 and NVOS47 of series 580). */
struct arg_map_gpu {
	uint32_t client, device, space, memory;
	uint64_t offset, length;
	uint32_t flags, flags2, kind, pad;
	uint64_t address;
	uint32_t status, pad2;
};
struct arg_unmap_gpu {
	uint32_t client, device, space, memory;
	uint32_t flags, pad;
	uint64_t address, size;
	uint32_t status, pad2;
};
_Static_assert(sizeof(struct arg_map_gpu) == 64, "NVOS46");
_Static_assert(sizeof(struct arg_unmap_gpu) == 48, "NVOS47");
enum { MAP_READ_ONLY = 1, MAP_FIXED_OFFSET = 1 << 15 };

enum {
	CLASS_HOST_MEMORY = 0x3e,
	CLASS_DEVICE_MEMORY = 0x40,
	ATTR_LOCATION_PCI = 1 << 25, /* NVOS32_ATTR_LOCATION: required by class 0x3e */
	FB_INFO_HEAP_FREE = 0x16,
	FB_INFO_HEAP_SIZE = 0x09,
	FIRST_HANDLE = 0x5c000000, /* as in the real library */
};

struct port port = { .control = -1 };
static uint32_t next_handle = FIRST_HANDLE;

uint32_t port_new_handle(void)
{
	return ++next_handle;
}

CUresult port_result(int rc, uint32_t status)
{
	if (rc == -ENOMEM)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN || rc == -ECONNREFUSED || rc == -EBADF ||
	    rc == -ENOENT || rc == -ENODEV)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (rc)
		return CUDA_ERROR_OPERATING_SYSTEM;
	switch (status) {
	case RM_OK:
		return CUDA_SUCCESS;
	case RM_ERR_NO_MEMORY:
	case RM_ERR_INSUFFICIENT_RESOURCES:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case RM_ERR_INSUFFICIENT_PERMISSIONS:
		return CUDA_ERROR_NOT_PERMITTED;
	case RM_ERR_INVALID_ARGUMENT:
		return CUDA_ERROR_INVALID_VALUE;
	case RM_ERR_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

CUresult port_alloc(uint32_t parent, uint32_t *handle, uint32_t class_id, void *params, uint32_t size)
{
	struct rm_arg_alloc arg = { .client = port.client,
				    .parent = parent,
				    .object = *handle ? *handle : port_new_handle(),
				    .class_id = class_id,
				    .params = (uintptr_t)params,
				    .size = size };
	int rc = link_call(port.control, RM_ESC_ALLOC, &arg, sizeof(arg));
	CUresult result = port_result(rc, arg.status);

	if (!result)
		*handle = arg.object;
	return result;
}

CUresult port_free(uint32_t parent, uint32_t handle)
{
	struct rm_arg_free arg = { .client = port.client, .parent = parent, .object = handle };
	int rc;

	if (!handle)
		return CUDA_SUCCESS;
	rc = link_call(port.control, RM_ESC_FREE, &arg, sizeof(arg));
	return port_result(rc, arg.status);
}

CUresult port_control(uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
	struct rm_arg_control arg = {
		.client = port.client, .object = object, .cmd = cmd, .params = (uintptr_t)params, .size = size
	};
	int rc = link_call(port.control, RM_ESC_CONTROL, &arg, sizeof(arg));

	return port_result(rc, arg.status);
}

CUresult port_memory(struct gpu *gpu, uint64_t bytes, bool is_vidmem, uint32_t *handle)
{
	const struct rm_layout *layout = rm_layout_find(SOFT_DRIVER_VERSION);
	uint8_t params[128] = { 0 };
	uint32_t attr = is_vidmem ? 0 : ATTR_LOCATION_PCI;

	if (!layout || layout->memory_size > sizeof(params))
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	memcpy(params + layout->memory_attr, &attr, sizeof(attr));
	memcpy(params + layout->memory_bytes, &bytes, sizeof(bytes));
	*handle = 0;
	return port_alloc(gpu->device, handle, is_vidmem ? CLASS_DEVICE_MEMORY : CLASS_HOST_MEMORY, params,
			  layout->memory_size);
}

/* Prepare the mapping of a file in the driver, then map the file. A file takes one mapping, so each mapping
 * opens a new file. The mapping outlives the file. */
CUresult port_map(struct gpu *gpu, uint32_t memory, uint64_t bytes, void **at)
{
	cleanup_close int file = link_open(port_folder, SOFT_FILE_GPU_0 + gpu->minor);
	struct rm_arg_map arg = {
		.client = port.client, .device = gpu->device, .memory = memory, .length = bytes, .fd = file
	};
	CUresult result;
	void *mapped;
	int rc;

	if (file < 0)
		return port_result(file, 0);
	rc = link_call(port.control, RM_ESC_MAP_MEMORY, &arg, sizeof(arg));
	result = port_result(rc, arg.status);
	if (result)
		return result;
	mapped = link_map(file, *at, bytes, PROT_READ | PROT_WRITE, arg.address);
	if (mapped == MAP_FAILED)
		return port_result(-errno, 0);
	*at = mapped;
	return CUDA_SUCCESS;
}

void port_unmap(struct gpu *gpu, uint32_t memory, uint64_t bytes, void *at)
{
	struct rm_arg_unmap arg = {
		.client = port.client, .device = gpu->device, .memory = memory, .address = (uintptr_t)at
	};

	munmap(at, bytes);
	link_call(port.control, RM_ESC_UNMAP_MEMORY, &arg, sizeof(arg));
}

CUresult port_map_gpu(struct gpu *gpu, uint32_t space, uint32_t memory, uint64_t offset, uint64_t bytes,
		      uint64_t address, bool is_writable)
{
	struct arg_map_gpu arg = { .client = port.client,
				   .device = gpu->device,
				   .space = space,
				   .memory = memory,
				   .offset = offset,
				   .length = bytes,
				   .flags = MAP_FIXED_OFFSET | (is_writable ? 0 : MAP_READ_ONLY),
				   .address = address };
	int rc = link_call(port.control, RM_ESC_MAP_MEMORY_DMA, &arg, sizeof(arg));

	return port_result(rc, arg.status);
}

CUresult port_unmap_gpu(struct gpu *gpu, uint32_t space, uint32_t memory, uint64_t address)
{
	struct arg_unmap_gpu arg = { .client = port.client,
				     .device = gpu->device,
				     .space = space,
				     .memory = memory,
				     .address = address };
	int rc = link_call(port.control, RM_ESC_UNMAP_MEMORY_DMA, &arg, sizeof(arg));

	return port_result(rc, arg.status);
}

bool port_is_dead(void)
{
	struct pollfd file = { .fd = port.control };

	return poll(&file, 1, 0) > 0 && file.revents & (POLLHUP | POLLERR | POLLNVAL);
}

/* FB_GET_INFO reports the memory limit of a vGPU. The size of the GPU is used if that fails. */
uint64_t port_memory_total(struct gpu *gpu, uint64_t *free_bytes)
{
	const struct rm_layout *layout = rm_layout_find(SOFT_DRIVER_VERSION);
	uint32_t info[512] = { 2 }, *list;
	uint64_t total = gpu->shape.mem_bytes;

	if (free_bytes)
		*free_bytes = total;
	if (!layout || layout->fb_info_size > sizeof(info))
		return total;
	list = info + layout->fb_info_list / sizeof(*info);
	list[0] = FB_INFO_HEAP_SIZE;
	list[2] = FB_INFO_HEAP_FREE;
	if (port_control(gpu->subdevice, RM_CTRL_FB_GET_INFO_V2, info, layout->fb_info_size))
		return total;
	if (free_bytes)
		*free_bytes = (uint64_t)list[3] << 10;
	return list[1] ? (uint64_t)list[1] << 10 : total;
}
