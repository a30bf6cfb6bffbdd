/* Libraries: code without a context, which becomes a module in each context that uses it. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/jit.h"
#include "soft/cuda/module.h"

static struct library *all_libraries;

static struct context *home_of(struct context *context)
{
	return context->parent ? context->parent : context;
}

static struct module *find_loaded(const struct library *library, const struct context *context)
{
	struct module *module = context->modules;

	while (module && module->library != library)
		module = module->next;
	return module;
}

static void apply_settings(const struct library *library, struct module *module)
{
	for (uint32_t i = 0; i < module->function_count; i++) {
		const struct function *set = &library->kernels[i].settings[module->context->gpu->index];

		module->functions[i].max_dynamic_shared_bytes = set->max_dynamic_shared_bytes;
		module->functions[i].carveout = set->carveout;
		module->functions[i].cache_config = set->cache_config;
	}
}

CUresult library_module(struct library *library, struct context *context, struct module **module)
{
	struct image image;
	struct bf_error err;
	struct module *made, *other;
	CUresult result;

	context = home_of(context);
	*module = find_loaded(library, context);
	if (*module)
		return CUDA_SUCCESS;
	result = image_load(library->image.text, library->image.length, &image, &err);
	if (!result)
		result = module_new(context, &image, library, &made, &err);
	if (result)
		return result;
	/* Loading waits without the lock: another thread may have loaded the same library. */
	for (other = made->next; other && other->library != library; other = other->next)
		;
	if (other)
		module_free(made);
	else
		apply_settings(library, made);
	*module = other ? other : made;
	return CUDA_SUCCESS;
}

CUresult kernel_function(struct kernel *kernel, struct function **function)
{
	struct context *context;
	struct module *module;
	CUresult result = context_current(&context);

	if (!result)
		result = library_module(kernel->library, context, &module);
	if (!result)
		*function = &module->functions[kernel->index];
	return result;
}

CUresult library_find(CUlibrary handle, struct library **library)
{
	if (handle_kind(handle) != HANDLE_LIBRARY)
		return CUDA_ERROR_INVALID_HANDLE;
	*library = (struct library *)handle;
	return CUDA_SUCCESS;
}

CUresult kernel_find(CUkernel handle, struct kernel **kernel)
{
	if (handle_kind(handle) != HANDLE_KERNEL)
		return CUDA_ERROR_INVALID_HANDLE;
	*kernel = (struct kernel *)handle;
	return CUDA_SUCCESS;
}

static void kernel_init(struct kernel *kernel, struct library *library, const struct ptx_kernel *ptx,
			uint32_t index)
{
	*kernel = (struct kernel){ .library = library, .ptx = ptx, .index = index };
	for (unsigned i = 0; i < SOFT_GPUS_MAX; i++)
		function_init(&kernel->settings[i], NULL, ptx, index);
}

static CUresult list_kernels(struct library *library)
{
	const struct ptx_kernel *ptx;
	uint32_t count = 0;

	for (uint32_t i = 0; (ptx = ptx_kernel_at(library->image.ptx, i)); i++)
		count += ptx->is_entry;
	library->kernels = calloc(count ? count : 1, sizeof(*library->kernels));
	if (!library->kernels)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; (ptx = ptx_kernel_at(library->image.ptx, i)); i++) {
		struct kernel *kernel = &library->kernels[library->kernel_count];

		if (!ptx->is_entry)
			continue;
		kernel_init(kernel, library, ptx, library->kernel_count++);
		if (!handle_add(kernel, HANDLE_KERNEL))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return handle_add(library, HANDLE_LIBRARY) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void library_free(struct library *library)
{
	struct library **link = &all_libraries;

	while (*link && *link != library)
		link = &(*link)->next;
	if (*link)
		*link = library->next;
	handle_remove(library);
	for (uint32_t i = 0; i < library->kernel_count; i++)
		handle_remove(&library->kernels[i]);
	if (library->managed)
		memory_free_host(library->managed);
	image_free(&library->image);
	free(library->kernels);
	free(library);
}

CUresult library_new(struct image *image, struct library **library)
{
	struct library *made = calloc(1, sizeof(*made));
	CUresult result;

	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->image = *image;
	*image = (struct image){ 0 };
	made->next = all_libraries;
	all_libraries = made;
	result = list_kernels(made);
	if (result)
		library_free(made);
	else
		*library = made;
	return result;
}

/* Wait for each context that uses the library. The list can change during each wait. */
static void unload_everywhere(struct library *library)
{
	struct context *context = all_contexts;

	while (context) {
		struct module *module = find_loaded(library, context);

		if (!module) {
			context = context->next;
			continue;
		}
		context_synchronize(context);
		module = context_is(context) ? find_loaded(library, context) : NULL;
		if (module)
			module_free(module);
		context = all_contexts;
	}
}

CUresult library_unload(CUlibrary handle)
{
	struct library *library;
	CUresult result = library_find(handle, &library);

	if (result)
		return result;
	handle_remove(library); /* now invalid for all callers */
	unload_everywhere(library);
	library_free(library);
	return CUDA_SUCCESS;
}
