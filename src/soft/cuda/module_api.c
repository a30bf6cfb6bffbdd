/* cuModule*. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/jit.h"
#include "soft/cuda/module.h"
#include "soft/cuda/refused.h"

static CUresult load(CUmodule *handle, const void *data, const struct jit *jit)
{
	struct context *context;
	struct module *module;
	CUresult result;

	if (!handle || !data)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_current(&context);
	if (!result)
		result = module_load(context, data, 0, jit->count, jit->options, jit->values, &module);
	if (!result)
		*handle = (CUmodule)module;
	return result;
}

static CUresult load_file(CUmodule *handle, const char *path)
{
	struct bf_error err = { 0 };
	struct context *context;
	struct module *module;
	struct image image = { 0 };
	CUresult result = context_current(&context);

	if (result)
		return result;
	result = image_load_file(path, &image, &err);
	if (!result)
		result = module_new(context, &image, NULL, &module, &err);
	if (result != CUDA_ERROR_FILE_NOT_FOUND)
		refused_tell(path, &err);
	image_free(&image);
	if (!result)
		*handle = (CUmodule)module;
	return result;
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	ENTER();
	if (!module || !path)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	LEAVE(load_file(module, path));
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	const struct jit none = { 0 };

	ENTER();
	LEAVE(load(module, image, &none));
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int option_count,
				   CUjit_option *options, void **values)
{
	const struct jit jit = { option_count, options, values };

	ENTER();
	LEAVE(load(module, image, &jit));
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	const struct jit none = { 0 };

	ENTER();
	LEAVE(load(module, image, &none));
}

/* Wait for launched kernels first; another thread may unload the module meanwhile. */
static CUresult unload(CUmodule handle)
{
	struct module *module;
	CUresult result = module_find(handle, &module);

	if (result)
		return result;
	if (module->library)
		return CUDA_ERROR_NOT_PERMITTED;
	context_synchronize(module->context);
	result = module_find(handle, &module);
	if (!result)
		module_free(module);
	return result;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	ENTER();
	LEAVE(unload(module));
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name)
{
	struct module *module;
	struct function *found;
	CUresult result;

	ENTER();
	if (!function || !name || !*name)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = module_find(handle, &module);
	if (result)
		LEAVE(result);
	found = module_function(module, name);
	if (!found)
		LEAVE(CUDA_ERROR_NOT_FOUND);
	*function = (CUfunction)found;
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
	struct module *module;

	LEAVE_WITH(count, module_find(handle, &module), module->function_count);
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule handle)
{
	struct module *module;
	CUresult result;

	ENTER();
	result = functions && count ? module_find(handle, &module) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	for (unsigned i = 0; i < count && i < module->function_count; i++)
		functions[i] = (CUfunction)&module->functions[i];
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle, const char *name)
{
	struct module *module;
	uint64_t at;
	CUresult result;

	ENTER();
	if (!name || (!address && !bytes))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = module_find(handle, &module);
	if (!result)
		result = variable_find(module, name, &at, bytes);
	if (!result && address)
		*address = at;
	LEAVE(result);
}

/* Libraries are loaded lazily into contexts. */
EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}
