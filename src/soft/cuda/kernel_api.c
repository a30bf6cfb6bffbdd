/* cuKernel*: kernels of libraries. Attributes apply to one device, in all its contexts. */
#include "soft/cuda/module.h"

static CUresult find_on(CUkernel handle, CUdevice device, struct kernel **kernel)
{
	if (device < 0 || (unsigned)device >= port.gpu_count)
		return CUDA_ERROR_INVALID_DEVICE;
	return kernel_find(handle, kernel);
}

/* The function in a context in which the library is loaded, or NULL. */
static struct function *loaded_function(const struct kernel *kernel, const struct context *context)
{
	for (struct module *module = context->modules; module; module = module->next)
		if (module->library == kernel->library)
			return &module->functions[kernel->index];
	return NULL;
}

EXPORT CUresult cuKernelGetFunction(CUfunction *handle, CUkernel kernel_handle)
{
	struct kernel *kernel;
	struct function *function;
	CUresult result;

	ENTER();
	result = handle ? kernel_find(kernel_handle, &kernel) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = kernel_function(kernel, &function);
	if (!result)
		*handle = (CUfunction)function;
	LEAVE(result);
}

EXPORT CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel handle)
{
	struct kernel *kernel;

	LEAVE_WITH(library, kernel_find(handle, &kernel), (CUlibrary)kernel->library);
}

EXPORT CUresult cuKernelGetName(const char **name, CUkernel handle)
{
	struct kernel *kernel;

	LEAVE_WITH(name, kernel_find(handle, &kernel), kernel->ptx->name);
}

EXPORT CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *bytes)
{
	struct kernel *kernel;
	CUresult result;

	ENTER();
	result = kernel_find(handle, &kernel);
	LEAVE(result ? result : function_param(kernel->ptx, index, offset, bytes));
}

EXPORT CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle,
				     CUdevice device)
{
	struct kernel *kernel;
	CUresult result;

	ENTER();
	result = value ? find_on(handle, device, &kernel) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = function_attribute(&kernel->settings[device], kernel->library->image.ptx, attribute,
					    value);
	LEAVE(result);
}

EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
				     CUdevice device)
{
	struct kernel *kernel;
	CUresult result;

	ENTER();
	result = find_on(handle, device, &kernel);
	if (!result)
		result = function_set_attribute(&kernel->settings[device], attribute, value);
	for (struct context *context = all_contexts; context && !result; context = context->next) {
		struct function *function = loaded_function(kernel, context);

		if (function && context->gpu->index == (unsigned)device)
			result = function_set_attribute(function, attribute, value);
	}
	LEAVE(result);
}

EXPORT CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device)
{
	struct kernel *kernel;
	CUresult result;

	ENTER();
	result = (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? find_on(handle, device, &kernel)
								: CUDA_ERROR_INVALID_VALUE;
	if (!result)
		kernel->settings[device].cache_config = config;
	LEAVE(result);
}
