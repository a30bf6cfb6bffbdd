/* Shared by module.c, variables.c, function.c and library.c. */
#ifndef BELFRY_SOFT_CUDA_MODULE_H
#define BELFRY_SOFT_CUDA_MODULE_H

#include "soft/cuda/core.h"
#include "soft/cuda/handle.h"
#include "soft/cuda/image.h"

/* ---- variables.c: assign an address and the initial value to every variable of module->ptx. */
CUresult variables_place(struct module *module, struct bf_error *err);
void variables_free(struct module *module);
/* The same for managed variables. If there are any and *range is NULL, the memory is allocated. */
CUresult managed_place(const struct ptx_module *ptx, struct range **range, uint64_t *addresses);
CUresult variable_find(struct module *module, const char *name, uint64_t *address, size_t *bytes);

/* ---- module.c */
/* On success, the module owns the image. */
CUresult module_new(struct context *context, struct image *image, struct library *library,
		    struct module **module, struct bf_error *err);
CUresult module_find(CUmodule handle, struct module **module);
struct function *module_function(struct module *module, const char *name);

/* ---- library.c: modules for all contexts. */
struct kernel { /* CUkernel */
	struct library *library;
	const struct ptx_kernel *ptx;
	uint32_t index;				 /* in the functions of the module */
	struct function settings[SOFT_GPUS_MAX]; /* initial settings of new modules, per GPU */
};
struct library { /* CUlibrary */
	struct image image;
	struct range *managed; /* allocated on first use */
	struct kernel *kernels;
	uint32_t kernel_count;
	struct library *next;
};
/* The module of the library in this context, loaded on first use. */
CUresult library_module(struct library *library, struct context *context, struct module **module);
/* The kernel's function in the current context. */
CUresult kernel_function(struct kernel *kernel, struct function **function);
CUresult kernel_find(CUkernel handle, struct kernel **kernel);
CUresult library_find(CUlibrary handle, struct library **library);
/* The library owns the image. */
CUresult library_new(struct image *image, struct library **library);
CUresult library_unload(CUlibrary handle);

/* ---- function.c */
void function_init(struct function *function, struct module *module, const struct ptx_kernel *kernel,
		   uint32_t index);
CUresult function_attribute(const struct function *function, const struct ptx_module *ptx,
			    CUfunction_attribute attribute, int *value);
CUresult function_set_attribute(struct function *function, CUfunction_attribute attribute, int value);
CUresult function_param(const struct ptx_kernel *kernel, size_t index, size_t *offset, size_t *bytes);

#endif
