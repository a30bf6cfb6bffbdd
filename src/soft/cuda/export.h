/* What export.c's tables are made of. */
#ifndef BELFRY_SOFT_CUDA_EXPORT_H
#define BELFRY_SOFT_CUDA_EXPORT_H

#include "soft/cuda/core.h"

/* ---- storage.c: values that the runtime keeps with a context; `gone` is called when the context ends. */
typedef void (*storage_gone)(CUcontext context, void *key, void *value);
CUresult storage_put(CUcontext context, void *key, void *value, storage_gone gone);
CUresult storage_delete(CUcontext context, void *key);
CUresult storage_get(void **value, CUcontext context, void *key);

/* ---- integrity.c: the runtime asks whether the library is the one it was told of. */
struct integrity_device { /* as it is hashed */
	uint8_t uuid[16];
	int32_t pci_domain, pci_bus, pci_device;
};
struct integrity_question { /* as it is hashed */
	uint32_t driver_version, runtime_version, process, thread;
	const void *runtime_table, *integrity_table, *integrity_function;
	uint64_t seconds;
};
void integrity_answer(const struct integrity_question *question, const struct integrity_device *devices,
		      unsigned device_count, uint8_t answer[16]);

#endif
