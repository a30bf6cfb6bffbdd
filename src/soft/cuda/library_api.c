/* cuLibrary*. */
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "soft/cuda/jit.h"
#include "soft/cuda/module.h"

static CUresult check_options(const CUlibraryOption *options, unsigned count)
{
	if (count && !options)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++)
		if ((unsigned)options[i] >= CU_LIBRARY_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Load from an image, or from a file if data is NULL. */
static CUresult load(CUlibrary *handle, const void *data, const char *path, const struct jit *jit)
{
	struct bf_error err = { 0 };
	struct image image;
	struct library *library;
	CUresult result = jit_check(jit);

	if (result)
		return result;
	result = data ? image_load(data, 0, &image, &err) : image_load_file(path, &image, &err);
	if (!result)
		err.code = 0;
	jit_report(jit, path, &err);
	if (result)
		return result;
	result = library_new(&image, &library);
	if (!result)
		*handle = (CUlibrary)library;
	return result;
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options, void **values,
				  unsigned int option_count, CUlibraryOption *library_options,
				  void **library_values, unsigned int library_option_count)
{
	const struct jit jit = { option_count, options, values };
	CUresult result;

	(void)library_values;
	ENTER();
	if (!library || !image)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = check_options(library_options, library_option_count);
	LEAVE(result ? result : load(library, image, NULL, &jit));
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options,
				      void **values, unsigned int option_count,
				      CUlibraryOption *library_options, void **library_values,
				      unsigned int library_option_count)
{
	const struct jit jit = { option_count, options, values };
	CUresult result;

	(void)library_values;
	ENTER();
	if (!library || !path)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = check_options(library_options, library_option_count);
	LEAVE(result ? result : load(library, NULL, path, &jit));
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
	ENTER();
	LEAVE(library_unload(library));
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary handle, const char *name)
{
	struct library *library;
	CUresult result;

	ENTER();
	result = kernel && name ? library_find(handle, &library) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	for (uint32_t i = 0; i < library->kernel_count; i++)
		if (!strcmp(library->kernels[i].ptx->name, name)) {
			*kernel = (CUkernel)&library->kernels[i];
			LEAVE(CUDA_SUCCESS);
		}
	LEAVE(CUDA_ERROR_NOT_FOUND);
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
	struct library *library;

	LEAVE_WITH(count, library_find(handle, &library), library->kernel_count);
}

EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary handle)
{
	struct library *library;
	CUresult result;

	ENTER();
	result = kernels ? library_find(handle, &library) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		LEAVE(result);
	for (unsigned i = 0; i < count && i < library->kernel_count; i++)
		kernels[i] = (CUkernel)&library->kernels[i];
	LEAVE(CUDA_SUCCESS);
}

static CUresult module_here(CUlibrary handle, struct module **module)
{
	struct library *library;
	struct context *context;
	CUresult result = library_find(handle, &library);

	if (!result)
		result = context_current(&context);
	return result ? result : library_module(library, context, module);
}

EXPORT CUresult cuLibraryGetModule(CUmodule *handle, CUlibrary library)
{
	struct module *module;

	LEAVE_WITH(handle, module_here(library, &module), (CUmodule)module);
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
	struct module *module;
	uint64_t at;
	CUresult result;

	ENTER();
	if (!name || (!address && !bytes))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = module_here(library, &module);
	if (!result)
		result = variable_find(module, name, &at, bytes);
	if (!result && address)
		*address = at;
	LEAVE(result);
}

/* The address of a managed variable of the library; needs no context. */
static CUresult find_managed(struct library *library, const char *name, uint64_t *address, size_t *bytes)
{
	const struct ptx_module *ptx = library->image.ptx;
	cleanup_free uint64_t *addresses = calloc(ptx_variable_count(ptx) + 1, sizeof(*addresses));
	const struct ptx_variable *v;
	CUresult result;

	if (!addresses)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; (v = ptx_variable_at(ptx, i)); i++) {
		if (!v->is_managed || v->is_extern || strcmp(v->name, name))
			continue;
		result = managed_place(ptx, &library->managed, addresses);
		*address = addresses[i];
		*bytes = v->bytes;
		return result;
	}
	return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary handle, const char *name)
{
	struct library *library;
	uint64_t at;
	size_t length;
	CUresult result;

	ENTER();
	if (!name || (!address && !bytes))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = library_find(handle, &library);
	if (!result)
		result = find_managed(library, name, &at, &length);
	if (result)
		LEAVE(result);
	if (address)
		*address = at;
	if (bytes)
		*bytes = length;
	LEAVE(CUDA_SUCCESS);
}

/* Functions that host and GPU can both call do not exist in PTX. */
EXPORT CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary handle, const char *name)
{
	struct library *library;
	CUresult result;

	ENTER();
	result = function && name ? library_find(handle, &library) : CUDA_ERROR_INVALID_VALUE;
	LEAVE(result ? result : CUDA_ERROR_INVALID_VALUE);
}
