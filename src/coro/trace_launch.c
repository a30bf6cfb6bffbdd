/* Launches: the kernel's name, the shape, and a hash of the parameters. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/own.h"
#include "coro/trace.h"

enum {
	BUCKETS = 1024,
	PARAMETERS_MOST = 4096, /* of a kernel: 32764 bytes in all, by the CUDA programming guide */
	EXTRA_MOST = 16,	/* words of `extra` */
};

struct parameter {
	size_t offset, bytes;
};

/* A kernel or function that the trace has named. */
struct function {
	LIST_ENTRY(function) next;
	const void *handle;
	CUlibrary library; /* of a kernel; NULL: it is a function */
	unsigned name;
	bool has_parameters; /* the driver tells their sizes */
	size_t parameter_count;
	struct parameter *parameters;
};

static struct {
	pthread_mutex_t lock;
	unsigned names;
	LIST_HEAD(, function) buckets[BUCKETS];
} functions = { .lock = PTHREAD_MUTEX_INITIALIZER };

static size_t bucket_of(const void *handle)
{
	return ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 54;
}

static struct function *find(const void *handle)
{
	struct function *function;

	LIST_FOREACH(function, &functions.buckets[bucket_of(handle)], next)
		if (function->handle == handle)
			break;
	return function;
}

static void free_function(struct function *function)
{
	LIST_REMOVE(function, next);
	free(function->parameters);
	free(function);
}

/* All functions, and the kernels of a library: handles of what was unloaded may be used again. */
static void forget(CUlibrary library)
{
	struct function *function, *next;

	pthread_mutex_lock(&functions.lock);
	for (size_t i = 0; i < BUCKETS; i++)
		LIST_FOREACH_SAFE(function, &functions.buckets[i], next, next)
			if (!function->library || function->library == library)
				free_function(function);
	pthread_mutex_unlock(&functions.lock);
}

void trace_functions_forget(void)
{
	forget(NULL);
}

void tracing_cuModuleUnload(CUmodule module)
{
	trace_module_leaving(module);
	forget(NULL);
}

void tracing_cuLibraryUnload(CUlibrary library)
{
	trace_library_leaving(library);
	forget(library);
}

static CUresult parameter_info(const void *handle, bool is_kernel, size_t i, struct parameter *to)
{
	return is_kernel ? real.cuKernelGetParamInfo((CUkernel)handle, i, &to->offset, &to->bytes)
			 : real.cuFuncGetParamInfo((CUfunction)handle, i, &to->offset, &to->bytes);
}

/* CUDA_ERROR_INVALID_VALUE ends the list. Another error: the driver does not have the function. */
static void read_parameters(struct function *function, bool is_kernel)
{
	struct parameter info;
	CUresult result = CUDA_SUCCESS;
	size_t room = 0;

	while (function->parameter_count < PARAMETERS_MOST) {
		result = parameter_info(function->handle, is_kernel, function->parameter_count, &info);
		if (result)
			break;
		if (function->parameter_count == room) {
			void *more = reallocarray(function->parameters, room + 16, sizeof(info));

			if (!more)
				return;
			function->parameters = more;
			room += 16;
		}
		function->parameters[function->parameter_count++] = info;
	}
	function->has_parameters = result == CUDA_ERROR_INVALID_VALUE;
}

static const char *name_of(const void *handle, bool is_kernel)
{
	const char *name = NULL;
	CUresult result = is_kernel ? real.cuKernelGetName(&name, (CUkernel)handle)
				    : real.cuFuncGetName(&name, (CUfunction)handle);

	return result || !name ? "?" : name;
}

/* By the lock. NULL: out of memory. */
static struct function *learn(const void *handle, CUlibrary library)
{
	struct function *function = calloc(1, sizeof(*function));

	if (!function)
		return NULL;
	function->handle = handle;
	function->library = library;
	function->name = functions.names++;
	read_parameters(function, library != NULL);
	LIST_INSERT_HEAD(&functions.buckets[bucket_of(handle)], function, next);
	trace_write("F %x %s\n", function->name, name_of(handle, library != NULL));
	return function;
}

static struct function *find_or_learn(const void *handle, CUlibrary library)
{
	struct function *function = find(handle);

	return function ? function : learn(handle, library);
}

/* A kernel can be launched in the place of a function, but cannot be asked for its name as one. */
static void learn_kernel(CUkernel kernel, CUlibrary library)
{
	pthread_mutex_lock(&functions.lock);
	find_or_learn(kernel, library);
	pthread_mutex_unlock(&functions.lock);
}

void traced_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name,
			       struct trace_place place)
{
	(void)name, (void)place;
	learn_kernel(*kernel, library);
}

void traced_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library,
				      struct trace_place place)
{
	unsigned there = 0;

	(void)place;
	if (real.cuLibraryGetKernelCount(&there, library))
		return;
	for (unsigned i = 0; i < count && i < there; i++)
		learn_kernel(kernels[i], library);
}

/* Addresses are at multiples of eight bytes of a parameter, also in structures. */
static uint64_t hash_parameter(uint64_t hash, const unsigned char *data, size_t bytes)
{
	uint64_t word;
	size_t at = 0;

	for (; at + sizeof(word) <= bytes; at += sizeof(word)) {
		memcpy(&word, data + at, sizeof(word));
		hash = bf_hash_word(hash, trace_normalise(word));
	}
	return bf_hash_bytes(hash, data + at, bytes - at);
}

/* The buffer of parameters that `extra` names. */
static const unsigned char *extra_buffer(void *const *extra, size_t *bytes)
{
	const unsigned char *buffer = NULL;

	*bytes = 0;
	for (size_t i = 0; i < EXTRA_MOST && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			memcpy(bytes, extra[i + 1], sizeof(*bytes));
	}
	return buffer;
}

/* Padding between parameters is left out, if their places are known. */
static void hash_buffer(const struct function *function, void *const *extra, struct trace_shape *shape)
{
	size_t bytes;
	const unsigned char *buffer = extra_buffer(extra, &bytes);

	shape->has_parameters = buffer != NULL;
	if (!buffer)
		return;
	if (!function->has_parameters) {
		shape->parameters = hash_parameter(0, buffer, bytes);
		return;
	}
	for (size_t i = 0; i < function->parameter_count; i++) {
		const struct parameter *p = &function->parameters[i];

		if (p->offset <= bytes && p->bytes <= bytes - p->offset)
			shape->parameters = hash_parameter(shape->parameters, buffer + p->offset, p->bytes);
	}
}

static void hash_parameters(const struct function *function, const struct trace_launch *launch,
			    struct trace_shape *shape)
{
	if (!launch->parameters && launch->extra) {
		hash_buffer(function, launch->extra, shape);
		return;
	}
	shape->has_parameters = function->has_parameters &&
				(launch->parameters || !function->parameter_count);
	for (size_t i = 0; shape->has_parameters && i < function->parameter_count; i++)
		shape->parameters = hash_parameter(shape->parameters, launch->parameters[i],
						   function->parameters[i].bytes);
}

/* Attributes that change what is computed or how. Others name events, or are hints. */
static uint64_t hash_attribute(uint64_t hash, const CUlaunchAttribute *attribute)
{
	switch (attribute->id) {
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
		hash = bf_hash_word(hash, attribute->id);
		return bf_hash_bytes(hash, &attribute->value, sizeof(attribute->value.clusterDim));
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		return attribute->value.cooperative ? bf_hash_word(hash, attribute->id) : hash;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		hash = bf_hash_word(hash, attribute->id);
		return bf_hash_bytes(hash, &attribute->value, sizeof(int));
	default:
		return hash;
	}
}

static uint64_t hash_attributes(const struct trace_launch *launch)
{
	uint64_t hash = launch->is_cooperative ? bf_hash_word(0, CU_LAUNCH_ATTRIBUTE_COOPERATIVE) : 0;

	for (unsigned i = 0; i < launch->attribute_count; i++)
		hash = hash_attribute(hash, &launch->attributes[i]);
	return hash;
}

struct trace_shape trace_shape(const struct trace_launch *launch)
{
	const void *handle = launch->kernel ? (const void *)launch->kernel : (const void *)launch->function;
	struct trace_shape shape = { .shared_bytes = launch->shared_bytes,
				     .attributes = hash_attributes(launch) };
	CUlibrary library = NULL;
	struct function *function;

	if (launch->kernel && real.cuKernelGetLibrary(&library, launch->kernel))
		handle = launch->function;
	memcpy(shape.grid, launch->grid, sizeof(shape.grid));
	memcpy(shape.block, launch->block, sizeof(shape.block));
	pthread_mutex_lock(&functions.lock);
	function = find_or_learn(handle, library);
	if (function) {
		shape.name = function->name;
		hash_parameters(function, launch, &shape);
	}
	pthread_mutex_unlock(&functions.lock);
	return shape;
}

const char *trace_shape_text(const struct trace_shape *shape, char text[TRACE_SHAPE_TEXT])
{
	int used = snprintf(text, TRACE_SHAPE_TEXT, "%x,%x,%x %x,%x,%x %x %llx ", shape->grid[0],
			    shape->grid[1], shape->grid[2], shape->block[0], shape->block[1], shape->block[2],
			    shape->shared_bytes, (unsigned long long)shape->attributes);

	if (shape->has_parameters)
		snprintf(text + used, TRACE_SHAPE_TEXT - (size_t)used, "%llx",
			 (unsigned long long)shape->parameters);
	else
		snprintf(text + used, TRACE_SHAPE_TEXT - (size_t)used, "-");
	return text;
}

/* What is captured is launched with its graph. */
void trace_launched(const struct trace_launch *launch, struct trace_place place)
{
	char text[TRACE_SHAPE_TEXT];
	struct trace_event event;
	struct trace_shape shape;

	if (trace_is_captured(&place))
		return;
	event = trace_event(&place);
	shape = trace_shape(launch);
	trace_write("L %llx %x %llx %x %s\n", (unsigned long long)event.number, (unsigned)event.thread,
		    (unsigned long long)event.stream, shape.name, trace_shape_text(&shape, text));
}
