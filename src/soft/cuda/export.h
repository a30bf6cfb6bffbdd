/* Parts of the tables of export.c. */
#ifndef BELFRY_SOFT_CUDA_EXPORT_H
#define BELFRY_SOFT_CUDA_EXPORT_H

#include "soft/cuda/core.h"

/* ---- storage.c: values that the runtime stores with a context; `gone` is called when the context is
 * freed. */
typedef void (*storage_gone)(CUcontext context, void *key, void *value);
CUresult storage_put(CUcontext context, void *key, void *value, storage_gone gone);
CUresult storage_delete(CUcontext context, void *key);
CUresult storage_get(void **value, CUcontext context, void *key);

/* ---- integrity.c: the answer to the challenge of the runtime. */
struct integrity_device { /* layout of the hashed data */
	uint8_t uuid[16];
	int32_t pci_domain, pci_bus, pci_device;
};
struct integrity_question { /* layout of the hashed data */
	uint32_t driver_version, runtime_version, process, thread;
	const void *runtime_table, *integrity_table, *integrity_function;
	uint64_t seconds;
};
void integrity_answer(const struct integrity_question *question, const struct integrity_device *devices,
		      unsigned device_count, uint8_t answer[16]);

#endif
