/* Modules: PTX in a context, with its variables in memory and its code on the GPU. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/jit.h"
#include "soft/cuda/module.h"

/* The driver reads text and addresses from host memory, which is freed at once. */
static CUresult write_code(struct module *module, uint32_t memory, uint64_t bytes,
			   const struct soft_code_params *params)
{
	struct gpu *gpu = module->context->gpu;
	void *at = NULL;
	CUresult result = port_map(gpu, memory, bytes, &at);

	if (result)
		return result;
	memcpy(at, module->text, module->length);
	if (module->variable_count)
		memcpy((char *)at + params->variables_offset, module->variables,
		       module->variable_count * sizeof(*module->variables));
	port_unmap(gpu, memory, bytes, at);
	return CUDA_SUCCESS;
}

static CUresult load_code(struct module *module)
{
	struct gpu *gpu = module->context->gpu;
	struct soft_code_params params = { .space = module->context->space,
					   .text_bytes = module->length,
					   .variables_offset = (module->length + 7) / 8 * 8,
					   .variable_count = module->variable_count };
	uint64_t bytes = params.variables_offset + module->variable_count * sizeof(*module->variables);
	CUresult result;

	bytes = (bytes + SOFT_PAGE_BYTES - 1) / SOFT_PAGE_BYTES * SOFT_PAGE_BYTES;
	result = port_memory(gpu, bytes, false, &params.memory);
	if (result)
		return result;
	result = write_code(module, params.memory, bytes, &params);
	if (!result)
		result = port_alloc(gpu->device, &module->code, SOFT_CLASS_CODE, &params, sizeof(params));
	port_free(gpu->device, params.memory);
	return result;
}

static uint32_t count_entries(const struct ptx_module *ptx)
{
	const struct ptx_kernel *kernel;
	uint32_t count = 0;

	for (uint32_t i = 0; (kernel = ptx_kernel_at(ptx, i)); i++)
		count += kernel->is_entry;
	return count;
}

static CUresult list_functions(struct module *module)
{
	const struct ptx_kernel *kernel;
	uint32_t count = count_entries(module->ptx);

	if (!count)
		return CUDA_SUCCESS;
	module->functions = calloc(count, sizeof(*module->functions));
	if (!module->functions)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; (kernel = ptx_kernel_at(module->ptx, i)); i++) {
		if (!kernel->is_entry)
			continue;
		function_init(&module->functions[module->function_count], module, kernel, i);
		if (!handle_add(&module->functions[module->function_count++], HANDLE_FUNCTION))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

static CUresult module_fill(struct module *module, struct bf_error *err)
{
	CUresult result = list_functions(module);

	if (!result)
		result = variables_place(module, err);
	if (!result)
		result = load_code(module);
	if (!result && !handle_add(module, HANDLE_MODULE))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	return result;
}

CUresult module_new(struct context *context, struct image *image, struct library *library,
		    struct module **module, struct bf_error *err)
{
	struct module *m = calloc(1, sizeof(*m));
	CUresult result;

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->context = context;
	m->library = library;
	m->text = image->text;
	m->length = image->length;
	m->ptx = image->ptx;
	*image = (struct image){ 0 };
	result = module_fill(m, err);
	m->next = context->modules;
	context->modules = m;
	if (result) {
		module_free(m);
		return result;
	}
	*module = m;
	return CUDA_SUCCESS;
}

void module_free(struct module *module)
{
	struct module **link = &module->context->modules;

	while (*link && *link != module)
		link = &(*link)->next;
	if (*link)
		*link = module->next;
	handle_remove(module);
	for (uint32_t i = 0; i < module->function_count; i++)
		handle_remove(&module->functions[i]);
	if (module->code)
		port_free(module->context->gpu->device, module->code);
	variables_free(module);
	ptx_module_free(module->ptx);
	free(module->functions);
	free(module->text);
	free(module);
}

CUresult module_load(struct context *context, const void *data, size_t length, unsigned option_count,
		     CUjit_option *options, void **values, struct module **module)
{
	struct jit jit = { option_count, options, values };
	struct bf_error err = { 0 };
	struct image image;
	CUresult result = jit_check(&jit);

	if (result)
		return result;
	result = image_load(data, length, &image, &err);
	if (!result)
		result = module_new(context, &image, NULL, module, &err);
	if (!result) /* a part without PTX is not an error if others have PTX */
		err.code = 0;
	jit_report(&jit, NULL, &err);
	image_free(&image);
	return result;
}

CUresult module_find(CUmodule handle, struct module **module)
{
	if (handle_kind(handle) != HANDLE_MODULE)
		return CUDA_ERROR_INVALID_HANDLE;
	*module = (struct module *)handle;
	return CUDA_SUCCESS;
}

struct function *module_function(struct module *module, const char *name)
{
	for (uint32_t i = 0; i < module->function_count; i++)
		if (!strcmp(module->functions[i].kernel->name, name))
			return &module->functions[i];
	return NULL;
}
