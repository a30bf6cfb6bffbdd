/* cuGetExportTable: tables of unnamed functions that the CUDA runtime (libcudart) requests by uuid. The
 * meaning of the slots is known from the ZLUDA project (github.com/vosen/ZLUDA, dark_api). The slots that
 * libcudart 13.0 uses were measured, see docs/software-gpu.md. Unknown slots return
 * CUDA_ERROR_NOT_SUPPORTED. */
#include <string.h>
#include <unistd.h>

#include "soft/cuda/export.h"
#include "soft/cuda/image.h"

#pragma GCC diagnostic ignored "-Wpedantic" /* the tables hold function pointers as object pointers */

static CUresult unknown(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult succeed(void)
{
	return CUDA_SUCCESS;
}

static CUresult load_program(CUmodule *module, const void *wrapper)
{
	return cuModuleLoadFatBinary(module, wrapper);
}

static CUresult load_program_more(CUmodule *module, const void *wrapper, void *a, void *b, uint32_t c)
{
	return a || b || c ? CUDA_ERROR_NOT_SUPPORTED : cuModuleLoadFatBinary(module, wrapper);
}

static CUresult load_container(const void *image, CUmodule *module, void *a, void *b, uint32_t c)
{
	return a || b || c ? CUDA_ERROR_NOT_SUPPORTED : cuModuleLoadFatBinary(module, image);
}

/* Returns the handle only, and does not retain the context. */
static CUresult primary_context(CUcontext *context, CUdevice device)
{
	ENTER();
	if (!context || device < 0 || (unsigned)device >= port.gpu_count)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	*context = (CUcontext)context_primary_place(&port.gpus[device]);
	LEAVE(*context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

enum { RUNTIME_SLOTS = 13, THREAD_SLOTS = 4, HOOK_SLOTS = 7 };
static const void *const runtime_table[RUNTIME_SLOTS] = {
	(void *)sizeof(runtime_table),
	(void *)load_program,
	(void *)primary_context,
	(void *)unknown,
	(void *)unknown,
	(void *)unknown,
	(void *)load_program_more,
	(void *)succeed,
	(void *)load_container,
	(void *)unknown,
	(void *)unknown,
	(void *)unknown,
	(void *)succeed, /* load compilers */
};

/* For profilers, which are not supported. */
static const void *const thread_table[THREAD_SLOTS] = { (void *)sizeof(thread_table) };

static uint32_t hook_flags[1024], hook_values[1024];

static void get_hook_flags(void **at, size_t *count)
{
	*at = hook_flags;
	*count = 1024;
}

static void get_hook_values(void **at, size_t *count)
{
	*at = hook_values;
	*count = 14;
}

static const void *const hook_table[HOOK_SLOTS] = { (void *)sizeof(hook_table),
						    (void *)unknown,
						    (void *)get_hook_flags,
						    (void *)unknown,
						    (void *)unknown,
						    (void *)unknown,
						    (void *)get_hook_values };

static const void *const storage_table[4] = { (void *)storage_put, (void *)storage_delete,
					      (void *)storage_get, NULL };

static CUresult check_context(CUcontext context, uint32_t *flags, const void **more)
{
	(void)context;
	(void)more;
	*flags = 0;
	return CUDA_SUCCESS;
}

static const void *const check_table[4] = { (void *)sizeof(check_table), (void *)unknown,
					    (void *)check_context, (void *)succeed };

static CUresult integrity(uint32_t runtime_version, uint64_t seconds, uint8_t answer[16]);
static const void *const integrity_table[3] = { (void *)sizeof(integrity_table), (void *)integrity,
						(void *)unknown };

static unsigned list_devices(struct integrity_device devices[SOFT_GPUS_MAX])
{
	for (unsigned i = 0; i < port.gpu_count; i++) {
		CUuuid uuid;

		memset(&devices[i], 0, sizeof(devices[i]));
		cuDeviceGetUuid_v2(&uuid, (CUdevice)i);
		memcpy(devices[i].uuid, &uuid, sizeof(devices[i].uuid));
		cuDeviceGetAttribute(&devices[i].pci_domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, (CUdevice)i);
		cuDeviceGetAttribute(&devices[i].pci_bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, (CUdevice)i);
		cuDeviceGetAttribute(&devices[i].pci_device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, (CUdevice)i);
	}
	return port.gpu_count;
}

static CUresult integrity(uint32_t runtime_version, uint64_t seconds, uint8_t answer[16])
{
	struct integrity_device devices[SOFT_GPUS_MAX];
	struct integrity_question question = { .driver_version = CUDA_VERSION,
					       .runtime_version = runtime_version,
					       .process = (uint32_t)getpid(),
					       .thread = (uint32_t)(uintptr_t)pthread_self(),
					       .runtime_table = runtime_table,
					       .integrity_table = integrity_table,
					       .integrity_function = (void *)integrity,
					       .seconds = seconds };

	integrity_answer(&question, devices, list_devices(devices), answer);
	return CUDA_SUCCESS;
}

static const struct {
	uint8_t id[16];
	const void *table;
} tables[] = {
	{ { 0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9 },
	  runtime_table },
	{ { 0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc },
	  thread_table },
	{ { 0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66 },
	  hook_table },
	{ { 0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93 },
	  storage_table },
	{ { 0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2 },
	  integrity_table },
	{ { 0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e },
	  check_table },
};

CUresult export_find(const CUuuid *id, const void **table)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		if (!memcmp(id->bytes, tables[i].id, sizeof(tables[i].id))) {
			*table = tables[i].table;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return export_find(id, table);
}
