/* Kernel launches: the arguments are checked against the kernel and the GPU as in the real library, and
 * become a launch descriptor followed by the parameters. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/event.h"
#include "soft/cuda/handle.h"
#include "soft/cuda/launch.h"

enum { SMALL_PARAMS_BYTES = 4096, REGISTERS = 65536, STATIC_SHARED_MAX = 48 << 10 };

static uint32_t align_up(uint32_t value)
{
	return (value + SOFT_LAUNCH_ALIGN - 1) / SOFT_LAUNCH_ALIGN * SOFT_LAUNCH_ALIGN;
}

/* ---- checks */

static bool grid_is_possible(const uint32_t grid[3], const uint32_t threads[3])
{
	if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535)
		return false;
	if (!threads[0] || !threads[1] || !threads[2])
		return false;
	return threads[0] <= 1024 && threads[1] <= 1024 && threads[2] <= 64 &&
	       threads[0] * threads[1] * threads[2] <= PTX_THREADS_MAX;
}

/* The GPU allocates registers per warp, in units of 256. */
static uint64_t registers_of(const struct ptx_kernel *kernel, uint32_t threads)
{
	return (uint64_t)((threads + 31) / 32) * (((uint64_t)kernel->register_count * 32 + 255) / 256 * 256);
}

static CUresult check_cooperative(const struct op_kernel *kernel, const struct stream *stream)
{
	uint64_t blocks = (uint64_t)kernel->grid[0] * kernel->grid[1] * kernel->grid[2];
	int threads = (int)(kernel->threads[0] * kernel->threads[1] * kernel->threads[2]), a_sm = 0;
	uint32_t sms = stream->context->gpu->shape.sm_count;
	CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&a_sm, (CUfunction)kernel->function,
								      threads, kernel->dynamic_shared_bytes);

	if (result)
		return result;
	if (stream->sms) {
		sms = 0;
		for (unsigned i = 0; i < SOFT_SMS_MAX / 64; i++)
			sms += (uint32_t)__builtin_popcountll(stream->sms[i]);
	}
	return blocks > (uint64_t)a_sm * sms ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

CUresult launch_check(struct op_kernel *kernel, const struct stream *stream)
{
	const struct ptx_kernel *k = kernel->function->kernel;
	uint32_t *threads = kernel->threads, count;

	if (k->required[0] && threads[0] == CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM && threads[1] == 1 &&
	    threads[2] == 1)
		memcpy(threads, k->required, sizeof(k->required));
	if (!grid_is_possible(kernel->grid, threads))
		return CUDA_ERROR_INVALID_VALUE;
	if (k->required[0] && memcmp(threads, k->required, sizeof(k->required)))
		return CUDA_ERROR_INVALID_VALUE;
	count = threads[0] * threads[1] * threads[2];
	if (count > k->max_threads || registers_of(k, count) > REGISTERS)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	/* Up to 48 KiB in total are always allowed, more only if the attribute of the function permits it. */
	if ((uint64_t)kernel->dynamic_shared_bytes + k->shared_bytes > STATIC_SHARED_MAX &&
	    kernel->dynamic_shared_bytes > kernel->function->max_dynamic_shared_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if ((uint64_t)kernel->dynamic_shared_bytes + k->shared_bytes > PTX_SHARED_MAX_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream && kernel->function->module->context->space != stream->context->space)
		return CUDA_ERROR_INVALID_HANDLE;
	return kernel->is_cooperative && stream ? check_cooperative(kernel, stream) : CUDA_SUCCESS;
}

/* ---- parameters */

static CUresult find_buffer(void **extra, const void **buffer, size_t *bytes)
{
	*buffer = NULL;
	*bytes = 0;
	for (unsigned i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			*buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*bytes = *(size_t *)extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult launch_gather(const struct ptx_kernel *kernel, void **list, void **extra, uint8_t *to)
{
	const void *buffer;
	size_t bytes;
	CUresult result;

	if (list && extra)
		return CUDA_ERROR_INVALID_VALUE;
	memset(to, 0, kernel->param_bytes);
	if (extra) {
		result = find_buffer(extra, &buffer, &bytes);
		if (result || bytes < kernel->param_bytes || (!buffer && bytes))
			return result ? result : CUDA_ERROR_INVALID_VALUE;
		if (kernel->param_bytes)
			memcpy(to, buffer, kernel->param_bytes);
		return CUDA_SUCCESS;
	}
	if (kernel->param_count && !list)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		if (!list[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(to + kernel->params[i].offset, list[i], kernel->params[i].bytes);
	}
	return CUDA_SUCCESS;
}

/* ---- launch */

static CUresult submit(struct stream *stream, const struct op_kernel *kernel)
{
	static uint64_t last_grid;
	uint32_t param_bytes = kernel->function->kernel->param_bytes;
	uint32_t bytes = (uint32_t)sizeof(struct soft_launch) + param_bytes;
	struct soft_launch launch = { .magic = SOFT_LAUNCH_MAGIC,
				      .flags = kernel->is_cooperative ? SOFT_LAUNCH_COOPERATIVE : 0,
				      .code = kernel->function->module->code,
				      .kernel = kernel->function->index,
				      .dynamic_shared_bytes = kernel->dynamic_shared_bytes,
				      .param_bytes = param_bytes };
	size_t stack = stream->context->limits.stack;
	uint64_t address;
	uint8_t *at;
	CUresult result = stream_begin(stream, CHANNEL_LAUNCH_WORDS,
				       align_up(bytes) + (kernel->is_cooperative ? SOFT_LAUNCH_ALIGN : 0));

	if (result)
		return result;
	memcpy(launch.grid, kernel->grid, sizeof(launch.grid));
	memcpy(launch.threads, kernel->threads, sizeof(launch.threads));
	launch.grid_id = ++last_grid;
	launch.stack_bytes = (uint32_t)(stack < PTX_LOCAL_MAX_BYTES ? stack : PTX_LOCAL_MAX_BYTES);
	at = channel_data(stream->channel, bytes, &address);
	if (kernel->is_cooperative) /* the barrier of the grid; any memory works */
		memset(channel_data(stream->channel, SOFT_LAUNCH_ALIGN, &launch.workspace), 0,
		       SOFT_LAUNCH_ALIGN);
	memcpy(at, &launch, sizeof(launch));
	if (param_bytes)
		memcpy(at + sizeof(launch), kernel->params, param_bytes);
	channel_method(stream->channel, SOFT_SUBCHANNEL_COMPUTE, SOFT_COMPUTE_SEND_A,
		       (uint32_t)(address >> 8));
	channel_method(stream->channel, SOFT_SUBCHANNEL_COMPUTE, SOFT_COMPUTE_SEND_B, 1);
	stream_end(stream);
	return CUDA_SUCCESS;
}

/* The kernel of a graph may have been unloaded. */
CUresult op_submit_kernel(struct stream *stream, const struct op_kernel *kernel)
{
	if (handle_kind(kernel->function) != HANDLE_FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	return submit(stream, kernel);
}

static CUresult launch_in(struct stream *stream, struct op *op, void **list, void **extra)
{
	uint32_t param_bytes = op->kernel.function->kernel->param_bytes;
	uint8_t small[SMALL_PARAMS_BYTES], *large = NULL;
	CUresult result = launch_check(&op->kernel, stream);

	if (result)
		return result;
	if (param_bytes > sizeof(small)) {
		large = malloc(param_bytes);
		if (!large)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->kernel.params = large ? large : small;
	result = launch_gather(op->kernel.function->kernel, list, extra, op->kernel.params);
	if (!result)
		result = stream_do(stream, op);
	op->kernel.params = NULL;
	free(large);
	return result;
}

static CUresult launch(CUfunction handle, CUstream stream_handle, struct op *op, void **list, void **extra)
{
	struct stream *stream;
	CUresult result = stream_find(stream_handle, &stream);

	if (!result)
		result = function_find(handle, &op->kernel.function);
	return result ? result : launch_in(stream, op, list, extra);
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
			       unsigned int grid_z, unsigned int threads_x, unsigned int threads_y,
			       unsigned int threads_z, unsigned int shared_bytes, CUstream stream,
			       void **list, void **extra)
{
	struct op op = { .kind = OP_KERNEL,
			 .kernel = { .grid = { grid_x, grid_y, grid_z },
				     .threads = { threads_x, threads_y, threads_z },
				     .dynamic_shared_bytes = shared_bytes } };

	ENTER();
	LEAVE(launch(function, stream, &op, list, extra));
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
					  unsigned int grid_z, unsigned int threads_x, unsigned int threads_y,
					  unsigned int threads_z, unsigned int shared_bytes, CUstream stream,
					  void **list)
{
	struct op op = { .kind = OP_KERNEL,
			 .kernel = { .grid = { grid_x, grid_y, grid_z },
				     .threads = { threads_x, threads_y, threads_z },
				     .dynamic_shared_bytes = shared_bytes,
				     .is_cooperative = true } };

	ENTER();
	LEAVE(launch(function, stream, &op, list, NULL));
}

/* ---- with attributes */

static bool is_one_block(unsigned x, unsigned y, unsigned z)
{
	return x <= 1 && y <= 1 && z <= 1;
}

/* Hints are ignored. Events that could be recorded early are recorded at the end of the launch, which is
 * allowed. */
CUresult launch_attribute(const CUlaunchAttribute *attribute, struct op_kernel *kernel, CUevent *event)
{
	const CUlaunchAttributeValue *value = &attribute->value;

	switch (attribute->id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		kernel->is_cooperative = value->cooperative != 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return is_one_block(value->clusterDim.x, value->clusterDim.y, value->clusterDim.z)
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_INVALID_CLUSTER_SIZE;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		*event = value->programmaticEvent.event;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		*event = value->launchCompletionEvent.event;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		return value->deviceUpdatableKernelNode.deviceUpdatable ? CUDA_ERROR_NOT_SUPPORTED
									: CUDA_SUCCESS;
	default:
		return (unsigned)attribute->id < CU_LAUNCH_ATTRIBUTE_MAX ? CUDA_SUCCESS
									 : CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult launch_with(const CUlaunchConfig *config, CUfunction function, void **list, void **extra)
{
	struct op op = { .kind = OP_KERNEL,
			 .kernel = { .grid = { config->gridDimX, config->gridDimY, config->gridDimZ },
				     .threads = { config->blockDimX, config->blockDimY, config->blockDimZ },
				     .dynamic_shared_bytes = config->sharedMemBytes } };
	CUevent event = NULL;
	CUresult result = CUDA_SUCCESS;

	for (unsigned i = 0; i < config->numAttrs && !result; i++)
		result = launch_attribute(&config->attrs[i], &op.kernel, &event);
	if (!result)
		result = launch(function, config->hStream, &op, list, extra);
	if (!result && event)
		result = event_record(event, config->hStream, 0);
	return result;
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **list, void **extra)
{
	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	LEAVE(launch_with(config, function, list, extra));
}
