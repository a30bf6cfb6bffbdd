/* The variables of a module: one block of device memory, and one of managed memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "soft/cuda/module.h"

#define BLOCK_MAX_BYTES (1ull << 46)

/* The index of the definition of an extern variable, or -1. */
static int64_t find_definition(const struct ptx_module *ptx, const char *name)
{
	for (uint32_t i = 0; i < ptx_variable_count(ptx); i++) {
		const struct ptx_variable *v = ptx_variable_at(ptx, i);

		if (!v->is_extern && !strcmp(v->name, name))
			return i;
	}
	return -1;
}

/* Assign offsets in place of addresses. Returns the total bytes, or UINT64_MAX. */
static uint64_t lay_out(const struct ptx_module *ptx, bool is_managed, uint64_t *addresses)
{
	const struct ptx_variable *v;
	uint64_t used = 0;

	for (uint32_t i = 0; (v = ptx_variable_at(ptx, i)); i++) {
		uint64_t align = v->align > 16 ? v->align : 16;

		if (v->is_extern || v->is_managed != is_managed)
			continue;
		used = (used + align - 1) / align * align;
		addresses[i] = used;
		if (v->bytes > BLOCK_MAX_BYTES || used > BLOCK_MAX_BYTES - v->bytes)
			return UINT64_MAX;
		used += v->bytes;
	}
	return used;
}

static void move(const struct ptx_module *ptx, bool is_managed, uint64_t base, uint64_t *addresses)
{
	const struct ptx_variable *v;

	for (uint32_t i = 0; (v = ptx_variable_at(ptx, i)); i++)
		if (!v->is_extern && v->is_managed == is_managed)
			addresses[i] += base;
}

static CUresult resolve(struct module *module, struct bf_error *err)
{
	for (uint32_t i = 0; i < module->variable_count; i++) {
		const struct ptx_variable *v = ptx_variable_at(module->ptx, i);
		int64_t definition;

		if (!v->is_extern)
			continue;
		definition = find_definition(module->ptx, v->name);
		if (definition < 0) {
			bf_fail(err, EINVAL, "Unresolved extern variable '%s'", v->name);
			return CUDA_ERROR_INVALID_PTX;
		}
		module->variables[i] = module->variables[definition];
	}
	return CUDA_SUCCESS;
}

/* The initial data of the variable, with the addresses of others filled in; the caller frees it. */
static uint8_t *initial_data(const struct ptx_variable *v, const uint64_t *addresses)
{
	uint8_t *data = malloc(v->data_bytes);

	if (!data)
		return NULL;
	memcpy(data, v->data, v->data_bytes);
	for (uint32_t i = 0; i < v->reloc_count; i++) {
		const struct ptx_reloc *r = &v->relocs[i];
		uint64_t value = (addresses[r->variable] + (uint64_t)r->addend) >> r->shift;

		if (r->bytes <= sizeof(value) && r->offset <= v->data_bytes &&
		    r->bytes <= v->data_bytes - r->offset)
			memcpy(data + r->offset, &value, r->bytes);
	}
	return data;
}

static CUresult fill_device(struct module *module, struct stream *stream)
{
	const struct range *block = module->block;
	/* In lines: the element count has 32 bits. */
	const uint64_t line = 1 << 20, lines = block->bytes / line, rest = block->bytes % line;
	struct op op = { .kind = OP_FILL, .fill = { .dst = block->base, .pitch = line, .element_bytes = 1 } };
	CUresult result = CUDA_SUCCESS;

	op.fill.width = line;
	op.fill.height = lines;
	if (lines)
		result = op_submit(stream, &op);
	op.fill.dst += lines * line;
	op.fill.width = rest;
	op.fill.height = 1;
	if (!result && rest)
		result = op_submit(stream, &op);
	return result;
}

static CUresult copy_to_device(struct stream *stream, uint64_t address, const void *data, uint64_t bytes)
{
	struct op op = { .kind = OP_COPY,
			 .copy = { .src = (uint64_t)(uintptr_t)data,
				   .dst = address,
				   .src_pitch = bytes,
				   .dst_pitch = bytes,
				   .src_slice = bytes,
				   .dst_slice = bytes,
				   .width = bytes,
				   .height = 1,
				   .depth = 1 } };
	CUresult result = op_submit(stream, &op);

	return result ? result : stream_synchronize(stream);
}

static CUresult write_device(struct module *module, struct stream *stream)
{
	CUresult result = fill_device(module, stream);

	for (uint32_t i = 0; i < module->variable_count && !result; i++) {
		const struct ptx_variable *v = ptx_variable_at(module->ptx, i);
		cleanup_free uint8_t *data = NULL;

		if (v->is_extern || v->is_managed || !v->data_bytes)
			continue;
		data = initial_data(v, module->variables);
		if (!data)
			return CUDA_ERROR_OUT_OF_MEMORY;
		result = copy_to_device(stream, module->variables[i], data, v->data_bytes);
	}
	return result ? result : stream_synchronize(stream);
}

/* Uses its own stream: no order with the program's work. */
static CUresult init_device(struct module *module)
{
	struct stream *stream;
	CUresult result = stream_new(module->context, CU_STREAM_NON_BLOCKING, 0, NULL, &stream);

	if (result)
		return result;
	result = write_device(module, stream);
	stream_free(stream);
	return result;
}

static CUresult init_managed(const struct ptx_module *ptx, const struct range *range,
			     const uint64_t *addresses)
{
	const struct ptx_variable *v;

	memset((void *)(uintptr_t)range->base, 0, range->bytes);
	for (uint32_t i = 0; (v = ptx_variable_at(ptx, i)); i++) {
		cleanup_free uint8_t *data = NULL;

		if (v->is_extern || !v->is_managed || !v->data_bytes)
			continue;
		data = initial_data(v, addresses);
		if (!data)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy((void *)(uintptr_t)addresses[i], data, v->data_bytes);
	}
	return CUDA_SUCCESS;
}

/* Managed variables of a library are common to all contexts and outlive them: they belong to none. */
static CUresult new_managed(uint64_t bytes, struct range **range)
{
	struct context nobody = { .gpu = &port.gpus[0] };
	CUresult result = memory_new_host(&nobody, bytes, RANGE_MANAGED, CU_MEM_ATTACH_GLOBAL, range);

	if (!result)
		(*range)->context = NULL;
	return result;
}

CUresult managed_place(const struct ptx_module *ptx, struct range **range, uint64_t *addresses)
{
	uint64_t bytes = lay_out(ptx, true, addresses);
	bool is_new = !*range;
	CUresult result;

	if (!bytes)
		return CUDA_SUCCESS;
	if (bytes == UINT64_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = is_new ? new_managed(bytes, range) : CUDA_SUCCESS;
	if (result)
		return result;
	move(ptx, true, (*range)->base, addresses);
	return is_new ? init_managed(ptx, *range, addresses) : CUDA_SUCCESS;
}

static CUresult place_device(struct module *module)
{
	uint64_t bytes = lay_out(module->ptx, false, module->variables);
	CUresult result;

	if (bytes == UINT64_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!bytes)
		return CUDA_SUCCESS;
	result = memory_new_device(module->context, bytes, &module->block);
	if (!result)
		move(module->ptx, false, module->block->base, module->variables);
	return result;
}

CUresult variables_place(struct module *module, struct bf_error *err)
{
	CUresult result;

	module->variable_count = ptx_variable_count(module->ptx);
	if (!module->variable_count)
		return CUDA_SUCCESS;
	module->variables = calloc(module->variable_count, sizeof(*module->variables));
	if (!module->variables)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = place_device(module);
	if (!result)
		result = managed_place(module->ptx,
				       module->library ? &module->library->managed : &module->managed,
				       module->variables);
	if (!result)
		result = resolve(module, err);
	if (!result && module->block)
		result = init_device(module);
	return result;
}

void variables_free(struct module *module)
{
	if (module->block)
		memory_free_device(module->block);
	if (module->managed)
		memory_free_host(module->managed);
	module->block = module->managed = NULL;
	free(module->variables);
	module->variables = NULL;
}

CUresult variable_find(struct module *module, const char *name, uint64_t *address, size_t *bytes)
{
	int64_t index = find_definition(module->ptx, name);

	if (index < 0)
		return CUDA_ERROR_NOT_FOUND;
	if (address)
		*address = module->variables[index];
	if (bytes)
		*bytes = ptx_variable_at(module->ptx, (uint32_t)index)->bytes;
	return CUDA_SUCCESS;
}
