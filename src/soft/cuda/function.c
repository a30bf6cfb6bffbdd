/* Functions of modules: the resources of a kernel, and its attributes. */
#include <string.h>

#include "soft/cuda/module.h"

enum {
	BINARY_VERSION = 90,
	DYNAMIC_SHARED_DEFAULT_BYTES = 48 << 10, /* with the static part; more needs the attribute */
	SM_REGISTERS = 65536,
};

void function_init(struct function *function, struct module *module, const struct ptx_kernel *kernel,
		   uint32_t index)
{
	*function = (struct function){ .module = module, .kernel = kernel, .index = index, .carveout = -1 };
	if (kernel->shared_bytes < DYNAMIC_SHARED_DEFAULT_BYTES)
		function->max_dynamic_shared_bytes = DYNAMIC_SHARED_DEFAULT_BYTES - kernel->shared_bytes;
}

CUresult function_find(CUfunction handle, struct function **function)
{
	switch (handle_kind(handle)) {
	case HANDLE_FUNCTION:
		*function = (struct function *)handle;
		return CUDA_SUCCESS;
	case HANDLE_KERNEL:
		return kernel_function((struct kernel *)handle, function);
	default:
		return CUDA_ERROR_INVALID_HANDLE;
	}
}

static uint64_t const_bytes(const struct ptx_module *ptx)
{
	const struct ptx_variable *v;
	uint64_t bytes = 0;

	for (uint32_t i = 0; (v = ptx_variable_at(ptx, i)); i++)
		bytes += v->is_const ? v->bytes : 0;
	return bytes;
}

/* The limit of threads by registers, which are allocated per warp, in units of 256. */
static uint32_t max_threads(const struct ptx_kernel *kernel)
{
	uint32_t warp_registers = (kernel->register_count * 32 + 255) / 256 * 256;
	uint32_t fit = warp_registers ? SM_REGISTERS / warp_registers * 32 : PTX_THREADS_MAX;

	return fit < kernel->max_threads ? fit : kernel->max_threads;
}

CUresult function_attribute(const struct function *function, const struct ptx_module *ptx,
			    CUfunction_attribute attribute, int *value)
{
	const struct ptx_kernel *kernel = function->kernel;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)max_threads(kernel);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)kernel->shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = (int)const_bytes(ptx);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = (int)kernel->local_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = (int)kernel->register_count;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value = (int)ptx_module_target(ptx);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = BINARY_VERSION;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = (int)function->max_dynamic_shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = function->carveout;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*value = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult function_set_attribute(struct function *function, CUfunction_attribute attribute, int value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || function->kernel->shared_bytes > PTX_SHARED_MAX_BYTES ||
		    (uint32_t)value > PTX_SHARED_MAX_BYTES - function->kernel->shared_bytes)
			return CUDA_ERROR_INVALID_VALUE;
		function->max_dynamic_shared_bytes = (uint32_t)value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		function->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return value ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS; /* clusters are not supported */
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult function_param(const struct ptx_kernel *kernel, size_t index, size_t *offset, size_t *bytes)
{
	if (!offset || index >= kernel->param_count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = kernel->params[index].offset;
	if (bytes)
		*bytes = kernel->params[index].bytes;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
	struct function *function;
	CUresult result;

	ENTER();
	result = value ? function_find(handle, &function) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = function_attribute(function, function->module->ptx, attribute, value);
	LEAVE(result);
}

EXPORT CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	struct function *function;
	CUresult result;

	ENTER();
	result = function_find(handle, &function);
	if (!result)
		result = function_set_attribute(function, attribute, value);
	LEAVE(result);
}

EXPORT CUresult cuFuncGetModule(CUmodule *module, CUfunction handle)
{
	struct function *function;

	LEAVE_WITH(module, function_find(handle, &function), (CUmodule)function->module);
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction handle)
{
	struct function *function;

	LEAVE_WITH(name, function_find(handle, &function), function->kernel->name);
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes)
{
	struct function *function;
	CUresult result;

	ENTER();
	result = function_find(handle, &function);
	if (!result)
		result = function_param(function->kernel, index, offset, bytes);
	LEAVE(result);
}

EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
	CUresult result;
	struct function *function;

	ENTER();
	result = state ? function_find(handle, &function) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*state = CU_FUNCTION_LOADING_STATE_LOADED;
	LEAVE(result);
}

EXPORT CUresult cuFuncLoad(CUfunction handle)
{
	struct function *function;

	ENTER();
	LEAVE(function_find(handle, &function));
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	struct function *function;
	CUresult result;

	ENTER();
	result = (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? function_find(handle, &function)
								: CUDA_ERROR_INVALID_VALUE;
	if (!result)
		function->cache_config = config;
	LEAVE(result);
}

/* Shared memory banks are not configurable, as on current GPUs. */
EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
	struct function *function;

	ENTER();
	LEAVE((unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? function_find(handle, &function)
									    : CUDA_ERROR_INVALID_VALUE);
}
